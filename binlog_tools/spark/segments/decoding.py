"""A segment's bytes into Arrow batches, without Python per row: records are ten numbers of 8 bytes,
and each column is a gather, a shift and a mask.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beanstalk_twisted.binlog.reading.segment import Hole
from beanstalk_twisted.binlog.records.jobs import KEY, REASONS, WITHHELD_NS, Flag
from beanstalk_twisted.binlog.records.others import (
    JOB_KINDS,
    Counters,
    Pause,
    Start,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.segments.format import REHOMED, SEGMENT_HEADER_BYTES
from binlog_tools.inspect.dumping import reason_name, state_name
from binlog_tools.logs.stored import OF_JOBS, TYPE_NAMES, type_name
from binlog_tools.spark.definitions.columns import BY_NAME, UNASKED, arrow_schema, arrow_type
from binlog_tools.spark.errors import SourceError, damaged, unknown_format
from binlog_tools.spark.segments import framing as at
from binlog_tools.spark.segments import payloads as tag
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
    NO_TUBE,
    Bodies,
    TagColumns,
    TubeNames,
    tubes_named,
    tubes_of,
)
from binlog_tools.spark.segments.wanted import (
    DAMAGE,
    MAX_NUMBER,
    RECORDS,
    Place,
    Stretch,
    Wanted,
    bounds,
)

IS_OF_JOB: Final = np.isin(np.arange(256), list(JOB_KINDS))
"""By type: whether a record of it is one of a job."""

_TYPES: Final = pa.array([type_name(number) for number in range(256)], pa.string())
_STATES: Final = pa.array([state_name(number) for number in range(256)], pa.string())
_REASONS: Final = pa.array([reason_name(number) for number in range(256)], pa.string())
_DEAD_REASONS: Final = pa.array(
    [REASONS.get(number, str(number)) for number in range(256)], pa.string()
)
"""As `stats-job` says them."""


class Chunk:
    """The rows of a batch, and what its columns are made of; ``problems`` of single rows."""

    def __init__(
        self, place: Place, run: Run, rows: Rows, tubes: TubeNames, bodies: Bodies | None,
        tags: TagColumns | None = None,
    ) -> None:  # fmt: skip
        self.place = place
        self.run = run
        self.rows = rows
        self.tubes = tubes
        self.bodies = bodies
        self.tags = tags
        self.problems: dict[int, str] = dict(tags.problems) if tags is not None else {}
        self.problems |= bodies.problems if bodies is not None else {}
        of_job = IS_OF_JOB[rows.byte(at.TYPE)]
        self.of_job: Mask | None = None if of_job.all() else of_job
        self._tube_at: Ints | None = None

    def jobs_and(self, *types: int) -> Mask | None:
        """Which rows are of jobs or of these types; None: all."""
        return (
            None if self.of_job is None else self.of_job | np.isin(self.rows.byte(at.TYPE), types)
        )

    def tube_at(self) -> Ints:
        """Where the name of each row's tube is; names that nothing says are noted in `problems`."""
        if self._tube_at is None:
            tube_ids = self.rows.half(at.TUBE_ID)
            self._tube_at = self.tubes.find(tube_ids)
            missing = np.flatnonzero((self._tube_at == NO_TUBE) & (tube_ids != 0))
            for row in missing.tolist():
                self.problems.setdefault(row, f"nothing says the name of tube {tube_ids[row]}")
        return self._tube_at


Producer = Callable[[Chunk], Any]


