"""
A job as it stands in a log, apart from the log: what tools hand from one log to another.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.replay import Replay
from beanstalk_twisted.binlog.survey import Survey

NS: Final = 1_000_000_000


class StoredJob(NamedTuple):
    """
    All that a log says of a job.

    :ivar created_ns: when it was put.
    :ivar deadline_ns: ready 0; delayed, when it becomes ready; buried, when it was buried, which
        orders the buried jobs of a tube; reserved, when its TTR ends.
    :ivar body: without its CR LF.
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

    def image(self, tube_id: int) -> JobImage:
        """
        The record that states this job in another log.
        """
        return JobImage(
            Kind.COPY, self.state, Reason.IMPORT, self.priority, self.job_id, self.created_ns,
            self.deadline_ns, self.delay_s, self.ttr_s, tube_id, self.reserves, self.timeouts,
            self.releases, self.buries, self.kicks, 0, self.body,
        )  # fmt: skip

    @classmethod
    def of(cls, image: JobImage, tube: bytes) -> "StoredJob":
        """
        :param image: a full one.
        """
        return cls(
            image.job_id, tube, image.state, image.priority, image.delay_s, image.ttr_s,
            image.ts_ns, image.deadline_ns, image.body, image.reserves, image.timeouts,
            image.releases, image.buries, image.kicks,
        )  # fmt: skip


class StoredPause(NamedTuple):
    """
    A tube that hands out no job until ``until_ns``.

    :ivar seconds: the length that was asked for.
    """

    tube: bytes
    seconds: int
    until_ns: int


def loaded_jobs(survey: Survey, now_ns: int) -> Iterator[StoredJob]:
    """
    The jobs that a server would load, ascending by id; reserved ones are ready again.

    :param now_ns: log time at which it would.
    :raise Damaged: the log does not say all of them; ``Incompatible``: it is not one of ours.
    """
    survey.refuse_if_unsound()
    replay = Replay(survey)
    tubes = replay.small.tubes
    for found in replay.survivors(now_ns):
        yield StoredJob.of(found.image, tubes[found.image.tube_id])


def loaded_pauses(survey: Survey, now_ns: int) -> Iterator[StoredPause]:
    """
    The pauses that a server would load.
    """
    replay = Replay(survey)
    for pause in replay.pauses(now_ns):
        yield StoredPause(replay.small.tubes[pause.tube_id], pause.seconds, pause.until_ns)
