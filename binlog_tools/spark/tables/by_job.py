"""Events job by job: how tasks get all the events of whole jobs.

What goes from task to task are blocks: the events of jobs with neighbouring ids, as Arrow's stream
format in one value each, since Spark moves a few large values for a tenth of what it costs to move
their rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.histories.images import (
    CARRIED,
    COLUMNS,
    EVENTS,
    chosen,
    codes,
    column,
    in_order,
    numbers,
)
from binlog_tools.spark.histories.starts import COLUMNS as STARTS
from binlog_tools.spark.histories.starts import NO_RECORDS, SCHEMA
from binlog_tools.spark.histories.windows import changes, runs
from binlog_tools.spark.tables.querying import need, with_tags

TAKEN: Final = (*COLUMNS, *CARRIED)
"""Columns of events that histories are made of."""

EVENTS_SCHEMA: Final = arrow_schema(TAKEN)

BLOCK_JOBS: Final = 32_768
"""Jobs of a block: their rows are of few days, so that tasks write few files; few enough that tasks
are about as large as each other, and that a block, some 10 MB, is never too much for one."""

PACKED_ROWS: Final = 400_000
"""Events that a task cuts into blocks, or makes tables of, at once: about 80 MB of its memory."""

BLOCK_DDL: Final = "server string, block long, events binary"
BLOCK: Final = pa.schema([("server", pa.string()), ("block", pa.int64()), ("events", pa.binary())])

Batches = Iterable[pa.RecordBatch]


def blocks_of(events: DataFrame) -> DataFrame:
    """:param events: with the columns `COLUMNS`.
    :raise TableError: a column is missing.
    """
    return with_tags(need(events, COLUMNS)).select(*TAKEN).mapInArrow(packed, BLOCK_DDL)


def packed(batches: Batches) -> Iterator[pa.RecordBatch]:
    """:param batches: with the columns `TAKEN`.
    :return: blocks of them, as `BLOCK_DDL` says.
    """
    for events in gathered(batches):
        yield from cut(chosen(events, codes(events, "event", EVENTS) >= 0).combine_chunks())


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """Batches in pieces of about `PACKED_ROWS`: columns of text as dictionaries, without
    tags that all are null.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= PACKED_ROWS:
            yield _narrow(pa.Table.from_batches(held))
            held, count = [], 0
    if count:
        yield _narrow(pa.Table.from_batches(held))


def _narrow(rows: pa.Table) -> pa.Table:
    # Of stored tables the fields have comments, which would make other schemas of them.
    found = {name: rows[name].combine_chunks() for name in rows.column_names
             if name not in CARRIED or rows[name].null_count < rows.num_rows}  # fmt: skip
    return pa.table({
        name: each.dictionary_encode() if each.type == pa.string() else each
        for name, each in found.items()
    })  # fmt: skip


def cut(events: pa.Table) -> Iterator[pa.RecordBatch]:
    """:param events: of jobs.
    :return: blocks, as `BLOCK` says.
    """
    if not events.num_rows:
        return
    servers = column(events, "server").dictionary_encode()
    server = servers.indices.to_numpy(zero_copy_only=False)
    block = numbers(events, "job") // BLOCK_JOBS
    order = np.lexsort((block, server))
    events, server, block = events.take(pa.array(order)), server[order], block[order]
    for rows in runs(changes(server, block)):
        values = {"server": servers.dictionary[int(server[rows.start])].as_py(),
                  "block": int(block[rows.start]),
                  "events": as_bytes(events.slice(rows.start, rows.stop - rows.start))}  # fmt: skip
        yield pa.RecordBatch.from_pylist([values], schema=BLOCK)


def as_bytes(rows: pa.Table) -> bytes:
    """In Arrow's stream format."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def of_bytes(written: bytes) -> pa.Table:
    """The inverse of `as_bytes`."""
    return pa.ipc.open_stream(written).read_all()


def for_jobs(
    make: Callable[[Iterator[pa.Table]], Iterator[pa.RecordBatch]],
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """For `DataFrame.mapInArrow` on blocks that are partitioned by server and block.

    :param make: from tables of whole jobs, each job's events one after the other, by LSN.
    """

    def run(batches: Any) -> Iterator[pa.RecordBatch]:
        return make(unpacked(batches))

    return run


def unpacked(batches: Batches) -> Iterator[pa.Table]:
    """:param batches: all blocks of some servers and numbers, with the columns of `BLOCK`.
    :return: the events of whole jobs, by job and LSN, those of a server together.
    """
    blocks: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for batch in batches:
        for row in batch.to_pylist():
            blocks[row["server"], row["block"]].append(row["events"])
    held: list[pa.Table] = []
    for key in sorted(blocks):
        held.append(in_order(together([of_bytes(each) for each in blocks.pop(key)])))
        if sum(table.num_rows for table in held) >= PACKED_ROWS:
            yield together(held)
            held = []
    if held:
        yield together(held)


def together(parts: list[pa.Table]) -> pa.Table:
    """Pieces as `gathered` gives them as one."""
    return pa.concat_tables(parts, promote_options="default").combine_chunks()


def told_by(events: DataFrame) -> pa.Table:
    """Run a query over four columns.

    :return: the starts of servers (`starts.SCHEMA`).
    :raise TableError: a column is missing.
    """
    found = (
        need(events, STARTS).where(~F.col("event").isin(*NO_RECORDS))
        .groupBy("server", "incarnation")
        .agg(F.min("logged_ns").alias("first_ns"), F.max("logged_ns").alias("newest_ns"))
        .toArrow()
    )  # fmt: skip
    return found.cast(SCHEMA)
