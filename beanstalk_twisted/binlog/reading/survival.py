"""The rules for what a log leaves behind: which record of a thing counts, for how long, and what
records that cannot be read may have done (docs/recovery.md).  A start and the tools share them.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.reading.segment import Hole, walk
from beanstalk_twisted.binlog.records.jobs import FULL, Kind
from beanstalk_twisted.binlog.records.others import (
    JOB_KINDS,
    CleanStop,
    Pause,
    Record,
    RememberedKey,
    Seal,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
    decode_record,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from beanstalk_twisted.binlog.segments.seals import decode_seal

NS: Final = 1_000_000_000

HARMLESS: Final = frozenset({Kind.PUT, Kind.COPY})
"""Types of records that do not change a job that was there before."""

CHANGES: Final = frozenset(JOB_KINDS) - HARMLESS
REWRITES: Final = FULL - HARMLESS
"""They may give a job another body or other tags."""


class Rule(NamedTuple):
    """How records of one type count that are of no job.

    :ivar about: what a record is about: the newest about one thing counts.
    :ivar in_force: the record as it holds at a time, None if it does not.  The third argument says
        whether a server starts: then it holds no longer from now on than was asked for, whatever
        the clock did meanwhile.
    """

    about: Callable[[Any], Hashable]
    in_force: Callable[[Any, int, bool], Any]


def _policy_in_force(policy: TubePolicy, now_ns: int, is_start: bool) -> TubePolicy | None:
    return policy if policy.rules else None


def _key_in_force(key: RememberedKey, now_ns: int, is_start: bool) -> RememberedKey | None:
    until_ns = key.until_ns
    if is_start:
        until_ns = min(until_ns, now_ns + until_ns - key.ts_ns)
    return replace(key, until_ns=until_ns) if until_ns > now_ns else None


def _pause_in_force(pause: Pause, now_ns: int, is_start: bool) -> Pause | None:
    until_ns = pause.until_ns
    if is_start:
        until_ns = min(until_ns, now_ns + pause.seconds * NS)
    return replace(pause, until_ns=until_ns) if pause.seconds and until_ns > now_ns else None


RULES: Final[Mapping[type[Record], Rule]] = {
    TubePolicy: Rule(attrgetter("tube_id"), _policy_in_force),
    RememberedKey: Rule(attrgetter("tube_id", "key"), _key_in_force),
    Pause: Rule(attrgetter("tube_id"), _pause_in_force),
}
"""Of the records of tubes; `QueueState.apply_other` applies them, at a start and on a standby."""

_KINDS_OF_JOBS: Final = bytes(sorted(JOB_KINDS))


class Found(NamedTuple):
    """A record that counts, and where it is.

    :ivar record: one of the types in `RULES`.
    """

    record: Any
    segment: int
    lsn: int


class LogMarks:
    """What a log says of itself.

    :ivar next_job_id: every lower id has been given out; ``next_tube_id`` likewise.
    :ivar time_ns: newest time in the log, 0 in a new one.
    :ivar trim_seq: segments below are dead.
    :ivar is_clean: the last server ended in order.
    """

    def __init__(self) -> None:
        self.next_job_id = 1
        self.next_tube_id = 1
        self.time_ns = 0
        self.trim_seq = 0
        self.is_clean = True

    def note_header(self, header: SegmentHeader) -> None:
        self.next_job_id = max(self.next_job_id, header.next_job_id)
        self.trim_seq = max(self.trim_seq, header.trim_seq)

    def note_job(self, job_id: int) -> None:
        """Take in a record of a job; of several together the highest id."""
        self.is_clean = False
        self.next_job_id = max(self.next_job_id, job_id + 1)

    def note(self, record: Record, segment: int, lsn: int) -> None:
        """Take in a record that is of no job."""
        self.is_clean = isinstance(record, CleanStop) or (
            self.is_clean and isinstance(record, Seal)
        )
        if isinstance(record, TubeDef):
            self.next_tube_id = max(self.next_tube_id, record.tube_id + 1)
        elif isinstance(record, Trim):
            self.trim_seq = max(self.trim_seq, record.seq)
        elif isinstance(record, Start):
            self.next_job_id = max(self.next_job_id, record.next_job_id)
            self.next_tube_id = max(self.next_tube_id, record.next_tube_id)


class LogState(LogMarks):
    """All that a log says besides its jobs.

    :ivar newest: the records that count, by type and what they are about.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.tubes: dict[int, bytes] = {}
        self.newest: dict[type[Record], dict[Hashable, Found]] = {each: {} for each in RULES}

    def update(self, newer: "LogState") -> None:
        """Take in what the next segment says."""
        self.next_job_id = max(self.next_job_id, newer.next_job_id)
        self.next_tube_id = max(self.next_tube_id, newer.next_tube_id)
        self.time_ns = max(self.time_ns, newer.time_ns)
        self.trim_seq = max(self.trim_seq, newer.trim_seq)
        self.is_clean = newer.is_clean and newer.records > 0
        self.records += newer.records
        self.tubes.update(newer.tubes)
        for kind, found in newer.newest.items():
            self.newest[kind].update(found)

    def note_frame(self, buffer: Buffer, frame: Frame, segment: int) -> None:
        """:raise NotUnderstood: it holds what this version does not know."""
        self.time_ns = max(self.time_ns, frame.time_ns)
        self.records += frame.n_rec
        job_ids = frames.ids_if_all(buffer, frame, _KINDS_OF_JOBS)
        kinds: list[tuple[int, int]] = []
        if not job_ids:
            kinds = list(frames.kinds_and_ids(buffer, frame))
            job_ids = [job_id for kind, job_id in kinds if kind in JOB_KINDS]
        if job_ids:
            self.note_job(max(job_ids))
        if len(job_ids) < len(kinds):
            # The last record says how it ends.
            for at, (kind, _) in enumerate(kinds):
                if kind in JOB_KINDS:
                    self.is_clean = False
                else:
                    record = decode_record(*frames.whole_record(buffer, frame, at))
                    self.note(record, segment, frame.base_lsn + at)

    def note(self, record: Record, segment: int, lsn: int) -> None:
        super().note(record, segment, lsn)
        rule = RULES.get(type(record))
        if rule is not None:
            self.newest[type(record)][rule.about(record)] = Found(record, segment, lsn)
        elif isinstance(record, TubeDef):
            self.tubes[record.tube_id] = record.name

    def forget_dead(self) -> None:
        """Leave out what stands in dead segments: what still counts was stated again."""
        for kind, found in self.newest.items():
            alive = {key: each for key, each in found.items() if each.segment >= self.trim_seq}
            self.newest[kind] = alive

    def in_force(
        self, kind: type[Record], now_ns: int, is_start: bool = False
    ) -> Iterator[Found]:  # fmt: skip
        """The records of a type in `RULES` that hold at a time; see `Rule.in_force`."""
        for found in self.newest[kind].values():
            record = RULES[kind].in_force(found.record, now_ns, is_start)
            if record is not None:
                yield found._replace(record=record)


