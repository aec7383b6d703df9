"""What a queue is like, and what its records say that it should be like.

All that a queue has is the outcome of its records, one after the other.  `History` carries them out
anew, in a few lines of its own, and keeps the state after each.  So what is found after a crash can
be judged whole: it must be exactly the state after the last record that was found.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.records.jobs import (
    FULL,
    WITHHELD_NS,
    BodyPlace,
    JobImage,
    Kind,
    Reason,
    State,
)
from beanstalk_twisted.binlog.records.others import Pause, TubePolicy
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import ID_MASK, LEAST
from beanstalk_twisted.jobs.tube import DEFAULT, Tube
from beanstalk_twisted.rules.workqueue import WorkQueue
from tests.binlog.scribe import read_body


class Broken(BaseException):
    """A promise was broken.  No error of the disk that a server could do something about."""


# What is seen of a queue.

TubeSeen = tuple[int, bytes]
"""A tube's id and name.  `default` always exists; its id is that of its first use after a start."""

DEFAULT_SEEN: Final = (0, DEFAULT)

BURIES: Final = 3
"""Where the number of burials stands in `JobSeen.counts`."""


class JobSeen(NamedTuple):
    """All that a job has.

    :ivar counts: reserves, timeouts, releases, buries, kicks.
    """

    tube: TubeSeen
    state: State
    priority: int
    deadline_ns: int
    delay_s: int
    ttr_s: int
    counts: tuple[int, int, int, int, int]
    created_ns: int
    body: bytes
    tags: Tags | None

    def restarted(self, now_ns: int) -> "JobSeen":
        """The same job in a server that starts at this time: nobody holds it."""
        is_due = self.state is State.DELAYED and self.deadline_ns <= now_ns
        if is_due or self.state is State.RESERVED:
            return self._replace(state=State.READY, deadline_ns=0)
        return self


class PauseSeen(NamedTuple):
    """A tube's pause."""

    seconds: int
    until_ns: int


class Picture(NamedTuple):
    """A queue as it is, or should be.

    :ivar buried: the ids of each tube's buried jobs, in the order of their burial.
    :ivar dead: the ids of each tube's dead letters, by its name, in the order of their death.
    :ivar policies: of tubes that have one, by commands.
    """

    jobs: dict[int, JobSeen]
    pauses: dict[TubeSeen, PauseSeen]
    buried: dict[TubeSeen, list[int]]
    tubes: list[TubeSeen]
    dead: dict[bytes, list[int]]
    policies: dict[TubeSeen, Mapping[str, str]]

    def without_unlogged_waits(self, logged: "Picture") -> "Picture":
        """The same as the log has it: a job that is too old waits to be a dead letter without a
        record that says so, since a restart finds it too old again.
        """
        jobs = dict(self.jobs)
        for job_id, job in self.jobs.items():
            known = logged.jobs.get(job_id)
            if job.deadline_ns == WITHHELD_NS + Reason.EXPIRED and known is not None:
                assert job.state is State.DELAYED and known.state in (State.READY, State.DELAYED)
                jobs[job_id] = job._replace(state=known.state, deadline_ns=known.deadline_ns)
        return self._replace(jobs=jobs)


def tube_seen(tube: Tube) -> TubeSeen:
    return DEFAULT_SEEN if tube.name == DEFAULT else (tube.tube_id, tube.name)


def body_of(job: Job, reader: LogBodyReader | None) -> bytes:
    """A job's body, wherever it is."""
    if job.body is not None:
        return job.body
    assert reader is not None
    return read_body(reader, BodyPlace(job.segment, job.full_lsn), job.job_id)


