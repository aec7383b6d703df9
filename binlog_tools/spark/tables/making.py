"""The tasks that make tables job by job, of rows that they read themselves.

A task makes the tables of the jobs that are whole in what it reads.  The events of all others go on
as blocks (`by_job`) to the tasks that have all blocks of a job.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from binlog_tools.spark.histories.entries import MINUTES_A_DAY
from binlog_tools.spark.histories.images import chosen, codes, column, numbers
from binlog_tools.spark.histories.increments import Made, Progress, increment
from binlog_tools.spark.histories.starts import COLUMNS as TOLD
from binlog_tools.spark.histories.starts import NO_RECORDS, Starts, merged, starts_table
from binlog_tools.spark.histories.starts import SCHEMA as STARTS
from binlog_tools.spark.histories.tables import of_days
from binlog_tools.spark.histories.whole import WholeJobs
from binlog_tools.spark.histories.windows import NO_ROW, Ints, at
from binlog_tools.spark.storing.files import (
    FILE_DDL,
    FILE_SCHEMA,
    File,
    as_batch,
    files_of,
    stored_files,
)
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.tables.by_job import (
    BLOCK,
    BLOCK_DDL,
    EVENTS_SCHEMA,
    TAKEN,
    Batches,
    as_bytes,
    cut,
    gathered,
    of_bytes,
    together,
    unpacked,
)
from binlog_tools.spark.tables.layouts import LAYOUTS
from binlog_tools.spark.tasks import Rows, each_in_task, in_tasks, kept_memory

HELD_ROWS: Final = 2_000_000
"""Rows that a task holds before it writes them, some 300 MB."""

MADE_DDL: Final = f"name string, settled boolean, {FILE_DDL}, {BLOCK_DDL}"
"""What tasks give: a file of a table; a block, which has no ``name``; or, without a ``path``, rows
of a table that the driver makes, as `as_bytes` gives them."""

_MADE: Final = pa.schema([("name", pa.string()), ("settled", pa.bool_()), *FILE_SCHEMA, *BLOCK])


class Plan(NamedTuple):
    """What is to be made.

    :ivar places: of the tables whose files tasks write.
    :ivar known: of each table, how far it goes.
    :ivar above: the last LSNs whose events are not wanted any more.
    :ivar until: the last ones that are.
    """

    places: Mapping[str, Location]
    starts: Starts
    known: Mapping[str, Progress]
    above: Progress
    until: Progress


class Found(NamedTuple):
    """What was made.

    :ivar files: by table.
    :ivar facts: of tables that the driver makes, by name and whether they are settled.
    """

    files: dict[str, list[File]]
    facts: dict[tuple[str, bool], pa.Table]


class Told(NamedTuple):
    """What a few columns of new events tell.

    :ivar starts: of servers, with `starts.SCHEMA`.
    :ivar last: the last LSN of each server.
    :ivar jobs: of each server, the known jobs that the events are of, ascending.
    """

    starts: pa.Table
    last: Progress
    jobs: Mapping[str, Ints]


def told_by(
    spark: SparkSession, rows: Rows, above: Progress, known: Mapping[str, int] | None = None
) -> Told:
    """Read five columns, and a sixth if there are known jobs.

    :param above: the last LSNs whose events are not wanted any more.
    :param known: of servers, the largest id of a job that is known.
    """
    columns = (*TOLD, "lsn", "job") if known else (*TOLD, "lsn")

    def told(part: Any) -> Told:
        found, last = [STARTS.empty_table()], dict[str, int]()
        jobs: list[Mapping[str, Ints]] = []
        for events in gathered(rows.read(part, columns)):
            fresh = _within(events, above, None)
            found.append(starts_table(fresh))
            last = _latest([last, lasts_of(fresh)])
            jobs.append(_jobs_of(fresh, known or {}))
        return Told(merged(found), last, _all_jobs(jobs))

    made = in_tasks(spark, rows.parts, told)
    starts = pa.concat_tables([STARTS.empty_table(), *(each.starts for each in made)])
    return Told(starts, _latest([each.last for each in made]),
                _all_jobs([each.jobs for each in made]))  # fmt: skip


def _jobs_of(events: pa.Table, known: Mapping[str, int]) -> dict[str, Ints]:
    """Of these servers the jobs up to an id."""
    if not known:
        return {}
    servers = column(events, "server").dictionary_encode()
    place = servers.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
    job = numbers(events, "job")
    return {
        name: np.unique(job[(place == number) & (job <= known[name])])
        for number, name in enumerate(servers.dictionary.to_pylist()) if name in known
    }  # fmt: skip


def _all_jobs(parts: Iterable[Mapping[str, Ints]]) -> dict[str, Ints]:
    found: dict[str, list[Ints]] = defaultdict(list)
    for part in parts:
        for name, jobs in part.items():
            found[name].append(jobs)
    return {name: np.unique(np.concatenate(jobs)) for name, jobs in found.items()}


def lasts_of(events: pa.Table) -> Progress:
    """The last LSN of a record of each server."""
    records = chosen(events, (codes(events, "event", NO_RECORDS) < 0))
    made = records.select(["server", "lsn"]).group_by("server").aggregate([("lsn", "max")])
    return dict(zip(made["server"].to_pylist(), made["lsn_max"].to_pylist(), strict=True))


def _latest(parts: Iterable[Progress]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, lsn in part.items():
            found[name] = max(lsn, found.get(name, -1))
    return found


def _within(events: pa.Table, above: Progress, until: Progress | None) -> pa.Table:
    """The events behind some LSNs, and up to others: of those that are read twice all is logged by
    then.
    """
    servers = column(events, "server").dictionary_encode()
    names = servers.dictionary.to_pylist()
    place = servers.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
    lsn = numbers(events, "lsn")
    low = at(np.array([above.get(name, -1) for name in names], np.int64), place, -1)
    fresh = (lsn > low) & (place != NO_ROW)
    if until is not None:
        high = at(np.array([until.get(name, -1) for name in names], np.int64), place, -1)
        fresh &= lsn <= high
    return chosen(events, fresh)


def make(spark: SparkSession, rows: Rows, before: Rows, plan: Plan) -> Found:
    """:param rows: the new events.
    :param before: the events of jobs that were not gone.
    """
    new = [_Part(rows, part, plan.above) for part in rows.parts]
    known = [_Part(before, part, {}) for part in before.parts]
    # There is little of what was known, most of the time: it is not worth tasks of its own.
    made = each_in_task(spark, list(zip_longest(new, known)), partial(_of_parts, plan), MADE_DDL)
    done = made.repartition("server", "block").mapInArrow(partial(_of_blocks, plan), MADE_DDL)
    found = done.toArrow()
    facts: dict[tuple[str, bool], list[pa.Table]] = defaultdict(list)
    for row in found.filter(pc.is_null(found["path"])).to_pylist():
        facts[row["name"], row["settled"]].append(of_bytes(row["events"]))
    written = found.filter(pc.is_valid(found["path"]))
    files: dict[str, list[File]] = {name: [] for name in plan.places}
    names = written["name"].to_pylist()
    for name, file in zip(names, files_of(written.select(FILE_SCHEMA.names)), strict=True):
        files[name].append(file)
    return Found(files, {key: pa.concat_tables(tables) for key, tables in facts.items()})


class _Part(NamedTuple):
    """What a task reads, and the last LSNs whose events are not wanted of it."""

    rows: Rows
    part: Any
    above: Progress


def _of_parts(plan: Plan, parts: Iterable[_Part | None]) -> Iterator[pa.RecordBatch]:
    """What comes of what a task reads: tables of jobs that are whole in a part, blocks of
    others.
    """
    writer = _Writer(plan)
    for each in filter(None, parts):
        yield from _of_part(each, plan.until, writer)
    yield from writer.finish()


def _of_part(given: _Part, until: Progress, writer: "_Writer") -> Iterator[pa.RecordBatch]:
    rows, part, above = given
    servers: dict[str, WholeJobs] = defaultdict(WholeJobs)
    columns = [name for name in TAKEN if name in rows.schema.names]
    for events in gathered(rows.read(part, columns)):
        for server, mine in _by_server(_within(events, above, until)):
            parted = servers[server].take(mine)
            yield from writer.take(parted.whole)
            yield from map(_made, cut(parted.rest))
    for each in servers.values():
        yield from map(_made, cut(each.rest()))


def _by_server(events: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    servers = column(events, "server").dictionary_encode()
    place = servers.indices.to_numpy(zero_copy_only=False)
    for number in np.unique(place).tolist():
        yield servers.dictionary[number].as_py(), chosen(events, place == number)


def _of_blocks(plan: Plan, batches: Batches) -> Iterator[pa.RecordBatch]:
    """What comes of blocks; all else is handed on."""
    with kept_memory():
        blocks: list[pa.RecordBatch] = []
        for batch in batches:
            is_made = pc.is_valid(batch.column("name"))
            yield batch.filter(is_made)
            blocks.append(batch.select(BLOCK.names).filter(pc.invert(is_made)))
        writer = _Writer(plan)
        for events in unpacked(blocks):
            yield from writer.take(events)
        yield from writer.finish()


def _made(batch: pa.RecordBatch, **more: Any) -> pa.RecordBatch:
    """Rows as `MADE_DDL` says, null where nothing is given."""
    rows = batch.num_rows
    given = {**dict(zip(batch.schema.names, batch.columns, strict=True)),
             **{name: pa.array([value] * rows) for name, value in more.items()}}  # fmt: skip
    arrays = [given[field.name] if field.name in given else pa.nulls(rows, field.type)
              for field in _MADE]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=_MADE)


class _Writer:
    """Makes the tables of whole jobs, and holds rows until they are worth a file."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._held: dict[tuple[str, bool], list[pa.Table]] = defaultdict(list)
        self._rows = 0

    def take(self, events: pa.Table) -> Iterator[pa.RecordBatch]:
        if not events.num_rows:
            return
        for made in increment(events, self._plan.starts, self._plan.known):
            self._held[made.name, made.settled].append(made.rows)
            self._rows += made.rows.num_rows
        if self._rows >= HELD_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        for (name, is_settled), tables in self._held.items():
            rows = together(tables)
            if name in self._plan.places:
                yield _made(_written(Made(name, is_settled, rows), self._plan.places[name]),
                            name=name)  # fmt: skip
            elif rows.num_rows:
                events = pa.RecordBatch.from_pydict({"events": [as_bytes(rows)]})
                yield _made(events, name=name, settled=is_settled)
        self._held.clear()
        self._rows = 0


def _written(made: Made, place: Location) -> pa.RecordBatch:
    rows = _as_stored(made).combine_chunks().to_batches()
    return as_batch(stored_files(place, rows, LAYOUTS[made.name]))


def _as_stored(made: Made) -> pa.Table:
    """With the columns of partitions."""
    rows = made.rows
    if "date" not in rows.column_names:
        rows = of_days(rows, rows["minute"].to_numpy() // MINUTES_A_DAY)
    if made.name == "open":
        missing = [name for name in TAKEN if name not in rows.column_names]
        nulls = {name: pa.nulls(rows.num_rows, EVENTS_SCHEMA.field(name).type) for name in missing}
        return pa.table({**{name: rows[name] for name in rows.column_names}, **nulls})
    return rows.append_column("settled", pa.array(np.full(rows.num_rows, made.settled)))
