"""Statistics of a server, its tubes, jobs and connections, as typed mappings."""

from beanstalk_twisted.wire.stats import CarriedStats as CarriedStats
from beanstalk_twisted.wire.stats import ConnectionStats as ConnectionStats
from beanstalk_twisted.wire.stats import GroupStats as GroupStats
from beanstalk_twisted.wire.stats import JobStats as JobStats
from beanstalk_twisted.wire.stats import ListedJob as ListedJob
from beanstalk_twisted.wire.stats import ReplicationStats as ReplicationStats
from beanstalk_twisted.wire.stats import Scalar as Scalar
from beanstalk_twisted.wire.stats import ServerStats as ServerStats
from beanstalk_twisted.wire.stats import Stats as Stats
from beanstalk_twisted.wire.stats import TimesLeft as TimesLeft
from beanstalk_twisted.wire.stats import TubeStats as TubeStats
from beanstalk_twisted.wire.stats import Value as Value


def environment_of(job_id: int, stats: JobStats) -> dict[str, str]:
    """Say of a reserved job what a command of a shell finds in its environment."""
    facts = {
        "JOB_ID": job_id, "TUBE": stats.tube, "ATTEMPT": stats.reserves, "TTR": stats.ttr,
        "PRIORITY": stats.pri, "JOB_METADATA": stats.get("metadata", ""),
    }  # fmt: skip
    return {f"BEANSTALK_{name}": str(fact) for name, fact in facts.items()}


class TubePolicy(Stats):
    """The answer to `tube-policy`.  A key is there only if it was set, and each one has another,
    ``…-from``, that says by what: ``file`` or ``command``.
    """

    max_reserves: int
    max_reserves_from: str
    dead_letter: str
    dead_letter_from: str
    backoff: str
    backoff_from: str
    max_age: int
    max_age_from: str
    expired: str
    expired_from: str
    max_jobs: int
    max_jobs_from: str
    max_bytes: int
    max_bytes_from: str
    max_job_size: int
    max_job_size_from: str
    max_reserved: int
    max_reserved_from: str
    rate: str
    rate_from: str
