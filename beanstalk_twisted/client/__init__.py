"""
The client.  `service.Client` keeps a connection up; `connection.connect` makes one that is not;
`pool.Pool` splits tubes over several servers.

What is below the Twisted line has no clock, no socket and no Deferred: bytes and times go in,
values come out (`command_specs`, `errors`, `exchange`, `outbox`, `reading`, `stats`, `tubes`).
"""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.client.command_specs import Job
    from beanstalk_twisted.client.command_specs_v1 import JobV1
    from beanstalk_twisted.client.connection import Connection, connect
    from beanstalk_twisted.client.errors import ClientError, ErrorReply
    from beanstalk_twisted.client.pool.connections import PoolJob
    from beanstalk_twisted.client.pool.fleet import Misplaced, PoolStats
    from beanstalk_twisted.client.pool.pool import Pool, Server
    from beanstalk_twisted.client.reconnecting import SERVER_LOG, Backoff
    from beanstalk_twisted.client.service import Client, Losses
    from beanstalk_twisted.client.stats import JobStats, ServerStats, TubeStats
else:
    __getattr__ = lazily(__name__, {
        "reconnecting": "Backoff SERVER_LOG",
        "service": "Client Losses",
        "connection": "Connection connect",
        "command_specs": "Job",
        "command_specs_v1": "JobV1",
        "stats": "JobStats ServerStats TubeStats",
        "errors": "ClientError ErrorReply",
        "pool.pool": "Pool Server",
        "pool.connections": "PoolJob",
        "pool.fleet": "Misplaced PoolStats",
    })  # fmt: skip

__all__ = [
    "SERVER_LOG",
    "Backoff",
    "Client",
    "ClientError",
    "Connection",
    "ErrorReply",
    "Job",
    "JobStats",
    "JobV1",
    "Losses",
    "Misplaced",
    "Pool",
    "PoolJob",
    "PoolStats",
    "Server",
    "ServerStats",
    "TubeStats",
    "connect",
]