def picture(queue: WorkQueue, now_ns: int, reader: LogBodyReader | None = None) -> Picture:
    """Look at all of a queue, as if it had been restarted now.

    :param reader: of bodies that are in the log only.
    """
    state = queue.state
    jobs: dict[int, JobSeen] = {}
    graves: dict[TubeSeen, list[tuple[int, int]]] = {}
    names = {tube.tube_id: tube_seen(tube) for tube in state.tubes.in_order}
    for job_id in state.jobs:
        job = state.jobs.look(job_id)
        assert job is not None
        jobs[job_id] = JobSeen(
            names[job.tube_id], job.state, job.priority, job.deadline_ns, job.delay_s, job.ttr_s,
            (job.reserves, job.timeouts, job.releases, job.buries, job.kicks),
            job.created_ns, body_of(job, reader), job.tags,
        ).restarted(now_ns)  # fmt: skip
        if job.state is State.BURIED:
            graves.setdefault(names[job.tube_id], []).append((job.deadline_ns, job_id))
    pauses = {
        tube_seen(tube): PauseSeen(tube.pause_s, tube.pause_until_ns)
        for tube in state.tubes.in_order
        if tube.pause_until_ns > now_ns
    }
    buried = {tube: [job_id for _, job_id in sorted(order)] for tube, order in graves.items()}
    rules = {tube_seen(tube): tube.rules for tube in state.tubes.in_order if tube.rules}
    return Picture(jobs, pauses, buried, list(names.values()), dead_letters(queue, jobs), rules)


def dead_letters(queue: WorkQueue, jobs: Mapping[int, JobSeen]) -> dict[bytes, list[int]]:
    """What the queue takes for dead letters of the tubes that jobs name."""
    found = {}
    for name in {job.tags.dead_from for job in jobs.values() if job.tags is not None} - {b""}:
        letters = queue.state.dead_letters.of(name)
        keys = [] if letters is None else letters.behind(LEAST, len(jobs) + 1)
        found[name] = [key & ID_MASK for key in keys]
    return found


# What should be.


@dataclass(frozen=True, slots=True)
class Moment:
    """The state after a record.

    :ivar buried_at: the LSN of each job's newest burial.
    :ivar highest_id: of all jobs so far.
    :ivar policies: of tubes, by commands.
    """

    jobs: Mapping[int, JobSeen] = field(default_factory=dict)
    pauses: Mapping[TubeSeen, PauseSeen] = field(default_factory=dict)
    buried_at: Mapping[int, int] = field(default_factory=dict)
    highest_id: int = 0
    policies: Mapping[TubeSeen, Mapping[str, str]] = field(default_factory=dict)

    def after(self, lsn: int, image: JobImage, tube: TubeSeen) -> "Moment":
        """The state after one more record of a job.

        :raise Broken: it cannot follow.
        """
        old = self.jobs.get(image.job_id)
        if (old is None) != (image.kind is Kind.PUT):
            raise Broken(f"LSN {lsn}: {image} follows {old}")
        seen = JobSeen(
            tube, image.state, image.priority, image.deadline_ns, image.delay_s, image.ttr_s,
            (image.reserves, image.timeouts, image.releases, image.buries, image.kicks),
            old.created_ns if old else image.ts_ns,
            image.body if old is None or image.kind in FULL else old.body,
            image.tags if old is None or image.kind in FULL else old.tags,
        )  # fmt: skip
        if old is not None and image.kind in FULL and image.ts_ns != old.created_ns:
            raise Broken(f"LSN {lsn}: {image} has another age than {old}")
        if image.kind is Kind.COPY:
            self._check_copy(lsn, image, seen)
        if image.state is State.GONE:
            jobs = {job_id: job for job_id, job in self.jobs.items() if job_id != image.job_id}
        else:
            jobs = {**self.jobs, image.job_id: seen}
        is_burial = old is not None and image.buries > old.counts[BURIES]
        buried_at = {**self.buried_at, image.job_id: lsn} if is_burial else self.buried_at
        highest_id = max(self.highest_id, image.job_id)
        return replace(self, jobs=jobs, buried_at=buried_at, highest_id=highest_id)

    def _check_copy(self, lsn: int, image: JobImage, seen: JobSeen) -> None:
        """A copy says what is so; that a delay has ended since, or that the job is too old, is told
        by the time alone.
        """
        old = self.jobs[image.job_id]
        waits = image.deadline_ns == WITHHELD_NS + Reason.EXPIRED
        if old.state is State.DELAYED and image.state is State.READY:
            old = old._replace(state=State.READY, deadline_ns=0)
        elif waits and old.state in (State.READY, State.DELAYED):
            old = old._replace(state=State.DELAYED, deadline_ns=image.deadline_ns)
        if seen != old:
            raise Broken(f"LSN {lsn}: the copy {image} of {old}")

    def paused(self, record: Pause, tube: TubeSeen) -> "Moment":
        """The state after one more record of a pause."""
        others = {other: pause for other, pause in self.pauses.items() if other != tube}
        if record.seconds:
            others[tube] = PauseSeen(record.seconds, record.until_ns)
        return replace(self, pauses=others)

    def ruled(self, record: TubePolicy, tube: TubeSeen) -> "Moment":
        """The state after one more record of a policy."""
        others = {other: rules for other, rules in self.policies.items() if other != tube}
        if record.rules:
            others[tube] = dict(record.rules)
        return replace(self, policies=others)

    def restarted(self, now_ns: int) -> Picture:
        """What a server should have that starts at this time."""
        jobs = {job_id: job.restarted(now_ns) for job_id, job in self.jobs.items()}
        pauses = {t: pause for t, pause in self.pauses.items() if pause.until_ns > now_ns}
        buried: dict[TubeSeen, list[int]] = {}
        for job_id in sorted(jobs, key=lambda job_id: self.buried_at.get(job_id, 0)):
            if jobs[job_id].state is State.BURIED:
                buried.setdefault(jobs[job_id].tube, []).append(job_id)
        used = (job.tube for job in jobs.values())
        tubes = sorted({DEFAULT_SEEN, *pauses, *self.policies, *used})
        dead: dict[bytes, list[tuple[int, int]]] = {}
        for job_id, job in jobs.items():
            if job.tags is not None and job.tags.dead_from:
                dead.setdefault(job.tags.dead_from, []).append((job.tags.dead_at_ns, job_id))
        letters = {name: [job_id for _, job_id in sorted(order)] for name, order in dead.items()}
        return Picture(jobs, pauses, buried, tubes, letters, dict(self.policies))


