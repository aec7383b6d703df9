"""Records of what is no job: tubes, keys that outlive their jobs, counters, and the log itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from beanstalk_twisted.binlog.records.jobs import KEY, Data, Flag, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.segments.format import RECORD
from beanstalk_twisted.binlog.tags import BATCH_KEYS, EXTENSIONS, BadTags, Tags, split_tags

Raw: TypeAlias = tuple[int, ...]
"""A record's 20 fields, as `format.RECORD` unpacks them."""

# Positions in a Raw tuple, in the order of docs/binlog-format.md, "Record".
TYPE, STATE, FLAGS, REASON, PRIORITY, JOB_ID, TS_NS, DEADLINE_NS = range(8)
DELAY_S, TTR_S, TUBE_ID, RESERVES, TIMEOUTS, RELEASES, BURIES, KICKS = range(8, 16)
DATA_OFF, DATA_LEN, DATA_CRC, AUX = range(16, 20)

HEAP: Final = 20
"""In `_NotOfAJob.places`: a field that is the record's data."""


@dataclass(frozen=True, slots=True)
class _NotOfAJob:
    """:ivar word: what tools call its type.
    :ivar places: where its fields stand in a record, in their order.
    """

    kind: ClassVar[int]
    word: ClassVar[str]
    places: ClassVar[tuple[int, ...]] = ()

    @property
    def features(self) -> int:
        """The incompat bits of a segment that may hold it."""
        return 0

    @property
    def commits(self) -> bool:
        """Whether replies wait for this record."""
        return False

    @property
    def data(self) -> bytes:
        """What goes into the heap; of values with names, their JSON."""
        if HEAP not in self.places:
            return b""
        value = getattr(self, [*self.__slots__][self.places.index(HEAP)])
        if isinstance(value, bytes):
            return value
        return json.dumps(dict(value), separators=(",", ":")).encode()

    @property
    def data_bytes(self) -> int:
        return len(self.data)

    def encode(self, data: Data) -> bytes:
        """:return: the record's 80 bytes."""
        raw = [0] * DATA_OFF + [*data, 0]
        raw[TYPE] = self.kind
        names: Any = self.__slots__
        for name, place in zip(names, self.places, strict=True):
            if place != HEAP:
                raw[place] = getattr(self, name)
        return RECORD.pack(*raw)


@dataclass(frozen=True, slots=True)
class TubeDef(_NotOfAJob):
    """``tube_id`` means the tube called ``name``."""

    kind: ClassVar[int] = 32
    word: ClassVar[str] = "tube-def"
    places: ClassVar[tuple[int, ...]] = (TUBE_ID, HEAP, TS_NS)
    tube_id: int
    name: bytes
    ts_ns: int = 0


@dataclass(frozen=True, slots=True)
class Pause(_NotOfAJob):
    """The tube hands out no job until ``until_ns``; ``seconds`` 0 ends a pause."""

    kind: ClassVar[int] = 33
    word: ClassVar[str] = "pause"
    places: ClassVar[tuple[int, ...]] = (TUBE_ID, DELAY_S, DEADLINE_NS, TS_NS, REASON)
    tube_id: int
    seconds: int
    until_ns: int
    ts_ns: int
    reason: Reason = Reason.CLIENT

    @property
    def commits(self) -> bool:
        """Replies wait for a pause, but not when a tube is merely forgotten."""
        return self.reason is Reason.CLIENT


@dataclass(frozen=True, slots=True)
class RememberedKey(_NotOfAJob):
    """The KEY record: the unique key of a deleted job of the tube is remembered until then, or that
    of a batch.

    :ivar job_id: of that job, or an id of the key itself.
    :ivar jobs: how many jobs the batch has, whose ids follow this one; 0: it is no batch's.
    """

    kind: ClassVar[int] = KEY
    word: ClassVar[str] = "key"
    places: ClassVar[tuple[int, ...]] = (TUBE_ID, HEAP, JOB_ID, DEADLINE_NS, TS_NS, AUX)
    tube_id: int
    key: bytes
    job_id: int
    until_ns: int
    ts_ns: int
    jobs: int = 0

    @property
    def features(self) -> int:
        return EXTENSIONS | BATCH_KEYS if self.jobs else EXTENSIONS

    @property
    def ids(self) -> range:
        """Of the jobs that were put with it."""
        first = self.job_id + 1 if self.jobs else self.job_id
        return range(first, first + max(1, self.jobs))

    @property
    def commits(self) -> bool:
        """It stands with the DELETE that replies wait for; compaction's copies wait too."""
        return True


@dataclass(frozen=True, slots=True)
class TubePolicy(_NotOfAJob):
    """The POLICY record: the tube's policy as commands have set it; no ``rules``, no policy."""

    kind: ClassVar[int] = 35
    word: ClassVar[str] = "policy"
    places: ClassVar[tuple[int, ...]] = (TUBE_ID, HEAP, TS_NS, REASON)
    tube_id: int
    rules: Mapping[str, str]
    ts_ns: int
    reason: Reason = Reason.CLIENT

    @property
    def features(self) -> int:
        return EXTENSIONS

    @property
    def commits(self) -> bool:
        """Replies wait for a policy, but not where one is stated again."""
        return self.reason is Reason.CLIENT


