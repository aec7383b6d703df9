"""Records of jobs as arrays: what a job was after each of them."""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.definitions.columns import BY_NAME, arrow_type
from binlog_tools.spark.histories.starts import Starts
from binlog_tools.spark.histories.windows import (
    NO_ROW,
    NONE,
    Codes,
    Flags,
    Groups,
    Ints,
    among,
    at,
    changes,
)

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

EVENTS: Final = (
    "put", "reserve", "release", "bury", "kick", "touch", "delete", "ttr-expired",
    "disconnect-release", "move", "update", "group-ended", "copy", "return",
)  # fmt: skip
"""Of jobs.  A code is a place in here.  A `return` is a `release` that takes the reservation back:
the counter of reserves is lower after it.
"""

(PUT, RESERVE, RELEASE, BURY, KICK, TOUCH, DELETE, TTR_EXPIRED, DISCONNECT_RELEASE, MOVE, UPDATE,
 GROUP_ENDED, COPY, RETURN) = range(len(EVENTS))  # fmt: skip

STATES: Final = ("ready", "reserved", "delayed", "buried", "gone")
READY, RESERVED, DELAYED, BURIED, GONE = range(len(STATES))

FULL: Final = (PUT, MOVE, UPDATE, COPY)
"""Events whose records have the body and the tags."""


class Images(NamedTuple):
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


def images_of(events: pa.Table, starts: Starts) -> Images:
    """:param events: with `COLUMNS` and, if there are tags, `CARRIED`; all records of each job one
    after the other, by LSN.
    """
    event = codes(events, "event", EVENTS)
    if (event < 0).any():
        events = events.filter(pa.array(event >= 0))
        event = event[event >= 0]
    reason = codes(events, "reason", ("returned", "cancelled"))
    event = np.where((event == RELEASE) & (reason == 0), RETURN, event).astype(np.int8)
    server = column(events, "server").dictionary_encode()
    servers = server.indices.to_numpy(zero_copy_only=False)
    job, incarnation = numbers(events, "job"), numbers(events, "incarnation")
    copy = column(events, "copy").fill_null(False).to_numpy(zero_copy_only=False)
    time_ns, logged_ns = numbers(events, "time_ns"), numbers(events, "logged_ns")
    moments_ns = starts.of(server.dictionary.to_pylist(), servers, incarnation)
    return Images(
        events, Groups(changes(job, servers)), event, codes(events, "state", STATES), copy,
        (event == DELETE) & (reason == 1), among(event, FULL),
        column(events, "dead_from").is_valid().to_numpy(zero_copy_only=False),
        time_ns, np.where(copy | among(event, (MOVE, UPDATE)), NONE, time_ns), logged_ns,
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


def codes(table: pa.Table, name: str, known: tuple[str, ...]) -> Codes:
    """The place of each text in ``known``; -1 if it is not in it."""
    texts = column(table, name).dictionary_encode()
    places = pc.index_in(texts.dictionary, value_set=pa.array(known)).fill_null(NO_ROW)
    rows = texts.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
    found: Codes = at(places.to_numpy(zero_copy_only=False).astype(np.int8), rows, NO_ROW)
    return found
