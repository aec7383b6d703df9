"""Records of what is no job: tubes, keys that outlive their jobs, counters, and the log itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from beanstalk_twisted.binlog.records.jobs import KEY, Data, Reason
from beanstalk_twisted.binlog.segments.format import RECORD


@dataclass(frozen=True, slots=True)
class _NotOfAJob:
    """What records that are not of jobs have in common."""

    kind: ClassVar[int]

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
        """The length of `data`."""
        return len(self.data)

    def encode(self, data: Data) -> bytes:
        """:return: the record's 80 bytes."""
        raise NotImplementedError

    def _pack(
        self, data: Data, *, ts_ns: int, reason: int = 0, job_id: int = 0, deadline_ns: int = 0,
        delay_s: int = 0, tube_id: int = 0, aux: int = 0,
    ) -> bytes:  # fmt: skip
        """The record's 80 bytes; unused fields are 0."""
        return RECORD.pack(
            self.kind, 0, 0, reason, 0, job_id, ts_ns, deadline_ns, delay_s, 0, tube_id,
            0, 0, 0, 0, 0, *data, aux,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TubeDef(_NotOfAJob):
    """``tube_id`` means the tube called ``name``."""

    kind: ClassVar[int] = 32
    tube_id: int
    name: bytes
    ts_ns: int = 0

    @property
    def data(self) -> bytes:
        """The tube's name."""
        return self.name

    def encode(self, data: Data) -> bytes:
        return self._pack(data, tube_id=self.tube_id, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class Pause(_NotOfAJob):
    """The tube hands out no job until ``until_ns``; ``seconds`` 0 ends a pause."""

    kind: ClassVar[int] = 33
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
    """
    The KEY record: the unique key of a job of the tube that was deleted is remembered until then.
    """

    kind: ClassVar[int] = KEY
    tube_id: int
    key: bytes
    job_id: int
    until_ns: int
    ts_ns: int

    @property
    def commits(self) -> bool:
        """
        It stands with the DELETE that replies wait for; what compaction writes again waits too.
        """
        return True

    @property
    def data(self) -> bytes:
        """The key."""
        return self.key

    def encode(self, data: Data) -> bytes:
        return self._pack(
            data, tube_id=self.tube_id, job_id=self.job_id, deadline_ns=self.until_ns,
            ts_ns=self.ts_ns,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TubePolicy(_NotOfAJob):
    """The POLICY record: the tube's policy as commands have set it; no ``rules``, no policy."""

    kind: ClassVar[int] = 35
    tube_id: int
    rules: Mapping[str, str]
    ts_ns: int
    reason: Reason = Reason.CLIENT

    @property
    def commits(self) -> bool:
        """Replies wait for a policy, but not where one is stated again."""
        return self.reason is Reason.CLIENT

    @property
    def data(self) -> bytes:
        """The rules as JSON."""
        return json.dumps(dict(self.rules), separators=(",", ":")).encode()

    def encode(self, data: Data) -> bytes:
        return self._pack(data, tube_id=self.tube_id, ts_ns=self.ts_ns, reason=self.reason)


@dataclass(frozen=True, slots=True)
class Counters(_NotOfAJob):
    """The STATE record: counters of the server (tube_id 0) or of a tube, for readers of the log."""

    kind: ClassVar[int] = 40
    tube_id: int
    ts_ns: int
    counts: Mapping[str, int]

    @property
    def data(self) -> bytes:
        """The counters as JSON."""
        return json.dumps(dict(self.counts), separators=(",", ":")).encode()

    def encode(self, data: Data) -> bytes:
        return self._pack(data, tube_id=self.tube_id, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class Trim(_NotOfAJob):
    """Segments below ``seq`` are dead."""

    kind: ClassVar[int] = 48
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
    ts_ns: int
    contents: bytes

    @property
    def data(self) -> bytes:
        """The index."""
        return self.contents

    def encode(self, data: Data) -> bytes:
        return self._pack(data, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class Start(_NotOfAJob):
    """
    A server has started.

    :ivar wall_offset_ns: wall clock minus ``ts_ns``.
    """

    kind: ClassVar[int] = 51
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
    ts_ns: int

    def encode(self, data: Data) -> bytes:
        return self._pack(data, ts_ns=self.ts_ns)


@dataclass(frozen=True, slots=True)
class ClockStep(_NotOfAJob):
    """The wall clock was set; ``wall_offset_ns`` is wall clock minus ``ts_ns`` from here on."""

    kind: ClassVar[int] = 53
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
