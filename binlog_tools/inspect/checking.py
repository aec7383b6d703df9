"""Is this log sound?  The look that a server takes when it starts, and a map of what is wrong."""

import os
import re
import shlex
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.loss_warnings import loss_warnings
from beanstalk_twisted.binlog.reading.segment import Hole, has_content, is_trailer, walk
from beanstalk_twisted.binlog.reading.survey import Problem, Progress, Segment, Survey
from beanstalk_twisted.binlog.records.jobs import FULL, KEY, Flag, Kind, State
from beanstalk_twisted.binlog.records.others import (
    AUX,
    DATA_CRC,
    DATA_LEN,
    FLAGS,
    JOB_ID,
    JOB_KINDS,
    STATE,
    TUBE_ID,
    TYPE,
    NotUnderstood,
    Raw,
    TubePolicy,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    EXTENSIONS,
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    U32,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame
from beanstalk_twisted.binlog.tags import BATCH_KEYS, BadTags, split_tags
from beanstalk_twisted.version import VERSION
from binlog_tools.logs.opening import holds_something
from binlog_tools.logs.quantities import Span
from binlog_tools.logs.reading import Broken, OpenSegment, Remark, has_seal, remarks, segments
from binlog_tools.logs.sources import NoLog, Source, parse_archived_name

SOUND, TORN, DAMAGED, UNKNOWN_FORMAT = 0, 1, 3, 78
"""Exit codes of ``binlog-inspect check``."""

NO_HARM: Final = "nothing: a server cuts it off when it starts, and keeps a copy"
NO_LOSS: Final = "nothing: no record is missing, and a server starts"

UNDECLARED_MEND: Final = "do not start a server of format 1.0 on it; a compacted copy says it"

HARMLESS: Final = frozenset({"warning", "note"})
"""Kinds of troubles that do not change a verdict: a server starts in spite of them."""


class SegmentRow(NamedTuple):
    """The frames of a segment that can be read, up to the offset ``end``."""

    name: str
    first_lsn: int
    last_lsn: int
    frames: int
    end: int


class Trouble(NamedTuple):
    """:ivar kind: ``torn``, ``corrupt``, ``header``, ``missing``, ``misnamed``, ``newer``,
        ``foreign`` or ``content``; or ``warning`` of what may be a trace of a loss, ``note`` of
        what is none.
    :ivar file: None if it is about no single one; of segments that are missing, the first.
    :ivar offset: None if it is not about bytes.
    :ivar last_lsn: None if nothing tells.
    :ivar jobs: those whose records are certainly concerned; ``perhaps`` those that the spoilt bytes
        seem to name.
    :ivar mend: the command to run, or what else to do.
    """

    kind: str
    file: str | None
    offset: int | None
    end: int | None
    first_lsn: int | None
    last_lsn: int | None
    what: str
    mend: str
    jobs: tuple[int, ...] = ()
    perhaps: tuple[int, ...] = ()


class Finding(NamedTuple):
    """``durable_lsn`` is the highest LSN that something vouches for."""

    path: str
    exit_code: int
    verdict: str
    troubles: list[Trouble]
    segments: list[SegmentRow]
    records: int
    durable_lsn: int


def check(source: Source, progress: Progress = lambda done, total: None) -> Finding:
    """:raise OSError: it cannot be read.
    :raise NoLog: there are files with the names of segments, and nothing of a log is in any.
    """
    survey = source.survey(progress)
    names = source.segment_names().values() if not survey.segments else ()
    if names and not any(holds_something(source.read(name)) for name in names):
        raise NoLog(
            source.path,
            "there is no log here: nothing in the files is of one; if they should hold one, look "
            "for a back-up, else move them away",
        )
    is_newer = any(problem.is_newer for problem in survey.problems)
    if is_newer:
        # Of what else is wrong there, this version cannot tell whether it is.
        newer = (problem for problem in survey.problems if problem.is_newer)
        troubles = [_elsewhere(survey, problem) for problem in newer]
    else:
        troubles = list(_map(source, survey)) or list(_Contents(source, survey).troubles())
    lost = list(_left_out(source, survey))
    is_whole = _severity(troubles) in (SOUND, TORN)
    troubles += lost
    exit_code = _severity(troubles)
    if source.has_ends and not is_newer:
        troubles += (
            Trouble("warning", each.name, None, None, None, None, each.what, each.advice)
            for each in loss_warnings(survey)
        )
        troubles += _notes(survey)
    records = survey.small.records
    durable_lsn = _durable_lsn(survey)
    verdict = {
        SOUND: f"sound: {records} records, durable to LSN {durable_lsn}",
        TORN: "torn tail: a server cuts it off and keeps a copy; of what it promised nothing is "
        "lost if a crash made it (otherwise see 'binlog-inspect salvage')",
        DAMAGED: f"damaged: a server refuses {source.path}",
        UNKNOWN_FORMAT: f"not checked: {source.path} is in a format that this version does not "
        f"know; it was not changed, and need not be damaged",
    }[exit_code]
    if lost and is_whole:
        verdict = f"not all of {source.path} is read: {len(lost)} of its files are named wrongly"
    rows = [_row(survey, *each) for each in zip_longest(survey.segments, survey.segments[1:])]
    return Finding(source.path, exit_code, verdict, troubles, rows, records, durable_lsn)


def _durable_lsn(survey: Survey) -> int:
    """A segment is finished when all of it is durable, which its trailer says and no frame."""
    for newest in survey.segments[-1:]:
        at = newest.ending.offset
        if not newest.ending.problem and is_trailer(survey.read(newest), at, newest.size):
            return max(survey.durable_lsn, newest.ending.next_lsn - 1)
    return survey.durable_lsn


def _row(survey: Survey, segment: Segment, following: Segment | None) -> SegmentRow:
    header, ending = segment.header, segment.ending
    row = SegmentRow(
        segment.name, header.first_lsn, ending.next_lsn - 1, len(segment.frame_offsets),
        ending.offset,
    )  # fmt: skip
    if not ending.problem:
        return row
    is_next = following is not None and following.header.seq == header.seq + 1
    end = following.header.prev_end if following and is_next else None
    found = [p for p in walk(survey.read(segment), header, end) if isinstance(p, Frame)]
    if not found:
        return row
    return row._replace(last_lsn=found[-1].next_lsn - 1, frames=len(found), end=found[-1].end)


def _severity(troubles: list[Trouble]) -> int:
    troubles = [trouble for trouble in troubles if trouble.kind not in HARMLESS]
    if not troubles:
        return SOUND
    if any(trouble.kind == "newer" for trouble in troubles):
        return UNKNOWN_FORMAT
    return TORN if all(trouble.kind == "torn" for trouble in troubles) else DAMAGED


def _map(source: Source, survey: Survey) -> Iterator[Trouble]:
    if not survey.problems and not survey.torn and not source.is_partial:
        return
    first_seq = 0 if source.is_partial else survey.small.trim_seq
    located = set()
    for opened in segments(source):
        if opened.seq < first_seq:
            continue
        for trouble in _troubles_of(opened, survey):
            located.add(opened.seq)
            yield trouble
    for problem in survey.problems:
        if problem.seq not in located or _kind(problem) != "corrupt":
            yield _elsewhere(survey, problem)


def _troubles_of(opened: OpenSegment | Broken, survey: Survey) -> Iterator[Trouble]:
    if isinstance(opened, Broken):
        yield Trouble(
            "header", opened.name, 0, SEGMENT_HEADER_BYTES, None, None, opened.problem.why,
            survey.salvage_command,
        )  # fmt: skip
        return
    ends = {segment.name: segment.ending for segment in survey.segments}
    for piece in opened.pieces():
        ending = ends.get(opened.name)
        if isinstance(piece, Frame) or (
            # Behind a seal nothing counts; `_notes` tells of it.
            ending is not None and not ending.problem and ending.offset == piece.offset
        ):
            continue
        yield _of_hole(opened, piece, survey)


def _of_hole(opened: OpenSegment, hole: Hole, survey: Survey) -> Trouble:
    is_torn = opened.end is None and hole.first_lsn > survey.durable_lsn
    certain, perhaps = _jobs_in(opened.buffer, hole)
    last = None if is_torn else survey.durable_lsn
    if hole.next_lsn is not None:
        last = hole.next_lsn - 1
    return Trouble(
        "torn" if is_torn else "corrupt", opened.name, hole.offset, hole.end, hole.first_lsn, last,
        hole.why + _in_the_servers_words(opened.seq, hole.first_lsn, last, survey),
        NO_HARM if is_torn else survey.salvage_command, certain, perhaps,
    )  # fmt: skip


def _in_the_servers_words(seq: int, first: int, last: int | None, survey: Survey) -> str:
    """A server says of the same place how far it has not read, which may be more than is spoilt."""
    for problem in survey.problems:
        if problem.seq == seq and problem.lsns[0] == first and problem.lsns[1] != last:
            span = Span(*problem.lsns)
            return f"; a server reads no further in this segment, so it says LSN {span}"
    return ""


def _jobs_in(buffer: Buffer, hole: Hole) -> tuple[tuple[int, ...], tuple[int, ...]]:
    frame = hole.frame
    if frame is None:
        return (), ()
    array = memoryview(buffer)[frame.records_at : frame.heap_at]
    stored_crc = U32.unpack_from(buffer, frame.offset + FRAME_HEADER_BYTES - 52)[0]
    raws = [
        raw
        for raw in frames.raw_records(buffer, frame)
        if raw[TYPE] in JOB_KINDS and raw[STATE] in _STATES and raw[JOB_ID] > 0
    ]
    if zlib.crc32(array) != stored_crc:
        return (), _ids(raws)
    # A record without data may say anything of where they are.
    with_data = (raw for raw in raws if raw[DATA_LEN] or raw[DATA_CRC])
    return _ids([raw for raw in with_data if not frames.has_data(buffer, frame, raw)]), ()


def _ids(raws: list[Raw]) -> tuple[int, ...]:
    return tuple(sorted({raw[JOB_ID] for raw in raws}))


def _elsewhere(survey: Survey, problem: Problem) -> Trouble:
    mend = survey.salvage_command
    if problem.foreign:
        mend = "use the server that wrote it, or another directory"
    if problem.is_newer:
        mend = f"install the version that wrote it, or a newer one; this is {VERSION}"
    named = _NAMED.match(problem.what)
    kind = _kind(problem)
    return Trouble(kind, named and named[0], None, None, None, None, problem.what, mend)


def _kind(problem: Problem) -> str:
    if problem.is_newer:
        return "newer"
    if problem.foreign:
        return "foreign"
    if ": missing;" in problem.what:
        return "missing"
    return "misnamed" if ": its header says" in problem.what else "corrupt"


_NAMED: Final = re.compile(r"\d{20}\.tql(?=:| to )")


def _notes(survey: Survey) -> Iterator[Trouble]:
    for at, segment in enumerate(survey.segments):
        if segment.ending.problem:
            continue
        for remark in _remarks(survey, segment, is_newest=at == len(survey.segments) - 1):
            what = f"{remark.what}; nothing reads it"
            yield Trouble(
                "note", segment.name, remark.offset, remark.end, None, None, what, NO_LOSS
            )  # fmt: skip


def _remarks(survey: Survey, segment: Segment, is_newest: bool) -> Iterator[Remark]:
    try:
        buffer, end = survey.read(segment), segment.ending.offset
    except FileNotFoundError:
        # A server that runs has deleted it meanwhile.
        return
    last = segment.frame(buffer, segment.frame_offsets[-1]) if segment.frame_offsets else None
    if last is not None and has_seal(buffer, last):
        for remark in remarks(buffer, last, end):
            # What was allocated and not used may still be there.
            if remark.offset == end or has_content(buffer, remark.offset, remark.end):
                yield remark
    elif not is_newest and has_content(buffer, end, segment.size):
        what = f"{segment.size - end} bytes stand behind the end that the next segment names"
        yield Remark(end, segment.size, what)


def _left_out(source: Source, survey: Survey) -> Iterator[Trouble]:
    present = source.segment_names()
    for name in source.left_out:
        said = parse_archived_name(name)
        assert said is not None
        if said.seq in present or said.seq < survey.small.trim_seq:
            continue
        paths = (os.path.join(source.path, each) for each in (name, segment_name(said.seq)))
        yield Trouble(
            "foreign", name, None, None, None, None,
            "it is named as in an archive, so no server reads it", shlex.join(["mv", *paths]),
        )  # fmt: skip


class _Contents:
    def __init__(self, source: Source, survey: Survey) -> None:
        self._survey = survey
        self._tubes = survey.small.tubes
        self._wrong: list[Trouble] = []
        self._bodies: set[int] = set()
        self._lacking: set[int] = set()
        self._unnamed: dict[int, int] = {}
        self._undeclared: list[str] = []
        for segment in survey.segments:
            buffer = survey.read(segment)
            self._features = 0
            for offset in segment.frame_offsets:
                frame = segment.frame(buffer, offset)
                for index, raw in enumerate(frames.raw_records(buffer, frame)):
                    self._look(segment.name, buffer, frame, index, raw)
                    if raw[TYPE] in _EXTENDED or raw[FLAGS] & Flag.EXT:
                        self._features |= EXTENSIONS
            if self._features & ~segment.header.incompat:
                self._undeclared.append(segment.name)
        self._has_beginning = not source.is_partial

    def _look(self, name: str, buffer: Buffer, frame: Frame, index: int, raw: Raw) -> None:
        kind = raw[TYPE]
        if kind == KEY and raw[AUX]:
            self._features |= BATCH_KEYS
        if raw[DATA_LEN] and not frames.has_data(buffer, frame, raw):
            self._note(name, frame, index, raw, "the checksum of its data is wrong")
        if kind not in JOB_KINDS:
            return
        job_id = raw[JOB_ID]
        if raw[STATE] not in _STATES:
            self._note(name, frame, index, raw, f"job state {raw[STATE]} is unknown")
        if kind in FULL:
            if raw[FLAGS] & Flag.EXT:
                try:
                    tags, _ = split_tags(frames.data_of(buffer, frame, raw))
                    self._features |= 0 if tags is None else tags.features
                except (BadTags, NotUnderstood) as problem:
                    self._note(name, frame, index, raw, str(problem))
            self._bodies.add(job_id)
            self._lacking.discard(job_id)
        elif kind == Kind.DELETE:
            self._bodies.discard(job_id)
            self._lacking.discard(job_id)
            self._unnamed.pop(job_id, None)
            return
        elif job_id not in self._bodies:
            self._lacking.add(job_id)
        if raw[TUBE_ID] not in self._tubes:
            self._unnamed[job_id] = raw[TUBE_ID]

    def _note(self, name: str, frame: Frame, index: int, raw: Raw, why: str) -> None:
        lsn = frame.base_lsn + index
        self._wrong.append(
            Trouble(
                "content", name, frame.offset, frame.end, lsn, lsn, why,
                self._survey.salvage_command, _ids([raw]),
            )
        )  # fmt: skip

    def troubles(self) -> Iterator[Trouble]:
        yield from self._wrong
        for name in self._undeclared:
            what = "it holds extensions, and its header does not say so: an older version errs"
            yield Trouble("warning", name, None, None, None, None, what, UNDECLARED_MEND)
        mend = self._survey.salvage_command
        if self._lacking and self._has_beginning:
            ids = tuple(sorted(self._lacking))
            what = f"{len(ids)} jobs have state but no body in the log"
            yield Trouble("content", None, None, None, None, None, what, mend, ids)
        for job_id, tube_id in self._unnamed.items():
            what = f"job {job_id} is in tube number {tube_id}, whose name is not in the log"
            yield Trouble("content", None, None, None, None, None, what, mend, (job_id,))


_STATES: Final = frozenset(map(int, State))
_EXTENDED: Final = frozenset({Kind.MOVE, Kind.UPDATE, Kind.GROUP_ENDED, KEY, TubePolicy.kind})
"""The types that only a segment with extensions may hold."""
