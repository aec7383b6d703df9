"""A log as it was at an earlier moment, which is read as if no more had been written."""

import errno
import shlex
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.files import TO_END
from beanstalk_twisted.binlog.reading.segment import Ending, is_sealed, walk_to_hole
from beanstalk_twisted.binlog.reading.survival import LogState
from beanstalk_twisted.binlog.records.others import NotUnderstood
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    MADE_BY_TOOL,
    REHOMED,
    SEGMENT_HEADER_BYTES,
    U32,
    SegmentHeader,
    parse_segment_name,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from binlog_tools.logs.live_set import END, Point, records_before
from binlog_tools.logs.new_log import Floors
from binlog_tools.logs.quantities import format_time_exactly
from binlog_tools.logs.sources import NoLog, Source

TRIM_SEQ_AT: Final = 48
"""Where in a header its trim_seq stands."""

NOTHING_WRITTEN: Final = "nothing was written"

READS_BOTH: Final = "'binlog-inspect restore' reads both at once"


class PastSource(Source):
    """A `Source` that ends at a point of another one: the segments that were needed then, and of
    the last one the frames up to it.

    :ivar floors: what the other one has given out, behind the point too: a log that is made of this
        one begins above it.
    :ivar now_ns: the time that was asked for; 0 for an LSN, None for the end of the log.
    """

    def __init__(self, whole: Source, point: Point = END) -> None:
        """:raise OSError: the log has no such point, or lacks a segment that it takes.
        :raise BinlogError: a segment that it takes is damaged, or of another version.
        """
        self._whole = whole
        self._headers: dict[int, SegmentHeader] = {}
        self._files_at = whole.segment_names()
        if not self._files_at:
            raise NoLog(whole.path)
        is_end = point == END
        super().__init__(whole, is_archive=is_end and whole.is_archive)
        self.floors = self._floors()
        last = max(self._files_at) if is_end else self._last(point)
        first = self._first(last, is_end)
        self._refuse_gaps(first, last)
        self._needed = [self._files_at[seq] for seq in range(first, last + 1)]
        self._cut = None if is_end else self._cut_off(last, point)
        self.now_ns = None if is_end else 0 if point.time_ns == END.time_ns else point.time_ns

    def names(self, keeps_deleted: bool = False) -> list[str]:
        return list(self._needed)

    def path_of(self, name: str) -> str:
        return self._whole.path_of(name)

    def size(self, name: str) -> int:
        is_cut = self._cut is not None and name == self._needed[-1]
        return len(self._cut or b"") if is_cut else self._whole.size(name)

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        if self._cut is not None and name == self._needed[-1]:
            return self._cut[start:end]
        return self._whole.read(name, start, end)

    def forget_before(self, seq: int) -> None:
        self._whole.forget_before(seq)

    def _header(self, seq: int) -> SegmentHeader:
        if seq in self._headers:
            return self._headers[seq]
        name = self._files_at[seq]
        header = self._whole.header(name)
        if not isinstance(header, SegmentHeader):
            raise self._refused(name, header.why)
        self._headers[seq] = header
        return header

    def _refused(self, name: str, why: str) -> Damaged:
        command = shlex.join(["binlog-inspect", "check", *self.path.split(" and ")])
        return Damaged(f"{self.path}: {name}: {why}; {NOTHING_WRITTEN}. Run: {command}")

    def _last(self, point: Point) -> int:
        if point.lsn != END.lsn and point.lsn > self.floors.last_lsn:
            raise self._outside(
                f"it ends with LSN {self.floors.last_lsn}, before LSN {point.lsn}",
                f"For its end leave --as-of out; if a time was meant: --as-of @{point.lsn}",
            )
        seqs = list(self._files_at)
        low, high = 0, len(seqs)
        while low < high:
            middle = (low + high) // 2
            if self._begins_before(seqs[middle], point):
                low = middle + 1
            else:
                high = middle
        # A segment whose frames have all moved on has no record.
        while low and not self._has_record(seqs[low - 1]):
            low -= 1
        if not low:
            header = self._header(seqs[0])
            began = format_time_exactly(header.created_ns)
            raise self._outside(
                f"it begins with LSN {header.first_lsn}, in a segment of {began}, and that is "
                f"later", f"Name the archive too, or a later moment; {READS_BOTH}",
            )  # fmt: skip
        return seqs[low - 1]

    def _outside(self, what: str, advice: str) -> OSError:
        return OSError(errno.EINVAL, f"{what}; {NOTHING_WRITTEN}. {advice}", self.path)

    def _begins_before(self, seq: int, point: Point) -> bool:
        """Return True if its first record lies before a point: LSNs and times only grow."""
        header = self._header(seq)
        if header.first_lsn > point.lsn:
            return False
        frame = self._first_frame(seq, header)
        return (header.created_ns if frame is None else frame.time_ns) <= point.time_ns

    def _has_record(self, seq: int) -> bool:
        if self._first_frame(seq, self._header(seq)) is not None:
            return True
        if (self._end_of(seq) or 0) > SEGMENT_HEADER_BYTES:
            why = f"offset {SEGMENT_HEADER_BYTES}: the header of its first frame is damaged"
            raise self._refused(self._files_at[seq], why)
        return False

    def _first_frame(self, seq: int, header: SegmentHeader) -> Frame | None:
        end = self._end_of(seq)
        if end is not None and end <= SEGMENT_HEADER_BYTES:
            return None
        head = self._whole.read(
            self._files_at[seq], SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES
        )
        frame = frames.decode_header(head, 0, len(head), header.salt)
        return frame if isinstance(frame, Frame) else None

    def _end_of(self, seq: int) -> int | None:
        return self._header(seq + 1).prev_end if seq + 1 in self._files_at else None

    def _first(self, last: int, is_end: bool) -> int:
        header = self._header(last)
        if is_end or not header.flags & REHOMED or last - 1 not in self._files_at:
            return max(1, header.trim_seq)
        return max(1, self._header(last - 1).trim_seq)

    def _refuse_gaps(self, first: int, last: int) -> None:
        missing = [seq for seq in range(first, last) if seq not in self._files_at]
        if missing:
            low = missing[0]
            high = next((seq for seq in range(low, last) if seq + 1 in self._files_at), low)
            which = f"segment {low} is" if low == high else f"segments {low} to {high} are"
            before = self._header(high + 1).first_lsn
            raise self._outside(
                f"{which} missing (LSN {before - 1} and before), and what was alive then may "
                f"stand there",
                "Name the archive and the server's directory, or a moment whose segments are "
                f"there; {READS_BOTH}",
            )

    def _floors(self) -> Floors:
        seq = max(self._files_at)
        header, small = self._header(seq), LogState()
        small.note_header(header)
        next_lsn = header.first_lsn
        buffer = self._whole.read(self._files_at[seq])
        for found in walk_to_hole(buffer, header):
            next_lsn = found.next_lsn
            if isinstance(found, Ending):
                break
            try:
                small.note_frame(buffer, found, seq)
            except NotUnderstood:
                continue
        return Floors(next_lsn - 1, small.next_job_id, small.time_ns)

    def _cut_off(self, seq: int, point: Point) -> bytes:
        name, header = self._files_at[seq], self._header(seq)
        buffer = self._whole.read(name)
        kept, last = [self._header_then(seq, header)], None
        for found in walk_to_hole(buffer, header, self._end_of(seq)):
            if isinstance(found, Ending):
                if found.problem and seq + 1 in self._files_at:
                    raise self._refused(name, f"offset {found.offset}: {found.problem}")
                break
            if found.base_lsn > point.lsn or found.time_ns > point.time_ns:
                break
            count = records_before(found, point)
            if count < found.n_rec:
                kept.append(_shortened(buffer, found, count))
                break
            kept.append(bytes(memoryview(buffer)[found.offset : found.end]))
            last = found
        is_whole = last is not None and is_sealed(buffer, header, last)
        if header.flags & MADE_BY_TOOL and not is_whole:
            raise self._outside(
                f"that lies within {name}, which a tool has written at once",
                "Name a moment behind it, or before it in the log that it was made from",
            )
        return b"".join(kept)

    def _header_then(self, seq: int, header: SegmentHeader) -> bytes:
        raw = bytes(self._whole.read(self._files_at[seq], 0, SEGMENT_HEADER_BYTES))
        if not header.flags & REHOMED:
            return raw
        trim_seq = self._first(seq, is_end=False)
        changed = raw[:TRIM_SEQ_AT] + trim_seq.to_bytes(8, "little") + raw[TRIM_SEQ_AT + 8 : -4]
        return changed + U32.pack(zlib.crc32(changed))


