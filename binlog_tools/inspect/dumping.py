"""The records of a log, one by one."""

import base64
import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.segment import Hole
from beanstalk_twisted.binlog.records.jobs import FULL, KEY, NEVER_NS, Flag, Reason
from beanstalk_twisted.binlog.records.others import (
    DATA_LEN,
    FLAGS,
    JOB_ID,
    JOB_KINDS,
    STATE,
    TUBE_ID,
    TYPE,
    CleanStop,
    ClockStep,
    Counters,
    NotUnderstood,
    Pause,
    Raw,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    RECORD,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from beanstalk_twisted.binlog.tags import NO_TAGS, BadTags, Tags, split_tags
from beanstalk_twisted.printable import escape_all
from binlog_tools.console import wording
from binlog_tools.console.wording import text_of
from binlog_tools.logs import reading
from binlog_tools.logs.quantities import format_time_exactly
from binlog_tools.logs.reading import Bounds, Broken, OpenSegment
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import OF_JOBS, STATE_NAMES, Selection, StoredJob, type_name

REASON_NAMES: Final = {int(reason): reason.name.lower().replace("_", "-") for reason in Reason}


class RawRecord(NamedTuple):
    """A record's fields in their order; see docs/binlog-format.md."""

    type: int
    state: int
    flags: int
    reason: int
    priority: int
    job_id: int
    ts_ns: int
    deadline_ns: int
    delay_s: int
    ttr_s: int
    tube_id: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    data_off: int
    data_len: int
    data_crc: int
    aux: int


class Entry(NamedTuple):
    """A record, and the offset and time of its frame.

    :ivar tube: empty if it has none or nothing says its name.
    :ivar size: of the data, also where nobody asked for them.
    """

    lsn: int
    raw: RawRecord
    tube: bytes
    data: bytes
    segment: str
    offset: int
    time_ns: int
    size: int
    tags: Tags | None = None


class Gap(NamedTuple):
    """A place where there should be records.

    :ivar next_lsn: of the first record behind it, None if none can be read.
    """

    segment: str
    offset: int
    first_lsn: int
    next_lsn: int | None
    why: str

    @classmethod
    def of(cls, segment: OpenSegment | Broken, hole: Hole | None = None) -> "Gap":
        if isinstance(segment, Broken):
            return cls(segment.name, 0, 0, None, segment.problem.why)
        assert hole is not None
        return cls(segment.name, hole.offset, hole.first_lsn, hole.next_lsn, hole.why)

    @classmethod
    def missing(cls, first_seq: int, last_seq: int) -> "Gap":
        which = "the segment is" if first_seq == last_seq else f"segments up to {last_seq} are"
        return cls(segment_name(first_seq), 0, 0, None, f"{which} missing")

    @property
    def place(self) -> str:
        return f"{self.segment}: offset {self.offset}"


class Records:
    def __init__(
        self, selection: Selection, with_data: bool = True, always: frozenset[int] = frozenset()
    ) -> None:
        """:param with_data: whether the data of jobs are asked for.
        :param always: types of records that are chosen whatever the selection says of records.
        """
        self._always = always
        self._selection = selection
        self._with_data = with_data
        self._tubes: dict[int, bytes] = {}
        self._tube_ids = selection.tube_ids({})

    def learn(self, names: Mapping[int, bytes]) -> None:
        self._tubes.update(names)
        self._tube_ids = self._selection.tube_ids(self._tubes)

    def of_frame(self, buffer: Buffer, frame: Frame, segment: str) -> Iterator[Entry]:
        types = memoryview(buffer)[frame.records_at : frame.heap_at : frame.rec_size]
        if TubeDef.kind in bytes(types):
            self.learn(dict(reading.tubes_named(buffer, frame)))
        chosen = self._selection
        if not chosen.since_ns <= frame.time_ns < chosen.until_ns:
            return
        for index, raw in self._chosen(buffer, frame):
            tags, data, size = self._data(buffer, frame, raw)
            yield Entry(
                frame.base_lsn + index, RawRecord(*raw), self._tubes.get(raw[TUBE_ID], b""),
                data, segment, frame.offset, frame.time_ns, size, tags,
            )  # fmt: skip

    def _chosen(self, buffer: Buffer, frame: Frame) -> Iterator[tuple[int, Raw]]:
        everything = enumerate(frames.raw_records(buffer, frame))
        chosen = self._selection
        if not chosen.is_by_record:
            return everything
        jobs, types, states, tube_ids = chosen.jobs, chosen.types, chosen.states, self._tube_ids
        always = self._always
        first, last = (lsn - frame.base_lsn for lsn in chosen.lsns)
        return (
            (index, raw)
            for index, raw in everything
            if raw[TYPE] in always
            or (
                first <= index <= last
                and (types is None or raw[TYPE] in types)
                and (jobs is None or (raw[JOB_ID] in jobs and raw[TYPE] in OF_JOBS))
                and (tube_ids is None or raw[TUBE_ID] in tube_ids)
                and (states is None or (raw[STATE] in states and raw[TYPE] in JOB_KINDS))
            )
        )

    def _data(self, buffer: Buffer, frame: Frame, raw: Raw) -> tuple[Tags | None, bytes, int]:
        is_extended = raw[TYPE] in FULL and raw[FLAGS] & Flag.EXT
        is_wanted = self._with_data or raw[TYPE] not in JOB_KINDS
        if not raw[DATA_LEN] or not (is_wanted or is_extended):
            return None, b"", raw[DATA_LEN]
        try:
            data = frames.data_of(buffer, frame, raw)
        except NotUnderstood:
            return None, b"", raw[DATA_LEN]
        tags, data = split_leniently(data) if is_extended else (None, data)
        return tags, data if is_wanted else b"", len(data)


def split_leniently(data: bytes) -> tuple[Tags | None, bytes]:
    """What the data of a record with extensions say, as far as they can be understood."""
    try:
        return split_tags(data)
    except BadTags:
        return None, data[2 + int.from_bytes(data[:2], "little") :]


def bounds_of(selection: Selection) -> Bounds:
    return Bounds(selection.lsns.first, selection.lsns.last, selection.since_ns)


def entries(
    source: Source, selection: Selection, with_data: bool = True,
    always: frozenset[int] = frozenset(),
) -> Iterator[Entry | Gap]:  # fmt: skip
    """The chosen records, in LSN order, and what cannot be read between them.

    :raise NoLog: there is none; ``OSError``: it cannot be read.
    """
    reader = Records(selection, with_data, always)
    for opened in reading.segments(source, bounds_of(selection)):
        yield from of_segment(opened, reader, selection)


def of_segment(
    opened: OpenSegment | Broken, reader: Records, selection: Selection
) -> Iterator[Entry | Gap]:
    if isinstance(opened, Broken):
        yield Gap.of(opened)
        return
    reader.learn(reading.names_ahead(opened))
    for piece in opened.pieces():
        if isinstance(piece, Hole):
            yield Gap.of(opened, piece)
        elif piece.time_ns >= selection.until_ns or piece.base_lsn > selection.lsns.last:
            return
        else:
            yield from reader.of_frame(opened.buffer, piece, opened.name)


Fields = dict[str, object]

FLAG_NAMES: Final = tuple(
    [flag.name.lower() for flag in Flag if bits & flag and flag.name] for bits in range(256)
)
"""For each combination of bits."""


def reason_name(number: int) -> str:
    return REASON_NAMES.get(number) or str(number)


def state_name(number: int) -> str:
    return STATE_NAMES.get(number) or str(number)


def fields_of(entry: Entry) -> Fields:
    """Describe a record, without its data, by the names of docs/inspect.md."""
    raw = entry.raw
    fields: Fields = {
        "lsn": entry.lsn, "type": type_name(raw.type), "time": format_time_exactly(raw.ts_ns),
        "logged": format_time_exactly(entry.time_ns), "segment": entry.segment,
        "offset": entry.offset, "flags": FLAG_NAMES[raw.flags],
        "reason": reason_name(raw.reason),
    }  # fmt: skip
    fields.update(_job_fields(entry) if raw.type in JOB_KINDS else _other_fields(entry))
    return fields


def _job_fields(entry: Entry) -> Fields:
    raw = entry.raw
    fields: Fields = {
        "job": raw.job_id, "tube": text_of(entry.tube), "tube_id": raw.tube_id,
        "state": state_name(raw.state), "priority": raw.priority, "delay_s": raw.delay_s,
        "ttr_s": raw.ttr_s, "deadline": deadline_of(raw.deadline_ns), "reserves": raw.reserves,
        "timeouts": raw.timeouts, "releases": raw.releases, "buries": raw.buries,
        "kicks": raw.kicks, "connection": raw.aux, "bytes": entry.size,
    }  # fmt: skip
    return fields if entry.tags is None else {**fields, "tags": named_tags(entry.tags)}


def deadline_of(deadline_ns: int) -> str | None:
    """None for none, and for a job that waits for no moment."""
    return format_time_exactly(deadline_ns) if deadline_ns not in (0, NEVER_NS) else None


def named_tags(tags: Tags) -> Fields:
    """Describe what a job carries by the names of docs/inspect.md."""
    fields: Fields = {
        name: text_of(value) if isinstance(value, bytes) else value
        for name, value in tags._asdict().items()
        if value != getattr(NO_TAGS, name) and name not in ("dead_reason", "dead_at_ns")
    }
    if tags.dead_from:
        fields["dead_reason"] = reason_name(tags.dead_reason)
        fields["dead_at"] = format_time_exactly(tags.dead_at_ns)
    return fields


def tags_text(tags: Tags | None) -> str:
    """Describe them in a line of text; empty if the job carries nothing."""
    fields = {} if tags is None else named_tags(tags)
    return " ".join(f"{name}={value}" for name, value in fields.items())


def job_fields(job: StoredJob) -> Fields:
    """Describe a job, without id, tube and body, by the names of docs/inspect.md."""
    return {
        "state": state_name(job.state), "priority": job.priority, "delay_s": job.delay_s,
        "ttr_s": job.ttr_s, "created": format_time_exactly(job.created_ns),
        "deadline": deadline_of(job.deadline_ns), "reserves": job.reserves,
        "timeouts": job.timeouts, "releases": job.releases, "buries": job.buries,
        "kicks": job.kicks,
    }  # fmt: skip


def _other_fields(entry: Entry) -> Fields:
    raw, kind = entry.raw, entry.raw.type
    tube: Fields = {"tube": text_of(entry.tube), "tube_id": raw.tube_id}
    if kind == TubeDef.kind:
        return {**tube, "tube": text_of(entry.data)}
    if kind == Pause.kind:
        return {**tube, "seconds": raw.delay_s, "deadline": deadline_of(raw.deadline_ns)}
    if kind == KEY:
        return {"job": raw.job_id, **tube, "key": text_of(entry.data),
                "deadline": deadline_of(raw.deadline_ns)}  # fmt: skip
    if kind == TubePolicy.kind:
        return {**tube, "rules": text_of(entry.data)}
    if kind == Counters.kind:
        return {**(tube if raw.tube_id else {}), "counters": text_of(entry.data)}
    if kind == Trim.kind:
        return {"trim_seq": raw.job_id}
    if kind == Start.kind:
        return {"next_job_id": raw.job_id, "next_tube_id": raw.aux,
                "wall_offset_ns": raw.deadline_ns}  # fmt: skip
    if kind == ClockStep.kind:
        return {"wall_offset_ns": raw.deadline_ns}
    return {} if kind == CleanStop.kind else {"bytes": raw.data_len}


def body_fields(body: bytes, how: str) -> Fields:
    """:param how: ``text`` (``body``, or ``body_base64`` where it is no UTF-8), ``hex``, ``base64``
    or ``none``.
    """
    if how == "none":
        return {}
    if how == "hex":
        return {"body_hex": body.hex()}
    return wording.body_fields(body) if how == "text" else wording.body_base64(body)


def body_text(body: bytes, how: str) -> str:
    if how == "hex":
        return body.hex()
    if how == "base64":
        return base64.b64encode(body).decode()
    return "" if how == "none" else escape_all(body)


def preview(body: bytes, how: str, characters: int) -> str:
    text = body_text(body[: characters + 1], how)
    return text if len(text) <= characters else text[:characters] + "…"


BYTES_PER_LINE: Final = 16
MAX_HEAP_BYTES: Final = 4096
"""Bytes of bodies that are shown: some screens."""

_Layout = Mapping[str, str]
_HEADER: Final[_Layout] = {
    "magic": "8s", "hdr_crc": "I", "rec_crc": "I", "frame_len": "I", "n_rec": "I", "base_lsn": "Q",
    "durable_lsn": "Q", "time_ns": "q", "seg_salt": "I", "heap_len": "I", "heap_crc": "I",
    "rec_size": "H", "flags": "B", "codec": "B",
}  # fmt: skip
_RECORD: Final[_Layout] = dict(zip(RawRecord._fields, "BBBBIQqqIIIIIIIIIIII", strict=True))
"""As `struct` has them."""


class Place(NamedTuple):
    """What is at an offset; ``has_frame`` if a frame begins there, or should."""

    has_frame: bool
    is_good: bool
    what: str


def place_of(opened: OpenSegment, offset: int) -> Place:
    if not 0 <= offset < len(opened.buffer):
        return Place(False, False, f"the file has {len(opened.buffer)} bytes")
    end, what = SEGMENT_HEADER_BYTES, "no frame: the segment's header"
    for piece in opened.pieces():
        if piece.offset == offset:
            why = "" if isinstance(piece, Frame) else f"{piece.why}; {_next_of(opened, piece.end)}"
            return Place(True, isinstance(piece, Frame), why)
        if piece.offset > offset:
            return Place(False, False, f"{what}; {_next_of(opened, offset)}")
        end = piece.end
        kind = "the frame" if isinstance(piece, Frame) else "the damaged place"
        what = f"no frame begins here: this is within {kind} from {piece.offset} to {end}"
    if offset >= end:
        what = f"no frame: the last one ends at {end}"
    return Place(False, False, f"{what}; {_next_of(opened, offset)}")


def _next_of(opened: OpenSegment, offset: int) -> str:
    starts = (p.offset for p in opened.pieces() if isinstance(p, Frame) and p.offset >= offset)
    following = next(starts, None)
    return "no frame follows" if following is None else f"the next frame begins at {following}"


def view_of(opened: OpenSegment, offset: int) -> Iterator[str]:
    """The lines that show what stands at ``offset``, a frame or not."""
    buffer = opened.buffer
    if not 0 <= offset <= len(buffer) - FRAME_HEADER_BYTES:
        yield f"{opened.name}: no frame fits at offset {offset}: the file has {len(buffer)} bytes"
        return
    found = frames.decode(buffer, offset, len(buffer), opened.header.salt)
    verdict = found.why if isinstance(found, frames.Damage) else "no complete frame"
    if isinstance(found, Frame):
        lsns = f"LSN {found.base_lsn} to {found.next_lsn - 1}"
        verdict = f"a good frame, {lsns}, ends at {found.end}"
    yield f"{opened.name}: offset {offset}: {verdict}"
    yield ""
    yield from _fields(buffer, offset, _HEADER, "frame header")
    standing = frames.decode_header(buffer, offset, len(buffer), opened.header.salt)
    if isinstance(standing, Frame):
        yield from _payload(buffer, standing)


def _payload(buffer: Buffer, frame: Frame) -> Iterator[str]:
    end = min(frame.end, len(buffer))
    for index in range(frame.n_rec):
        at = frame.records_at + index * frame.rec_size
        if at + RECORD_BYTES > end:
            return
        title = f"record {index}, LSN {frame.base_lsn + index}, {type_name(buffer[at])}"
        yield from _fields(buffer, at, _RECORD, title)
        raw = RECORD.unpack_from(buffer, at)
        if raw[DATA_LEN] and not frames.has_data(buffer, frame, raw):
            yield "  !! the data of this record are not those it was written with"
            yield ""
    shown = min(frame.heap_len, MAX_HEAP_BYTES, max(0, end - frame.heap_at))
    yield f"heap, {frame.heap_len} bytes" + (f", {shown} shown" * (shown < frame.heap_len))
    yield from hex_lines(buffer, frame.heap_at, frame.heap_at + shown)


def _fields(buffer: Buffer, at: int, fields: _Layout, title: str) -> Iterator[str]:
    yield f"{title}, at {at} ({at:#x})"
    for name, kind in fields.items():
        raw = bytes(buffer[at : at + struct.calcsize("<" + kind)])
        (value,) = struct.unpack("<" + kind, raw)
        said = "" if isinstance(value, bytes) else value
        yield f"  {at:08x}  {raw.hex():<16}  {name:<12} {said}".rstrip()
        at += len(raw)
    yield ""


def hex_lines(buffer: Buffer, start: int, end: int) -> Iterator[str]:
    for at in range(start, end, BYTES_PER_LINE):
        raw = bytes(buffer[at : min(at + BYTES_PER_LINE, end)])
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in raw)
        yield f"  {at:08x}  {raw.hex(' '):<47}  {text}"
