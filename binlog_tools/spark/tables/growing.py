"""The tables of jobs, brought up to date with the events.

Of each table the rows of jobs that are gone are final and only added to; those of all other jobs
(`settled` is false) are replaced, but for the days of which all jobs rest (`resting`): a job is of
the day on which it was first seen.  Beside the tables stand those that the next run goes on from:
the events of jobs that are not gone (`open`), entries of minutes, kinds of jobs that fail
(`failing`), and the starts of servers.  Each commit says up to which LSN of each server its table
goes.  `open` is committed last, so that a run that was killed is done again by the next, for what
was not committed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from beanstalk_twisted.binlog.bodies import MAX_JSON_BYTES, fingerprint
from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.samples import readable
from binlog_tools.spark.frames import rows_of
from binlog_tools.spark.histories import entries as added_up
from binlog_tools.spark.histories.entries import MINUTE_NS, MINUTES_A_DAY
from binlog_tools.spark.histories.failing import FAILING, MARKS, added, kinds_of, unmarked
from binlog_tools.spark.histories.images import COLUMNS, chosen, column, numbers
from binlog_tools.spark.histories.increments import NAMES, Progress, changed_minutes
from binlog_tools.spark.histories.sla import Targets
from binlog_tools.spark.histories.starts import Starts, merged
from binlog_tools.spark.histories.tables import ATTEMPTS, KINDS
from binlog_tools.spark.histories.windows import NONE, Ints
from binlog_tools.spark.histories.workers import COLUMNS as OF_WORKERS
from binlog_tools.spark.histories.workers import Replaced, grown, workers_of
from binlog_tools.spark.storing.files import CODED, File, is_text, stored_files
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import Change, dataset_of
from binlog_tools.spark.tables.by_job import gathered
from binlog_tools.spark.tables.layouts import LAYOUTS, SINGLE
from binlog_tools.spark.tables.making import Found, Plan, make, told_by
from binlog_tools.spark.tables.making_minutes import Days, ServerMinutes, by_date, date_of
from binlog_tools.spark.tables.pipelines import opened
from binlog_tools.spark.tables.querying import need_rows
from binlog_tools.spark.tables.server_days import (
    UNSETTLED,
    ServerDay,
    day_of,
    largest_jobs,
    server_of,
    sleeping,
)
from binlog_tools.spark.tasks import Rows, in_tasks

if TYPE_CHECKING:
    from binlog_tools.spark.storing.delta import DeltaStored

_NO_ATTEMPTS: Final = pa.schema([
    field.with_type(CODED) if is_text(field.type) else field
    for field in map(ATTEMPTS.field, OF_WORKERS)
]).empty_table()  # fmt: skip


def may_have(file: File, server: str, incarnation: int) -> bool:
    span = file.spans("incarnation")
    return file.is_in({"server": server}) and (
        not file.statistics or (span is not None and span[0] <= incarnation <= span[1])
    )


class Incarnation(NamedTuple):
    """What the workers of an incarnation of a server are made of.

    :ivar workers: files of those so far; none: they are made of all attempts.
    :ivar old: files of attempts that have been replaced.
    :ivar new: files of those in their place, and of new ones.
    :ivar others: files of all others.
    """

    server: str
    number: int
    workers: list[File]
    old: list[File]
    new: list[File]
    others: list[File]


@dataclass(frozen=True)
class Workers:
    """A task that makes the workers of an incarnation of a server."""

    attempts: Location
    workers: Location

    def __call__(self, item: Incarnation) -> list[File]:
        made = self._grown(item) if item.workers else None
        if made is None:
            made = workers_of(self._read(item, [*item.new, *item.others]))
        batches = made.combine_chunks().to_batches()
        return stored_files(self.workers, batches, LAYOUTS["workers"])

    def _grown(self, item: Incarnation) -> pa.Table | None:
        replaced = Replaced.of(self._read(item, item.old), self._read(item, item.new))
        least = min(replaced.since_ns.values(), default=NONE)
        spans = [(file, file.spans("ended_ns")) for file in item.others]
        near = [file for file, span in spans if span is None or span[1] > least]
        schema = LAYOUTS["workers"].schema
        before = dataset_of(self.workers, schema, item.workers).to_table(use_threads=False)
        return grown(before, replaced, self._read(item, near, least))

    def _read(self, item: Incarnation, files: list[File], above_ns: int = -1) -> pa.Table:
        """:param above_ns: only of runs that ended later; -1: all."""
        schema = LAYOUTS["attempts"].schema
        if not files:
            return _NO_ATTEMPTS
        is_wanted = pc.field("incarnation") == item.number
        if above_ns >= 0:
            is_wanted &= pc.field("ended_ns") > above_ns
        found = dataset_of(self.attempts, schema, files, is_coded=True)
        return found.to_table(columns=list(OF_WORKERS), use_threads=False, filter=is_wanted)


_READ: Final = ("server", "lsn", "body")


def marks_of(spark: SparkSession, rows: Rows, wanted: Mapping[str, Ints]) -> pa.Table:
    """:param rows: events.
    :param wanted: of servers, LSNs of records with bodies, ascending.
    :return: with `failing.MARKS`, of the bodies that were found.
    """
    if "body" not in rows.schema.names or not any(map(len, wanted.values())):
        return MARKS.empty_table()

    def marked(part: Any) -> pa.Table:
        found = [MARKS.empty_table()]
        for events in gathered(rows.read(part, _READ)):
            found.append(_marked(_chosen(events, wanted)))
        return pa.concat_tables(found)

    return pa.concat_tables([MARKS.empty_table(), *in_tasks(spark, rows.parts, marked)])


def _chosen(events: pa.Table, wanted: Mapping[str, Ints]) -> pa.Table:
    servers = column(events, "server").dictionary_encode()
    place = servers.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    lsn = numbers(events, "lsn")
    found = np.zeros(len(lsn), bool)
    for number, name in enumerate(servers.dictionary.to_pylist()):
        if name in wanted:
            found |= (place == number) & np.isin(lsn, wanted[name])
    return chosen(events, found & column(events, "body").is_valid().to_numpy(zero_copy_only=False))


def _marked(events: pa.Table) -> pa.Table:
    bodies = events["body"].to_pylist()
    return pa.table({
        "server": column(events, "server").cast(pa.string()), "lsn": events["lsn"],
        "fingerprint": pa.array([fingerprint(body[: MAX_JSON_BYTES + 1]) for body in bodies],
                                pa.string()),
        "sample": pa.array([readable(body) for body in bodies], pa.string()),
    }, MARKS)  # fmt: skip


_TOLD: Final = {"attempts": ("incarnation", "ended_ns"), "entries": ("minute", "slot"),
                "open": ("job", "due_ns")}  # fmt: skip
"""The statistics of tables that are looked at."""

Newer = Callable[[Progress], Rows]
"""The events behind these LSNs, of all servers; there may be earlier ones among them."""


class Updated(NamedTuple):
    """A table that was brought up to date.

    :ivar rows: that were written, new ones and those in the place of others.
    """

    name: str
    rows: int


def update(
    spark: SparkSession, output: str, newer: Newer, targets: Targets = ()
) -> Iterator[Updated]:
    """Commit table after table of `LAYOUTS`, and `poison`; nothing, if there are no new events.

    :param output: the folder of the tables, or its URL.
    :param newer: with bodies, if there are any: those of jobs that fail are read.
    :raise TableError: see `open_stored`; a column of the events is missing.
    """
    stored = {name: open_stored(within(output, name), layout) for name, layout in LAYOUTS.items()}
    if stored["open"].version is not None and stored["failing"].version is None:
        raise TableError("TABLE_FORMAT", f"{output}: an earlier version has made these tables, "
                         "without `failing`; nothing was written; make new ones: python -m "
                         "binlog_tools.spark tables INPUT -o NEW_FOLDER")  # fmt: skip
    poison = opened("poison", within(output, "poison"), "overwrite")
    return _steps(spark, {**stored, "poison": poison}, newer, targets)


def _steps(
    spark: SparkSession, stored: Mapping[str, "DeltaStored"], newer: Newer, targets: Targets
) -> Iterator[Updated]:
    yield from _Run(spark, stored, newer, targets).steps()


class _Run:
    """One run: what it goes on from, and what it commits."""

    def __init__(
        self,
        spark: SparkSession,
        stored: Mapping[str, "DeltaStored"],
        newer: Newer,
        targets: Targets,
    ) -> None:
        self._spark = spark
        self._stored = stored
        self._newer = newer
        self._targets = targets
        self._starts_before = self._rows("starts")
        self._known = stored["open"].progress(pc.unique(self._starts_before["server"]).to_pylist())
        self._events = need_rows(newer(self._known), COLUMNS)
        self._open = self._files("open", {})
        told = told_by(spark, self._events, self._known, largest_jobs(self._open))
        self._told, self._reached = told.starts, told.last
        self._progress = {**self._known, **self._reached}
        self._done = {name: table.progress(self._progress) for name, table in stored.items()}
        self._starts_rows = merged([self._starts_before, self._told])
        self._starts = Starts(self._starts_rows)
        self._asleep = self._sleeping(told.jobs)
        self._awake = {day_of(file) for file in self._open} - self._asleep
        self._attempts = self._files("attempts", {})
        self._workers_grow = self._are_whole("attempts", "workers")

    def _rows(self, name: str, wanted: Mapping[str, str | None] | None = None) -> pa.Table:
        """What a table has in these partitions, if this run goes on from it."""
        table = self._stored[name]
        schema = LAYOUTS[name].schema
        files = self._files(name, wanted or {})
        return dataset_of(table.location, schema, files).to_table() if files else (
            schema.empty_table())  # fmt: skip

    def _files(self, name: str, wanted: Mapping[str, str | None]) -> list[File]:
        table = self._stored[name]
        return [] if table.version is None else table.files(wanted, _TOLD.get(name, ()))

    def _sleeping(self, touched: Mapping[str, Ints]) -> frozenset[ServerDay]:
        """The days of which all jobs rest; none behind a run that was killed."""
        if not self._are_whole(*NAMES):
            return frozenset()
        return sleeping(self._open, touched, self._starts.last_ns)

    def _are_whole(self, *names: str) -> bool:
        """Whether these tables go as far as ``open``, which is committed last."""
        return all(self._done[name].get(server) == lsn
                   for name in names for server, lsn in self._known.items())  # fmt: skip

    def _replaced(self, of: Mapping[str, str | None]) -> tuple[Mapping[str, str | None], ...]:
        """The partitions of jobs that are not gone that this run replaces: all but those of the
        days of which all jobs rest.

        :param of: what is in all of these partitions.
        """
        if not self._asleep:
            return (of,)
        return tuple({**of, **day.partition()} for day in sorted(self._awake))

    def _parted(self, files: Iterable[File]) -> tuple[list[File], list[File]]:
        """The files of a table by job that this run replaces, and those that stay."""
        replaced: list[File] = []
        staying: list[File] = []
        for file in files:
            is_replaced = file.is_in(UNSETTLED) and day_of(file) not in self._asleep
            (replaced if is_replaced else staying).append(file)
        return replaced, staying

    def steps(self) -> Iterator[Updated]:
        if not self._reached and self._stored["open"].version is not None:
            return
        made = self._by_job()
        for name in ("lifetimes", "attempts"):
            yield self._commit(name, made.files[name], self._replaced(UNSETTLED))
        yield self._workers(made.files["attempts"])
        yield from self._minutes(made.files["entries"])
        yield self._commit("entries", made.files["entries"], self._replaced(UNSETTLED))
        yield self._commit("starts", self._write("starts", self._starts_rows), ({},))
        yield from self._poison(made)
        yield self._commit("open", made.files["open"], self._replaced({}))

    def _write(self, name: str, rows: pa.Table) -> list[File]:
        layout = {**SINGLE, **LAYOUTS}[name]
        batches = rows.combine_chunks().to_batches()
        return stored_files(self._stored[name].location, batches, layout)

    def _commit(
        self, name: str, files: Iterable[File], replaced: tuple[Mapping[str, str | None], ...]
    ) -> Updated:
        added = tuple(files)
        self._stored[name].commit(Change(added, replaced, self._progress))
        return Updated(name, sum(file.rows for file in added))

    def _by_job(self) -> Found:
        """The files of the tables that are made job by job."""
        known = {name: self._done[name] for name in NAMES}
        places = {name: self._stored[name].location
                  for name in ("lifetimes", "attempts", "entries", "open")}  # fmt: skip
        awake = [file for file in self._open if day_of(file) in self._awake]
        before = rows_of(self._stored["open"], awake)
        plan = Plan(places, self._starts, known, self._known, self._progress)
        return make(self._spark, self._events, before, plan)

    def _poison(self, made: Found) -> Iterator[Updated]:
        """Bodies are read of the jobs that fail now, or have another body than before."""
        failing = [made.facts.get(("failing", is_settled), FAILING.empty_table())
                   for is_settled in (True, False)]  # fmt: skip
        before = self._rows("failing", UNSETTLED)
        resting = before.filter(pa.array([
            ServerDay(server, str(day)) in self._asleep for server, day in zip(
                *(before[name].to_pylist() for name in ("example_server", "date")), strict=True
            )
        ], pa.bool_()))  # fmt: skip
        marks = before.rename_columns({"example_server": "server"}).select(MARKS.names)
        jobs = pa.concat_tables([rows.select(FAILING.names) for rows in failing])
        wanted = unmarked(jobs, marks)
        first = {server: int(lsns[0]) - 1 for server, lsns in wanted.items()}
        is_older = any(lsn < self._known.get(server, -1) for server, lsn in first.items())
        events = self._newer({**self._progress, **first}) if is_older else self._events
        marks = pa.concat_tables([marks.cast(MARKS), marks_of(self._spark, events, wanted)])
        settled, unsettled = (kinds_of(rows, marks) for rows in failing)
        settled, unsettled = added(settled), _with_date(unsettled, failing[1])
        unsettled = pa.concat_tables([resting.select(unsettled.column_names), unsettled])
        known = self._rows("failing", {"settled": "true"})
        files = [file for rows, is_settled in ((settled, True), (unsettled, False))
                 for file in self._write("failing", _as_failing(rows, is_settled))]  # fmt: skip
        yield self._commit("failing", files, (UNSETTLED,))
        kinds = added(pa.concat_tables(
            [rows.select(KINDS.names).cast(KINDS) for rows in (known, settled, unsettled)]
        ))  # fmt: skip
        yield self._commit("poison", self._write("poison", kinds), ({},))

    def _minutes(self, added: list[File]) -> Iterator[Updated]:
        last_ns = self._starts.last_ns
        before, staying = self._parted(self._files("entries", {}))
        there = [*staying, *added]
        work = Days(self._stored["entries"].location, self._stored["tube_minutes"].location,
                     self._stored["sla"].location, self._targets)  # fmt: skip
        first = self._changed(before, added)
        items = [
            ServerMinutes(server, minute, last_ns[server], self._kept(server, minute),
                    *by_date(there, server, minute // MINUTES_A_DAY * MINUTES_A_DAY))
            for server, minute in sorted(first.items())
        ]  # fmt: skip
        made: list[tuple[list[File], list[File]]] = in_tasks(self._spark, items, work)
        replaced = tuple(
            {"server": item.server, "date": str(date_of(day))}
            for item in items for day in item.days()
        )  # fmt: skip
        for place, name in enumerate(("tube_minutes", "sla")):
            files = [file for each in made for file in each[place]]
            yield self._commit(name, files, replaced or ({"server": ""},))

    def _changed(self, replaced: list[File], added: list[File]) -> dict[str, int]:
        """The first minute of each server that is made anew: of one that is known the newest that
        has a row at the latest, so that later entries need not be looked at.

        :param replaced: files of entries.
        :param added: those in their place, and new ones.
        """
        known: dict[str, int] = {}
        if self._stored["entries"].version is not None:
            last_ns = Starts(self._starts_before).last_ns
            known = {server: each // MINUTE_NS for server, each in last_ns.items()}
        first: dict[str, int] = {}
        for file in added:
            server, span = server_of(file), file.spans("minute")
            if server not in known and span is not None:
                minute = span[0] // MINUTES_A_DAY * MINUTES_A_DAY
                first[server] = min(minute, first.get(server, minute))
        before, after = (self._early(files, known) for files in (replaced, added))
        moments_ns = Starts(self._starts_before).last_ns, self._starts.last_ns
        changed = changed_minutes(before, after, known, moments_ns)
        minutes, entries = (self._done[name] for name in ("tube_minutes", "entries"))
        if any(minutes.get(server) != entries.get(server) for server in known):
            # A run that was killed has made minutes of entries that are not there.
            changed = {server: minute // MINUTES_A_DAY * MINUTES_A_DAY
                       for server, minute in changed.items()}  # fmt: skip
        return {**changed, **first}

    def _early(self, files: Iterable[File], last: Mapping[str, int]) -> pa.Table:
        """The entries of servers before these minutes."""
        found = [(server, [file for file in files if server_of(file) == server
                           and (span := file.spans("minute")) is not None and span[0] < minute])
                 for server, minute in last.items()]  # fmt: skip
        schema, location = LAYOUTS["entries"].schema, self._stored["entries"].location
        return pa.concat_tables([added_up.CODED_SCHEMA.empty_table(), *(
            dataset_of(location, schema, mine, is_coded=True).to_table(
                columns=added_up.SCHEMA.names, filter=pc.field("minute") < last[server])
            for server, mine in found if mine
        )])  # fmt: skip

    def _kept(self, server: str, minute: int) -> list[File]:
        """The files of the day that has the minute before this one."""
        wanted = {"server": server, "date": str(date_of((minute - 1) // MINUTES_A_DAY))}
        return self._files("tube_minutes", wanted)

    def _workers(self, added: list[File]) -> Updated:
        """Workers of the incarnations that events tell of, and of the ones before them: later ones
        end no run of theirs.

        :param added: files of attempts.
        """
        last = Starts(self._starts_before).newest()
        touched = {(row["server"], row["incarnation"]) for row in self._told.to_pylist()}
        touched |= {(server, last[server]) for server, _ in touched if server in last}
        replaced, staying = self._parted(self._attempts)
        items = [
            Incarnation(server, number, self._workers_of(server, number), *(
                [file for file in files if may_have(file, server, number)]
                for files in (replaced, added, staying)
            ))
            for server, number in sorted(touched)
        ]  # fmt: skip
        work = Workers(self._stored["attempts"].location, self._stored["workers"].location)
        made: list[list[File]] = in_tasks(self._spark, items, work)
        partitions = tuple(_incarnation(item.server, item.number) for item in items)
        return self._commit("workers", [file for each in made for file in each], partitions)

    def _workers_of(self, server: str, number: int) -> list[File]:
        """The files of an incarnation's workers so far, if they can be gone on from."""
        return self._files("workers", _incarnation(server, number)) if self._workers_grow else []


def _incarnation(server: str, number: int) -> dict[str, str | None]:
    """Its partition."""
    return {"server": server, "incarnation": str(number)}


def _as_failing(kinds: pa.Table, is_settled: bool) -> pa.Table:
    """With the columns that the stored table has beside those of kinds."""
    settled = pa.array(np.full(kinds.num_rows, is_settled))
    for field in LAYOUTS["failing"].schema:
        if field.name not in (*kinds.column_names, "settled"):
            kinds = kinds.append_column(field.name, pa.nulls(kinds.num_rows, field.type))
    return kinds.append_column("settled", settled)


def _with_date(kinds: pa.Table, failing: pa.Table) -> pa.Table:
    """Each job as a kind of its own, with the day on which it was first seen."""
    dates = failing["date"] if failing.num_rows else pa.array([], pa.date32())
    return kinds.append_column("date", dates)
