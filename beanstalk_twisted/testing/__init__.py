"""The test double of docs/testing.md: the real server, of which nothing is imitated, on a clock
that stands still; in one process for code on Twisted, or on a port for any other client.
"""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.testing.double import Beanstalk
    from beanstalk_twisted.testing.sockets import BeanstalkServer
else:
    __getattr__ = lazily(__name__, {
        "double": "Beanstalk",
        "sockets": "BeanstalkServer",
    })  # fmt: skip

__all__ = ["Beanstalk", "BeanstalkServer"]
