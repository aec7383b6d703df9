"""A client for several servers, over which tubes are split."""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.client.pool.pool import Pool as Pool
    from beanstalk_twisted.client.pool.pool import Server as Server
else:
    __getattr__ = lazily(__name__, {"pool": "Pool Server"})
