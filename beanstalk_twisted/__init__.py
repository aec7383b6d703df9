"""A durable work queue that speaks the beanstalkd protocol, on Twisted.

This package imports no other one before it is asked for a name, so that readers of the log (tools,
Spark executors) can import `beanstalk_twisted.binlog` on machines that have no Twisted.
"""

from beanstalk_twisted.exports import lazily

TYPE_CHECKING = False  # ``typing`` takes its time.
if TYPE_CHECKING:
    from beanstalk_twisted.client.pool.pool import Pool as Pool
    from beanstalk_twisted.client.service import Client as Client
else:
    __getattr__ = lazily(__name__, {"client.service": "Client", "client.pool.pool": "Pool"})

__version__ = "0.1.0"
