"""
The client.  `service.Client` keeps a connection up; `connection.connect` makes one that is not;
`pool.Pool` splits tubes over several servers.

Layers, each knowing only those before it::

    errors, stats, tubes, backoff          values
    forms       what each row of the command table looks like on the wire, both ways
    forms_v1    the same for the first protocol, and what of the other it can say
    usedtube    which tube a command is meant for
    reading     bytes into replies: this one, not yet, cannot be right
    exchange    what was asked, and which reply belongs to what; outbox: bytes in pieces
    ──────── the Twisted line ────────
    methods     one method for each row of the table
    pending, deadline, gate     answers, silence and room, each awaited
    places, presence     where a server is, and whether
    connection  one connection: order, cancelling, back-pressure
    service     the same over many connections, one after the other
    ──────── several servers ────────
    hashing     which server a tube is on (no Twisted in it)
    lanes, link     one server: its connections for jobs, and the one for the rest
    taking, fleet   who is asked for jobs, and when; statistics of all
    pool        the client for all of them

Below the line there is no clock, no socket, no Deferred: bytes and times go in, values come out.
"""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.client.backoff import Backoff
    from beanstalk_twisted.client.command_specs import Job
    from beanstalk_twisted.client.command_specs_v1 import JobV1
    from beanstalk_twisted.client.connection import Connection, connect
    from beanstalk_twisted.client.errors import ClientError, ErrorReply
    from beanstalk_twisted.client.pool.connections import PoolJob
    from beanstalk_twisted.client.pool.fleet import Misplaced, PoolStats
    from beanstalk_twisted.client.pool.pool import Pool, Server
    from beanstalk_twisted.client.presence import SERVER_LOG
    from beanstalk_twisted.client.service import Client, Losses
    from beanstalk_twisted.client.stats import JobStats, ServerStats, TubeStats
else:
    __getattr__ = lazily(__name__, {
        "presence": "SERVER_LOG",
        "service": "Client Losses",
        "connection": "Connection connect",
        "forms": "Job",
        "forms_v1": "JobV1",
        "stats": "JobStats ServerStats TubeStats",
        "backoff": "Backoff",
        "errors": "ClientError ErrorReply",
        "pool": "Pool Server",
        "lanes": "PoolJob",
        "fleet": "Misplaced PoolStats",
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
