"""
The tables of jobs, brought up to date with the events.

Of each table the rows of jobs that are gone are final and only added to; those of all other jobs
(`settled` is false) are replaced.  Beside the tables stand those that the next run goes on from:
the events of jobs that are not gone (`open`), entries of minutes, and the starts of servers.  Each
commit says up to which LSN of each server its table goes.  `open` is committed last, so that a run
that was killed is done again by the next, for what was not committed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from binlog_tools.spark.frames import read_frame
from binlog_tools.spark.histories import entries as added_up
from binlog_tools.spark.histories.entries import DAY_NS, MINUTES_A_DAY
from binlog_tools.spark.histories.images import chosen, numbers
from binlog_tools.spark.histories.increments import (
    NAMES,
    Made,
    Progress,
    changed_days,
    increment,
)
from binlog_tools.spark.histories.minutes import DEPTHS, depths_after, tube_minutes_of
from binlog_tools.spark.histories.sla import Targets, sla_of
from binlog_tools.spark.histories.starts import Starts, merged
from binlog_tools.spark.histories.workers import COLUMNS as OF_ATTEMPTS
from binlog_tools.spark.histories.workers import workers_of
from binlog_tools.spark.storing.files import (
    FILE_DDL,
    File,
    Layout,
    as_batch,
    files_of,
    stored_files,
)
from binlog_tools.spark.storing.locations import Location, place_of
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import Change, Stored, dataset_of
from binlog_tools.spark.tables.by_job import TAKEN, blocks_of, for_jobs, told_by
from binlog_tools.spark.tables.layouts import LAYOUTS
from binlog_tools.spark.tables.pipelines import opened, write
from binlog_tools.spark.tables.poison import poison
from binlog_tools.spark.tasks import in_tasks

EPOCH: Final = date(1970, 1, 1)

HELD_ROWS: Final = 2_000_000
"""Rows that a task holds before it writes them, some 300 MB."""

Newer = Callable[[Progress], DataFrame]
"""The events behind these LSNs, of all servers."""


class Updated(NamedTuple):
    """
    A table that was brought up to date.

    :ivar rows: that were written, new ones and those in the place of others.
    """

    name: str
    rows: int


def update(
    spark: SparkSession, output: str, newer: Newer, every: Callable[[], DataFrame],
    form: str = "delta", targets: Targets = (),
) -> Iterator[Updated]:  # fmt: skip
    """
    Commit table after table of `LAYOUTS`, and `poison`; nothing, if there are no new events.

    :param output: the folder of the tables, or its URL.
    :param every: all events, with bodies: `poison` is made anew of them.
    :param form: as `open_stored` takes it; Parquet is written whole.
    :raise TableError: see `open_stored`; a column of the events is missing.
    """
    stored = {name: open_stored(place_of(output, name), layout, form)
              for name, layout in LAYOUTS.items()}  # fmt: skip

    def made_anew() -> Updated:
        table = opened("poison", place_of(output, "poison"), form, "overwrite")
        return Updated("poison", write("poison", poison(every()), table))

    yield from _Run(spark, stored, newer, made_anew, targets).steps()


class _Run:
    """
    One run: what it goes on from, and what it commits.
    """

    def __init__(
        self, spark: SparkSession, stored: Mapping[str, Stored], newer: Newer,
        made_anew: Callable[[], Updated], targets: Targets,
    ) -> None:  # fmt: skip
        """
        :param made_anew: commits what does not grow.
        """
        self._spark = spark
        self._made_anew = made_anew
        self._stored = stored
        self._targets = targets
        self._goes_on = stored["open"].form == "delta"
        self._starts_before = self._rows("starts")
        known = stored["open"].progress(pc.unique(self._starts_before["server"]).to_pylist())
        self._events = newer(known)
        told, self._reached = told_by(self._events)
        self._told = told
        self._progress = {**known, **self._reached}
        self._starts_rows = merged([self._starts_before, told])
        self._starts = Starts(self._starts_rows)

    def _rows(self, name: str, wanted: Mapping[str, str | None] | None = None) -> pa.Table:
        """
        What a table has in these partitions, if this run goes on from it.
        """
        table = self._stored[name]
        schema = LAYOUTS[name].schema
        files = self._files(name, wanted or {})
        return dataset_of(table.location, schema, files).to_table() if files else (
            schema.empty_table())  # fmt: skip

    def _files(self, name: str, wanted: Mapping[str, str | None]) -> list[File]:
        table = self._stored[name]
        if not self._goes_on or table.version is None:
            return []
        return [file for file in table.files() if file.is_in(wanted)]

    def steps(self) -> Iterator[Updated]:
        if not self._reached and self._stored["open"].version is not None:
            return
        made = self._by_job()
        for name in ("lifetimes", "attempts"):
            yield self._commit(name, made[name], ({"settled": "false"},))
        yield self._workers()
        yield from self._minutes(made["entries"])
        yield self._commit("entries", made["entries"], ({"settled": "false"},))
        starts = stored_files(self._stored["starts"].location, self._starts_rows.to_batches(),
                              LAYOUTS["starts"])  # fmt: skip
        yield self._commit("starts", starts, ({},))
        yield self._made_anew()
        yield self._commit("open", made["open"], ({},))

    def _commit(
        self, name: str, files: Iterable[File], replaced: tuple[Mapping[str, str | None], ...]
    ) -> Updated:
        added = tuple(files)
        if not self._goes_on:
            replaced = ({},)
        self._stored[name].commit(Change(added, replaced, self._progress))
        return Updated(name, sum(file.rows for file in added))

    def _by_job(self) -> dict[str, list[File]]:
        """
        The files of the tables that are made job by job.
        """
        blocks = blocks_of(self._events)
        before = self._files("open", {})
        if before:
            blocks = blocks.union(
                blocks_of(read_frame(self._spark, self._stored["open"], TAKEN, before))
            )
        known = {name: self._stored[name].progress(self._progress) if self._goes_on else {}
                 for name in NAMES}  # fmt: skip
        places = {name: self._stored[name].location for name in (*NAMES, "open")}
        writer = _Writer(places, self._starts, known, self._progress)
        found = (
            blocks.repartition("server", "block")
            .mapInArrow(for_jobs(writer), f"name string, {FILE_DDL}").toArrow()
        )  # fmt: skip
        names = found["name"].to_pylist()
        files: dict[str, list[File]] = {name: [] for name in places}
        for name, file in zip(names, files_of(found.drop_columns("name")), strict=True):
            files[name].append(file)
        return files

    def _minutes(self, added: list[File]) -> Iterator[Updated]:
        last_ns = self._starts.last_ns
        kept = self._files("entries", {"settled": "true"})
        work = _Days(self._stored["entries"].location, self._stored["tube_minutes"].location,
                     self._stored["sla"].location, self._targets)  # fmt: skip
        first = self._changed(added)
        items = [
            _Server(server, day, last_ns[server], self._depths(server, day),
                    _by_date([*kept, *added], server, day))
            for server, day in sorted(first.items())
        ]  # fmt: skip
        made: list[tuple[list[File], list[File]]] = in_tasks(self._spark, items, work)
        replaced = tuple(
            {"server": item.server, "date": str(_date(day))}
            for item in items for day in range(item.first, item.last_ns // DAY_NS + 1)
        )  # fmt: skip
        for place, name in enumerate(("tube_minutes", "sla")):
            files = [file for each in made for file in each[place]]
            yield self._commit(name, files, replaced or ({"server": ""},))

    def _changed(self, added: list[File]) -> dict[str, int]:
        """
        The first day of each server of which the minutes are made anew.
        """
        if not self._goes_on or self._stored["entries"].version is None:
            first: dict[str, int] = {}
            for file in added:
                server, day = _server_and_day(file)
                first[server] = min(day, first.get(server, day))
            return first
        before = self._rows("entries", {"settled": "false"})
        schema = LAYOUTS["entries"].schema
        location = self._stored["entries"].location
        after = dataset_of(location, schema, added).to_table() if added else schema.empty_table()
        known = Starts(self._starts_before).last_ns
        names = added_up.SCHEMA.names
        return changed_days(before.select(names), after.select(names), {
            server: last_ns // DAY_NS for server, last_ns in known.items()
        })  # fmt: skip

    def _depths(self, server: str, day: int) -> pa.Table:
        wanted = {"server": server, "date": str(_date(day - 1))}
        return depths_after(self._rows("tube_minutes", wanted), day)

    def _workers(self) -> Updated:
        """
        Workers of the incarnations that events tell of, and of the ones before them: later ones
        end no run of theirs.
        """
        last = Starts(self._starts_before).newest()
        touched = {(row["server"], row["incarnation"]) for row in self._told.to_pylist()}
        touched |= {(server, last[server]) for server, _ in touched if server in last}
        table = self._stored["attempts"]
        files = table.files()
        items = [
            (server, number, [file for file in files if _may_have(file, server, number)])
            for server, number in sorted(touched)
        ]
        work = _Workers(table.location, self._stored["workers"].location)
        made: list[list[File]] = in_tasks(self._spark, items, work)
        replaced = tuple({"server": server, "incarnation": str(number)}
                         for server, number, _ in items)  # fmt: skip
        return self._commit("workers", [file for each in made for file in each], replaced)


def _may_have(file: File, server: str, incarnation: int) -> bool:
    span = file.spans("incarnation")
    return file.is_in({"server": server}) and (
        not file.statistics or (span is not None and span[0] <= incarnation <= span[1])
    )


def _date(day: int) -> date:
    return EPOCH + timedelta(day)


def _server_and_day(file: File) -> tuple[str, int]:
    told = dict(file.partition)
    return str(told["server"]), (date.fromisoformat(str(told["date"])) - EPOCH).days


def _by_date(files: Iterable[File], server: str, first: int) -> dict[int, list[File]]:
    """
    The files of a server's days from the first on.
    """
    found: dict[int, list[File]] = defaultdict(list)
    for file in files:
        mine, day = _server_and_day(file)
        if mine == server and day >= first:
            found[day].append(file)
    return dict(found)


class _Writer:
    """
    A task that makes the tables of jobs, and gives the files that it wrote.
    """

    def __init__(
        self, places: Mapping[str, Location], starts: Starts,
        known: Mapping[str, Progress], until: Progress,
    ) -> None:  # fmt: skip
        self._places = places
        self._starts = starts
        self._known = known
        self._until = until

    def __call__(self, chunks: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        held: dict[str, list[pa.Table]] = defaultdict(list)
        count = 0
        for chunk in chunks:
            for made in increment(self._bounded(chunk), self._starts, self._known):
                held[made.name].append(_as_stored(made))
                count += made.rows.num_rows
            if count >= HELD_ROWS:
                yield from self._written(held)
                held.clear()
                count = 0
        yield from self._written(held)

    def _bounded(self, events: pa.Table) -> pa.Table:
        """
        Without what has been logged since the starts were read.
        """
        servers = events["server"].combine_chunks().dictionary_encode()
        last = np.array([self._until.get(name, -1) for name in servers.dictionary.to_pylist()])
        place = servers.indices.to_numpy(zero_copy_only=False)
        return chosen(events, numbers(events, "lsn") <= last[place])

    def _written(self, held: Mapping[str, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
        for name, tables in held.items():
            yield from _files(name, self._places[name], LAYOUTS[name], pa.concat_tables(tables))


def _files(name: str, place: Location, layout: Layout, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    batch = as_batch(stored_files(place, rows.combine_chunks().to_batches(), layout))
    names = pa.array([name] * batch.num_rows, pa.string())
    yield pa.RecordBatch.from_arrays([names, *batch.columns], ["name", *batch.schema.names])


def _as_stored(made: Made) -> pa.Table:
    """
    With the columns of partitions.
    """
    if made.name == "open":
        return made.rows.select(TAKEN)
    rows = made.rows
    if made.name == "entries":
        dates = pa.array(rows["minute"].to_numpy() // MINUTES_A_DAY, pa.int32()).cast(pa.date32())
    else:
        dates = pc.cast(rows["first"], pa.date32(), safe=False)
    settled = pa.array(np.full(rows.num_rows, made.settled))
    return rows.append_column("settled", settled).append_column("date", dates)


class _Server(NamedTuple):
    """
    The days of a server that are made anew.

    :ivar depths: when the first of them begins; `minutes.DEPTHS`.
    :ivar files: of entries, by day.
    """

    server: str
    first: int
    last_ns: int
    depths: pa.Table
    files: Mapping[int, list[File]]


@dataclass(frozen=True)
class _Days:
    """
    A task that makes minutes, and the SLA by their hours, day after day.
    """

    entries: Location
    minutes: Location
    sla: Location
    targets: Targets

    def __call__(self, item: _Server) -> tuple[list[File], list[File]]:
        depths = item.depths if item.depths.num_rows else DEPTHS.empty_table()
        last_ns = {item.server: item.last_ns}
        minutes: list[File] = []
        shares: list[File] = []
        for day in range(item.first, item.last_ns // DAY_NS + 1):
            made = tube_minutes_of(self._read(item.files.get(day, [])), depths, last_ns)
            depths = depths_after(made, day + 1)
            minutes += _dated(self.minutes, LAYOUTS["tube_minutes"], made, day)
            shares += _dated(self.sla, LAYOUTS["sla"], sla_of(made, self.targets), day)
        return minutes, shares

    def _read(self, files: list[File]) -> pa.Table:
        if not files:
            return added_up.SCHEMA.empty_table()
        found = dataset_of(self.entries, LAYOUTS["entries"].schema, files)
        rows = found.to_table(columns=added_up.SCHEMA.names, use_threads=False)
        return added_up.merged([rows.cast(added_up.SCHEMA)])


def _dated(place: Location, layout: Layout, rows: pa.Table, day: int) -> list[File]:
    dates = pa.array([_date(day)] * rows.num_rows, pa.date32())
    batches = rows.append_column("date", dates).combine_chunks().to_batches()
    return stored_files(place, batches, layout)


@dataclass(frozen=True)
class _Workers:
    """
    A task that makes the workers of an incarnation of a server.
    """

    attempts: Location
    workers: Location

    def __call__(self, item: tuple[str, int, list[File]]) -> list[File]:
        _, incarnation, files = item
        if not files:
            return []
        found = dataset_of(self.attempts, LAYOUTS["attempts"].schema, files)
        rows = found.to_table(
            columns=list(OF_ATTEMPTS), use_threads=False,
            filter=pc.field("incarnation") == incarnation,
        )  # fmt: skip
        made = workers_of(rows).combine_chunks().to_batches()
        return stored_files(self.workers, made, LAYOUTS["workers"])
