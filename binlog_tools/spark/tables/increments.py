"""Replaces the days of stored tables that have changed.  Each table commits by itself, and notes
the LSN of each server that it has reached; ``open`` is the last: the next run repeats one that was
killed.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from beanstalk_twisted.binlog.bodies import MAX_JSON_BYTES, fingerprint
from binlog_tools.spark.definitions.addresses import within as place_of
from binlog_tools.spark.definitions.columns import BY_NAME, arrow_schema, arrow_type
from binlog_tools.spark.errors import TableError
from binlog_tools.spark.histories import counters
from binlog_tools.spark.histories.failing import (
    FAILING,
    MARKS,
    marked,
    poison_of,
    readable,
    unmarked,
)
from binlog_tools.spark.histories.lifetimes import OF_WORKERS, workers_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.records import (
    COLUMNS,
    STARTS,
    TAKEN,
    Ints,
    Starts,
    chosen,
    coded,
    column,
    merged_starts,
    numbers,
)
from binlog_tools.spark.histories.tables import (
    ATTEMPTS,
    KINDS,
    LIFETIMES,
    POISON_JOBS,
    SNAPSHOT,
    TUBE_MINUTES,
    WORKERS,
    of_days,
)
from binlog_tools.spark.storing import Layout, Location, Replaced, StoredTable, open_stored
from binlog_tools.spark.tables.engines import InProcess, Noted, Plan, Progress, Spark, gathered
from binlog_tools.spark.tasks import Rows, rows_of

EVENTS: Final = arrow_schema(TAKEN)

COMMENTS: Final = {
    "server": "store's UUID, or its name", "job": "id of the job", "tube": "name of the tube",
    "state": "at the server's last moment",
    "outcome": "done, dead, expired, cancelled, deleted or alive",
    "last_event": "newest event of the job", "put": "when it was put",
    "first": "first record here", "last": "newest record here",
    "life_ns": "from put to deletion, ns", "priority": "0: the most urgent",
    "bytes": "size of the body", "attempts": "reservations",
    "waits": "waits that a reserve ended", "wait_ns": "time in ready, without what lasts, ns",
    "run_ns": "time reserved, without what lasts, ns",
    "delayed_ns": "time delayed, without what lasts, ns",
    "buried_ns": "time buried, without what lasts, ns", "is_whole": "its put is in the log",
    "deaths": "how often it became a dead letter",
    "lifetimes.dead_from": "tube that it died in last", "lifetimes.dead_at": "when it died last",
    "revivals": "how often kick-dead took it back",
    "incarnation": "start of the server, from 1", "connection": "of the worker",
    "attempt": "counter of reserves", "started": "when it was reserved",
    "ended": "when the run ended", "started_ns": "when it was reserved, ns",
    "ended_ns": "when the run ended, ns",
    "ended_by": "event, return or cancel; restart or unlogged: not in the log; null: it runs",
    "minute": "its beginning",
    "tube_minutes.oldest_ns":
        "how long the job had waited that was ready longest at the minute's end, ns",
    "wait_histogram": "length of waits in ns, three digits, to how many",
    "run_histogram": "length of runs in ns, three digits, to how many",
    "busy_ns": "time with at least one job, ns", "lost": "runs of which the end is not in the log",
    "fingerprint": "of the body; null without bodies",
    "sample": "beginning of the body of the example, readable", "as_of": "the moment that is shown",
    "is_inferred": "the state followed from time or a restart, not from a record",
    "poison_jobs.lsn": "newest record with its body", "open.lsn": "number of the record",
    "first_ns": "its first record, ns", "newest_ns": "its newest record, ns",
    "stopped_ns": "its ordered stop, ns; null: none",
    "snapshot.lsn": "newest record of the job", "snapshot.state": "at the moment that is shown",
    "date": "day of the deletion, UTC; of jobs that are alive, of the newest record",
    "tube_minutes.date": "day of the minute, UTC",
}  # fmt: skip
"""By column, or table and column where it means something else there."""

_DATE: Final = pa.field("date", pa.date32())


def _layout(name: str, schema: pa.Schema, partition_by: tuple[str, ...], *more: pa.Field) -> Layout:
    fields = [
        field.with_metadata({"comment": text}) if text else field
        for field in (*schema, *more)
        for text in (COMMENTS.get(f"{name}.{field.name}", COMMENTS.get(field.name)),)
    ]
    return Layout(name, pa.schema(fields), partition_by)


_BY_DAY: Final = ("server", "date")

LAYOUTS: Final = {
    layout.name: layout for layout in (
        _layout("lifetimes", LIFETIMES, _BY_DAY, _DATE),
        _layout("attempts", ATTEMPTS, _BY_DAY, _DATE),
        _layout("tube_minutes", TUBE_MINUTES, _BY_DAY, _DATE),
        _layout("workers", WORKERS, ("server", "incarnation")),
        _layout("poison_jobs", POISON_JOBS, _BY_DAY, _DATE),
        _layout("poison", KINDS, ()),
        _layout("snapshot", SNAPSHOT, ("server",)),
        _layout("starts", STARTS, ()),
        _layout("open", EVENTS, ("server",)),
    )
}  # fmt: skip
"""In the order in which they are committed."""

OPEN: Final = "open"
"""The events of jobs that are not settled: with them the next increment begins."""

INTERNAL: Final = frozenset({"starts", OPEN})
"""What the next increment begins with, besides the tables that questions are asked of."""

COUNTER_ROWS: Final = 1_000_000
"""Minute counters that are held before they are added up: some 50 MB."""

COMMIT_ROWS: Final = 200_000
"""Rows of a commit: `deltalake` holds them in memory, some 100 MB; a longer table takes several."""

Newer = Callable[[Progress], Rows]
"""The events after these LSNs, of all servers; there may be earlier ones among them."""


class Updated(NamedTuple):
    """A table that was brought up to date, and how many rows it has got."""

    name: str
    rows: int


def update(
    output: str, newer: Newer, engine: InProcess | Spark, until_ns: int | None = None
) -> Iterator[Updated]:
    """Commit one table after the other; none if there are no new events up to ``until_ns``."""
    Location.of(output).refuse_hopeless()
    stored = {name: open_stored(place_of(output, name), layout) for name, layout in LAYOUTS.items()}
    lost = [name for name, table in stored.items() if table.version is None]
    if lost and stored[OPEN].version is not None:
        what = f"{', '.join(lost)} is gone, and the other tables only go on from there"
        raise TableError("TABLE_NOT_FOUND", f"{output}: {what}; write into a new folder")
    taken = newer if until_ns is None else lambda known: _until(newer(known), until_ns)
    return _steps(stored, taken, engine)


def _steps(
    stored: Mapping[str, StoredTable], newer: Newer, engine: InProcess | Spark
) -> Iterator[Updated]:
    with tempfile.TemporaryDirectory(prefix="beanstalk-tables-") as folder:
        yield from _Run(stored, newer, engine, Path(folder)).steps()


def _until(rows: Rows, until_ns: int) -> Rows:
    def read(part: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in rows.read(part, [*names, *({"logged_ns"} - {*names})]):
            yield batch.filter(pc.field("logged_ns") <= until_ns).select(list(names))

    return rows._replace(read=read)


class _Run:
    """One increment."""

    def __init__(
        self, stored: Mapping[str, StoredTable], newer: Newer, engine: InProcess | Spark,
        folder: Path,
    ) -> None:  # fmt: skip
        self._stored = stored
        self._newer = newer
        self._engine = engine
        self._spool = Spool(folder)
        self._starts = stored["starts"].read()
        servers = pc.unique(self._starts["server"]).to_pylist()
        self._known = stored[OPEN].progress(servers)
        days = stored[OPEN].progress(map(_day_of, servers))
        self._days = {name: days[_day_of(name)] for name in servers if _day_of(name) in days}
        self._events = need(newer(self._known), COLUMNS)
        self._counters: list[pa.Table] = []
        self._failing = [of_days(FAILING.empty_table(), np.zeros(0, np.int64))]

    def _planned(self, noted: Noted) -> tuple[Plan, Rows]:
        self._noted = noted
        touched = set(noted.last)
        self._last_before = Starts(self._starts).newest()
        self._starts = merged_starts([self._starts, noted.starts])
        self._plan = Plan(Starts(self._starts), self._days)
        table = self._stored[OPEN]
        files = [file for file in table.files() if file.partition["server"] in touched]
        return self._plan, rows_of(table, files)

    def steps(self) -> Iterator[Updated]:
        if not self._events.parts:
            return
        found = False
        for name, rows in self._engine.pieces(self._events, self._known, self._planned):
            found = True
            self._take(name, rows)
        if not found and not hasattr(self, "_noted"):
            return
        yield self._commit("lifetimes")
        yield self._commit("attempts")
        yield self._commit("tube_minutes", self._minutes())
        yield self._commit("workers", self._workers())
        yield from self._poison()
        yield self._commit("snapshot")
        yield self._commit("starts", [self._starts])
        yield self._commit(OPEN)

    def _take(self, name: str, rows: pa.Table) -> None:
        if name == "counters":
            self._counters.append(rows)
            if sum(each.num_rows for each in self._counters) > COUNTER_ROWS:
                self._counters = [counters.merged(_unified(self._counters))]
        elif name == "failing":
            self._failing.append(rows)
        else:
            self._spool.add(LAYOUTS[name], rows)

    def _commit(self, name: str, tables: Iterable[pa.Table] = ()) -> Updated:
        layout = LAYOUTS[name]
        for rows in tables:
            self._spool.add(layout, rows)
        progress = dict(self._noted.last)
        if name == OPEN:
            next_days = self._plan.next_days()
            progress |= {_day_of(server): next_days[server] for server in self._noted.last}
        count = 0
        replaced: Replaced | None = self._replaced(layout)
        parts = self._spool.take(layout)
        rows = next(parts)
        for more in parts:
            # Without progress: a run that is killed here is repeated.
            self._stored[name].write(rows, replaced)
            count, rows, replaced = count + rows.num_rows, more, None
        self._stored[name].write(rows, replaced, progress)
        return Updated(name, count + rows.num_rows)

    def _replaced(self, layout: Layout) -> Replaced:
        """Choose the partitions of a table that this increment has made again."""
        servers = self._noted.last.keys()
        if "incarnation" in layout.partition_by:
            firsts = self._incarnations()
            return lambda part: (
                part["server"] in firsts and part["incarnation"] >= firsts[part["server"]]
            )
        if "date" in layout.partition_by:
            days = {server: _date(self._days.get(server, 0)) for server in servers}
            return lambda part: part["server"] in days and part["date"] >= days[part["server"]]
        return lambda part: part.get("server") in servers or not part

    def _minutes(self) -> Iterator[pa.Table]:
        added = counters.merged(_unified(self._counters))
        self._counters = []
        for rows in all_minutes(added, self._plan.starts.last_ns):
            minute_us = rows["minute"].cast(pa.int64()).to_numpy()
            yield of_days(rows, minute_us * 1000 // counters.DAY_NS)

    def _incarnations(self) -> dict[str, int]:
        """Return by server the first incarnation that events tell of, or the one before."""
        firsts: dict[str, int] = {}
        for row in self._noted.starts.to_pylist():
            server, number = row["server"], row["incarnation"]
            firsts[server] = min(number, firsts.get(server, number),
                                 self._last_before.get(server, number))  # fmt: skip
        return firsts

    def _workers(self) -> Iterator[pa.Table]:
        for server, first in self._incarnations().items():
            where = (ds.field("server") == server) & (ds.field("incarnation") >= first)
            yield workers_of(self._stored["attempts"].read(where, OF_WORKERS))

    def _poison(self) -> Iterator[Updated]:
        """Bodies are read of the jobs that fail now, or have another body than before."""
        jobs = pa.concat_tables(_plain(self._failing))
        table = self._stored["poison_jobs"]
        marks = table.read(names=MARKS.names).cast(MARKS)
        marks = marks.filter(pc.is_in(marks["server"], pa.array(list(self._noted.last))))
        wanted = unmarked(jobs, marks)
        if wanted:
            first = {server: int(lsns[0]) - 1 for server, lsns in wanted.items()}
            is_older = any(lsn < self._known.get(server, -1) for server, lsn in first.items())
            events = self._newer({**self._noted.last, **first}) if is_older else self._events
            marks = pa.concat_tables([marks, *self._marks(events, wanted)])
        rows = marked(jobs, marks).append_column("date", jobs["date"])
        yield self._commit("poison_jobs", [rows])
        yield self._commit("poison", [poison_of(table.read())])

    def _marks(self, events: Rows, wanted: Mapping[str, Ints]) -> Iterable[pa.Table]:
        if "body" not in events.schema.names:
            return []

        def marks(part: Any) -> pa.Table:
            read = gathered(events.read(part, ("server", "lsn", "body")))
            return pa.concat_tables([MARKS.empty_table(), *(_marks(each, wanted) for each in read)])

        return self._engine.each(marks, events.parts)


def _day_of(server: str) -> str:
    """The name under which the first day is noted that the next increment makes again."""
    return f"{server}/day"


def _date(day: int) -> date:
    return date(1970, 1, 1) + timedelta(day)


def _unified(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """Tables as one, whose text has one dictionary: plain text would take five times the memory."""
    found = list(tables)
    return [pa.concat_tables(found).unify_dictionaries().combine_chunks()] if found else []


def _plain(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """With text that is not in dictionaries, which differ from table to table."""
    return [_cast(table, pa.schema([
        field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ])) for table in tables]  # fmt: skip


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema) else table.cast(schema)


def _marks(events: pa.Table, wanted: Mapping[str, Ints]) -> pa.Table:
    place, servers = coded(events, "server")
    lsn = numbers(events, "lsn")
    found = np.zeros(len(lsn), bool)
    for number, name in enumerate(servers.to_pylist()):
        if name in wanted:
            found |= (place == number) & np.isin(lsn, wanted[name])
    events = chosen(events, found & column(events, "body").is_valid().to_numpy(False))
    bodies = events["body"].to_pylist()
    return pa.table({
        "server": column(events, "server").cast(pa.string()), "lsn": events["lsn"],
        "fingerprint": pa.array([fingerprint(body[: MAX_JSON_BYTES + 1]) for body in bodies],
                                pa.string()),
        "sample": pa.array([readable(body) for body in bodies], pa.string()),
    }, MARKS)  # fmt: skip


class Spool:
    """Rows of tables that wait for their commit, in files of this machine: memory holds a block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, tuple[IO[bytes], Any]] = {}

    def add(self, layout: Layout, rows: pa.Table) -> None:
        for name in layout.schema.names:
            if name not in rows.column_names:
                nulls = pa.nulls(rows.num_rows, layout.schema.field(name).type)
                rows = rows.append_column(name, nulls)
        if layout.name not in self._open:
            file = (self._folder / layout.name).open("wb")
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            stream = pa.ipc.new_stream(file, layout.schema, options=options)
            self._open[layout.name] = file, stream
        self._open[layout.name][1].write_table(_cast(rows.select(layout.schema.names),
                                                     layout.schema))  # fmt: skip

    def take(self, layout: Layout) -> Iterator[pa.Table]:
        """Yield the rows in tables of `COMMIT_ROWS`, or a little more; at least one."""
        if layout.name not in self._open:
            yield layout.schema.empty_table()
            return
        file, stream = self._open.pop(layout.name)
        stream.close()
        file.close()
        held: list[pa.RecordBatch] = []
        with pa.OSFile(str(self._folder / layout.name)) as raw:
            for batch in pa.ipc.open_stream(raw):
                if sum(each.num_rows for each in held) >= COMMIT_ROWS:
                    yield pa.Table.from_batches(held)
                    held = []
                held.append(batch)
        yield pa.Table.from_batches(held, layout.schema)


def need(events: Rows, names: Iterable[str]) -> Rows:
    """Return rows that have these columns; raise TableError if they lack one."""
    there = {field.name: field.type for field in events.schema}
    missing = [name for name in names if name not in there]
    if missing:
        raise TableError(
            "TABLE_COLUMN",
            f"the events table has no column {', '.join(missing)}; it has {', '.join(there)}; read "
            "the log again with all columns, or without the option columns",
        )
    for name in names:
        kind = arrow_type(BY_NAME[name].ddl)
        if there[name] != kind:
            raise TableError(
                "TABLE_COLUMN", f"column {name} of the events table is {there[name]}, not {kind}"
            )
    return events
