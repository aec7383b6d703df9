"""Blocks: the events of jobs with neighbouring ids, and what becomes of them.

A block moves from the tasks that read events to those that have whole jobs as one value, in Arrow's
stream format: that costs a tenth of moving rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.counters import DAY_NS, MINUTES_A_DAY, clipped, counters_of
from binlog_tools.spark.histories.failing import failing_of
from binlog_tools.spark.histories.intervals import intervals_of
from binlog_tools.spark.histories.lifetimes import lifetimes_of, snapshot_of
from binlog_tools.spark.histories.records import (
    CARRIED,
    EVENTS,
    GONE,
    Starts,
    chosen,
    codes,
    column,
    in_order,
    numbers,
)
from binlog_tools.spark.histories.tables import of_days
from binlog_tools.spark.histories.windows import NO_ROW, Groups, at, changes, runs

BLOCK_JOBS: Final = 32_768
"""Jobs of a block: some 10 MB of events, never too much for a task."""

READ_ROWS: Final = 400_000
"""Events that a task cuts into blocks at once: about 80 MB of its memory."""

BLOCK_DDL: Final = "server string, block long, events binary"

Block = tuple[str, int]
"""A server, and the number of the block."""


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of about `READ_ROWS`, text as dictionaries, without tags that all are null."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= READ_ROWS:
            yield _narrow(pa.Table.from_batches(held))
            held = []
    if held:
        yield _narrow(pa.Table.from_batches(held))


def _narrow(rows: pa.Table) -> pa.Table:
    # The fields of stored tables have comments, which would make other schemas of them.
    found = {name: rows[name].combine_chunks() for name in rows.column_names
             if name not in CARRIED or rows[name].null_count < rows.num_rows}  # fmt: skip
    return pa.table({
        name: each.dictionary_encode() if each.type == pa.string() else each
        for name, each in found.items()
    })  # fmt: skip


def within(
    events: pa.Table, above: Mapping[str, int], until: Mapping[str, int] | None = None
) -> pa.Table:
    """Return the events of servers after these LSNs, and up to others."""
    servers = column(events, "server").dictionary_encode()
    names = servers.dictionary.to_pylist()
    place = servers.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
    lsn = numbers(events, "lsn")
    low = np.array([above.get(name, NO_ROW) for name in names], np.int64)
    fresh = (place != NO_ROW) & (lsn > at(low, place, NO_ROW))
    if until is not None:
        high = np.array([until.get(name, NO_ROW) for name in names], np.int64)
        fresh &= lsn <= at(high, place, NO_ROW)
    return chosen(events, fresh)


def cut(events: pa.Table) -> Iterator[tuple[Block, bytes]]:
    """Yield the blocks of the events of jobs."""
    events = chosen(events, codes(events, "event", EVENTS) >= 0).combine_chunks()
    if not events.num_rows:
        return
    servers = column(events, "server").dictionary_encode()
    server = servers.indices.to_numpy(zero_copy_only=False)
    block = numbers(events, "job") // BLOCK_JOBS
    order = np.lexsort((block, server))
    events, server, block = events.take(pa.array(order)), server[order], block[order]
    for rows in runs(changes(server, block)):
        name = servers.dictionary[int(server[rows.start])].as_py()
        part = events.slice(rows.start, rows.stop - rows.start)
        yield (name, int(block[rows.start])), as_bytes(part)


def whole(parts: Iterable[bytes]) -> pa.Table:
    """Return the events of all parts of a block, by job and LSN."""
    tables = list(map(of_bytes, parts))
    return in_order(pa.concat_tables(tables, promote_options="default").combine_chunks())


def as_bytes(rows: pa.Table) -> bytes:
    """Return rows in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def of_bytes(written: Any) -> pa.Table:
    """The inverse of `as_bytes`."""
    return pa.ipc.open_stream(written).read_all()


HOLD_NS: Final = 3600 * 10**9
"""How long before the newest record a day may still change, nanoseconds: a record may say that
something was earlier, by the time in which a busy or suspended server did nothing.
"""


class Plan(NamedTuple):
    """What an increment is made of.

    :ivar days: by server, the first day that is made again; counted from the epoch.
    """

    starts: Starts
    days: Mapping[str, int]

    def next_days(self) -> dict[str, int]:
        """The first days that the next increment makes again."""
        return {server: max(self.days.get(server, 0), (last_ns - HOLD_NS) // DAY_NS)
                for server, last_ns in self.starts.last_ns.items()}  # fmt: skip


def pieces_of(events: pa.Table, plan: Plan) -> dict[str, pa.Table]:
    """:param events: of whole jobs of one server, by job and LSN.
    :return: rows by name of the table; besides those ``failing``, ``counters`` and ``open``.
    """
    server = events["server"][0].as_py()
    first, next_first = plan.days.get(server, 0), plan.next_days()[server]
    intervals = intervals_of(events, plan.starts)
    last = intervals.jobs.lasts
    is_gone = intervals.records.state[last] == GONE
    at_ns = np.where(is_gone, intervals.at_ns[last], plan.starts.last_ns[server])
    day = np.maximum(at_ns // DAY_NS, first)
    failing = failing_of(events)
    jobs = Groups(changes(numbers(events, "job")))
    ids = numbers(events, "job")[jobs.starts]
    is_open = ~is_gone | (day >= next_first)
    return {
        "lifetimes": of_days(lifetimes_of(intervals), day), "attempts": attempts_of(intervals, day),
        "failing": of_days(failing, day[np.searchsorted(ids, failing["job"].to_numpy())]),
        "counters": clipped(counters_of(intervals), first * MINUTES_A_DAY),
        "snapshot": snapshot_of(chosen(events, ~is_gone[jobs.number]), plan.starts),
        "open": chosen(events, is_open[jobs.number]),
    }  # fmt: skip
