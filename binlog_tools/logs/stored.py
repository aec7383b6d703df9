"""Jobs apart from their log, and which of them, or of its records, a command is about."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.reading.survival import RULES, LogState
from beanstalk_twisted.binlog.records.jobs import KEY, WITHHELD_NS, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import (
    JOB_KINDS,
    OTHERS,
    Pause,
    Record,
    RememberedKey,
    TubePolicy,
)
from beanstalk_twisted.binlog.tags import NO_TAGS, Tags
from binlog_tools.logs.quantities import ALL_NUMBERS, EARLIEST_NS, LATEST_NS, Numbers, Span

LOST_AND_FOUND: Final = b"lost+found"
"""The tube for jobs that no worker should get by accident: their records are doubtful, or the name
of their tube cannot be read.
"""


class StoredJob(NamedTuple):
    """All that a log says of a job.

    :ivar deadline_ns: ready 0; delayed, when it becomes ready, `WITHHELD_NS` or more for no
        moment; buried, when it was buried, which orders the buried jobs of a tube; reserved, when
        its TTR ends.
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
    tags: Tags | None = None

    def image(self, tube_id: int) -> JobImage:
        return JobImage(
            Kind.COPY, self.state, Reason.IMPORT, self.priority, self.job_id, self.created_ns,
            self.deadline_ns, self.delay_s, self.ttr_s, tube_id, self.reserves, self.timeouts,
            self.releases, self.buries, self.kicks, 0, self.body, self.tags,
        )  # fmt: skip

    @classmethod
    def of(cls, image: JobImage, tube: bytes) -> "StoredJob":
        return cls(
            image.job_id, tube, image.state, image.priority, image.delay_s, image.ttr_s,
            image.ts_ns, image.deadline_ns, image.body, image.reserves, image.timeouts,
            image.releases, image.buries, image.kicks, image.tags,
        )  # fmt: skip


def without_group(job: StoredJob) -> StoredJob:
    """For beanstalkd: a job that waits for no moment is buried, after all that are, since it must
    not be done too early.
    """
    if job.state is State.DELAYED and job.deadline_ns >= WITHHELD_NS:
        return job._replace(state=State.BURIED)
    return job


class TubeRecord(NamedTuple):
    """What a log says of a tube, apart from that log.

    :ivar record: of a type in `OF_TUBES`; its tube number, time and reason are not set.
    """

    tube: bytes
    record: Any

    def restated(self, tube_id: int, now_ns: int) -> Record:
        said: Record = replace(self.record, tube_id=tube_id, ts_ns=now_ns)
        return said


OF_TUBES: Final = sorted(RULES.keys() - {RememberedKey}, key=attrgetter("kind"))
"""The types of a `TubeRecord`, in the order in which a new log states them; a new log states
remembered keys after its jobs.
"""


def stored_pause(tube: bytes, seconds: int, until_ns: int) -> TubeRecord:
    return TubeRecord(tube, Pause(0, seconds, until_ns, 0, Reason.IMPORT))


def stored_policy(tube: bytes, rules: Mapping[str, str]) -> TubeRecord:
    return TubeRecord(tube, TubePolicy(0, rules, 0, Reason.IMPORT))


class StoredKey(NamedTuple):
    """A unique key of a deleted job, or of a batch, which is remembered until ``until_ns``.

    :ivar job_id: of the job that had it; see `RememberedKey`.
    :ivar since_ns: when the job was deleted, or the batch was put.
    :ivar jobs: how many jobs the batch had; 0: it is no batch's.
    """

    tube: bytes
    key: bytes
    job_id: int
    since_ns: int
    until_ns: int
    jobs: int = 0

    def record(self, tube_id: int) -> RememberedKey:
        return RememberedKey(
            tube_id, self.key, self.job_id, self.until_ns, self.since_ns, self.jobs
        )

    @classmethod
    def of(cls, record: RememberedKey, tube: bytes) -> "StoredKey":
        return cls(tube, record.key, record.job_id, record.ts_ns, record.until_ns, record.jobs)


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


