"""Two engines for the same functions: this process, and the tasks of Spark.

Each reads the new events and the open ones, brings the events of whole jobs together, and yields
what `pieces_of` makes of them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from binlog_tools.spark.histories.records import (
    NO_RECORDS,
    OF_STARTS,
    chosen,
    codes,
    merged_starts,
    starts_table,
)
from binlog_tools.spark.tables.blocks import (
    BLOCK_DDL,
    Block,
    Plan,
    as_bytes,
    cut,
    gathered,
    of_bytes,
    pieces_of,
    whole,
    within,
)
from binlog_tools.spark.tables.layouts import TAKEN
from binlog_tools.spark.tasks import Rows, each_in_task, in_tasks, kept_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Mapping[str, int]
"""By server, the newest LSN that is known."""

Piece = tuple[str, pa.Table]
PIECE_DDL: Final = "name string, rows binary"


class Noted(NamedTuple):
    """What new events say besides the history of jobs.

    :ivar starts: with `STARTS`.
    :ivar last: by server, the newest LSN.
    """

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
        """:param above: LSNs whose events are not wanted any more.
        :return: nothing if there are no new events.
        """
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