def _shortened(buffer: Buffer, frame: Frame, count: int) -> bytes:
    view = memoryview(buffer)
    records = view[frame.records_at : frame.records_at + count * frame.rec_size]
    heap = view[frame.heap_at : frame.heap_at + frame.heap_len]
    size = FRAME_HEADER_BYTES + len(records) + len(heap)
    fields = list(FRAME_HEADER.unpack_from(buffer, frame.offset))
    fields[1], fields[2] = 0, zlib.crc32(records)
    fields[3], fields[4] = size + -size % 8, count
    fields[6] = min(frame.durable_lsn, frame.base_lsn + count - 1)
    head = FRAME_HEADER.pack(*fields)
    head = head[:8] + U32.pack(zlib.crc32(head[12:])) + head[12:]
    return b"".join([head, records, heap, bytes(-size % 8)])


class UnitedSource(Source):
    """A `Source` of several that have segments of one store.  Of a segment that two have, the
    archived file is read, or another if that is damaged.

    :ivar passed_over: damaged files in the place of which others were read, in words.
    :raise OSError: two have another segment of the same number; or one cannot be read.
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        self._parts = sorted(parts, key=lambda part: not part.is_archive)
        self._parts_with: dict[str, list[Source]] = {}
        self._chosen: dict[str, Source] = {}
        self._judged: set[str] = set()
        self.passed_over: list[str] = []
        super().__init__(parts[0], is_partial=True)
        self.path = " and ".join(part.path for part in parts)
        newest = max(self.names(), key=lambda name: parse_segment_name(name) or 0)
        self._compare_headers()
        self.is_archive = self._part(newest).is_archive

    def names(self, keeps_deleted: bool = False) -> list[str]:
        self._parts_with = {}
        # Archives last: a segment that a server deletes before it is listed is in its archive then.
        for part in reversed(self._parts):
            for name in part.segment_names(keeps_deleted).values():
                self._parts_with.setdefault(name, []).insert(0, part)
        return sorted(self._parts_with)

    def _compare_headers(self) -> None:
        for name, parts in self._parts_with.items():
            if len(parts) == 1:
                continue
            headers = [(part, part.header(name)) for part in parts]
            sound = [each for each in headers if isinstance(each[1], SegmentHeader)]
            for part, header in sound[1:]:
                if header != sound[0][1]:
                    raise OSError(
                        errno.EINVAL,
                        f"{name} is another one in {sound[0][0].path}: a log that was started from "
                        f"an old copy writes another history; nothing was written. Name one of "
                        f"them",
                        part.path,
                    )
            if sound:
                self._chosen[name] = sound[0][0]

    def _judge(self, name: str) -> None:
        """Choose the first file of a segment that is not damaged; the first of them if all are."""
        parts = self._parts_with.get(name, [])
        if len(parts) == 1 or name in self._judged:
            return
        self._judged.add(name)
        flaws: list[str] = []
        for part in parts:
            flaw = self._flaw(part, name)
            if not flaw:
                self._chosen[name] = part
                instead = f"read from {part.path_of(name)} instead"
                self.passed_over += [f"{flaw}; {instead}" for flaw in flaws]
                return
            flaws.append(f"{part.path_of(name)}: {flaw}")

    def _flaw(self, part: Source, name: str) -> str:
        try:
            header = part.header(name)
            if not isinstance(header, SegmentHeader):
                return header.why
            following = segment_name(header.seq + 1)
            after = self.header(following) if following in self._parts_with else None
            end = after.prev_end if isinstance(after, SegmentHeader) else None
            return _flaw_in(part.read(name), header, end)
        except OSError as problem:
            return problem.strerror or str(problem)

    def path_of(self, name: str) -> str:
        return self._part(name).path_of(name)

    def size(self, name: str) -> int:
        return self._part(name).size(name)

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        if end > SEGMENT_HEADER_BYTES:
            self._judge(name)
        return self._part(name).read(name, start, end)

    def forget_before(self, seq: int) -> None:
        for part in self._parts:
            part.forget_before(seq)

    def _part(self, name: str) -> Source:
        parts = self._parts_with.get(name)
        if not parts:
            raise NoLog(self.path, f"{name} is gone")
        chosen = self._chosen.get(name, parts[0])
        return chosen if chosen in parts else parts[0]


def _flaw_in(buffer: Buffer, header: SegmentHeader, end: int | None) -> str:
    for found in walk_to_hole(buffer, header, end):
        if isinstance(found, Ending):
            return found.problem and f"offset {found.offset}: {found.problem}"
        if not frames.has_sound_heap(buffer, found):
            return f"offset {found.offset}: the checksum of its bodies is wrong"
    return ""


def united(sources: Iterable[Source]) -> Source:
    """The one log that these are parts of.  Of an archive with several stores, the one counts whose
    directory is named too.

    :raise OSError: they are of several stores, or one cannot be read; `NoLog`, there is none.
    """
    parts: dict[bytes, list[Source]] = {}
    owners = set()
    for source in sources:
        store = _store_of(source)
        parts.setdefault(store, []).append(source)
        if not source.is_partial:
            owners.add(store)
    if len(owners) == 1:
        parts = {store: parts[store] for store in owners}
    if len(parts) > 1:
        names = ", ".join(sorted(store.hex() for store in parts))
        first = next(iter(parts.values()))[0]
        why = f"there are {len(parts)} stores here ({names}); name the folder of one"
        raise OSError(errno.EINVAL, why, first.path)
    (found,) = parts.values()
    return found[0] if len(found) == 1 else UnitedSource(found)


def _store_of(source: Source) -> bytes:
    names = source.segment_names()
    if not names:
        raise NoLog(source.path)
    for name in reversed(names.values()):
        header = source.header(name)
        if isinstance(header, SegmentHeader):
            return header.store_uuid
    why = "no header of a segment can be read; nothing was written. See 'binlog-inspect check'"
    raise OSError(errno.EIO, why, source.path)
