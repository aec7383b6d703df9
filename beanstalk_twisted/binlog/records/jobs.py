"""Records of jobs: what can happen to one, and how it is afterwards."""

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from beanstalk_twisted.binlog.segments.format import RECORD
from beanstalk_twisted.binlog.tags import Tags


class Kind(IntEnum):
    PUT = 1
    RESERVE = 2
    RELEASE = 3
    BURY = 4
    KICK = 5
    TOUCH = 6
    DELETE = 7
    TTR_EXPIRED = 8
    DISCONNECT_RELEASE = 9
    MOVE = 10
    UPDATE = 11
    GROUP_ENDED = 12
    COPY = 16


class State(IntEnum):
    """Where a job stands.  beanstalkd's numbers."""

    GONE = 0
    READY = 1
    RESERVED = 2
    BURIED = 3
    DELAYED = 4


class Reason(IntEnum):
    """Who or what caused a record."""

    NONE = 0
    CLIENT = 1
    DISCONNECT = 2
    TTR = 3
    DELAY = 4
    ADMIN = 5
    IMPORT = 6
    RESTART = 7
    DAMAGED = 8
    EXPIRED = 9
    MAX_RESERVES = 10
    RETURNED = 11
    CANCELLED = 12


REASONS: Final = {
    int(Reason.CLIENT): "release",
    int(Reason.DISCONNECT): "disconnect",
    int(Reason.TTR): "ttr",
    int(Reason.EXPIRED): "max-age",
    int(Reason.MAX_RESERVES): "max-reserves",
}
"""Why a job is a dead letter: how it came back the last time, or the policy that says so."""


class BodyPlace(NamedTuple):
    """Where a job's full record is in the log: segment 0 without a log, LSN 0 if not known."""

    segment: int
    lsn: int


class Flag(IntEnum):
    """Bits of a record's flags."""

    EXT = 1
    COPY = 2
    RELAXED = 4


# An attribute of an Enum costs ten times as much as a name: these are for the busiest modules.
READY: Final = State.READY
RESERVED: Final = State.RESERVED
GONE: Final = State.GONE

_EXT: Final = int(Flag.EXT)

RECORD_BYTES: Final = RECORD.size
"""What a record takes, besides its data."""

FULL: Final = frozenset({Kind.PUT, Kind.MOVE, Kind.UPDATE, Kind.COPY})
"""The kinds that carry the body and the tags."""

KEY: Final = 34
"""The type of `RememberedKey`."""

HOMED: Final = FULL | {KEY}
"""The types of records the newest of which the log has to keep, for compaction to write again."""

NEVER_NS: Final = (1 << 63) - 1
"""The deadline of a delayed job that waits for a group, not for a moment."""

WITHHELD_NS: Final = NEVER_NS - 16
"""The deadline of a delayed job that waits to be made a dead letter, for space or for its body, is
this plus the number of its `Reason`: so no deadline from here on is a moment.
"""

WAITED_FOR: Final = frozenset({
    Kind.PUT, Kind.RELEASE, Kind.BURY, Kind.KICK, Kind.DELETE, Kind.MOVE, Kind.UPDATE,
    Kind.GROUP_ENDED,
})  # fmt: skip
"""The kinds that replies wait for."""

RELAXED: Final = frozenset({Kind.RESERVE, Kind.TOUCH, Kind.TTR_EXPIRED, Kind.DISCONNECT_RELEASE})
"""The kinds no reply waits for: losing the last few of them costs counters, never a job."""

FLAGS: Final = {
    kind: (Flag.COPY if kind is Kind.COPY else 0) | (Flag.RELAXED if kind in RELAXED else 0)
    for kind in Kind
}

MAX_COUNTER: Final = (1 << 32) - 1
"""The largest counter of a record; beyond it beanstalkd's begin again with 0, ours stay."""

COUNTERS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")
"""The counters of a job, fields of `JobImage`."""

Data: TypeAlias = tuple[int, int, int]
"""Where a record's data stand in the heap: offset, length, CRC."""

NO_DATA: Final[Data] = (0, 0, 0)


class JobImage(NamedTuple):
    """The whole state of a job after a change.

    :ivar ts_ns: when it happened; in full records, when the job was put.
    :ivar deadline_ns: ready 0, delayed: ready at, or `NEVER_NS`; reserved: TTR ends at, buried:
        buried at.  See `WITHHELD_NS` too.
    :ivar connection: number of the connection that asked, 0 for none.
    :ivar body: without its CR LF; empty unless the kind is a full one.
    :ivar tags: what else it carries, None for nothing; None unless the kind is a full one.
    """

    kind: Kind
    state: State
    reason: Reason
    priority: int
    job_id: int
    ts_ns: int
    deadline_ns: int
    delay_s: int
    ttr_s: int
    tube_id: int
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    connection: int = 0
    body: bytes = b""
    tags: Tags | None = None

    @property
    def data(self) -> bytes:
        """What goes into the heap."""
        return self.body if self.tags is None else self.tags.encode() + self.body

    @property
    def data_bytes(self) -> int:
        tags = self.tags
        return len(self.body) if tags is None else len(self.body) + tags.encoded_bytes

    @property
    def commits(self) -> bool:
        """Whether replies wait for this record."""
        return self.kind in WAITED_FOR

    def encode(self, data: Data) -> bytes:
        # CPython unpacks a plain tuple faster than one with names.
        (kind, state, reason, priority, job_id, ts_ns, deadline_ns, delay_s, ttr_s, tube_id,
         reserves, timeouts, releases, buries, kicks, connection, _, tags) = self[:]  # fmt: skip
        offset, length, crc = data
        flags = FLAGS[kind] if tags is None else FLAGS[kind] | _EXT
        try:
            return RECORD.pack(
                kind, state, flags, reason, priority, job_id, ts_ns, deadline_ns, delay_s,
                ttr_s, tube_id, reserves, timeouts, releases, buries, kicks, offset, length, crc,
                connection,
            )  # fmt: skip
        except struct.error:
            # With counters that a record can hold: an import may bring a job with the largest.
            counts: dict[str, Any] = {at: min(getattr(self, at), MAX_COUNTER) for at in COUNTERS}
            saturated = self._replace(**counts)
            if saturated == self:
                raise
        return saturated.encode(data)


def as_loaded(image: JobImage, now_ns: int) -> JobImage:
    """Return a job as the next server loads it: ready if it was reserved, and its delay no longer
    than it was asked for.
    """
    if image.state is RESERVED:
        return image._replace(state=READY, reason=Reason.RESTART, deadline_ns=0)
    if image.state is State.DELAYED and image.deadline_ns < WITHHELD_NS:
        latest = now_ns + image.delay_s * 1_000_000_000
        return image._replace(deadline_ns=min(image.deadline_ns, latest))
    return image
