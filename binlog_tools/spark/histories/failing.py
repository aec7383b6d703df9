"""Jobs that fail again and again, and kinds of them: those of the same tube and fingerprint.

A failure is a run that did not end in `delete`; most are counters of the job's newest image, so
they are right also where records are missing.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.histories.images import (
    BURIED,
    DISCONNECT_RELEASE,
    EVENTS,
    FULL,
    GONE,
    STATES,
    codes,
    column,
    numbers,
)
from binlog_tools.spark.histories.tables import KINDS, moments, schema_of, table
from binlog_tools.spark.histories.windows import NO_ROW, NONE, Groups, Ints, at, changes

FAILURES: Final = 3
"""So many failures make a job poison, unless told otherwise."""

COUNTERS: Final = ("timeouts", "releases", "buries")

FAILING: Final = schema_of("""
  server tube string; job timeouts releases buries disconnects alive dead bigint; last timestamp;
  lsn bigint""").append(pa.field("bodies", pa.list_(pa.int64())))
"""A row a job.  ``lsn`` is of the newest record with a body, ``bodies`` are of all of these."""

MARKS: Final = schema_of("server string; lsn bigint; fingerprint sample string")
"""What the bodies of records say."""

_SUMS: Final = ("jobs", "failures", *COUNTERS, "disconnects", "alive", "dead")


def failing_of(events: pa.Table, failures: int = FAILURES) -> pa.Table:
    """:param events: of whole jobs, by job and LSN.
    :return: with `FAILING`, of the jobs that failed at least so many times.
    """
    event = codes(events, "event", EVENTS)
    found = _failed(events, event == DISCONNECT_RELEASE)
    if not found.any():
        return FAILING.empty_table()
    jobs = _jobs(events)
    rows = jobs.any(found)[jobs.number]
    events, event = events.filter(pa.array(rows)), event[rows]
    jobs = _jobs(events)
    counts = {name: jobs.most(numbers(events, name, 0)) for name in COUNTERS}
    counts["disconnects"] = jobs.count(event == DISCONNECT_RELEASE)
    is_failing = sum(counts.values()) >= failures
    made = _rows(events, event, jobs, counts)
    return made.filter(pa.array(is_failing))


def _failed(events: pa.Table, is_lost: Any) -> Any:
    found = is_lost
    for name in COUNTERS:
        found = found | (numbers(events, name, 0) > 0)
    return found


def _jobs(events: pa.Table) -> Groups:
    servers = column(events, "server").dictionary_encode().indices
    return Groups(changes(numbers(events, "job"), servers.to_numpy(zero_copy_only=False)))


def _rows(events: pa.Table, event: Any, jobs: Groups, counts: dict[str, Ints]) -> pa.Table:
    lasts = pa.array(jobs.lasts)
    state = codes(events, "state", STATES)[jobs.lasts]
    is_full = np.isin(event, FULL)
    full = jobs.newest(is_full)[jobs.lasts]
    is_dead = column(events, "dead_from").is_valid().to_numpy(zero_copy_only=False)
    copy = column(events, "copy").fill_null(False).to_numpy(zero_copy_only=False)
    last_ns = jobs.most(np.where(copy, NO_ROW, numbers(events, "time_ns", NO_ROW)))
    lsn = numbers(events, "lsn")
    bodies = pa.ListArray.from_arrays(
        pa.array(np.append(0, np.cumsum(jobs.count(is_full))), pa.int32()), pa.array(lsn[is_full])
    )
    return table(FAILING, {
        **{name: column(events, name).take(lasts) for name in ("server", "tube", "job")},
        **counts, "alive": ((state != GONE) & (state != NO_ROW)).astype(np.int64),
        "dead": ((state == BURIED) & at(is_dead, full, False)).astype(np.int64),
        "last": moments(np.where(last_ns == NO_ROW, NONE, last_ns)),
        "lsn": pa.array(at(lsn, full, NO_ROW), mask=full == NO_ROW), "bodies": bodies,
    })  # fmt: skip


def unmarked(failing: pa.Table, marks: pa.Table) -> dict[str, Ints]:
    """:param failing: jobs, as `failing_of` gives them.
    :return: of servers, the LSNs of records with bodies, ascending, of the jobs whose newest one
        is not in ``marks``.
    """
    known = set(_keys(marks))
    found: dict[str, set[int]] = defaultdict(set)
    for key, bodies in zip(_keys(failing), failing["bodies"].to_pylist(), strict=True):
        if key not in known:
            found[key[0]].update(bodies)
    return {server: np.array(sorted(lsns), np.int64) for server, lsns in found.items() if lsns}


def _keys(rows: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(rows["server"].to_pylist(), rows["lsn"].to_pylist(), strict=True)


def kinds_of(failing: pa.Table, marks: pa.Table) -> pa.Table:
    """:param failing: jobs, as `failing_of` gives them.
    :param marks: the newest of a job counts.
    :return: with `tables.KINDS` and ``lsn``, each job as a kind of its own.
    """
    places = {key: place for place, key in enumerate(_keys(marks))}
    found = [
        next((places[key[0], lsn] for lsn in reversed(bodies) if (key[0], lsn) in places), None)
        for key, bodies in zip(_keys(failing), failing["bodies"].to_pylist(), strict=True)
    ]
    rows = pa.array(found, pa.int64())
    counts = {name: failing[name].to_numpy() for name in (*COUNTERS, "disconnects")}
    failures = sum(counts.values(), np.zeros(failing.num_rows, np.int64))
    return table(KINDS, {
        "tube": failing["tube"], **counts, "failures": failures, "most_failures": failures,
        **{name: marks[name].take(rows) for name in ("fingerprint", "sample")},
        "jobs": np.ones(failing.num_rows, np.int64),
        **{name: failing[name] for name in ("alive", "dead", "last")},
        "example_server": failing["server"], "example_job": failing["job"],
    }).append_column("lsn", failing["lsn"])  # fmt: skip


def added(kinds: pa.Table) -> pa.Table:
    """Kinds of several parts of the jobs, added up: one row a kind."""
    kinds = kinds.select(KINDS.names).combine_chunks()
    if not kinds.num_rows:
        return KINDS.empty_table()
    tube, fingerprint, server = (_ranked(kinds, name)
                                 for name in ("tube", "fingerprint", "example_server"))  # fmt: skip
    order = np.lexsort((numbers(kinds, "example_job"), server, numbers(kinds, "most_failures"),
                        fingerprint, tube))  # fmt: skip
    kinds = kinds.take(pa.array(order))
    groups = Groups(changes(tube[order], fingerprint[order]))
    examples = kinds.take(pa.array(groups.lasts))
    last = groups.most(
        numbers(
            kinds.set_column(KINDS.get_field_index("last"), "last", kinds["last"].cast(pa.int64())),
            "last",
            NO_ROW,
        )
    )
    return table(KINDS, {
        **{name: examples[name] for name in KINDS.names},
        **{name: groups.sum(numbers(kinds, name)) for name in _SUMS},
        "last": pa.array(last, mask=last == NO_ROW),
    })  # fmt: skip


def _ranked(rows: pa.Table, name: str) -> Ints:
    """The place of each text among all of them in their order; of null, `NO_ROW`."""
    texts = column(rows, name).dictionary_encode()
    known = np.array(texts.dictionary.to_pylist(), object)
    places = np.empty(len(known), np.int64)
    places[np.argsort(known)] = np.arange(len(known))
    found: Ints = at(places, texts.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False), NO_ROW)
    return found
