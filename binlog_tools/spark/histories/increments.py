"""Increments: jobs that are gone, whose rows never change, and jobs that are not.

A gone job has no further records, and nothing that its rows tell depends on what other jobs do
later.  So each increment is made of the records that are new and those of jobs that were not gone
before, but for the days of which all jobs rest (`resting`).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.entries import by_day, entries_of, first_changed
from binlog_tools.spark.histories.failing import failing_of
from binlog_tools.spark.histories.images import EVENTS, GONE, STATES, chosen, codes, column, numbers
from binlog_tools.spark.histories.lifetimes import lifetimes_of
from binlog_tools.spark.histories.resting import due_ns, first_days
from binlog_tools.spark.histories.starts import Starts
from binlog_tools.spark.histories.stays import stays_of
from binlog_tools.spark.histories.tables import nullable, of_days
from binlog_tools.spark.histories.windows import Flags, Groups, changes

Progress = Mapping[str, int]
"""Of each server, the last LSN that is in a table."""

NAMES: Final = ("lifetimes", "attempts", "failing", "entries")
"""The tables that are made job by job."""

OPEN: Final = pa.schema([("due_ns", pa.int64()), ("date", pa.date32())])
"""What events of jobs that are not gone have beside their own columns: when the job changes without
an event, and the day on which it was first seen."""


class Made(NamedTuple):
    """Rows of a table.

    :ivar settled: whether they never change.
    """

    name: str
    settled: bool
    rows: pa.Table


def _is_first(events: pa.Table) -> Flags:
    servers = column(events, "server").dictionary_encode().indices
    return changes(numbers(events, "job"), servers.to_numpy(zero_copy_only=False))


def split(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """:param events: of whole jobs.
    :return: those of jobs that are gone, and those of the others.
    """
    events = chosen(events, codes(events, "event", EVENTS) >= 0).combine_chunks()
    jobs = Groups(_is_first(events))
    is_gone = (codes(events, "state", STATES)[jobs.lasts] == GONE)[jobs.number]
    return chosen(events, is_gone), chosen(events, ~is_gone)


def newer(events: pa.Table, progress: Progress) -> pa.Table:
    """The events of jobs whose last record is not in a table yet."""
    if not progress or not events.num_rows:
        return events
    jobs = Groups(_is_first(events))
    servers = column(events, "server").dictionary_encode()
    known = np.array([progress.get(name, -1) for name in servers.dictionary.to_pylist()])
    last = numbers(events, "lsn")[jobs.lasts]
    there = known[servers.indices.to_numpy(zero_copy_only=False)[jobs.lasts]]
    return chosen(events, (last > there)[jobs.number])


def tables_of(
    events: pa.Table, starts: Starts, last_ns: Mapping[str, int] | None = None
) -> dict[str, pa.Table]:
    """The tables of `NAMES`, of whole jobs; ``date`` is when a job was first seen.

    :param last_ns: as `entries_of` takes it.
    """
    stays = stays_of(events, starts)
    day = first_days(stays)
    return {
        "lifetimes": of_days(lifetimes_of(stays), day), "attempts": attempts_of(stays, day),
        "failing": failing_of(events), "entries": entries_of(stays, last_ns),
    }  # fmt: skip


def _by_first_day(events: pa.Table, starts: Starts) -> Iterator[tuple[pa.Table, int]]:
    """The events of jobs that were first seen on the same day, with the columns `OPEN`."""
    stays = stays_of(events, starts)
    jobs = Groups(_is_first(events))
    due = nullable(due_ns(stays)[jobs.number])
    day = first_days(stays)[jobs.number]
    events = of_days(events.append_column("due_ns", due), day)
    for each in np.unique(day).tolist():
        yield chosen(events, day == each), each


def increment(events: pa.Table, starts: Starts, progress: Mapping[str, Progress]) -> Iterator[Made]:
    """:param events: all of some jobs: what is new, and what was open.
    :param progress: of each of `NAMES`, what its settled rows have already.
    :return: of each of them the rows that are to be added, and, day by day, those in the place of
        all that were not settled; and ``open``, the events that the next increment needs.
    """
    gone, still_open = split(events)
    for mine, day in _by_first_day(still_open, starts):
        yield Made("open", False, mine)
        for name, rows in tables_of(mine.select(events.column_names), starts).items():
            if "date" not in rows.column_names:
                rows = of_days(rows, np.full(rows.num_rows, day))
            yield Made(name, False, rows)
    done: list[tuple[Progress, dict[str, pa.Table]]] = []
    for name in NAMES:
        known = progress.get(name, {})
        made = next((tables for base, tables in done if base == known), None)
        if made is None:
            made = tables_of(newer(gone, known), starts, starts.last_ns)
            done.append((known, made))
        yield Made(name, True, made[name])


def changed_minutes(
    before: pa.Table, after: pa.Table, last_minutes: Mapping[str, int],
    moments_ns: tuple[Mapping[str, int], Mapping[str, int]],
) -> dict[str, int]:  # fmt: skip
    """The first minute of each server whose rows are not what they were.

    :param before: the entries that are replaced.
    :param after: those in their place, and those that are added.
    :param last_minutes: of each server, the last minute that there are rows of: it may go on.
    :param moments_ns: the last moments of servers before, and now.
    """
    found = first_changed(*map(by_day, (before, after), moments_ns))
    return {server: min(last, found.get(server, last)) for server, last in last_minutes.items()}
