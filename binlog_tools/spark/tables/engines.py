"""Two engines for the same functions, this process and the tasks of Spark: each brings the events
of whole jobs together, new and open ones, and yields what `pieces_of` makes of them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.counters import DAY_NS, MINUTES_A_DAY, clipped, counters_of
from binlog_tools.spark.histories.failing import failing_of
from binlog_tools.spark.histories.intervals import intervals_of
from binlog_tools.spark.histories.lifetimes import attempts_of, lifetimes_of, snapshot_of
from binlog_tools.spark.histories.records import (
    CARRIED,
    EVENTS,
    NO_RECORDS,
    NO_ROW,
    OF_STARTS,
    TAKEN,
    Groups,
    Starts,
    State,
    at,
    changes,
    chosen,
    coded,
    codes,
    in_order,
    merged_starts,
    numbers,
    runs,
    starts_table,
)
from binlog_tools.spark.histories.tables import of_days
from binlog_tools.spark.tasks import Rows, each_in_task, in_tasks, kept_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    place, servers = coded(events, "server")
    names = servers.to_pylist()
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
    server, servers = coded(events, "server")
    block = numbers(events, "job") // BLOCK_JOBS
    order = np.lexsort((block, server))
    events, server, block = events.take(pa.array(order)), server[order], block[order]
    for rows in runs(changes(server, block)):
        name = servers[int(server[rows.start])].as_py()
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


HOLD_NS: Final = 24 * 3600 * 10**9
"""How long before the newest record a day may still change, nanoseconds: a record may say that
something was earlier, by the time in which a busy or suspended server did nothing.  After longer
suspensions counts of minutes that were written before stay as they are.
"""


class Plan(NamedTuple):
    """What an increment is made of: starts, and by server the first day that is made again."""

    starts: Starts
    days: Mapping[str, int]

    def next_days(self) -> dict[str, int]:
        """The first days that the next increment makes again."""
        return {server: max(self.days.get(server, 0), (last_ns - HOLD_NS) // DAY_NS)
                for server, last_ns in self.starts.last_ns.items()}  # fmt: skip


def pieces_of(events: pa.Table, plan: Plan) -> dict[str, pa.Table]:
    """Return rows by table, and ``failing``, ``counters``, ``open``, of whole jobs of a server."""
    server = events["server"][0].as_py()
    first, next_first = plan.days.get(server, 0), plan.next_days()[server]
    intervals = intervals_of(events, plan.starts)
    last = intervals.jobs.lasts
    is_gone = intervals.records.state[last] == State.GONE
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


Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Mapping[str, int]
"""By server, the newest LSN that is known."""

Piece = tuple[str, pa.Table]
PIECE_DDL: Final = "name string, rows binary"


class Noted(NamedTuple):
    """What new events say besides the history of jobs: starts, and newest LSNs by server."""

    starts: pa.Table
    last: Progress

    @classmethod
    def of(cls, events: pa.Table) -> "Noted":
        records = chosen(events, codes(events, "event", NO_RECORDS) < 0).select(["server", "lsn"])
        last = records.group_by("server").aggregate([("lsn", "max")]).to_pydict()
        return cls(starts_table(events), dict(zip(last["server"], last["lsn_max"], strict=True)))

    @classmethod
    def together(cls, parts: Iterable["Noted"]) -> "Noted":
        starts, last = [], dict[str, int]()
        for part in parts:
            starts.append(part.starts)
            for server, lsn in part.last.items():
                last[server] = max(lsn, last.get(server, -1))
        return cls(merged_starts(starts), last)


Planned = Callable[[Noted], tuple[Plan, Rows]]
"""Makes the plan of an increment, and says where the open events are."""


class InProcess:
    """In this process: nothing is started, and memory holds the compressed events."""

    def pieces(self, events: Rows, above: Progress, planned: Planned) -> Iterator[Piece]:
        """Yield nothing if there are no new events."""
        blocks: dict[Block, list[bytes]] = defaultdict(list)
        noted = Noted.together(_cut(events, part, above, blocks) for part in events.parts)
        if not noted.last:
            return
        plan, known = planned(noted)
        for part in known.parts:
            _cut(known, part, {}, blocks)
        for key in sorted(blocks):
            yield from pieces_of(whole(blocks.pop(key)), plan).items()

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        return map(work, items)


def _columns(rows: Rows) -> list[str]:
    return [name for name in TAKEN if name in rows.schema.names]


def _cut(rows: Rows, part: Any, above: Progress, blocks: dict[Block, list[bytes]]) -> Noted:
    noted = [Noted(merged_starts([]), {})]
    for events in gathered(rows.read(part, _columns(rows))):
        fresh = within(events, above)
        noted.append(Noted.of(fresh))
        for key, raw in cut(fresh):
            blocks[key].append(raw)
    return Noted.together(noted)


class Spark:
    """In the tasks of Spark, which go over the new events twice: at first for their starts."""

    def __init__(self, started: "Callable[[], SparkSession]") -> None:
        """:param started: called when there is something to do."""
        self._started = started

    def pieces(self, events: Rows, above: Progress, planned: Planned) -> Iterator[Piece]:
        """Yield what `InProcess.pieces` does."""
        # What has come since is little, most of the time, or nothing: Java need not start for that.
        each = map if above else self.each
        noted = Noted.together(each(partial(_note, events, above), events.parts))
        if not noted.last:
            return
        plan, known = planned(noted)
        parts: list[Any] = [(events, part, above, noted.last) for part in events.parts]
        parts += [(known, part, {}, None) for part in known.parts]
        made = each_in_task(self._started(), parts, _blocks, BLOCK_DDL)

        # Spark looks at the types of its parameters, which a `partial` has not.
        def pieces(blocks: pa.Table) -> pa.Table:
            return _pieces(plan, blocks)

        done = made.groupBy("server", "block").applyInArrow(pieces, PIECE_DDL)
        done = done.persist()
        try:
            # All at the same time; the driver then takes one partition after the other.
            done.count()
            for row in done.toLocalIterator():
                yield row["name"], of_bytes(bytes(row["rows"]))
        finally:
            done.unpersist()

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
        return in_tasks(self._started(), items, work) if items else []


def _note(rows: Rows, above: Progress, part: Any) -> Noted:
    found = gathered(rows.read(part, (*OF_STARTS, "lsn")))
    return Noted.together(Noted.of(within(events, above)) for events in found)


def _blocks(part: Any) -> Iterator[pa.RecordBatch]:
    rows, mine, above, until = part
    for events in gathered(rows.read(mine, _columns(rows))):
        for (server, block), raw in cut(within(events, above, until)):
            yield pa.RecordBatch.from_pydict(
                {"server": [server], "block": [block], "events": pa.array([raw], pa.binary())}
            )


def _pieces(plan: Plan, blocks: pa.Table) -> pa.Table:
    with kept_memory():
        made = pieces_of(whole(blocks["events"].to_pylist()), plan)
    rows = pa.array([as_bytes(each) for each in made.values()], pa.binary())
    return pa.table({"name": list(made), "rows": rows})
