"""A segment's bytes into Arrow batches of the columns that are asked for: no Python per row.

The records of many frames are looked at as numbers of 8 bytes, ten to a record: one index for all
of them, and each column is a gather, a shift and a mask.  A body is copied once, by Arrow.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from beanstalk_twisted.binlog.reading.segment import Hole
from beanstalk_twisted.binlog.records.jobs import Flag
from beanstalk_twisted.binlog.records.others import Start
from beanstalk_twisted.binlog.segments.format import REHOMED, SEGMENT_HEADER_BYTES
from binlog_tools.logs.stored import OF_JOBS, TYPE_NAMES
from binlog_tools.spark.definitions.columns import UNASKED
from binlog_tools.spark.definitions.errors import SourceError, damaged, unknown_format
from binlog_tools.spark.segments import framing as at
from binlog_tools.spark.segments.framing import (
    WINDOW_BYTES,
    Ints,
    Mask,
    Rows,
    Run,
    bad_heaps,
    lsns_of,
    parts,
    runs,
)
from binlog_tools.spark.segments.payloads import (
    Bodies,
    TagColumns,
    TubeNames,
    tubes_named,
    tubes_of,
)
from binlog_tools.spark.segments.producing import Chunk, batch_of, damage_row
from binlog_tools.spark.segments.wanted import (
    MAX_NUMBER,
    RECORDS,
    Place,
    Stretch,
    Wanted,
    bounds,
)

BATCH_ROWS: Final = 65_536
"""Rows of a batch at most."""

_IS_WANTED: Final = {name: np.isin(np.arange(256), list(kinds)) for name, kinds in RECORDS.items()}

_IS_KNOWN: Final = np.isin(np.arange(256), [*TYPE_NAMES, *range(0x80, 0x100)])
_HAS_JOB: Final = np.isin(np.arange(256), list(OF_JOBS))
_NO_FRAMES: Final = np.zeros(0, np.int64)

_COMPARED: Final[Mapping[str, Callable[[Ints, Ints], Mask]]] = {
    "=": np.isin, ">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal,
}  # fmt: skip
_CONDITIONED: Final[Mapping[str, Callable[[Rows, Run], Ints]]] = {
    "job": lambda rows, _: rows.whole(at.JOB_ID),
    "logged_ns": lambda rows, run: rows.of_frame(run.time_ns),
    "lsn": lambda rows, _: rows.lsn(),
}
"""The columns on which rows are left out."""


def batches(
    buffer: memoryview, place: Place, stretch: Stretch, wanted: Wanted,
    tubes: Mapping[int, bytes] | None = None, window_bytes: int = WINDOW_BYTES,
    told_before: int = 0,
) -> Iterator[Any]:  # fmt: skip
    """The records of a stretch, in LSN order, in batches of at most `BATCH_ROWS` rows, or of one
    frame; none is empty.

    :param buffer: the segment from its first byte, to the end of the stretch or further.
    :param tubes: names that are known from elsewhere; None: the frames before the stretch are
        searched for them.
    :param told_before: damage that begins before this LSN is left out.
    :raise SourceError: ``BINLOG_DAMAGED`` if ``wanted.damage`` is ``fail``;
        ``BINLOG_UNKNOWN_FORMAT``, ``BINLOG_NUMBER_TOO_LARGE``.
    """
    if place.header.flags & REHOMED and "incarnation" in wanted.columns:
        place = place._replace(starts=lsns_of(buffer, place.header, Start.kind))
    names = TubeNames(_names_ahead(buffer, place, stretch, wanted, tubes))
    for piece in runs(buffer, place.header, stretch, wanted.verify, window_bytes):
        if isinstance(piece, Hole):
            if piece.first_lsn >= told_before and _matters(piece, wanted):
                yield _of_hole(piece, place, wanted)
            continue
        for run in parts(piece, BATCH_ROWS):
            batch = _of_run(buffer, place, run, wanted, names)
            if batch is not None:
                yield batch


def _names_ahead(
    buffer: memoryview, place: Place, stretch: Stretch, wanted: Wanted,
    tubes: Mapping[int, bytes] | None,
) -> dict[int, bytes]:  # fmt: skip
    """The names of tubes that the stretch uses and may not say before it does."""
    names = dict(tubes or {})
    if not wanted.needs_tubes:
        return names
    ahead = Stretch(SEGMENT_HEADER_BYTES, stretch.start, place.header.first_lsn)
    if place.header.flags & REHOMED:
        ahead = ahead._replace(end=len(buffer))
    elif tubes is not None:
        return names
    return names | tubes_of(buffer, place.header, ahead)


def _matters(hole: Hole, wanted: Wanted) -> bool:
    lsns = bounds(wanted.conditions, "lsn")
    last = lsns.high if hole.next_lsn is None else hole.next_lsn - 1
    return lsns.meets(hole.first_lsn, max(hole.first_lsn, last))


def _of_hole(hole: Hole, place: Place, wanted: Wanted) -> Any:
    last = f" to {hole.next_lsn - 1}" if hole.next_lsn is not None else " and those behind it"
    what = f"{hole.why} (LSN {hole.first_lsn}{last})"
    if wanted.damage == "fail":
        raise damaged(place.path, hole.offset, what)
    size = hole.end - hole.offset
    what = f"{place.path}: frame at byte {hole.offset}: {what}"
    return damage_row(wanted.columns, place, hole.first_lsn, what, hole.offset, size)


def _of_run(buffer: memoryview, place: Place, run: Run, wanted: Wanted, names: TubeNames) -> Any:
    rows = Rows(buffer, run)
    refuse_unknown(place, run, rows)
    if wanted.needs_tubes:
        names.learn(tubes_named(buffer, run, rows))
    rows.keep(_mask(rows, run, wanted, names))
    if not len(rows):
        return None
    if "job" in wanted.columns:
        refuse_large_ids(place, rows)
    bodies = None
    if "body" in wanted.columns or "bytes" in wanted.columns:
        bodies = Bodies(buffer, run, rows, _bad_heaps(buffer, place, run, rows, wanted))
    tags = None
    if not UNASKED["tags"].isdisjoint(wanted.columns):
        tags = TagColumns(buffer, run, rows, wanted.verify == "frames")
    chunk = Chunk(place, run, rows, names, bodies, tags)
    batch = batch_of(chunk, wanted.columns)
    if chunk.problems and wanted.damage == "fail":
        row = min(chunk.problems)
        what = f"LSN {rows.lsn()[row]}: {chunk.problems[row]}"
        raise damaged(place.path, int(rows.of_frame(run.offset)[row]), what)
    return batch


def _mask(rows: Rows, run: Run, wanted: Wanted, names: TubeNames) -> Mask:
    mask: Mask = _IS_WANTED[wanted.records][rows.byte(at.TYPE)]
    if wanted.copies == "drop":
        mask &= (rows.byte(at.FLAGS) & np.uint8(Flag.COPY)) == 0
    for column, how, values in wanted.conditions:
        if column == "tube":
            mask &= np.isin(rows.half(at.TUBE_ID), names.ids_of(values))
            continue
        mask &= _COMPARED[how](_CONDITIONED[column](rows, run), np.array(values, np.int64))
        if column == "job":
            mask &= _HAS_JOB[rows.byte(at.TYPE)]
    return mask


def _bad_heaps(buffer: memoryview, place: Place, run: Run, rows: Rows, wanted: Wanted) -> Ints:
    if wanted.verify != "frames" or "body" not in wanted.columns:
        return _NO_FRAMES
    bad = bad_heaps(buffer, run)
    if wanted.conditions:
        # Of frames none of whose records is wanted it does not matter.
        frames = np.arange(len(run.offset))
        bad = np.intersect1d(bad, rows.of_frame(frames))
    if len(bad) and wanted.damage == "fail":
        offset = int(run.offset[bad[0]])
        raise damaged(place.path, offset, "the checksum of its bodies is wrong")
    return bad


def refuse_unknown(place: Place, run: Run, rows: Rows) -> None:
    """:raise SourceError: a newer version has written some of these."""
    types = rows.byte(at.TYPE)
    if not _IS_KNOWN[types].all():
        row = int(np.argmin(_IS_KNOWN[types]))
        at_byte = rows.of_frame(run.offset)[row]
        what = f"frame at byte {at_byte}: record type {types[row]} is unknown"
        raise unknown_format(place.path, what)


def refuse_large_ids(place: Place, rows: Rows) -> None:
    """:raise SourceError: Spark cannot say one of their job ids."""
    job_ids = rows.word(at.JOB_ID)
    if job_ids.max() >= MAX_NUMBER:
        raise SourceError(
            "BINLOG_NUMBER_TOO_LARGE",
            f"{place.path}: job id {job_ids.max()} is 2**63 or more, which Spark cannot hold",
        )