class Why(StrEnum):
    DELETED = "deleted?"
    CHANGED = "changed?"
    OUTDATED = "outdated?"
    UNCONFIRMED = "unconfirmed"
    TUBE = "tube"
    BODY = "body"
    OLDER = "older"
    RECORD = "record"


class Hidden(NamedTuple):
    """LSNs that cannot be read.

    :ivar types: how many records of each type were lost in the segment; None if no seal says so.
    :ivar job_ids: the smallest and the largest job id in the segment, by its seal.
    """

    first_lsn: int
    last_lsn: int
    types: Mapping[int, int] | None = None
    job_ids: tuple[int, int] | None = None

    @property
    def lsns(self) -> tuple[int, int]:
        return self.first_lsn, self.last_lsn

    def may_have(self, kinds: Iterable[int]) -> bool:
        """Return True unless the seal proves that no record of these types is hidden."""
        types = self.types
        return types is None or any(types.get(kind, 0) > 0 for kind in kinds)

    def may_be_of(self, job_id: int) -> bool:
        """Return True unless the seal proves that no record of this job is hidden."""
        return self.job_ids is None or self.job_ids[0] <= job_id <= self.job_ids[1]


class SealedLoss:
    """What a seal counts in its segment, less the records that can be read."""

    def __init__(self, first_lsn: int) -> None:
        self._first_lsn = first_lsn
        self._found: Counter[int] = Counter()
        self._lost: Counter[int] | None = None
        self._job_ids = (0, 0)
        self._seal_lsn = 0

    def add(self, kind: int) -> None:
        self._found[kind] += 1

    def add_seal(self, lsn: int, data: bytes) -> None:
        """Compare with a SEAL.  One that was re-homed from another segment describes that one."""
        seal = decode_seal(data)
        if seal is not None and sum(seal.types.values()) == lsn - self._first_lsn:
            self._lost = Counter(seal.types) - self._found
            self._job_ids, self._seal_lsn = seal.jobs, lsn

    def hidden(self, first_lsn: int, last_lsn: int) -> Hidden:
        """Describe a range; a seal says nothing of what follows it."""
        if self._lost is None or last_lsn > self._seal_lsn:
            return Hidden(first_lsn, last_lsn)
        return Hidden(first_lsn, last_lsn, self._lost, self._job_ids)


