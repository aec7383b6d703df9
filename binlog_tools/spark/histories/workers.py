"""
One row a worker, a connection that reserved jobs: how long it was busy, and how its runs ended.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.images import numbers
from binlog_tools.spark.histories.tables import WORKERS, moments, table
from binlog_tools.spark.histories.windows import NONE, Groups, Ints, changes

COLUMNS: Final = ("server", "incarnation", "connection", "job", "started_ns", "ended_ns",
                  "ended_by")  # fmt: skip
"""What is needed of attempts."""

ENDS: Final = {
    "deletes": ("delete",), "releases": ("release",), "buries": ("bury",), "moves": ("move",),
    "timeouts": ("ttr-expired",), "disconnects": ("disconnect-release",),
    "lost": ("restart", "unlogged"),
}  # fmt: skip


def workers_of(attempts: pa.Table) -> pa.Table:
    """
    :param attempts: all those of some connections.
    :return: with the schema `tables.WORKERS`.
    """
    named = pc.and_(pc.is_valid(attempts["connection"]), pc.is_valid(attempts["incarnation"]))
    attempts = attempts.select(COLUMNS).filter(named).sort_by([
        ("server", "ascending"), ("incarnation", "ascending"), ("connection", "ascending"),
        ("started_ns", "ascending"),
    ]).combine_chunks()  # fmt: skip
    servers = attempts["server"].combine_chunks().dictionary_encode().indices
    connection, job = numbers(attempts, "connection"), numbers(attempts, "job")
    workers = Groups(changes(
        servers.to_numpy(zero_copy_only=False), numbers(attempts, "incarnation"), connection
    ))  # fmt: skip
    started, ended = numbers(attempts, "started_ns"), numbers(attempts, "ended_ns")
    is_over = (started != NONE) & (ended != NONE)
    begun = np.where(started == NONE, ended, started)
    newest = np.where(ended == NONE, started, ended)
    heads = pa.array(workers.starts)
    return table(WORKERS, {
        **{name: attempts[name].take(heads) for name in ("server", "incarnation")},
        "connection": connection[workers.starts],
        "first": moments(workers.least(begun)),
        "last": _newest(workers, newest),
        "jobs": _distinct(workers, job), "runs": workers.count(np.ones(len(job), bool)),
        "run_ns": workers.sum(np.where(is_over, ended - started, 0)),
        "busy_ns": workers.sum(_alone(workers, started, ended, is_over)),
        **{name: workers.count(_is_in(attempts, ends)) for name, ends in ENDS.items()},
        "running": workers.count(pc.is_null(attempts["ended_by"]).to_numpy()),
    })  # fmt: skip


def _newest(workers: Groups, moments_ns: Ints) -> Any:
    most = workers.most(np.where(moments_ns == NONE, -1, moments_ns))
    return moments(np.where(most < 0, NONE, most))


def _is_in(attempts: pa.Table, ends: tuple[str, ...]) -> Any:
    return pc.is_in(attempts["ended_by"], value_set=pa.array(ends)).to_numpy()


def _distinct(workers: Groups, job: Ints) -> Ints:
    order = np.lexsort((job, workers.number))
    return workers.count(changes(workers.number, job[order]))


def _alone(workers: Groups, started: Ints, ended: Ints, is_over: Any) -> Ints:
    """
    How much of each run lies behind the ends of all runs of the connection that began before it: a
    connection may hold several jobs at once.
    """
    until = np.where(is_over, ended, 0)
    # The latest end so far in each group, as a maximum of ranks, which leave room for the group.
    order = np.argsort(until, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    newest = np.maximum.accumulate(rank + workers.number * len(order))
    before = until[order[newest - workers.number * len(order)]]
    rows = np.arange(len(order))
    covered = np.where(rows == workers.first, 0, np.append(0, before)[: len(order)])
    return np.where(is_over, np.maximum(0, ended - np.maximum(started, covered)), 0)