class History:
    """Every record that the queue has logged, carried out.

    :ivar last_lsn: of the newest of them.
    """

    def __init__(self) -> None:
        self._lsns = [0]
        self._moments = [Moment()]
        self._expected: dict[tuple[int, int], Picture] = {}

    @property
    def last_lsn(self) -> int:
        """Of the newest record."""
        return self._lsns[-1]

    def appended(self, lsn: int, record: JobImage | Pause | TubePolicy, tube: TubeSeen) -> None:
        """One more."""
        if lsn <= self.last_lsn:
            raise Broken(f"LSN {lsn} is given out behind {self.last_lsn}")
        now = self._moments[-1]
        if isinstance(record, JobImage):
            moment = now.after(lsn, record, tube)
        elif isinstance(record, TubePolicy):
            moment = now.ruled(record, tube)
        else:
            moment = now.paused(record, tube)
        self._lsns.append(lsn)
        self._moments.append(moment)

    def restarts(self, lsn: int, now_ns: int) -> None:
        """A server starts and finds this much; higher LSNs are given out anew."""
        keep = bisect_right(self._lsns, lsn)
        del self._lsns[keep:], self._moments[keep:]
        jobs = {job_id: job.restarted(now_ns) for job_id, job in self._moments[-1].jobs.items()}
        self._moments[-1] = replace(self._moments[-1], jobs=jobs)
        self._expected.clear()

    def moment(self, lsn: int) -> Moment:
        """The state after this record."""
        return self._moments[bisect_right(self._lsns, lsn) - 1]

    def expected(self, lsn: int, now_ns: int) -> Picture:
        """What a server should have that finds this as the last record."""
        key = (bisect_right(self._lsns, lsn), now_ns)
        found = self._expected.get(key)
        if found is None:
            if len(self._expected) > 200:
                self._expected.clear()
            found = self._expected[key] = self.moment(lsn).restarted(now_ns)
        return found


def difference(found: Picture, expected: Picture) -> str:
    """The first thing that is not as it should be."""
    pairs: list[tuple[str, Mapping[Any, Any], Mapping[Any, Any]]] = [
        ("jobs", found.jobs, expected.jobs),
        ("pauses", found.pauses, expected.pauses),
        ("buried jobs of tubes", found.buried, expected.buried),
        ("dead letters of tubes", found.dead, expected.dead),
        ("policies", found.policies, expected.policies),
    ]
    for name, ours, theirs in pairs:
        if lost := theirs.keys() - ours.keys():
            return f"{name} lost: {sorted(lost)}"
        if invented := ours.keys() - theirs.keys():
            return f"{name} that should be gone: {sorted(invented)}"
        for key in ours:
            if ours[key] != theirs[key]:
                return f"{name}, {key!r}: {ours[key]} and not {theirs[key]}"
    return f"tubes: {found.tubes} and not {expected.tubes}"
