"""Which records, or jobs, a command is about."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import KEY, Kind, State
from beanstalk_twisted.binlog.records.others import (
    JOB_KINDS,
    CleanStop,
    ClockStep,
    Counters,
    Pause,
    RememberedKey,
    Seal,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.tags import NO_TAGS
from binlog_tools.logs.quantities import ALL_NUMBERS, EARLIEST_NS, LATEST_NS, Numbers, Span
from binlog_tools.logs.stored import StoredJob

TYPE_NAMES: Final[Mapping[int, str]] = {
    **{int(kind): kind.name.lower().replace("_", "-") for kind in Kind},
    TubeDef.kind: "tube-def", Pause.kind: "pause",
    RememberedKey.kind: "key", TubePolicy.kind: "policy",
    Counters.kind: "state", Trim.kind: "trim", Seal.kind: "seal",
    Start.kind: "start", CleanStop.kind: "clean-stop",
    ClockStep.kind: "clock-step",
}  # fmt: skip
"""What the types of records are called by the tools; docs/binlog-format.md has the numbers."""

TYPES_BY_NAME: Final = {name: number for number, name in TYPE_NAMES.items()}
STATE_NAMES: Final = {int(state): state.name.lower() for state in State}
STATES_BY_NAME: Final = {name: State(number) for number, name in STATE_NAMES.items()}

OF_JOBS: Final = frozenset(JOB_KINDS) | {KEY}
"""The types of records that tell of a job, be it one that is gone."""

TAG_WORDS: Final[Mapping[str, str]] = {
    "idp": "unique_key", "con": "concurrency_key", "grp": "group", "aft": "after",
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
        """Whether a job has it."""
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
    """What a type of records is called."""
    return TYPE_NAMES.get(number) or f"type-{number}"


class Selection(NamedTuple):
    """Records; None selects all.  A job's tube and state are those of the record.

    :ivar tags: a job has one of them.
    :ivar is_dead: whether a job is a dead letter.
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
        """Whether single records have to be looked at, and not only the frames they stand in."""
        by = (self.jobs, self.tubes, self.types, self.states)
        return any(each is not None for each in by) or self.lsns != ALL_NUMBERS

    def tube_ids(self, names: Mapping[int, bytes]) -> frozenset[int] | None:
        """The numbers of the tubes, as far as they are known."""
        if self.tubes is None:
            return None
        return frozenset(tube_id for tube_id, name in names.items() if name in self.tubes)

    def has_job(self, job: StoredJob) -> bool:
        """Whether a job is among them; its times and LSNs are not looked at."""
        return (
            (self.jobs is None or job.job_id in self.jobs)
            and (self.tubes is None or job.tube in self.tubes)
            and (self.states is None or job.state in self.states)
            and (self.tags is None or any(tag.is_of(job) for tag in self.tags))
            and (self.is_dead is None or self.is_dead is bool((job.tags or NO_TAGS).dead_from))
        )


def types_named(names: Iterable[str]) -> frozenset[int]:
    """The numbers of types; ``job`` stands for all of jobs.

    :raise KeyError: there is no such type.
    """
    numbers: set[int] = set()
    for name in names:
        numbers |= set(JOB_KINDS) if name == "job" else {TYPES_BY_NAME[name]}
    return frozenset(numbers)
