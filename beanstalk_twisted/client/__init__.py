"""The client.  `service.Client` keeps a connection up; `connection.connect` makes one that is not;
`pool.Pool` splits tubes over several servers.
"""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.client.commands.specs import BatchDeleted as BatchDeleted
    from beanstalk_twisted.client.commands.specs import Inserted as Inserted
    from beanstalk_twisted.client.commands.specs import Job as Job
    from beanstalk_twisted.client.commands.specs import JobPage as JobPage
    from beanstalk_twisted.client.commands.tags import NewJob as NewJob
    from beanstalk_twisted.client.commands.tags import Tags as Tags
    from beanstalk_twisted.client.commands.tags import hashed_key as hashed_key
    from beanstalk_twisted.client.connection import Connection as Connection
    from beanstalk_twisted.client.connection import connect as connect
    from beanstalk_twisted.client.endpoints import SERVER_LOG as SERVER_LOG
    from beanstalk_twisted.client.endpoints import Backoff as Backoff
    from beanstalk_twisted.client.errors import ClientError as ClientError
    from beanstalk_twisted.client.errors import ErrorReply as ErrorReply
    from beanstalk_twisted.client.pool.connections import Misplaced as Misplaced
    from beanstalk_twisted.client.pool.connections import PoolJob as PoolJob
    from beanstalk_twisted.client.pool.connections import PoolStats as PoolStats
    from beanstalk_twisted.client.pool.pool import Pool as Pool
    from beanstalk_twisted.client.pool.pool import Server as Server
    from beanstalk_twisted.client.service import Client as Client
    from beanstalk_twisted.client.service import Losses as Losses
    from beanstalk_twisted.client.stats import ConnectionStats as ConnectionStats
    from beanstalk_twisted.client.stats import GroupStats as GroupStats
    from beanstalk_twisted.client.stats import JobStats as JobStats
    from beanstalk_twisted.client.stats import ListedJob as ListedJob
    from beanstalk_twisted.client.stats import ReplicationStats as ReplicationStats
    from beanstalk_twisted.client.stats import ServerStats as ServerStats
    from beanstalk_twisted.client.stats import TubePolicy as TubePolicy
    from beanstalk_twisted.client.stats import TubeStats as TubeStats
else:
    __getattr__ = lazily(__name__, {
        "endpoints": "Backoff SERVER_LOG",
        "service": "Client Losses",
        "connection": "Connection connect",
        "commands.specs": "BatchDeleted Inserted Job JobPage",
        "stats": "ConnectionStats GroupStats JobStats ListedJob ReplicationStats ServerStats "
        "TubePolicy TubeStats",
        "commands.tags": "NewJob Tags hashed_key",
        "errors": "ClientError ErrorReply",
        "pool.pool": "Pool Server",
        "pool.connections": "Misplaced PoolJob PoolStats",
    })  # fmt: skip
