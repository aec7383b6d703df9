"""One row a worker, a connection that reserved jobs: how long it was busy, and how its runs ended.

The rows of an incarnation of a server grow with its attempts, without all earlier ones: what is
counted is added, and the time busy is measured anew since the first change.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.images import codes, column, numbers
from binlog_tools.spark.histories.tables import WORKERS, moments, table, texts
from binlog_tools.spark.histories.windows import NO_ROW, NONE, Groups, Ints, changes

COLUMNS: Final = ("server", "incarnation", "connection", "job", "started_ns", "ended_ns",
                  "ended_by")  # fmt: skip
"""What is needed of attempts."""

ENDS: Final = {
    "deletes": ("delete",), "releases": ("release",), "buries": ("bury",), "moves": ("move",),
    "timeouts": ("ttr-expired",), "disconnects": ("disconnect-release",),
    "lost": ("restart", "unlogged", "cancel"),
}  # fmt: skip


_KNOWN: Final = tuple(end for ends in ENDS.values() for end in ends)

ADDED: Final = ("jobs", "runs", "run_ns", *ENDS, "running")
"""Columns that count: of no job are some attempts replaced and others not."""


def workers_of(attempts: pa.Table) -> pa.Table:
    """:param attempts: all those of some connections.
    :return: with the schema `tables.WORKERS`.
    """
    named = pc.and_(pc.is_valid(attempts["connection"]), pc.is_valid(attempts["incarnation"]))
    attempts = attempts.select(COLUMNS).filter(named)
    servers = column(attempts, "server").dictionary_encode()
    names = ("incarnation", "connection", "started_ns")
    keys = (servers.indices.to_numpy(zero_copy_only=False), *(
        numbers(attempts, name) for name in names))  # fmt: skip
    order = np.lexsort(keys[::-1])
    server, incarnation, connection, started = (each[order] for each in keys)
    job, ended = (numbers(attempts, name)[order] for name in ("job", "ended_ns"))
    ended_by = codes(attempts, "ended_by", _KNOWN)[order]
    is_running = column(attempts, "ended_by").is_null().to_numpy(zero_copy_only=False)
    workers = Groups(changes(server, incarnation, connection))
    is_over = (started != NONE) & (ended != NONE)
    heads = workers.starts
    return table(WORKERS, {
        "server": texts(servers.dictionary, server[heads]), "incarnation": incarnation[heads],
        "connection": connection[heads],
        "first": moments(workers.least(np.where(started == NONE, ended, started))),
        "last": _newest(workers, np.where(ended == NONE, started, ended)),
        "jobs": _distinct(workers, job), "runs": workers.count(np.ones(len(job), bool)),
        "run_ns": workers.sum(np.where(is_over, ended - started, 0)),
        "busy_ns": workers.sum(_alone(workers, started, ended, is_over)),
        **{name: workers.count(np.isin(ended_by, list(map(_KNOWN.index, ends))))
           for name, ends in ENDS.items()},
        "running": workers.count(is_running[order]),
    })  # fmt: skip


class Replaced(NamedTuple):
    """Attempts of an incarnation of a server that are replaced, and those in their place: all of
    the same jobs, and of new ones.

    :ivar same: of the jobs whose attempts stay as they are: most that are not gone have no new
        event.
    :ivar since_ns: of connections, when the first run begins that is not in both.
    """

    old: pa.Table
    new: pa.Table
    same: pa.Table
    since_ns: Mapping[int, int]

    @classmethod
    def of(cls, old: pa.Table, new: pa.Table) -> "Replaced":
        """:param old: all that are replaced.
        :param new: all in their place.
        """
        job = numbers(new, "job")
        is_both = np.isin(job, np.unique(numbers(old, "job")))
        differing = _differing(old, new.filter(pa.array(is_both)))
        others = np.unique(numbers(differing, "job"))
        old_rows, is_other = np.isin(numbers(old, "job"), others), np.isin(job, others) | ~is_both
        added = new.select(differing.column_names).filter(pa.array(~is_both))
        return cls(
            old.filter(pa.array(old_rows)), new.filter(pa.array(is_other)),
            new.filter(pa.array(~is_other)), _begun_ns(pa.concat_tables([differing, added])),
        )  # fmt: skip


def grown(workers: pa.Table, replaced: Replaced, near: pa.Table) -> pa.Table | None:
    """:param workers: the rows so far, of an incarnation of a server.
    :param near: of the attempts that are not replaced those that ended behind the least of
        `Replaced.since_ns`.
    :return: the rows now; None: they are to be made of all attempts.
    """
    sides = (replaced.old, replaced.new)
    rows = (workers, *map(workers_of, sides))
    others = [each.select(COLUMNS) for each in (near, replaced.same)]
    busy = [_busy_of(_behind(pa.concat_tables([each.select(COLUMNS), *others]), replaced.since_ns))
            for each in sides]  # fmt: skip
    connections = np.unique(np.concatenate([numbers(each, "connection") for each in rows]))

    def of(table: pa.Table, name: str, missing: int = 0) -> Ints:
        found = np.full(len(connections), missing)
        places = np.searchsorted(connections, numbers(table, "connection"))
        found[places] = numbers(table, name, missing)
        return found

    made = {name: _changed([of(each, name) for each in rows]) for name in ADDED}
    made["busy_ns"] = _changed([of(each, "busy_ns") for each in (workers, *busy)])
    first = [of(_micros(each, "first"), "first", NONE) for each in rows]
    last = [of(_micros(each, "last"), "last", NO_ROW) for each in rows]
    if _is_less(*first) or _is_less(*(-each for each in last)):
        return None
    one = pa.concat_tables([each.select(["server", "incarnation"]) for each in rows])
    ends = {"first": np.minimum(first[0], first[2]), "last": np.maximum(last[0], last[2])}
    return table(WORKERS, {
        **{name: one[name].take(pa.array(np.zeros(len(connections), np.int64)))
           for name in one.column_names},
        "connection": connections, **made,
        **{name: pa.array(each, mask=np.isin(each, (NONE, NO_ROW))) for name, each in ends.items()},
    }).filter(pa.array(made["runs"] > 0))  # fmt: skip


_RUN: Final = ("ended_ns", "started_ns", "connection", "job")


def _differing(old: pa.Table, new: pa.Table) -> pa.Table:
    """The attempts that are not the same in both, with the columns `_RUN`."""
    both = pa.concat_tables([old.select(COLUMNS), new.select(COLUMNS)])
    sign = np.repeat([-1, 1], [old.num_rows, new.num_rows])
    keys: list[Any] = [codes(both, "ended_by", _KNOWN), *(numbers(both, name) for name in _RUN)]
    order = np.lexsort(keys)
    same = Groups(changes(*(key[order] for key in keys)))
    rows = order[same.starts[same.sum(sign[order]) != 0]]
    return both.select(_RUN).take(pa.array(rows))


def _begun_ns(attempts: pa.Table) -> dict[int, int]:
    """Of connections, when the first of these runs began, or ended if the log does not say."""
    named = attempts.filter(attempts["connection"].is_valid())
    begun = np.minimum(numbers(named, "started_ns"), numbers(named, "ended_ns"))
    found = pa.table({"connection": named["connection"], "begun": begun})
    least = found.group_by("connection", use_threads=False).aggregate([("begun", "min")])
    return dict(zip(*(least[name].to_pylist() for name in ("connection", "begun_min")),
                    strict=True))  # fmt: skip


def _busy_of(attempts: pa.Table) -> pa.Table:
    """:param attempts: that began and ended, of an incarnation.
    :return: ``busy_ns`` by ``connection``.
    """
    connection, started, ended = (
        numbers(attempts, name) for name in ("connection", "started_ns", "ended_ns")
    )
    order = np.lexsort((started, connection))
    workers = Groups(changes(connection[order]))
    alone = _alone(workers, started[order], ended[order], np.ones(len(order), bool))
    return pa.table({"connection": connection[order][workers.starts],
                     "busy_ns": workers.sum(alone)})  # fmt: skip


def _changed(counts: list[Ints]) -> Ints:
    """So many, without those of what is replaced, and with those in its place."""
    before, old, new = counts
    return before - old + new


def _is_less(before: Ints, old: Ints, new: Ints) -> bool:
    """Whether a least value may be that of what is replaced, and is not there any more."""
    return bool(((old < new) & (before == old)).any())


def _micros(workers: pa.Table, name: str) -> pa.Table:
    return pa.table({"connection": workers["connection"], name: workers[name].cast(pa.int64())})


def _behind(attempts: pa.Table, since_ns: Mapping[int, int]) -> pa.Table:
    """What of the runs of these connections lies behind these moments."""
    known = np.array(sorted(since_ns), np.int64)
    moments_ns = np.array([since_ns[each] for each in known.tolist()], np.int64)
    connection = numbers(attempts, "connection")
    place = np.minimum(np.searchsorted(known, connection), len(known) - 1)
    if not len(known):
        return attempts.slice(0, 0)
    least = np.where(known[place] == connection, moments_ns[place], NONE)
    started, ended = numbers(attempts, "started_ns"), numbers(attempts, "ended_ns")
    rows = (started != NONE) & (ended != NONE) & (ended > least)
    begun = pa.array(np.maximum(started, least))
    at = attempts.schema.get_field_index("started_ns")
    return attempts.set_column(at, "started_ns", begun).filter(pa.array(rows))


def _newest(workers: Groups, moments_ns: Ints) -> Any:
    most = workers.most(np.where(moments_ns == NONE, -1, moments_ns))
    return moments(np.where(most < 0, NONE, most))


def _distinct(workers: Groups, job: Ints) -> Ints:
    order = np.lexsort((job, workers.number))
    return workers.count(changes(workers.number, job[order]))


def _alone(workers: Groups, started: Ints, ended: Ints, is_over: Any) -> Ints:
    """How much of each run lies behind the ends of all runs of the connection that began before it:
    a connection may hold several jobs at once.
    """
    until = np.where(is_over, ended, 0)
    # The latest end so far in each group, as a maximum of ranks, which leave room for the group.
    order = np.argsort(until)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    newest = np.maximum.accumulate(rank + workers.number * len(order))
    before = until[order[newest - workers.number * len(order)]]
    rows = np.arange(len(order))
    covered = np.where(rows == workers.first, 0, np.append(0, before)[: len(order)])
    return np.where(is_over, np.maximum(0, ended - np.maximum(started, covered)), 0)
