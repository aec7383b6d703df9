"""
What the report says, read from the tables: a few hundred numbers out of any number of rows.

The tables are read batch by batch with Arrow, so neither Spark nor a Java is needed, and memory
holds what is drawn and not what is read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.wholeness import SUCCESS, TEMPORARY, UNFINISHED, is_whole

BINS: Final = 360
"""Points along a time axis at most: more than the page has room for says no more."""

WIDTHS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 43200, 129600)
"""Widths that a bin may have, in minutes."""

TUBES: Final = 6
"""Tubes with a colour of their own; the others are one."""

ROWS: Final = 12
"""Rows of the lists of what is worst."""

OTHERS: Final = "other tubes"
STATES: Final = ("ready", "reserved", "delayed", "buried")
ENDS: Final = ("timeouts", "releases", "buries", "disconnects")

Row = dict[str, Any]


@dataclass
class DeadLetters:
    """
    The dead letters of a tube that died for one reason.

    :ivar oldest: when the first of them died, ``newest`` the last.
    """

    jobs: int
    oldest: datetime
    newest: datetime

    def add(self, other: "DeadLetters") -> None:
        self.jobs += other.jobs
        self.oldest = min(self.oldest, other.oldest)
        self.newest = max(self.newest, other.newest)


@dataclass
class Series:
    """
    Numbers along time, one a bin of ``width`` minutes from ``start``, minutes since the epoch.
    """

    start: int
    width: int
    count: int
    depth: dict[str, np.ndarray] = field(default_factory=dict)
    by_tube: dict[str, np.ndarray] = field(default_factory=dict)
    flow: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def times(self) -> list[datetime]:
        return [
            datetime.fromtimestamp((self.start + at * self.width) * 60, UTC)
            for at in range(self.count)
        ]


@dataclass
class Readings:
    """
    All that the report shows.  Without a table its part is None or empty.

    :ivar absent: the tables that are not there, so that nothing is known of what they say.
    :ivar waits: histogram of waits: nanoseconds, rounded down, to how many; likewise ``runs``.
    :ivar hours: jobs that were put, by day of the week (Monday first) and hour, in UTC.
    :ivar totals: by tube.
    :ivar dead: dead letters that are there, by the tube that they died in and why.
    """

    absent: tuple[str, ...] = ()
    series: Series | None = None
    waits: Counter[int] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)
    hours: np.ndarray = field(default_factory=lambda: np.zeros((7, 24), np.int64))
    totals: dict[str, Counter[str]] = field(default_factory=dict)
    servers: set[str] = field(default_factory=set)
    oldest_ns: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    dead: dict[tuple[str, str], DeadLetters] = field(default_factory=dict)
    poison: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)
    worker_count: int = 0


def read(tables: Path) -> Readings:
    """
    The tables in a directory, each in the one that is named after it.

    :raise TableError: there is none, or one cannot be read, or they were not finished.
    """
    if (tables / UNFINISHED).exists():
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{tables}: the run that made these tables has not come to its end; make them again: "
            f"python -m binlog_tools.spark tables LOG -o {tables} --mode overwrite",
        )
    found = {name: dataset(tables / name) for name in KNOWN if (tables / name).is_dir()}
    if not found:
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{tables}: there is none of the tables {', '.join(KNOWN)}; make them: "
            f"python -m binlog_tools.spark tables LOG -o {tables}",
        )
    readings = Readings(absent=tuple(name for name in KNOWN if name not in found))
    for name, fold in KNOWN.items():
        if name in found:
            fold(readings, found[name])
    return readings


def dataset(path: Path) -> Any:
    """
    A table of Parquet files; without a row, and in partitions, it has none.

    :raise TableError: it is not whole, or cannot be read.
    """
    if not is_whole(path):
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{path}: it is not whole (no {SUCCESS}, or {TEMPORARY} in it): whoever writes it has "
            "not finished, or was killed; wait, or make it again with --mode overwrite",
        )
    partitions = ds.partitioning(
        pa.schema([("server", pa.string()), ("date", pa.string())]), flavor="hive"
    )
    try:
        found = ds.dataset(path, format="parquet", partitioning=partitions)
    except (pa.ArrowInvalid, OSError) as problem:
        raise TableError(
            "TABLE_NOT_FOUND", f"{path}: {str(problem).partition(chr(10))[0]}"
        ) from None
    return found


def rows_of(table: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """
    :raise TableError: one of these columns is missing.
    """
    if not table.files:
        return
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        raise TableError(
            "TABLE_NOT_FOUND",
            f"{Path(table.files[0]).parent}: no column {', '.join(missing)}; was it made by "
            "python -m binlog_tools.spark?",
        )
    for batch in table.to_batches(columns=list(names)):
        if batch.num_rows:
            yield batch


def _minutes(batch: pa.RecordBatch) -> np.ndarray:
    micros = pc.cast(pc.cast(batch["minute"], pa.timestamp("us", "UTC")), pa.int64())
    minutes: np.ndarray = micros.to_numpy(zero_copy_only=False) // 60_000_000
    return minutes


def _fold_minutes(readings: Readings, table: Any) -> None:
    span = _span(readings, table)
    if span is None:
        return
    first, last = span
    width = next((each for each in WIDTHS if (last - first) // each < BINS), WIDTHS[-1])
    start = first - first % width
    series = Series(start, width, (last - start) // width + 1)
    ranks = [tube for tube, _ in busiest(readings.totals)]
    shown = ranks if len(ranks) <= TUBES + 1 else ranks[:TUBES]
    names = [*shown, *([OTHERS] if len(ranks) > len(shown) else [])]
    series.depth, series.by_tube, series.flow = (
        {name: np.zeros(series.count, np.int64) for name in each}
        for each in (STATES, names, ("puts", "deletes", *ENDS))
    )
    columns = ("tube", "minute", "puts", "deletes", *ENDS, *STATES)
    for batch in rows_of(table, columns):
        _add_batch(readings, series, set(shown), last, batch)
    readings.series = series


def _span(readings: Readings, table: Any) -> tuple[int, int] | None:
    """
    The first and the last minute; and the sums that need no bins.
    """
    edges: list[int] = []
    counted = ("puts", "reserves", "deletes", *ENDS, "kicks")
    columns = ("server", "tube", "minute", "oldest_ns", "wait_histogram", "run_histogram", *counted)
    for batch in rows_of(table, columns):
        minutes = _minutes(batch)
        edges += (int(minutes.min()), int(minutes.max()))
        readings.servers.update(pc.unique(batch["server"]).to_pylist())
        readings.oldest_ns = max(readings.oldest_ns, pc.max(batch["oldest_ns"]).as_py() or 0)
        _add_histogram(readings.waits, batch["wait_histogram"])
        _add_histogram(readings.runs, batch["run_histogram"])
        sums = pa.table({"tube": batch["tube"], **{name: batch[name] for name in counted}})
        grouped = sums.group_by("tube").aggregate([(name, "sum") for name in counted])
        for row in grouped.to_pylist():
            total = readings.totals.setdefault(row["tube"] or "?", Counter())
            total.update({name: row[f"{name}_sum"] for name in counted})
    return (min(edges), max(edges)) if edges else None


def _add_histogram(histogram: Counter[int], maps: Any) -> None:
    """
    Of a slice, ``keys`` gives those of the whole; ``offsets`` says where the slice is.
    """
    first, end = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    entries = pa.table({
        "key": maps.keys.slice(first, end - first), "count": maps.items.slice(first, end - first),
    })  # fmt: skip
    for row in entries.group_by("key").aggregate([("count", "sum")]).to_pylist():
        histogram[row["key"]] += row["count_sum"]


def _add_batch(
    readings: Readings, series: Series, shown: set[str], last: int, batch: pa.RecordBatch
) -> None:
    minutes = _minutes(batch)
    bins = (minutes - series.start) // series.width
    numbers = {name: batch[name].to_numpy(zero_copy_only=False) for name in batch.schema.names[2:]}
    for name, sums in series.flow.items():
        np.add.at(sums, bins, numbers[name])
    is_end = ((minutes - series.start) % series.width == series.width - 1) | (minutes == last)
    for state in STATES:
        np.add.at(series.depth[state], bins[is_end], numbers[state][is_end])
    hours = (minutes // 60) % 24
    days = (minutes // 1440 + 3) % 7
    np.add.at(readings.hours, (days, hours), numbers["puts"])
    tubes = batch["tube"].to_pylist()
    ready = numbers["ready"]
    for at in np.flatnonzero(is_end):
        tube = tubes[at] or "?"
        series.by_tube[tube if tube in shown else OTHERS][bins[at]] += ready[at]


def _fold_lifetimes(readings: Readings, table: Any) -> None:
    for batch in rows_of(table, ("outcome",)):
        for count in pc.value_counts(batch["outcome"]).to_pylist():
            readings.outcomes[count["values"]] += count["counts"]

    # Tables of earlier versions know nothing of dead letters.
    if table.files and {*_DEAD} <= set(table.schema.names):
        for batch in rows_of(table, ("outcome", *_DEAD)):
            _add_dead(readings, batch)


_DEAD: Final = ("dead_from", "dead_reason", "dead_at")


def _add_dead(readings: Readings, batch: pa.RecordBatch) -> None:
    dead = pa.Table.from_batches([batch]).filter(pc.equal(batch["outcome"], "dead"))
    groups = dead.group_by(["dead_from", "dead_reason"]).aggregate(
        [("dead_at", "count"), ("dead_at", "min"), ("dead_at", "max")]
    )
    for row in groups.to_pylist():
        found = DeadLetters(row["dead_at_count"], row["dead_at_min"], row["dead_at_max"])
        known = readings.dead.setdefault((row["dead_from"], row["dead_reason"]), found)
        if known is not found:
            known.add(found)


def _fold_poison(readings: Readings, table: Any) -> None:
    columns = (
        "tube", "fingerprint", "jobs", "failures", *ENDS, "alive", "example_server", "example_job",
    )  # fmt: skip
    readings.poison = _most(rows_of(table, columns), "failures", ("tube", "fingerprint"))


def _fold_workers(readings: Readings, table: Any) -> None:
    columns = (
        "server", "incarnation", "connection", "jobs", "runs", "busy_ns", "deletes", *ENDS, "lost",
    )  # fmt: skip
    readings.worker_count = table.count_rows()
    readings.workers = _most(
        rows_of(table, columns), "busy_ns", ("server", "incarnation", "connection")
    )


def _most(batches: Iterable[pa.RecordBatch], by: str, then: Sequence[str]) -> list[Row]:
    """
    The `ROWS` rows with most of something, in an order that is always the same.
    """
    best: list[Row] = []
    for batch in batches:
        best += batch.to_pylist()
        best.sort(key=lambda row: (-row[by], *(str(row[name]) for name in then)))
        del best[ROWS:]
    return best


def percentile(histogram: Mapping[int, int], share: float) -> int | None:
    wanted = share * sum(histogram.values())
    seen = 0
    for length_ns in sorted(histogram):
        seen += histogram[length_ns]
        if seen >= wanted:
            return length_ns
    return None


def busiest(totals: Mapping[str, Counter[str]]) -> list[tuple[str, Counter[str]]]:
    return sorted(
        totals.items(), key=lambda pair: (-pair[1]["puts"] - pair[1]["reserves"], pair[0])
    )


KNOWN: Final = {
    "tube_minutes": _fold_minutes,
    "lifetimes": _fold_lifetimes,
    "poison": _fold_poison,
    "workers": _fold_workers,
}
"""The tables that the report looks at, and what it takes from each."""
