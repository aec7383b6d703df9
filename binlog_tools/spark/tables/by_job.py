"""
Events job by job: how tasks get all the events of whole jobs.

What goes from task to task are blocks: the events of jobs with neighbouring ids, as Arrow's stream
format in one value each, since Spark moves a few large values for a tenth of what it costs to move
their rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.histories.images import CARRIED, COLUMNS, EVENTS, chosen, in_order, numbers
from binlog_tools.spark.histories.increments import Progress
from binlog_tools.spark.histories.starts import NO_RECORDS, SCHEMA
from binlog_tools.spark.tables.querying import need, with_tags

TAKEN: Final = (*COLUMNS, *CARRIED)
"""Columns of events that histories are made of."""

EVENTS_SCHEMA: Final = arrow_schema(TAKEN)

BLOCK_JOBS: Final = 32_768
"""Jobs of a block: their rows are of few days, so that tasks write few files; few enough that tasks
are about as large as each other, and that a block, some 10 MB, is never too much for one."""

PACKED_ROWS: Final = 400_000
"""Events that a task cuts into blocks, or makes tables of, at once: about 100 MB of its memory."""

BLOCK_DDL: Final = "server string, block long, events binary"
_BLOCKS: Final = pa.schema([("server", pa.string()), ("block", pa.int64()),
                            ("events", pa.binary())])  # fmt: skip

Batches = Iterable[pa.RecordBatch]


def blocks_of(events: DataFrame) -> DataFrame:
    """
    :param events: with the columns `COLUMNS`.
    :raise TableError: a column is missing.
    """
    return with_tags(need(events, COLUMNS)).select(*TAKEN).mapInArrow(packed, BLOCK_DDL)


def packed(batches: Batches) -> Iterator[pa.RecordBatch]:
    """
    :param batches: with the columns `TAKEN`.
    :return: blocks of them, as `BLOCK_DDL` says.
    """
    for table in _gathered(batches):
        yield from _cut(table)


def _gathered(batches: Batches) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= PACKED_ROWS:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _cut(table: pa.Table) -> Iterator[pa.RecordBatch]:
    # Of stored tables the fields have comments, which would make other schemas of them.
    table = pa.Table.from_arrays(table.select(TAKEN).columns, schema=EVENTS_SCHEMA)
    is_wanted = pc.is_in(table["event"], value_set=pa.array(EVENTS))
    table = chosen(table, is_wanted.to_numpy()).combine_chunks()
    if not table.num_rows:
        return
    servers = table["server"].combine_chunks().dictionary_encode()
    server = servers.indices.to_numpy(zero_copy_only=False)
    block = numbers(table, "job") // BLOCK_JOBS
    order = np.lexsort((block, server))
    table, server, block = table.take(pa.array(order)), server[order], block[order]
    is_first = np.append(True, (server[1:] != server[:-1]) | (block[1:] != block[:-1]))
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], table.num_rows)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        values = (servers.dictionary[int(server[start])].as_py(), int(block[start]),
                  _written(table.slice(start, end - start)))  # fmt: skip
        yield pa.RecordBatch.from_pylist(
            [dict(zip(_BLOCKS.names, values, strict=True))], schema=_BLOCKS
        )


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
    ) as stream:
        stream.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def for_jobs(
    make: Callable[[Iterator[pa.Table]], Iterator[pa.RecordBatch]],
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """
    For `DataFrame.mapInArrow` on blocks that are partitioned by server and block.

    :param make: from tables of whole jobs, each job's events one after the other, by LSN.
    """

    def run(batches: Any) -> Iterator[pa.RecordBatch]:
        return make(_unpacked(batches))

    return run


def _unpacked(batches: Batches) -> Iterator[pa.Table]:
    blocks: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for batch in batches:
        for row in batch.to_pylist():
            blocks[row["server"], row["block"]].append(row["events"])
    held: list[pa.Table] = []
    for key in sorted(blocks):
        parts = [pa.ipc.open_stream(each).read_all() for each in blocks.pop(key)]
        held.append(in_order(pa.concat_tables(parts)))
        if sum(table.num_rows for table in held) >= PACKED_ROWS:
            yield pa.concat_tables(held).combine_chunks()
            held = []
    if held:
        yield pa.concat_tables(held).combine_chunks()


def told_by(events: DataFrame) -> tuple[pa.Table, Progress]:
    """
    Run a query over five columns.

    :return: the starts of servers (`starts.SCHEMA`), and the last LSN of each.
    :raise TableError: a column is missing.
    """
    events = need(events, ("server", "incarnation", "lsn", "event", "logged_ns"))
    found = (
        events.where(~F.col("event").isin(*NO_RECORDS))
        .groupBy("server", "incarnation")
        .agg(F.min("logged_ns").alias("first_ns"), F.max("logged_ns").alias("newest_ns"),
             F.max("lsn").alias("lsn"))
        .toArrow()
    )  # fmt: skip
    progress: dict[str, int] = {}
    for server, lsn in zip(found["server"].to_pylist(), found["lsn"].to_pylist(), strict=True):
        progress[server] = max(lsn, progress.get(server, -1))
    return found.select(SCHEMA.names).cast(SCHEMA), progress
