"""
The client.  `service.Client` keeps a connection up; `connection.connect` makes one that is not;
`pool.Pool` splits tubes over several servers.

Layers, each knowing only those before it::

    errors, stats          values
    command_specs     what each row of the command table looks like on the wire, both ways
    command_specs_v1  the same for the first protocol, and what of the other it can say
    tubes       what a connection uses and watches; which tube a command is meant for
    reading     bytes into replies: this one, not yet, cannot be right
    exchange    what was asked, and which reply belongs to what; outbox: bytes in pieces
    ──────── the Twisted line ────────
    methods     one method for each row of the table
    pending, deadline, flow_control     answers, silence and room, each awaited
    addresses, reconnecting     where a server is, when to try again, and what is logged of it
    connection  one connection: order, cancelling, back-pressure
    service     the same over many connections, one after the other
    ──────── several servers: pool/ ────────
    hashing     which server a tube is on (no Twisted in it)
    connections, member     one server: its connections for jobs, and the one for the rest
    reserving, fleet        who is asked for jobs, and when; statistics of all
    pool        the client for all of them

Below the line there is no clock, no socket, no Deferred: bytes and times go in, values come out.
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