def tube_records(
    said: LogState, now_ns: int, is_start: bool = False, kinds: Iterable[type[Record]] = OF_TUBES
) -> list[TubeRecord]:
    """What is in force of tubes that have a name, by type and then by tube.

    :param is_start: see `Rule.in_force`.
    """
    by_tube = attrgetter("record.tube_id")
    return [
        TubeRecord(
            said.tubes[record.tube_id],
            replace(record, tube_id=0, ts_ns=0, reason=Reason.IMPORT),
        )
        for kind in kinds
        for record, *_ in sorted(said.in_force(kind, now_ns, is_start), key=by_tube)
        if record.tube_id in said.tubes
    ]


def stored_keys(said: LogState, now_ns: int, is_start: bool = False) -> list[StoredKey]:
    keys = (found.record for found in said.in_force(RememberedKey, now_ns, is_start))
    return [StoredKey.of(k, said.tubes[k.tube_id]) for k in keys if k.tube_id in said.tubes]


TYPE_NAMES: Final[Mapping[int, str]] = {
    **{int(kind): kind.name.lower().replace("_", "-") for kind in Kind},
    **{each.kind: each.word for each in OTHERS},
}

TYPES_BY_NAME: Final = {name: number for number, name in TYPE_NAMES.items()}
STATE_NAMES: Final = {int(state): state.name.lower() for state in State}
STATES_BY_NAME: Final = {name: State(number) for number, name in STATE_NAMES.items()}

OF_JOBS: Final = frozenset(JOB_KINDS) | {KEY}
"""Of jobs that are gone, too."""

TAG_WORDS: Final[Mapping[str, str]] = {
    "idp": "unique_key", "con": "concurrency_key", "grp": "group", "aft": "after",
    "meta": "metadata",
}  # fmt: skip
"""The tags that a client gives, by the words of the protocol; what `Tags` calls them."""


class WantedTag(NamedTuple):
    """A tag that a job has.

    :ivar word: one of `TAG_WORDS`.
    :ivar name: its key or group; None for any.
    """

    word: str
    name: bytes | None

    def is_of(self, job: StoredJob) -> bool:
        found: bytes = getattr(job.tags or NO_TAGS, TAG_WORDS[self.word])
        return bool(found) if self.name is None else found == self.name


def parse_tag(text: str) -> WantedTag:
    """``grp:NAME``, or ``grp`` for any.

    :raise ValueError: it is none.
    """
    word, colon, name = text.partition(":")
    if word not in TAG_WORDS or (colon and not name):
        words = ", ".join(TAG_WORDS)
        raise ValueError(f"{text!r} is no tag: one of {words}, alone or as in grp:NAME")
    return WantedTag(word, name.encode("utf-8", "surrogateescape") if colon else None)


def type_name(number: int) -> str:
    return TYPE_NAMES.get(number) or f"type-{number}"


class Selection(NamedTuple):
    """Records; None selects all.  A job's tube and state are those of the record.

    :ivar since_ns: records were logged at this time or later; ``until_ns``, before this one.
    """

    jobs: Numbers | None = None
    tubes: frozenset[bytes] | None = None
    types: frozenset[int] | None = None
    states: frozenset[State] | None = None
    since_ns: int = EARLIEST_NS
    until_ns: int = LATEST_NS
    lsns: Span = ALL_NUMBERS
    tags: frozenset[WantedTag] | None = None
    is_dead: bool | None = None

    @property
    def is_by_record(self) -> bool:
        """Return True if single records have to be looked at, and not only their frames."""
        by = (self.jobs, self.tubes, self.types, self.states)
        return any(each is not None for each in by) or self.lsns != ALL_NUMBERS

    def tube_ids(self, names: Mapping[int, bytes]) -> frozenset[int] | None:
        if self.tubes is None:
            return None
        return frozenset(tube_id for tube_id, name in names.items() if name in self.tubes)

    def has_job(self, job: StoredJob) -> bool:
        """Return True for a job among them; its times and LSNs are not looked at."""
        return (
            (self.jobs is None or job.job_id in self.jobs)
            and (self.tubes is None or job.tube in self.tubes)
            and (self.states is None or job.state in self.states)
            and (self.tags is None or any(tag.is_of(job) for tag in self.tags))
            and (self.is_dead is None or self.is_dead is bool((job.tags or NO_TAGS).dead_from))
        )


def types_named(names: Iterable[str]) -> frozenset[int]:
    """:raise KeyError: there is no such type; ``job`` stands for all of jobs."""
    numbers: set[int] = set()
    for name in names:
        numbers |= set(JOB_KINDS) if name == "job" else {TYPES_BY_NAME[name]}
    return frozenset(numbers)