def numbers(kind: Any, values: npt.NDArray[Any], valid: Mask | None = None) -> Any:
    """Return an Arrow array over these numbers, not copied; those not ``valid`` are null."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    under = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [bits, under])


def _half(place: tuple[int, int]) -> Producer:
    return lambda chunk: numbers(pa.int64(), chunk.rows.half(place), chunk.of_job)


def _moment(moments_ns: Ints, valid: Mask | None = None) -> Any:
    return numbers(arrow_type("timestamp"), moments_ns // 1000, valid)


def _incarnation(chunk: Chunk) -> Any:
    """Re-homed records are older than the start that re-homed them, which its START says."""
    lsns, starts = chunk.rows.lsn(), chunk.place.starts
    later = len(starts) - np.searchsorted(starts, lsns, "right")
    return numbers(pa.int32(), (chunk.place.header.incarnation - later).astype(np.int32))


def _flag(bit: Flag) -> Producer:
    def produce(chunk: Chunk) -> Any:
        bits = np.packbits(chunk.rows.byte(at.FLAGS) & np.uint8(bit), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(chunk.rows), [None, pa.py_buffer(bits)])

    return produce


def _constant(value: Callable[[Place], object], kind: Any) -> Producer:
    return lambda chunk: pa.repeat(pa.scalar(value(chunk.place), kind), len(chunk.rows))


def _deadlines(chunk: Chunk) -> tuple[Ints, Mask]:
    deadlines = chunk.rows.whole(at.DEADLINE_NS)
    valid = (deadlines != 0) & (deadlines < WITHHELD_NS)
    has_one = chunk.jobs_and(Pause.kind, KEY)
    return deadlines, valid if has_one is None else valid & has_one


def _connection(chunk: Chunk) -> Any:
    numbered = chunk.rows.half(at.AUX)
    valid = numbered != 0
    return numbers(pa.int64(), numbered, valid if chunk.of_job is None else valid & chunk.of_job)


def _tube(chunk: Chunk) -> Any:
    found = chunk.tube_at()
    valid = found != NO_TUBE
    has_one = chunk.jobs_and(TubeDef.kind, Pause.kind, Counters.kind, KEY, TubePolicy.kind)
    valid = valid if has_one is None else valid & has_one
    return chunk.tubes.texts.take(numbers(pa.int64(), found, None if valid.all() else valid))


def _problem(chunk: Chunk) -> Any:
    if not chunk.problems:
        return pa.nulls(len(chunk.rows), pa.string())
    return pa.array([chunk.problems.get(row) for row in range(len(chunk.rows))], pa.string())


def _bodies(chunk: Chunk) -> Bodies:
    assert chunk.bodies is not None
    return chunk.bodies


def _state(chunk: Chunk) -> Any:
    return _STATES.take(numbers(pa.uint8(), chunk.rows.byte(at.STATE), chunk.of_job))


def _tags(chunk: Chunk) -> TagColumns:
    assert chunk.tags is not None
    return chunk.tags


def _name(number: int) -> Producer:
    return lambda chunk: _tags(chunk).names(number)


def _number(number: int) -> Producer:
    return lambda chunk: numbers(pa.int64(), *_tags(chunk).numbers(number, 0, 4))


def _dead_reason(chunk: Chunk) -> Any:
    reasons, valid = _tags(chunk).numbers(tag.DEAD, 0, 1)
    return _DEAD_REASONS.take(numbers(pa.uint8(), reasons.astype(np.uint8), valid))


PRODUCERS: Final[Mapping[str, Producer]] = {
    "server": _constant(lambda place: place.server, pa.string()),
    "incarnation": _incarnation,
    "segment": _constant(lambda place: place.header.seq, pa.int64()),
    "offset": lambda chunk: numbers(pa.int64(), chunk.rows.of_frame(chunk.run.offset)),
    "lsn": lambda chunk: numbers(pa.int64(), chunk.rows.lsn()),
    "event": lambda chunk: _TYPES.take(numbers(pa.uint8(), chunk.rows.byte(at.TYPE))),
    "time": lambda chunk: _moment(chunk.rows.whole(at.TS_NS)),
    "time_ns": lambda chunk: numbers(pa.int64(), chunk.rows.whole(at.TS_NS)),
    "logged": lambda chunk: _moment(chunk.rows.of_frame(chunk.run.time_ns)),
    "logged_ns": lambda chunk: numbers(pa.int64(), chunk.rows.of_frame(chunk.run.time_ns)),
    "job": lambda chunk: numbers(pa.int64(), chunk.rows.whole(at.JOB_ID), chunk.jobs_and(KEY)),
    "tube": _tube,
    "state": _state,
    "priority": _half(at.PRIORITY),
    "delay_s": lambda chunk: numbers(
        pa.int64(), chunk.rows.half(at.DELAY_S), chunk.jobs_and(Pause.kind)
    ),
    "ttr_s": _half(at.TTR_S),
    "deadline": lambda chunk: _moment(*_deadlines(chunk)),
    "deadline_ns": lambda chunk: numbers(pa.int64(), *_deadlines(chunk)),
    "reserves": _half(at.RESERVES),
    "timeouts": _half(at.TIMEOUTS),
    "releases": _half(at.RELEASES),
    "buries": _half(at.BURIES),
    "kicks": _half(at.KICKS),
    "reason": lambda chunk: _REASONS.take(numbers(pa.uint8(), chunk.rows.byte(at.REASON))),
    "connection": _connection,
    "copy": _flag(Flag.COPY),
    "relaxed": _flag(Flag.RELAXED),
    "bytes": lambda chunk: _bodies(chunk).sizes(),
    "body": lambda chunk: _bodies(chunk).array(),
    "unique_key": _name(tag.UNIQUE),
    "unique_s": _number(tag.UNIQUE),
    "concurrency_key": _name(tag.CONCURRENCY),
    "concurrency_limit": _number(tag.CONCURRENCY),
    "job_group": _name(tag.GROUP),
    "after": _name(tag.AFTER),
    "dead_from": _name(tag.DEAD),
    "dead_reason": _dead_reason,
    "dead_at": lambda chunk: _moment(*_tags(chunk).numbers(tag.DEAD, 1, 8)),
    "dead_at_ns": lambda chunk: numbers(pa.int64(), *_tags(chunk).numbers(tag.DEAD, 1, 8)),
    "origin": _name(tag.ORIGIN),
    "metadata": _name(tag.METADATA),
    "policy": lambda chunk: _tags(chunk).policies(),
    "problem": _problem,
}
"""Each column of `columns`, in its order."""

assert tuple(PRODUCERS) == tuple(BY_NAME)


def batch_of(chunk: Chunk, names: tuple[str, ...]) -> Any:
    """A batch of these columns; the problems come last, since the others find them."""
    made = {name: PRODUCERS[name](chunk) for name in sorted(names, key="problem".__eq__)}
    return pa.RecordBatch.from_arrays([made[name] for name in names], schema=arrow_schema(names))


def damage_row(
    names: tuple[str, ...], place: Place | None, lsn: int | None, problem: str,
    offset: int | None = None, size: int | None = None,
) -> Any:  # fmt: skip
    """Return a batch of one row that stands for what cannot be read."""
    row: dict[str, object] = {
        "event": DAMAGE, "lsn": lsn, "problem": problem, "offset": offset, "bytes": size,
    }  # fmt: skip
    if place is not None:
        header = place.header
        row.update(server=place.server, incarnation=header.incarnation, segment=header.seq)
    return pa.RecordBatch.from_pylist([row], schema=arrow_schema(names))


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
    """Yield the records of a stretch in batches of at most `BATCH_ROWS` rows, or of one frame.

    :param buffer: the segment from its first byte, to the end of the stretch or further.
    :param tubes: known names; None: the frames before the stretch are searched for them.
    :param told_before: damage that begins before this LSN is left out.
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
