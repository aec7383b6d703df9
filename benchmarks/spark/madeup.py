"""An events table of any size, made up: jobs with retries, time-outs and burials, by day and by
night.

It is made with numpy, since the plain model of the tests would take hours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from binlog_tools.spark.definitions import columns

NS: Final = 1_000_000_000
EPOCH_NS: Final = 1_763_337_600 * NS
TUBES: Final = ("default", "mail", "thumbs", "invoices", "search", "export", "push", "cleanup")
FAILING: Final = np.array([0.02, 0.05, 0.1, 0.3, 0.01, 0.15, 0.04, 0.02])
"""The share of runs that fail, by tube."""

RUN_S: Final = np.array([0.05, 0.4, 2.5, 1.0, 0.1, 20.0, 0.08, 5.0])
"""How long a run takes on average, by tube."""

CONNECTIONS: Final = 40
TTR_S: Final = 60


def events(jobs: int, days: float, seed: int = 1) -> pa.Table:
    """About 3.3 rows a job, of one server."""
    chance = np.random.default_rng(seed)
    put = np.sort(EPOCH_NS + (_by_day(chance, jobs, days) * NS).astype(np.int64))
    tube = chance.choice(len(TUBES), jobs, p=[0.3, 0.2, 0.1, 0.05, 0.2, 0.03, 0.1, 0.02])
    kind = chance.integers(0, 400, jobs)
    job = np.arange(1, jobs + 1)
    rows = [_rows(job, put, "put", "ready", 0, {}, 0)]
    ready, alive, counts = put.copy(), np.ones(jobs, bool), _counters(jobs)
    for _ in range(6):
        now = np.flatnonzero(alive)
        if not len(now):
            break
        load = 1 + 4 * np.exp(-(((ready[now] // NS % 86_400) / 3600 - 14) ** 2) / 8)
        start = ready[now] + (chance.exponential(0.05 * load) * NS).astype(np.int64)
        counts["reserves"][now] += 1
        worker = chance.integers(1, CONNECTIONS + 1, len(now))
        rows.append(_rows(job[now], start, "reserve", "reserved", worker, _at(counts, now), TTR_S))
        took = chance.exponential(RUN_S[tube[now]]).clip(0, TTR_S)
        end = start + (took * NS).astype(np.int64)
        risk = np.where(kind[now] == 7, 0.95, FAILING[tube[now]])
        fails = chance.random(len(now)) < risk
        done = now[~fails]
        rows.append(
            _rows(job[done], end[~fails], "delete", "gone", worker[~fails], _at(counts, done), 0)
        )
        alive[done] = False
        how = chance.choice(4, len(now), p=[0.4, 0.35, 0.15, 0.1])
        for number, (event, state, counter) in enumerate(ENDS):
            mine = fails & (how == number)
            them = now[mine]
            if counter:
                counts[counter][them] += 1
            at = np.where(event == "ttr-expired", start[mine] + TTR_S * NS, end[mine])
            named = worker[mine] if event in ("release", "bury") else 0
            rows.append(_rows(job[them], at, event, state, named, _at(counts, them), 0))
            ready[them] = at
            alive[them] = state == "ready"
    return _table(rows, put, tube, kind)


ENDS: Final = (
    ("release", "ready", "releases"), ("ttr-expired", "ready", "timeouts"),
    ("bury", "buried", "buries"), ("disconnect-release", "ready", ""),
)  # fmt: skip
COUNTERS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")


def _by_day(chance: np.random.Generator, jobs: int, days: float) -> np.ndarray[Any, Any]:
    """Seconds; most of them at two in the afternoon, few at night and at the weekend."""
    day = chance.choice(np.arange(int(np.ceil(days))), jobs)
    hour = np.where(
        chance.random(jobs) < 0.7, chance.normal(14, 2.5, jobs) % 24, chance.random(jobs) * 24
    )
    weekend = (day % 7 >= 5) & (chance.random(jobs) < 0.6)
    seconds: np.ndarray[Any, Any] = (np.where(weekend, day - 3, day) % days) * 86_400 + hour * 3600
    return seconds


def _counters(jobs: int) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.zeros(jobs, np.int64) for name in COUNTERS}


def _at(counts: dict[str, np.ndarray[Any, Any]], jobs: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {name: numbers[jobs] for name, numbers in counts.items()}


def _rows(
    job: Any, at_ns: Any, event: str, state: str, connection: Any, counts: dict[str, Any],
    ttr_s: int,
) -> dict[str, Any]:  # fmt: skip
    zero = np.zeros(len(job), np.int64)
    told = {name: counts.get(name, zero) for name in COUNTERS}
    return {
        "job": job, "time_ns": at_ns, "event": np.full(len(job), event, object),
        "state": np.full(len(job), state, object), "connection": zero + connection,
        "deadline_ns": zero if not ttr_s else at_ns + ttr_s * NS, **told,
    }  # fmt: skip


def _table(rows: list[dict[str, Any]], put: Any, tube: Any, kind: Any) -> pa.Table:
    all_of = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
    step = np.concatenate([np.full(len(part["job"]), at) for at, part in enumerate(rows)])
    order = np.lexsort((step, all_of["time_ns"]))
    all_of = {name: numbers[order] for name, numbers in all_of.items()}
    count = len(order)
    of_job = all_of["job"] - 1
    is_put = all_of["event"] == "put"
    bodies = [
        f'{{"order": {job}, "template": "t{chr(97 + kind[job] % 20)}{chr(97 + kind[job] // 20)}", '
        f'"note": "{"x" * (job % 90)}"}}'.encode()
        if put else None
        for job, put in zip(of_job.tolist(), is_put.tolist(), strict=True)
    ]  # fmt: skip
    body = pa.array(bodies, pa.binary())
    connection, deadline = all_of["connection"], all_of["deadline_ns"]
    buried = all_of["state"] == "buried"
    deadline = np.where(buried, all_of["time_ns"], deadline)
    lsn = np.arange(1, count + 1)
    made = {
        "server": pa.array(np.full(count, "0f5c" * 8, object)), "incarnation": np.ones(count, int),
        "segment": lsn // 500_000 + 1, "offset": lsn * 100, "lsn": lsn, "event": all_of["event"],
        "time": all_of["time_ns"] // 1000, "time_ns": all_of["time_ns"],
        "logged": all_of["time_ns"] // 1000, "logged_ns": all_of["time_ns"], "job": all_of["job"],
        "tube": np.array(TUBES, object)[tube[of_job]], "state": all_of["state"],
        "priority": np.full(count, 1024), "delay_s": np.zeros(count, int),
        "ttr_s": np.full(count, TTR_S), "deadline": pa.array(deadline // 1000, mask=deadline == 0),
        "deadline_ns": pa.array(deadline, mask=deadline == 0),
        **{name: all_of[name] for name in COUNTERS}, "reason": np.full(count, "client", object),
        "connection": pa.array(connection, mask=connection == 0), "copy": np.zeros(count, bool),
        "relaxed": np.isin(all_of["event"], ["reserve", "ttr-expired", "disconnect-release"]),
        "bytes": pa.compute.cast(pa.compute.binary_length(body), pa.int64()), "body": body,
        "problem": pa.nulls(count, pa.string()),
    }  # fmt: skip
    schema = columns.arrow_schema(tuple(columns.BY_NAME))
    nulls = pa.nulls(count, pa.string())
    arrays = [pa.array(made.get(name, nulls)).cast(schema.field(name).type)
              for name in schema.names]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=schema)


def write(folder: Path, table: pa.Table, files: int) -> None:
    """As Parquet, in so many files."""
    folder.mkdir(parents=True)
    rows = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * rows, rows), folder / f"part-{number:03d}.parquet")
