"""How each column of `columns` is made of the words of records."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beanstalk_twisted.binlog.records.jobs import KEY, REASONS, WITHHELD_NS, Flag
from beanstalk_twisted.binlog.records.others import JOB_KINDS, Counters, Pause, TubeDef, TubePolicy
from binlog_tools.inspect.dumping import reason_name, state_name
from binlog_tools.logs.stored import type_name
from binlog_tools.spark.definitions.columns import BY_NAME, arrow_schema, arrow_type
from binlog_tools.spark.segments import framing as at
from binlog_tools.spark.segments import payloads as tag
from binlog_tools.spark.segments.framing import Ints, Mask, Rows, Run
from binlog_tools.spark.segments.payloads import NO_TUBE, Bodies, TagColumns, TubeNames
from binlog_tools.spark.segments.wanted import DAMAGE, Place

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
    """The rows of a batch, and what its columns are made of.

    :ivar problems: what is wrong with single rows.
    """

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
    """An Arrow array over these numbers, without a copy.

    :param valid: which are there; the others are null.
    """
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
    """A batch of one row that stands for what cannot be read.

    :param size: how many bytes that are, as far as it is known.
    """
    row: dict[str, object] = {
        "event": DAMAGE, "lsn": lsn, "problem": problem, "offset": offset, "bytes": size,
    }  # fmt: skip
    if place is not None:
        header = place.header
        row.update(server=place.server, incarnation=header.incarnation, segment=header.seq)
    return pa.RecordBatch.from_pylist([row], schema=arrow_schema(names))
