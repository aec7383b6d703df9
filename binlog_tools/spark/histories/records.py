"""Records of jobs as arrays: what a job was after each of them; rows before and behind in groups of
neighbouring rows; and the starts of servers.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.definitions.columns import BY_NAME, arrow_type

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Codes = np.ndarray[Any, np.dtype[np.int8]]

NONE: Final = np.iinfo(np.int64).max
"""A time that is not known or never comes: later than any other, so `minimum` passes over it."""

NO_ROW: Final = -1
"""An index where there is no such row."""


class Groups:
    """:ivar number: of its group, at each row, from 0.
    :ivar starts: the index of each group's first row.
    :ivar first: the same, at each row.
    :ivar end: the index behind the group's last row, at each row.
    """

    def __init__(self, is_first: Flags) -> None:
        rows = len(is_first)
        self.starts: Ints = np.flatnonzero(is_first)
        self.number: Ints = np.cumsum(is_first) - 1
        ends = np.append(self.starts, rows)[1:]
        self.lasts: Ints = ends - 1
        self.first: Ints = self.starts[self.number]
        self.end: Ints = ends[self.number]

    def newest(self, chosen: Flags) -> Ints:
        """The newest chosen row of the group up to each row, itself included; or `NO_ROW`."""
        found = np.maximum.accumulate(np.where(chosen, np.arange(len(chosen)), NO_ROW))
        return np.where(found >= self.first, found, NO_ROW)

    def before(self, chosen: Flags) -> Ints:
        """The newest chosen row of the group before each row; or `NO_ROW`."""
        newest = np.append(NO_ROW, np.maximum.accumulate(
            np.where(chosen, np.arange(len(chosen)), NO_ROW))[:-1])[: len(chosen)]  # fmt: skip
        return np.where(newest >= self.first, newest, NO_ROW)

    def behind(self, chosen: Flags) -> Ints:
        """The next chosen row of the group behind each row; or `NO_ROW`."""
        rows = len(chosen)
        marks = np.where(chosen, np.arange(rows), rows)[::-1]
        following = np.append(np.minimum.accumulate(marks)[::-1][1:], rows)[:rows]
        return np.where(following < self.end, following, NO_ROW)

    def count(self, chosen: Flags) -> Ints:
        """How many rows of each group are chosen."""
        return self.sum(chosen.astype(np.int64))

    def sum(self, numbers: Ints) -> Ints:
        """Of each group."""
        return np.add.reduceat(numbers, self.starts) if len(numbers) else numbers

    def least(self, numbers: Ints) -> Ints:
        """Of each group."""
        return np.minimum.reduceat(numbers, self.starts) if len(numbers) else numbers

    def most(self, numbers: Ints) -> Ints:
        """Of each group."""
        return np.maximum.reduceat(numbers, self.starts) if len(numbers) else numbers

    def any(self, chosen: Flags) -> Flags:
        """Whether a row of each group is chosen."""
        return np.logical_or.reduceat(chosen, self.starts) if len(chosen) else chosen


def at(values: Any, rows: Ints, missing: Any) -> Any:
    """The values at these rows, and ``missing`` where the row is `NO_ROW`."""
    if not len(values):
        return np.full(len(rows), missing)
    found = values[rows]
    np.putmask(found, rows == NO_ROW, missing)
    return found


def among(codes: Codes, known: Iterable[int]) -> Flags:
    """Whether each code is one of a few: a fifteenth of what `numpy.isin` costs."""
    found: Flags = np.zeros(len(codes), bool)
    for code in known:
        found |= codes == code
    return found


def changes(*keys: Any) -> Flags:
    """Whether each row has another key than the one before it; so has the first."""
    rows = len(keys[0])
    found: Flags = np.zeros(rows, bool)
    found[:1] = True
    for key in keys:
        found[1:] |= key[1:] != key[:-1]
    return found


def runs(is_first: Flags) -> Iterator[slice]:
    """The rows of each group."""
    starts = [*np.flatnonzero(is_first).tolist(), len(is_first)]
    return map(slice, starts[:-1], starts[1:])


COLUMNS: Final = (
    "server", "incarnation", "lsn", "event", "time_ns", "logged_ns", "job", "tube", "state",
    "priority", "delay_s", "ttr_s", "deadline_ns", "reserves", "timeouts", "releases", "buries",
    "kicks", "reason", "connection", "copy", "bytes",
)  # fmt: skip
"""What is needed of the events table."""

CARRIED: Final = (
    "unique_key", "concurrency_key", "job_group", "after", "dead_from", "dead_reason", "dead_at_ns",
    "origin",
)  # fmt: skip
"""What is taken of the tags, if the events have them."""

TAKEN: Final = (*COLUMNS, *CARRIED)
"""The columns of events that tables are made of."""

Event = IntEnum(
    "Event",
    "PUT RESERVE RELEASE BURY KICK TOUCH DELETE TTR_EXPIRED DISCONNECT_RELEASE MOVE UPDATE "
    "GROUP_ENDED COPY RETURN",
    start=0,
)
"""Of jobs.  A `RETURN` is a `RELEASE` that takes the reservation back: the counter of reserves is
lower after it.
"""

State = IntEnum("State", "READY RESERVED DELAYED BURIED GONE", start=0)

EVENTS: Final = tuple(each.name.lower().replace("_", "-") for each in Event)
STATES: Final = tuple(each.name.lower() for each in State)

FULL: Final = (Event.PUT, Event.MOVE, Event.UPDATE, Event.COPY)
"""Events whose records have the body and the tags."""


class Records(NamedTuple):
    """Columns of the same length, a row a record of a job.  Nulls are `NONE`; of connections, 0.

    :ivar events: the rows as they came, those of jobs only.
    :ivar jobs: the rows of each job, which are neighbours, in the order of their LSNs.
    :ivar own_ns: when it happened, if the record says so.
    :ivar is_cancel: whether it deletes the job whoever has reserved it.
    :ivar is_full: whether it has tags.
    :ivar is_dead: whether these say that the job is a dead letter.
    :ivar stop_ns: the last moment of its incarnation, if there is a later one.
    :ivar restart_ns: the start of that one.
    :ivar last_ns: the server's last moment.
    """

    events: pa.Table
    jobs: Groups
    event: Codes
    state: Codes
    copy: Flags
    is_cancel: Flags
    is_full: Flags
    is_dead: Flags
    time_ns: Ints
    own_ns: Ints
    logged_ns: Ints
    deadline_ns: Ints
    incarnation: Ints
    reserves: Ints
    kicks: Ints
    connection: Ints
    stop_ns: Ints
    restart_ns: Ints
    last_ns: Ints


def records_of(events: pa.Table, starts: "Starts") -> Records:
    """Take records apart: all of each job one after the other, by LSN."""
    event = codes(events, "event", EVENTS)
    if (event < 0).any():
        events = events.filter(pa.array(event >= 0))
        event = event[event >= 0]
    reason = codes(events, "reason", ("returned", "cancelled"))
    event = np.where((event == Event.RELEASE) & (reason == 0), Event.RETURN, event).astype(np.int8)
    servers, names = coded(events, "server")
    job, incarnation = numbers(events, "job"), numbers(events, "incarnation")
    copy = column(events, "copy").fill_null(False).to_numpy(zero_copy_only=False)
    time_ns, logged_ns = numbers(events, "time_ns"), numbers(events, "logged_ns")
    moments_ns = starts.of(names.to_pylist(), servers, incarnation)
    return Records(
        events, Groups(changes(job, servers)), event, codes(events, "state", STATES), copy,
        (event == Event.DELETE) & (reason == 1), among(event, FULL),
        column(events, "dead_from").is_valid().to_numpy(zero_copy_only=False),
        time_ns, np.where(copy | among(event, (Event.MOVE, Event.UPDATE)), NONE, time_ns),
        logged_ns,
        numbers(events, "deadline_ns"), incarnation, numbers(events, "reserves"),
        numbers(events, "kicks"), numbers(events, "connection", 0), *moments_ns,
    )  # fmt: skip


def chosen(rows: pa.Table, flags: Flags) -> pa.Table:
    """The rows with a flag; the table itself if all have one, which then is not copied."""
    return rows if flags.all() else rows.filter(pa.array(flags))


def in_order(events: pa.Table) -> pa.Table:
    """Of one server, by job and LSN, each column in one piece."""
    order = np.lexsort((numbers(events, "lsn"), numbers(events, "job")))
    return events.take(pa.array(order)).combine_chunks()


def column(table: pa.Table, name: str) -> Any:
    """One array; nulls if the table lacks it: no tags were read, or an earlier version made it."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, arrow_type(BY_NAME[name].ddl))
    chunks = table.column(name).chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], table.schema.field(name).type)


