"""Records of what is no job: tubes, keys that outlive their jobs, counters, and the log itself."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from beanstalk_twisted.binlog.records.jobs import KEY, Data, Flag, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.segments.format import RECORD
from beanstalk_twisted.binlog.tags import BATCH_KEYS, EXTENSIONS, BadTags, Tags, split_tags


@dataclass(frozen=True, slots=True)
class _NotOfAJob:
    """:ivar word: what tools call its type."""

    kind: ClassVar[int]
    word: ClassVar[str]

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
        """What goes into the heap."""
        return b""

    @property
    def data_bytes(self) -> int:
        return len(self.data)

    def encode(self, data: Data) -> bytes:
        """:return: the record's 80 bytes."""
        raise NotImplementedError

    def _pack(
        self, data: Data, *, ts_ns: int, reason: int = 0, job_id: int = 0, deadline_ns: int = 0,
        delay_s: int = 0, tube_id: int = 0, aux: int = 0,
    ) -> bytes:  # fmt: skip
        return RECORD.pack(
            self.kind, 0, 0, reason, 0, job_id, ts_ns, deadline_ns, delay_s, 0, tube_id,
            0, 0, 0, 0, 0, *data, aux,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TubeDef(_NotOfAJob):
    """``tube_id`` means the tube called ``name``."""

    kind: ClassVar[int] = 32
    word: ClassVar[str] = "tube-def"
    tube_id: int
    name: bytes
    ts_ns: int = 0

    @property
    def data(self) -> bytes:
        return self.name

    def encode(self, data: Data) -> bytes:
        return self._pack(data, tube_id=self.tube_id, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class Pause(_NotOfAJob):
    """The tube hands out no job until ``until_ns``; ``seconds`` 0 ends a pause."""

    kind: ClassVar[int] = 33
    word: ClassVar[str] = "pause"
    tube_id: int
    seconds: int
    until_ns: int
    ts_ns: int
    reason: Reason = Reason.CLIENT

    @property
    def commits(self) -> bool:
        """Replies wait for a pause, but not when a tube is merely forgotten."""
        return self.reason is Reason.CLIENT

    def encode(self, data: Data) -> bytes:
        return self._pack(
            data, reason=self.reason, tube_id=self.tube_id, ts_ns=self.ts_ns,
            delay_s=self.seconds, deadline_ns=self.until_ns,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RememberedKey(_NotOfAJob):
    """The KEY record: the unique key of a deleted job of the tube is remembered until then, or that
    of a batch.

    :ivar job_id: of that job, or an id of the key itself.
    :ivar jobs: how many jobs the batch has, whose ids follow this one; 0: it is no batch's.
    """

    kind: ClassVar[int] = KEY
    word: ClassVar[str] = "key"
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

    @property
    def data(self) -> bytes:
        return self.key

    def encode(self, data: Data) -> bytes:
        return self._pack(
            data, tube_id=self.tube_id, job_id=self.job_id, deadline_ns=self.until_ns,
            ts_ns=self.ts_ns, aux=self.jobs,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TubePolicy(_NotOfAJob):
    """The POLICY record: the tube's policy as commands have set it; no ``rules``, no policy."""

    kind: ClassVar[int] = 35
    word: ClassVar[str] = "policy"
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

    @property
    def data(self) -> bytes:
        return json.dumps(dict(self.rules), separators=(",", ":")).encode()

    def encode(self, data: Data) -> bytes:
        return self._pack(data, tube_id=self.tube_id, ts_ns=self.ts_ns, reason=self.reason)


@dataclass(frozen=True, slots=True)
class Counters(_NotOfAJob):
    """The STATE record: counters of the server (tube_id 0) or of a tube, for readers of the log."""

    kind: ClassVar[int] = 40
    word: ClassVar[str] = "state"
    tube_id: int
    ts_ns: int
    counts: Mapping[str, int]

    @property
    def data(self) -> bytes:
        return json.dumps(dict(self.counts), separators=(",", ":")).encode()

    def encode(self, data: Data) -> bytes:
        return self._pack(data, tube_id=self.tube_id, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class Trim(_NotOfAJob):
    """Segments below ``seq`` are dead."""

    kind: ClassVar[int] = 48
    word: ClassVar[str] = "trim"
    seq: int
    ts_ns: int

    @property
    def commits(self) -> bool:
        """Nothing may be deleted before it is durable."""
        return True

    def encode(self, data: Data) -> bytes:
        return self._pack(data, job_id=self.seq, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class Seal(_NotOfAJob):
    """The last record of a finished segment; ``contents`` is its sparse index, or empty."""

    kind: ClassVar[int] = 49
    word: ClassVar[str] = "seal"
    ts_ns: int
    contents: bytes

    @property
    def data(self) -> bytes:
        return self.contents

    def encode(self, data: Data) -> bytes:
        return self._pack(data, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class Start(_NotOfAJob):
    """A server has started; ``wall_offset_ns`` is wall clock minus ``ts_ns``."""

    kind: ClassVar[int] = 51
    word: ClassVar[str] = "start"
    ts_ns: int
    next_job_id: int
    next_tube_id: int
    wall_offset_ns: int

    def encode(self, data: Data) -> bytes:
        return self._pack(
            data, ts_ns=self.ts_ns, job_id=self.next_job_id, aux=self.next_tube_id,
            deadline_ns=self.wall_offset_ns,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CleanStop(_NotOfAJob):
    """A server has ended in order: all before this is durable."""

    kind: ClassVar[int] = 52
    word: ClassVar[str] = "clean-stop"
    ts_ns: int

    def encode(self, data: Data) -> bytes:
        return self._pack(data, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class ClockStep(_NotOfAJob):
    """The wall clock was set; ``wall_offset_ns`` is wall clock minus ``ts_ns`` from here on."""

    kind: ClassVar[int] = 53
    word: ClassVar[str] = "clock-step"
    ts_ns: int
    wall_offset_ns: int

    def encode(self, data: Data) -> bytes:
        return self._pack(data, ts_ns=self.ts_ns, deadline_ns=self.wall_offset_ns)


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
Raw: TypeAlias = tuple[int, ...]
"""A record's 20 fields, as `format.RECORD` unpacks them."""

# Positions in a Raw tuple, in the order of docs/binlog-format.md, "Record".
TYPE, STATE, FLAGS, REASON, PRIORITY, JOB_ID, TS_NS, DEADLINE_NS = range(8)
DELAY_S, TTR_S, TUBE_ID, RESERVES, TIMEOUTS, RELEASES, BURIES, KICKS = range(8, 16)
DATA_OFF, DATA_LEN, DATA_CRC, AUX = range(16, 20)

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
    try:
        decode = _DECODERS[raw[TYPE]]
    except KeyError:
        if raw[TYPE] & 0x80:
            return Unknown(raw[TYPE])
        raise UnknownRecord(f"record type {raw[TYPE]} is unknown") from None
    return decode(raw, data)


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


def _reason(number: int) -> Reason:
    return _REASONS.get(number, _NO_REASON)


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


OTHERS: Final[Mapping[type[_NotOfAJob], Callable[[Raw, bytes], Record]]] = {
    TubeDef: lambda raw, data: TubeDef(raw[TUBE_ID], data, raw[TS_NS]),
    Pause: lambda raw, data: Pause(
        raw[TUBE_ID], raw[DELAY_S], raw[DEADLINE_NS], raw[TS_NS], _reason(raw[REASON])
    ),
    RememberedKey: lambda raw, data: RememberedKey(
        raw[TUBE_ID], data, raw[JOB_ID], raw[DEADLINE_NS], raw[TS_NS], raw[AUX]
    ),
    TubePolicy: lambda raw, data: TubePolicy(
        raw[TUBE_ID], _json_object(data, "rules"), raw[TS_NS], _reason(raw[REASON])
    ),
    Counters: lambda raw, data: Counters(raw[TUBE_ID], raw[TS_NS], _json_object(data, "counters")),
    Trim: lambda raw, data: Trim(raw[JOB_ID], raw[TS_NS]),
    Seal: lambda raw, data: Seal(raw[TS_NS], data),
    Start: lambda raw, data: Start(raw[TS_NS], raw[JOB_ID], raw[AUX], raw[DEADLINE_NS]),
    CleanStop: lambda raw, data: CleanStop(raw[TS_NS]),
    ClockStep: lambda raw, data: ClockStep(raw[TS_NS], raw[DEADLINE_NS]),
}
"""How records that are of no job are decoded; other tables of them are made of this one."""

_DECODERS: Final = {each.kind: decode for each, decode in OTHERS.items()}

WITH_DATA: Final = frozenset(each.kind for each in OTHERS if each.data is not _NotOfAJob.data)
"""The types of records that are of no job and have data."""
