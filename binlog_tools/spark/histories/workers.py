"""One row a worker, a connection that reserved jobs: how long it was busy, how its runs ended."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.images import codes, column, numbers
from binlog_tools.spark.histories.tables import WORKERS, moments, table, texts
from binlog_tools.spark.histories.windows import NONE, Groups, Ints, changes

COLUMNS: Final = ("server", "incarnation", "connection", "job", "started_ns", "ended_ns",
                  "ended_by")  # fmt: skip
"""What is needed of attempts."""

ENDS: Final = {
    "deletes": ("delete",), "releases": ("release",), "buries": ("bury",), "moves": ("move",),
    "timeouts": ("ttr-expired",), "disconnects": ("disconnect-release",),
    "lost": ("restart", "unlogged", "cancel"),
}  # fmt: skip


_KNOWN: Final = tuple(end for ends in ENDS.values() for end in ends)


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