@dataclass(frozen=True, slots=True)
class Counters(_NotOfAJob):
    """The STATE record: counters of the server (tube_id 0) or of a tube, for readers of the log."""

    kind: ClassVar[int] = 40
    word: ClassVar[str] = "state"
    places: ClassVar[tuple[int, ...]] = (TUBE_ID, TS_NS, HEAP)
    tube_id: int
    ts_ns: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Trim(_NotOfAJob):
    """Segments below ``seq`` are dead."""

    kind: ClassVar[int] = 48
    word: ClassVar[str] = "trim"
    places: ClassVar[tuple[int, ...]] = (JOB_ID, TS_NS)
    seq: int
    ts_ns: int

    @property
    def commits(self) -> bool:
        """Nothing may be deleted before it is durable."""
        return True


@dataclass(frozen=True, slots=True)
class Seal(_NotOfAJob):
    """The last record of a finished segment; ``contents`` is its sparse index, or empty."""

    kind: ClassVar[int] = 49
    word: ClassVar[str] = "seal"
    places: ClassVar[tuple[int, ...]] = (TS_NS, HEAP)
    ts_ns: int
    contents: bytes


@dataclass(frozen=True, slots=True)
class Start(_NotOfAJob):
    """A server has started; ``wall_offset_ns`` is wall clock minus ``ts_ns``."""

    kind: ClassVar[int] = 51
    word: ClassVar[str] = "start"
    places: ClassVar[tuple[int, ...]] = (TS_NS, JOB_ID, AUX, DEADLINE_NS)
    ts_ns: int
    next_job_id: int
    next_tube_id: int
    wall_offset_ns: int


@dataclass(frozen=True, slots=True)
class CleanStop(_NotOfAJob):
    """A server has ended in order: all before this is durable."""

    kind: ClassVar[int] = 52
    word: ClassVar[str] = "clean-stop"
    places: ClassVar[tuple[int, ...]] = (TS_NS,)
    ts_ns: int


@dataclass(frozen=True, slots=True)
class ClockStep(_NotOfAJob):
    """The wall clock was set; ``wall_offset_ns`` is wall clock minus ``ts_ns`` from here on."""

    kind: ClassVar[int] = 53
    word: ClassVar[str] = "clock-step"
    places: ClassVar[tuple[int, ...]] = (TS_NS, DEADLINE_NS)
    ts_ns: int
    wall_offset_ns: int


@dataclass(frozen=True, slots=True)
class Unknown(_NotOfAJob):
    """A record of a newer version that may be skipped: bit 7 of its type is set."""

    type: int

    def encode(self, data: Data) -> bytes:
        """:raise ValueError: always; what we do not understand we do not write."""
        raise ValueError(f"a record of unknown type {self.type} cannot be written")


Record: TypeAlias = (
    JobImage
    | TubeDef
    | Pause
    | RememberedKey
    | TubePolicy
    | Counters
    | Trim
    | Seal
    | Start
    | CleanStop
    | ClockStep
    | Unknown
)

JOB_KINDS: Final = {int(kind): kind for kind in Kind}
"""The types of records of jobs."""

_EXT: Final = int(Flag.EXT)
_NO_REASON: Final = Reason.NONE
_STATES: Final = {int(state): state for state in State}
_REASONS: Final = {int(reason): reason for reason in Reason}


class NotUnderstood(ValueError):
    """A record whose checksums hold, yet whose meaning this version does not know."""


class UnknownRecord(NotUnderstood):
    """A record of a type that only another version knows."""


def decode_record(raw: Raw, data: bytes) -> Record:
    """:raise NotUnderstood: type, state or data are not of this version."""
    if raw[TYPE] in JOB_KINDS:
        return decode_job(raw, data)
    kind = _OF_KIND.get(raw[TYPE])
    if kind is None:
        if raw[TYPE] & 0x80:
            return Unknown(raw[TYPE])
        raise UnknownRecord(f"record type {raw[TYPE]} is unknown")
    fields: list[Any] = [*raw, data]
    fields[REASON] = _REASONS.get(raw[REASON], _NO_REASON)
    if kind in _JSON:
        fields[HEAP] = _json_object(data, _JSON[kind])
    made: Record = kind(*[fields[place] for place in kind.places])
    return made


def decode_job(raw: Raw, data: bytes) -> JobImage:
    """Decode a record whose type is in `JOB_KINDS`.

    :raise NotUnderstood: state or data are not of this version.
    """
    state = _STATES.get(raw[STATE])
    if state is None:
        raise NotUnderstood(f"job state {raw[STATE]} is unknown")
    tags, body = _split(data) if raw[FLAGS] & _EXT else (None, data)
    reason = _REASONS.get(raw[REASON], _NO_REASON)
    # From the priority to the kicks, a record and an image have the same fields in the same order.
    fields = (JOB_KINDS[raw[TYPE]], state, reason, *raw[4:16], raw[AUX], body, tags)
    return tuple.__new__(JobImage, fields)


def _split(data: bytes) -> tuple[Tags | None, bytes]:
    try:
        return split_tags(data)
    except BadTags as problem:
        raise NotUnderstood(str(problem)) from None


def _json_object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise NotUnderstood(f"{what} are not JSON") from None
    if not isinstance(found, dict):
        raise NotUnderstood(f"{what} are not a JSON object")
    return found


OTHERS: Final[tuple[type[Any], ...]] = (
    TubeDef, Pause, RememberedKey, TubePolicy, Counters, Trim, Seal, Start, CleanStop, ClockStep,
)  # fmt: skip
"""The records that are of no job."""

_OF_KIND: Final = {each.kind: each for each in OTHERS}

_JSON: Final = {TubePolicy: "rules", Counters: "counters"}
"""Those whose data are a JSON object, and what errors call it."""

WITH_DATA: Final = frozenset(each.kind for each in OTHERS if HEAP in each.places)
"""The types of records that are of no job and have data."""