def numbers(table: pa.Table, name: str, missing: int = NONE) -> Ints:
    """A column of integers; its nulls are ``missing``.  Nobody may write into it."""
    found = column(table, name)
    found = found if found.type == pa.int64() else found.cast(pa.int64())
    found = found.fill_null(missing) if found.null_count else found
    array: Ints = found.to_numpy(zero_copy_only=False)
    return array


def coded(table: pa.Table, name: str) -> tuple[Ints, Any]:
    """Return the place of each row's text in the distinct ones, and these; of null, `NO_ROW`."""
    found = column(table, name).dictionary_encode()
    return found.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False), found.dictionary


def ranked(table: pa.Table, name: str) -> tuple[Ints, Any]:
    """The same, with the texts in their order."""
    rows, texts = coded(table, name)
    order = pc.sort_indices(texts)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    found: Ints = at(rank, rows, NO_ROW)
    return found, texts.take(order)


def codes(table: pa.Table, name: str, known: tuple[str, ...]) -> Codes:
    """The place of each text in ``known``; -1 if it is not in it."""
    rows, texts = coded(table, name)
    places = pc.index_in(texts, value_set=pa.array(known)).fill_null(NO_ROW)
    found: Codes = at(places.to_numpy(zero_copy_only=False).astype(np.int8), rows, NO_ROW)
    return found