def hidden_in(buffer: Buffer, header: SegmentHeader, end: int | None) -> Iterator[Hidden]:
    """Find the ranges within a damaged segment, but for what is missing at its end.

    :param end: where the successor says that the data end; None for the newest segment.
    """
    loss = SealedLoss(header.first_lsn)
    ranges = []
    for piece in walk(buffer, header, end):
        frame = piece.frame if isinstance(piece, Hole) else piece
        if frame is not None and (frame is piece or frames.has_sound_records(buffer, frame)):
            for index, (kind, _) in enumerate(frames.kinds_and_ids(buffer, frame)):
                raw = frames.raw_record(buffer, frame, index) if kind == Seal.kind else None
                if raw is not None and frames.has_data(buffer, frame, raw):
                    loss.add_seal(frame.base_lsn + index, frames.data_of(buffer, frame, raw))
                loss.add(kind)
        elif isinstance(piece, Hole) and piece.next_lsn and piece.next_lsn > piece.first_lsn:
            ranges.append((piece.first_lsn, piece.next_lsn - 1))
    for first_lsn, last_lsn in ranges:
        yield loss.hidden(first_lsn, last_lsn)


class Doubt(NamedTuple):
    """Damage that hidden records may have done to a job.

    :ivar is_outdated: its body and tags may be older than its newest ones.
    :ivar hole: the first and last LSN of the range that is the reason.
    """

    why: Why
    is_outdated: bool
    hole: tuple[int, int]


class HiddenRecords:
    def __init__(self, ranges: Iterable[Hidden]) -> None:
        ordered = sorted(ranges, key=lambda each: each.first_lsn)
        self._deleting = [each for each in ordered if each.may_have((Kind.DELETE,))]
        self._changing = [each for each in ordered if each.may_have(CHANGES)]
        self._rewriting = [each for each in ordered if each.may_have(REWRITES)]
        self._next = _next_of_other_jobs(self._rewriting)

    def doubt(
        self, job_id: int, full_lsn: int, lsn: int, deleted_lsn: int | None = None
    ) -> Doubt | None:
        """Decide what is doubtful of a job; None if nothing is.

        A record has the whole state of its job, except body and tags.  These are in its newest full
        record, and a hidden MOVE or UPDATE behind that may have changed them.

        :param full_lsn: its newest full record that is known, ``lsn`` its newest record.
        :param deleted_lsn: the record that deletes it, None if it is not known to be deleted.
        """
        rewritten = self._rewritten(job_id, full_lsn, deleted_lsn)
        changing = [(self._changing, Why.CHANGED)]
        if deleted_lsn is None:
            changing.insert(0, (self._deleting, Why.DELETED))
        for ranges, why in changing:
            at = _first_behind(ranges, lsn)
            if at < len(ranges) and _is_before(ranges[at], deleted_lsn):
                return Doubt(why, rewritten is not None, ranges[at].lsns)
        return None if rewritten is None else Doubt(Why.OUTDATED, True, rewritten.lsns)

    def _rewritten(self, job_id: int, full_lsn: int, deleted_lsn: int | None) -> Hidden | None:
        at = _first_behind(self._rewriting, full_lsn)
        while at < len(self._rewriting) and _is_before(self._rewriting[at], deleted_lsn):
            if self._rewriting[at].may_be_of(job_id):
                return self._rewriting[at]
            at = self._next[at]
        return None


def _first_behind(ranges: Sequence[Hidden], lsn: int) -> int:
    return bisect_right(ranges, lsn, key=lambda each: each.first_lsn)


def _is_before(each: Hidden, lsn: int | None) -> bool:
    return lsn is None or each.first_lsn < lsn


def _next_of_other_jobs(ranges: Sequence[Hidden]) -> list[int]:
    """For each range, where the next one with other job ids is: those of a segment share theirs."""
    found = list(range(1, len(ranges) + 1))
    for at, (each, following) in reversed(list(enumerate(pairwise(ranges)))):
        if each.job_ids == following.job_ids:
            found[at] = found[at + 1]
    return found
