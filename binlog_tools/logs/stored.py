"""A job as it stands in a log, apart from the log: what tools hand from one log to another."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.records.jobs import WITHHELD_NS, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import RememberedKey, TubePolicy
from beanstalk_twisted.binlog.tags import Tags

NS: Final = 1_000_000_000

LOST_AND_FOUND: Final = b"lost+found"
"""The tube for jobs that no worker should get by accident: their records are doubtful, or the name
of their tube cannot be read.
"""


class StoredJob(NamedTuple):
    """All that a log says of a job.

    :ivar created_ns: when it was put.
    :ivar deadline_ns: ready 0; delayed, when it becomes ready, `WITHHELD_NS` or more for no
        moment; buried, when it was buried, which orders the buried jobs of a tube; reserved, when
        its TTR ends.
    :ivar body: without its CR LF.
    :ivar tags: what else it carries, None for nothing.
    """

    job_id: int
    tube: bytes
    state: State
    priority: int
    delay_s: int
    ttr_s: int
    created_ns: int
    deadline_ns: int
    body: bytes
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    tags: Tags | None = None

    def image(self, tube_id: int) -> JobImage:
        """The record that states this job in another log."""
        return JobImage(
            Kind.COPY, self.state, Reason.IMPORT, self.priority, self.job_id, self.created_ns,
            self.deadline_ns, self.delay_s, self.ttr_s, tube_id, self.reserves, self.timeouts,
            self.releases, self.buries, self.kicks, 0, self.body, self.tags,
        )  # fmt: skip

    @classmethod
    def of(cls, image: JobImage, tube: bytes) -> "StoredJob":
        """:param image: a full one."""
        return cls(
            image.job_id, tube, image.state, image.priority, image.delay_s, image.ttr_s,
            image.ts_ns, image.deadline_ns, image.body, image.reserves, image.timeouts,
            image.releases, image.buries, image.kicks, image.tags,
        )  # fmt: skip


def without_group(job: StoredJob) -> StoredJob:
    """For those who have no groups: a job that waits for no moment is buried, after all that are,
    since it must not be done too early.
    """
    if job.state is State.DELAYED and job.deadline_ns >= WITHHELD_NS:
        return job._replace(state=State.BURIED)
    return job


class StoredPause(NamedTuple):
    """A tube that hands out no job until ``until_ns``.

    :ivar seconds: the length that was asked for.
    """

    tube: bytes
    seconds: int
    until_ns: int


class StoredKey(NamedTuple):
    """A unique key of a deleted job, which is remembered until ``until_ns``.

    :ivar job_id: of the job that had it.
    :ivar since_ns: when it was deleted.
    """

    tube: bytes
    key: bytes
    job_id: int
    since_ns: int
    until_ns: int

    def record(self, tube_id: int) -> RememberedKey:
        """What states it in another log."""
        return RememberedKey(tube_id, self.key, self.job_id, self.until_ns, self.since_ns)

    @classmethod
    def of(cls, record: RememberedKey, tube: bytes) -> "StoredKey":
        """A key apart from its log."""
        return cls(tube, record.key, record.job_id, record.ts_ns, record.until_ns)


class StoredPolicy(NamedTuple):
    """A tube's policy, as commands have set it."""

    tube: bytes
    rules: Mapping[str, str]

    def record(self, tube_id: int, now_ns: int) -> TubePolicy:
        """What states it in another log."""
        return TubePolicy(tube_id, self.rules, now_ns, Reason.IMPORT)


def loaded_jobs(survey: Survey, now_ns: int) -> Iterator[StoredJob]:
    """The jobs that a server would load, ascending by id; reserved ones are ready again.

    :param now_ns: log time at which it would.
    :raise Damaged: the log does not say all of them; ``Incompatible``: it is not one of ours.
    """
    survey.refuse_if_unsound()
    replay = Replay(survey)
    tubes = replay.small.tubes
    for found in replay.survivors(now_ns):
        yield StoredJob.of(found.image, tubes[found.image.tube_id])


def loaded_pauses(survey: Survey, now_ns: int) -> Iterator[StoredPause]:
    """The pauses that a server would load."""
    replay = Replay(survey)
    for pause in replay.pauses(now_ns):
        yield StoredPause(replay.small.tubes[pause.tube_id], pause.seconds, pause.until_ns)


def loaded_keys(survey: Survey, now_ns: int) -> Iterator[StoredKey]:
    """The remembered keys that a server would load."""
    replay = Replay(survey)
    for record, _ in replay.keys(now_ns):
        yield StoredKey.of(record, replay.small.tubes[record.tube_id])


def loaded_policies(survey: Survey) -> Iterator[StoredPolicy]:
    """The policies that a server would load."""
    tubes = survey.small.tubes
    for tube_id, record in sorted(survey.small.policies.items()):
        if record.rules and tube_id in tubes:
            yield StoredPolicy(tubes[tube_id], record.rules)
