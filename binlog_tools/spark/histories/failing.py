"""Jobs that fail again and again, and kinds of them.  A failure is a run without a `delete`."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from beanstalk_twisted.printable import escape
from binlog_tools.spark.histories.records import (
    EVENTS,
    FULL,
    NO_ROW,
    NONE,
    STATES,
    Event,
    Groups,
    Ints,
    State,
    at,
    changes,
    chosen,
    coded,
    codes,
    column,
    numbers,
    ranked,
)
from binlog_tools.spark.histories.tables import KINDS, POISON_JOBS, moments, table

SAMPLE_BYTES: Final = 240
"""Of a body: some four lines, and more would make the report of many kinds long."""

HEX_BYTES: Final = 32
"""Of a body that is no text: what its format can be told by."""

MOST_BINARY: Final = 0.1
"""A body of which more of the characters are controls, or no UTF-8, is no text."""


def readable(body: bytes) -> str:
    """The beginning of a body: text in one line with its controls escaped (``\\n``, ``\\x1b``,
    ``\\u202e``), anything else in hexadecimal; and how much was cut off.
    """
    begun = body[:SAMPLE_BYTES]
    is_cut = len(begun) < len(body)
    if _is_binary(begun, is_cut):
        shown = body[:HEX_BYTES]
        return f"hex {shown.hex(' ')}{_rest(len(body) - len(shown))}"
    text = begun.decode("utf-8", "replace" if is_cut else "backslashreplace")
    # The last character may have been cut in two.
    text = text.rstrip("\ufffd") if is_cut else text
    return escape(text) + _rest(len(body) - len(begun))


def _is_binary(begun: bytes, is_cut: bool) -> bool:
    text = begun.decode("utf-8", "replace")
    text = text[:-1] if is_cut and text.endswith("\ufffd") else text
    if text.isprintable() and "\ufffd" not in text:
        return False
    odd = sum(
        each == "\ufffd" or (not each.isprintable() and each not in "\t\r\n") for each in text
    )
    return odd > MOST_BINARY * max(1, len(text))


def _rest(count: int) -> str:
    return f" … and {count:,} more bytes" if count > 0 else ""


FAILURES: Final = 3
"""The number of failures that makes a job poison."""

COUNTERS: Final = ("timeouts", "releases", "buries")

FAILING: Final = pa.schema([
    *(field for field in POISON_JOBS if field.name not in ("fingerprint", "sample")),
    ("bodies", pa.list_(pa.int64())),
])  # fmt: skip
"""A row per job.  ``lsn`` is of the newest record with a body, ``bodies`` are of all of these."""

MARKS: Final = pa.schema([("server", pa.string()), ("lsn", pa.int64()),
                          ("fingerprint", pa.string()), ("sample", pa.string())])  # fmt: skip
"""Fingerprint and beginning of the body of a record."""


def failing_of(events: pa.Table, failures: int = FAILURES) -> pa.Table:
    """Return those of whole jobs, by job and LSN, with so many failures; with `FAILING`."""
    event = codes(events, "event", EVENTS)
    found = event == Event.DISCONNECT_RELEASE
    for name in COUNTERS:
        found = found | (numbers(events, name, 0) > 0)
    if not found.any():
        return FAILING.empty_table()
    rows = _jobs(events).any(found)
    kept = rows[_jobs(events).number]
    events, event = chosen(events, kept), event[kept]
    jobs = _jobs(events)
    counts = {name: jobs.most(numbers(events, name, 0)) for name in COUNTERS}
    # A death is a burial to the server; the run that it follows is counted already.
    is_dead = at(_is_dead(events), jobs.newest(np.isin(event, FULL)), False)
    counts["buries"] = jobs.most(numbers(events, "buries", 0) - is_dead)
    counts["disconnects"] = jobs.count(event == Event.DISCONNECT_RELEASE)
    counts["failures"] = sum(counts.values(), np.zeros(len(jobs.lasts), np.int64))
    made = _rows(events, event, jobs, counts)
    return made.filter(pa.array(counts["failures"] >= failures))


def _is_dead(events: pa.Table) -> Any:
    return column(events, "dead_from").is_valid().to_numpy(zero_copy_only=False)


def _jobs(events: pa.Table) -> Groups:
    return Groups(changes(numbers(events, "job"), coded(events, "server")[0]))


def _rows(events: pa.Table, event: Any, jobs: Groups, counts: dict[str, Ints]) -> pa.Table:
    lasts = pa.array(jobs.lasts)
    state = codes(events, "state", STATES)[jobs.lasts]
    is_full = np.isin(event, FULL)
    full = jobs.newest(is_full)[jobs.lasts]
    copy = column(events, "copy").fill_null(False).to_numpy(zero_copy_only=False)
    last_ns = jobs.most(np.where(copy, NO_ROW, numbers(events, "time_ns", NO_ROW)))
    lsn = numbers(events, "lsn")
    bodies = pa.ListArray.from_arrays(
        pa.array(np.append(0, np.cumsum(jobs.count(is_full))), pa.int32()), pa.array(lsn[is_full])
    )
    return table(FAILING, {
        **{name: column(events, name).take(lasts) for name in ("server", "tube", "job", "state")},
        **counts, "is_dead": (state == State.BURIED) & at(_is_dead(events), full, False),
        "last": moments(np.where(last_ns == NO_ROW, NONE, last_ns)),
        "lsn": pa.array(at(lsn, full, NO_ROW), mask=full == NO_ROW), "bodies": bodies,
    })  # fmt: skip


def unmarked(failing: pa.Table, marks: pa.Table) -> dict[str, Ints]:
    """Return, by server, the ascending LSNs of the bodies of jobs whose newest has no mark."""
    known = set(_keys(marks))
    found: dict[str, set[int]] = defaultdict(set)
    for key, bodies in zip(_keys(failing), failing["bodies"].to_pylist(), strict=True):
        if key not in known:
            found[key[0]].update(bodies)
    return {server: np.array(sorted(lsns), np.int64) for server, lsns in found.items() if lsns}


def _keys(rows: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(rows["server"].to_pylist(), rows["lsn"].to_pylist(), strict=True)


def marked(failing: pa.Table, marks: pa.Table) -> pa.Table:
    """Return the jobs with the mark of their newest body that has one, with `POISON_JOBS`."""
    places = {key: place for place, key in enumerate(_keys(marks))}
    found = [
        next((places[key[0], lsn] for lsn in reversed(bodies) if (key[0], lsn) in places), None)
        for key, bodies in zip(_keys(failing), failing["bodies"].to_pylist(), strict=True)
    ]
    rows = pa.array(found, pa.int64())
    return table(POISON_JOBS, {
        **{name: failing[name] for name in failing.column_names},
        **{name: marks[name].take(rows) for name in ("fingerprint", "sample")},
    })  # fmt: skip


def poison_of(jobs: pa.Table) -> pa.Table:
    """Return a row per tube and fingerprint, with `KINDS`."""
    jobs = jobs.combine_chunks()
    if not jobs.num_rows:
        return KINDS.empty_table()
    tube, fingerprint, server = (
        ranked(jobs, name)[0] for name in ("tube", "fingerprint", "server")
    )
    keys = (numbers(jobs, "job"), server, numbers(jobs, "failures"), fingerprint, tube)
    order = np.lexsort(keys)
    jobs = jobs.take(pa.array(order)).combine_chunks()
    groups = Groups(changes(tube[order], fingerprint[order]))
    worst = jobs.take(pa.array(groups.lasts))
    last = groups.most(column(jobs, "last").cast(pa.int64()).fill_null(NO_ROW).to_numpy())
    is_gone = codes(jobs, "state", STATES) == State.GONE
    return table(KINDS, {
        **{name: worst[name] for name in ("tube", "fingerprint", "sample")},
        "jobs": groups.lasts - groups.starts + 1,
        **{name: groups.sum(numbers(jobs, name))
           for name in ("failures", *COUNTERS, "disconnects")},
        "alive": groups.count(~is_gone),
        "dead": groups.count(column(jobs, "is_dead").to_numpy(zero_copy_only=False)),
        "most_failures": worst["failures"], "example_server": worst["server"],
        "example_job": worst["job"], "last": pa.array(last, mask=last == NO_ROW),
    })  # fmt: skip