STARTS: Final = pa.schema([
    ("server", pa.string()), ("incarnation", pa.int32()),
    ("first_ns", pa.int64()), ("newest_ns", pa.int64()), ("stopped_ns", pa.int64()),
])  # fmt: skip
"""A row an incarnation: when its first frame was built, its newest one so far, and that of an
ordered stop; null: there was none.
"""

OF_STARTS: Final = ("server", "incarnation", "logged_ns", "event")
"""What is needed of the events table."""

NO_RECORDS: Final = ("damage", "key")
"""Events whose moment is not that of a record of the incarnation."""


def starts_table(events: pa.Table) -> pa.Table:
    """:param events: with `OF_STARTS`, all or a part of them."""
    events = events.select(OF_STARTS)
    told = pa.compute.is_in(events["event"], value_set=pa.array(NO_RECORDS))
    events = events.filter(pa.compute.invert(told))
    is_stop = pa.compute.equal(events["event"], "clean-stop")
    stopped = pa.compute.if_else(is_stop, events["logged_ns"], None)
    found = events.append_column("stopped", stopped).group_by(["server", "incarnation"])
    made = found.aggregate([("logged_ns", "min"), ("logged_ns", "max"), ("stopped", "max")])
    return made.rename_columns(STARTS.names).cast(STARTS)


def merged_starts(tables: list[pa.Table]) -> pa.Table:
    """What parts of the events tell, together."""
    found = pa.concat_tables([STARTS.empty_table(), *tables]).group_by(["server", "incarnation"])
    made = found.aggregate([("first_ns", "min"), ("newest_ns", "max"), ("stopped_ns", "max")])
    return made.rename_columns(STARTS.names).cast(STARTS)


class Starts:
    """What `merged_starts` gives, to be looked up."""

    def __init__(self, table: pa.Table) -> None:
        self._of: dict[str, list[tuple[int, int, int]]] = {}
        self.last_ns: dict[str, int] = {}
        for row in table.to_pylist():
            server = row["server"]
            known = (row["incarnation"], row["first_ns"], row["newest_ns"])
            self._of.setdefault(server, []).append(known)
            self.last_ns[server] = max(row["newest_ns"], self.last_ns.get(server, 0))
        for mine in self._of.values():
            mine.sort()

    def newest(self) -> dict[str, int]:
        """The newest incarnation of each server."""
        return {server: known[-1][0] for server, known in self._of.items()}

    def of(self, names: list[str], server: Any, incarnation: Ints) -> tuple[Ints, Ints, Ints]:
        """Return at each row its incarnation's end and the next start, or `NONE`, and the last."""
        stop_ns, restart_ns = np.full((2, len(server)), NONE)
        lasts = np.array([self.last_ns.get(name, 0) for name in names] or [0], np.int64)
        for place, name in enumerate(names):
            mine = slice(None) if len(names) == 1 else server == place
            known = np.array(self._of.get(name, ()), np.int64).reshape(-1, 3).T
            later = np.searchsorted(known[0], incarnation[mine], side="right")
            restart_ns[mine] = np.append(known[1], NONE)[later]
            # The newest incarnation may go on.
            stop_ns[mine] = np.append(known[2, :-1], (NONE, NONE))[later - 1]
        return stop_ns, restart_ns, lasts[server] if len(server) else np.zeros(0, np.int64)
