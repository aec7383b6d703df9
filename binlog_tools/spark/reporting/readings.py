"""All that the report says, read from the tables: some thousand numbers out of any number of
rows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.errors import TableError
from binlog_tools.spark.histories.failing import readable
from binlog_tools.spark.reporting.page import MINUTE_S
from binlog_tools.spark.reporting.series import (
    ALWAYS,
    ENDS,
    OTHERS,
    Flow,
    Period,
    Rows,
    Series,
    flow,
    in_steps,
    open_table,
    seconds_of,
)

ENDED_BY: Final = {
    "ttr-expired": "timeouts", "release": "releases", "bury": "buries",
    "disconnect-release": "disconnects",
}  # fmt: skip
"""How runs end that failed, in `attempts` and in the figures."""

UNLOGGED: Final = ("restart", "unlogged")
"""Ends that are not in the log: when they were is inferred, so they are in no percentile."""


@dataclass
class _Times:
    """Moments of rows in a period; ``tubes``: the place of each row in `Series.names`."""

    flow: Flow
    period: Period
    tubes: np.ndarray

    def places(self, series: Series, times: np.ndarray) -> tuple[np.ndarray, ...]:
        """Of the rows with a moment in the period: which they are, their tubes and steps."""
        end = min(self.period.end, series.start + series.width * series.count)
        kept = np.flatnonzero((times >= max(self.period.start, series.start)) & (times < end))
        steps = ((times[kept] - series.start) // series.width).astype(np.int64)
        tubes = self.tubes[kept] if len(series.names) > 1 else np.zeros(len(kept), np.int64)
        return kept, tubes, steps


def refine(flow: Flow, attempts: Rows, lifetimes: Rows, period: Period, coarser: int = 1) -> None:
    """Give a flow figures in steps of seconds, if there is room."""
    whole, tubes = in_steps(flow.survey, flow.tubes.names, coarser, least=1)
    if tubes.width >= MINUTE_S:
        return
    flow.fine = (whole, tubes)
    names = ["tube", "started", "ended", "ended_by", "wait_ns", "run_ns"]
    for batch in attempts.batches(names):
        times = _Times(flow, period, _tubes(batch["tube"], tubes.names))
        for series in flow.fine:
            _add_runs(series, times, batch)
    for batch in lifetimes.batches(["tube", "state", "put", "last", "is_whole"]):
        times = _Times(flow, period, _tubes(batch["tube"], tubes.names))
        put = np.where(_true(batch["is_whole"]), seconds_of(batch["put"]), np.nan)
        gone = np.where(_true(pc.equal(batch["state"], "gone")), seconds_of(batch["last"]), np.nan)
        for series in flow.fine:
            for name, moments in (("puts", put), ("deletes", gone)):
                _, *where = times.places(series, moments)
                np.add.at(series.numbers[name], tuple(where), 1)


def _add_runs(series: Series, times: _Times, batch: pa.RecordBatch) -> None:
    started, ended = seconds_of(batch["started"]), seconds_of(batch["ended"])
    rows, tubes, steps = times.places(series, started)
    np.add.at(series.numbers["reserves"], (tubes, steps), 1)
    series.waits.add_each(tubes * series.count + steps, _numbers(batch["wait_ns"])[rows])
    by = np.array(pc.fill_null(batch["ended_by"], "").to_pylist(), object)
    is_logged = ~np.isin(by, [*UNLOGGED, ""])
    rows, tubes, steps = times.places(series, np.where(is_logged, ended, np.nan))
    series.runs.add_each(tubes * series.count + steps, _numbers(batch["run_ns"])[rows])
    for end, name in ENDED_BY.items():
        mine = by[rows] == end
        np.add.at(series.numbers[name], (tubes[mine], steps[mine]), 1)


def _true(column: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), bool)


def _numbers(column: pa.Array) -> np.ndarray:
    """-1 for null."""
    return np.asarray(pc.fill_null(column, -1).to_numpy(zero_copy_only=False), np.int64)


def _tubes(column: pa.Array, names: Sequence[str]) -> np.ndarray:
    places: Mapping[str, int] = {name: at for at, name in enumerate(names)}
    last = len(names) - 1 if names[-1] == OTHERS else 0
    found: Iterator[int] = (places.get(name or "?", last) for name in column.to_pylist())
    return np.fromiter(found, np.int64, len(column))


ROWS: Final = 20
"""Rows of the lists of what is worst: what somebody reads."""

KIND_JOBS: Final = 10
"""Jobs of a kind that are listed: enough to look at."""

MAX_MARKS: Final = 200
"""Marks on a time axis, the newest: more would hide what they mark."""

Row = dict[str, Any]


class Mark(NamedTuple):
    """A start of a server, in seconds, and how it had ended: ``kill`` or, in order, ``stop``."""

    at: float
    kind: str
    text: str


@dataclass
class DeadLetters:
    """Dead letters of a tube and reason, and when the first and last died, seconds, if known."""

    jobs: int
    oldest: float | None
    newest: float | None

    def add(self, other: "DeadLetters") -> None:
        self.jobs += other.jobs
        self.oldest = min(filter(None, (self.oldest, other.oldest)), default=None)
        self.newest = max(filter(None, (self.newest, other.newest)), default=None)


@dataclass
class Readings:
    """What the tables say of a period.  Without a table its part is None or empty.

    :ivar absent: the tables that are not there, so that nothing is known of what they say.
    :ivar outcomes: of jobs; ``begun_before`` of them were there before the log begins.
    :ivar dead: dead letters that are there, by the tube that they died in and why.
    :ivar died: jobs that died in the period, also those that were brought back or deleted since.
    :ivar kinds: what fails again and again, and has since the period began, worst first, each with
        a ``sample`` if one is known.
    :ivar jobs: of these kinds, those that failed most often.
    :ivar unended: runs without an end in the log, which no percentile counts.
    :ivar damages: places that could not be read; None if nobody looked.
    """

    period: Period = ALWAYS
    absent: tuple[str, ...] = ()
    flow: Flow | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    begun_before: int = 0
    dead: dict[tuple[str, str], DeadLetters] = field(default_factory=dict)
    died: int = 0
    kinds: list[Row] = field(default_factory=list)
    jobs: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)
    worker_count: int = 0
    unended: int = 0
    marks: list[Mark] = field(default_factory=list)
    damages: int | None = None


class Selection(NamedTuple):
    """The folder of tables to read, an events table for bodies and damages, and a period."""

    tables: str
    events: str | None = None
    period: Period = ALWAYS


def read(selection: Selection, coarser: int = 1) -> Readings:
    """Read tables; raise TableError if there is none, or they were not finished."""
    opened = {name: open_table(within(selection.tables, name)) for name in KNOWN}
    found = {name: rows for name, rows in opened.items() if rows is not None}
    if not found:
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{selection.tables}: there is none of the tables {', '.join(KNOWN)}; make them: "
            f"python -m binlog_tools.spark tables LOG -o {selection.tables}",
        )
    starts = open_table(within(selection.tables, STARTS))
    if starts is not None:
        _refuse_unfinished(selection.tables, {**found, STARTS: starts})
    readings = Readings(selection.period, tuple(name for name in KNOWN if name not in found))
    for name, rows in found.items():
        if name == MINUTES:
            readings.flow = flow(rows, selection.period, coarser)
        elif KNOWN[name] is not None:
            KNOWN[name](readings, rows)
    if readings.flow is not None and {"attempts", "lifetimes"} <= {*found}:
        refine(readings.flow, found["attempts"], found["lifetimes"], selection.period, coarser)
    if starts is not None:
        readings.marks = _starts_in(starts, selection.period)
    jobs = open_table(within(selection.tables, "poison_jobs"))
    if jobs is not None:
        readings.jobs = _jobs_of(readings.kinds, jobs)
    if selection.events is not None:
        _look_at_events(readings, selection.events)
    return readings


def _refuse_unfinished(place: str, found: Mapping[str, Rows]) -> None:
    """Raise TableError if the tables have reached different records."""
    servers = {server for batch in found[STARTS].batches(["server"])
               for server in batch["server"].to_pylist()}  # fmt: skip
    reached = {tuple(sorted(rows.progress(servers).items())) for rows in found.values()}
    # Those of `live` are commited one by one, and have no such rows in common.
    if len(reached) > 1 and not found[STARTS].is_live:
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{place}: the run that made these tables has not come to its end; make them again: "
            f"python -m binlog_tools.spark tables LOG -o {place}",
        )


def _jobs_of(kinds: Sequence[Row], jobs: Rows) -> list[Row]:
    """Of each kind, the jobs that failed most often."""
    found: dict[tuple[Any, Any], list[Row]] = {
        (kind["tube"], kind["fingerprint"]): [] for kind in kinds
    }
    columns = ("tube", "fingerprint", "server", "job", "state", "failures", "last", "sample")
    for batch in jobs.batches(columns):
        for row in batch.to_pylist():
            if (mine := found.get((row["tube"], row["fingerprint"]))) is not None:
                mine.append(row)
                mine.sort(key=lambda row: (-row["failures"], row["server"], row["job"]))
                del mine[KIND_JOBS:]
    return [row for mine in found.values() for row in mine]


def _read_lifetimes(readings: Readings, rows: Rows) -> None:
    for batch in rows.batches(["outcome", "is_whole", *_DEAD]):
        for count in pc.value_counts(batch["outcome"]).to_pylist():
            readings.outcomes[count["values"]] += count["counts"]
        readings.begun_before += pc.sum(pc.invert(batch["is_whole"])).as_py() or 0
        _add_dead(readings, batch)


_DEAD: Final = ("dead_from", "dead_reason", "dead_at")


def _add_dead(readings: Readings, batch: pa.RecordBatch) -> None:
    moments = pa.array(seconds_of(batch["dead_at"]), from_pandas=True)
    named = {name: batch[name] for name in ("outcome", "dead_from", "dead_reason")}
    died = pa.table({**named, "dead_at": moments}).filter(pc.is_valid(batch["dead_from"]))
    readings.died += _how_many(died["dead_at"], readings.period)
    dead = died.filter(pc.equal(died["outcome"], "dead"))
    groups = dead.group_by(["dead_from", "dead_reason"]).aggregate(
        [("outcome", "count"), ("dead_at", "min"), ("dead_at", "max")]
    )
    for row in groups.to_pylist():
        found = DeadLetters(row["outcome_count"], row["dead_at_min"], row["dead_at_max"])
        known = readings.dead.setdefault((row["dead_from"], row["dead_reason"]), found)
        if known is not found:
            known.add(found)


def _how_many(moments: pa.ChunkedArray, period: Period) -> int:
    """Of those in a period; of all time also those that nobody knows."""
    if period == ALWAYS:
        return len(moments)
    inside = pc.and_(pc.greater_equal(moments, period.start), pc.less(moments, period.end))
    return pc.sum(inside).as_py() or 0


def _read_poison(readings: Readings, rows: Rows) -> None:
    columns = [
        "tube", "fingerprint", "jobs", "failures", *ENDS, "alive", "example_server", "example_job",
        *(name for name in ("dead", "last", "sample") if name in rows.names),
    ]  # fmt: skip
    since = (_failing_since(batch, readings.period.start) for batch in rows.batches(columns))
    readings.kinds = _most(since, "failures", ("tube", "fingerprint"))


def _failing_since(batch: pa.RecordBatch, start: float) -> pa.RecordBatch:
    """Return the kinds of jobs that have failed since then, or nobody knows when."""
    if "last" not in batch.schema.names:
        return batch
    return batch.filter(pa.array(~(seconds_of(batch["last"]) < start)))


def _read_workers(readings: Readings, rows: Rows) -> None:
    columns = (
        "server", "incarnation", "connection", "first", "last", "jobs", "runs", "busy_ns",
        "deletes", *ENDS, "lost",
    )  # fmt: skip
    for batch in rows.batches(columns):
        batch = _overlapping(batch, readings.period)
        readings.worker_count += batch.num_rows
        readings.unended += pc.sum(batch["lost"]).as_py() or 0
        keys = ("server", "incarnation", "connection")
        readings.workers = _most([batch], "busy_ns", keys, readings.workers)


def _starts_in(rows: Rows, period: Period) -> list[Mark]:
    """A mark for each start of a server but the first that is known, by how it had ended before."""
    found: dict[tuple[str, int], Row] = {
        (row["server"], row["incarnation"]): row
        for batch in rows.batches(["server", "incarnation", "first_ns", "newest_ns", "stopped_ns"])
        for row in batch.to_pylist()
    }
    firsts: dict[str, int] = {}
    marks = []
    for server, number in sorted(found):
        before = found.get((server, number - 1))
        is_stop = before is not None and before["stopped_ns"] == before["newest_ns"]
        kind, after = ("stop", "an ordered stop") if is_stop else ("kill", "a kill or crash")
        at = found[server, number]["first_ns"] / 1e9
        if firsts.setdefault(server, number) != number and period.start <= at < period.end:
            text = f"{server_text(server)}: start {number} after {after}"
            marks.append(Mark(at, kind, text))
    return sorted(marks, key=lambda mark: mark.at)[-MAX_MARKS:]


def _overlapping(batch: pa.RecordBatch, period: Period) -> pa.RecordBatch:
    firsts, lasts = seconds_of(batch["first"]), seconds_of(batch["last"])
    return batch.filter(pa.array(~((lasts < period.start) | (firsts >= period.end))))


def server_text(server: str) -> str:
    """A name as it is; of a UUID the beginning, which is enough to tell servers apart."""
    return server[:8] if len(server) == 32 else server


def _most(
    batches: Iterable[pa.RecordBatch], by: str, then: Sequence[str], best: Sequence[Row] = ()
) -> list[Row]:
    """The `ROWS` rows with most of something, in an order that is always the same."""
    rows = list(best)
    for batch in batches:
        rows += batch.to_pylist()
        rows.sort(key=lambda row: (-(row[by] or 0), *(str(row[name]) for name in then)))
        del rows[ROWS:]
    return rows


def _look_at_events(readings: Readings, place: str) -> None:
    """Count places that could not be read, and take a body of each kind without a sample."""
    rows = open_table(place)
    if rows is None:
        raise TableError("TABLE_NOT_FOUND", f"{place}: there is no events table")
    damages = rows.batches(["event"], ds.field("event") == "damage")
    readings.damages = sum(batch.num_rows for batch in damages)
    if "body" not in rows.names:
        return
    wanted = {
        (kind["example_server"], kind["example_job"]): kind
        for kind in readings.kinds if not kind.get("sample")
    }  # fmt: skip
    jobs = ds.field("job").isin([job for _, job in wanted])
    for batch in rows.batches(["server", "job", "body"], jobs & ds.field("body").is_valid()):
        for row in batch.to_pylist():
            if (kind := wanted.get((row["server"], row["job"]))) is not None:
                kind["sample"] = readable(row["body"])


MINUTES: Final = "tube_minutes"
"""The table that says what happened, and when; servers and tubes are known from it."""

STARTS: Final = "starts"
"""The table of starts of servers; `live` keeps none."""

KNOWN: Final[Mapping[str, Any]] = {
    MINUTES: None,
    "lifetimes": _read_lifetimes,
    "poison": _read_poison,
    "workers": _read_workers,
    "attempts": None,
}
"""The tables that the report looks at, and what it takes from each."""
