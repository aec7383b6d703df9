"""Tables for tests of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from binlog_tools.spark.histories.failing import readable

START_S = 1_763_942_400  # A Monday.
SERVER = "a" * 32
HOSTILE = '</script><img src=x onerror="document.title=1"> & \u202eabc\u2028'
COUNTS = (
    "puts", "reserves", "deletes", "timeouts", "releases", "buries", "kicks", "disconnects",
    "ready", "reserved", "delayed", "buried", "oldest_ns",
)  # fmt: skip
ENDS = {"timeouts": 4, "releases": 1, "buries": 0, "disconnects": 0}
MICROS = pa.timestamp("us", "UTC")
MINUTES = pa.schema([
    ("server", pa.string()), ("tube", pa.string()), ("minute", MICROS),
    *((name, pa.int64()) for name in COUNTS),
    ("wait_histogram", pa.map_(pa.int64(), pa.int64())),
    ("run_histogram", pa.map_(pa.int64(), pa.int64())),
])  # fmt: skip


def write(folder: Path, table: pa.Table) -> None:
    write_deltalake(folder, table, writer_properties=WriterProperties(max_row_group_size=1000))


def minute(at: int, tube: str = "mail", server: str = SERVER, **given: Any) -> dict[str, Any]:
    """A row of `tube_minutes`."""
    return {
        "server": server, "tube": tube, "minute": (START_S + at) * 1_000_000,
        **dict.fromkeys(COUNTS, 0), "wait_histogram": [], "run_histogram": [], **given,
    }  # fmt: skip


def write_minutes(tables: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write(tables / "tube_minutes", pa.Table.from_pylist(list(rows), MINUTES))


def busy_minutes() -> Iterable[dict[str, Any]]:
    tubes = [HOSTILE, "_hidden$", *(f"tube{number}" for number in range(8))]
    for server in (SERVER, "b" * 32):
        for tube in tubes:
            for at in range(432):
                yield minute(
                    at * 600, tube, server, puts=3 if at < 144 else 0,
                    reserves=2 + (tube == "tube0"), deletes=2, timeouts=1, ready=at, reserved=1,
                    buried=2, oldest_ns=at * 10**9,
                    wait_histogram=[(1_000_000, 3), (2_000_000_000, 1)],
                )  # fmt: skip


def lifetimes(*jobs: tuple[str, str | None, str | None, int | None]) -> pa.Table:
    """A table of jobs: what became of them, the tube that they died in, why, and how long after the
    start, seconds.
    """
    outcomes, tubes, reasons, deaths = zip(*jobs, strict=True)
    micros = [None if at is None else (START_S + at) * 1_000_000 for at in deaths]
    return pa.table({
        "outcome": outcomes, "dead_from": pa.array(tubes, pa.string()),
        "dead_reason": pa.array(reasons, pa.string()), "dead_at": pa.array(micros, MICROS),
        "is_whole": [at != 9 for at in deaths], "tube": ["mail"] * len(jobs),
        "state": ["gone" if each == "done" else "ready" for each in outcomes],
        "put": pa.array([START_S * 1_000_000] * len(jobs), MICROS),
        "last": pa.array([(START_S + 2) * 1_000_000] * len(jobs), MICROS),
    })  # fmt: skip


def kind(failures: int, **given: Any) -> dict[str, Any]:
    return {
        "tube": HOSTILE, "fingerprint": f"{failures:016x}", "jobs": 2, "failures": failures, **ENDS,
        "alive": 1, "dead": 0, "example_server": SERVER, "example_job": 1234567, **given,
    }  # fmt: skip


def worker(connection: int, incarnation: int = 1, first: int = 0, **given: Any) -> dict[str, Any]:
    """A row of `workers`."""
    micros = (START_S + first) * 1_000_000
    return {
        "server": SERVER, "incarnation": incarnation, "connection": connection, "first": micros,
        "last": micros, "jobs": 2, "runs": 3, "busy_ns": connection * 10**9, "deletes": 1, **ENDS,
        "lost": 0, **given,
    }  # fmt: skip


def attempt(started: float | None, ended: float | None, **given: Any) -> dict[str, Any]:
    """A row of `attempts`."""
    run_ns = None if started is None or ended is None else int((ended - started) * 1e9)
    return {
        "tube": "mail", "started": _micros(started), "ended": _micros(ended), "run_ns": run_ns,
        "ended_by": None if ended is None else "delete", "wait_ns": None, **given,
    }  # fmt: skip


def _micros(at: float | None) -> int | None:
    return None if at is None else int((START_S + at) * 1e6)


def write_attempts(tables: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write(tables / "attempts", pa.Table.from_pylist(list(rows), pa.schema([
        ("tube", pa.string()), ("started", MICROS), ("ended", MICROS), ("run_ns", pa.int64()),
        ("ended_by", pa.string()), ("wait_ns", pa.int64()),
    ])))  # fmt: skip


def write_workers(tables: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    table = pa.Table.from_pylist(list(rows))
    for name in ("first", "last"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].cast(MICROS))
    write(tables / "workers", table)


def all_tables(place: Path) -> Path:
    """All four, with names and bodies that are hard to show."""
    write_minutes(place, busy_minutes())
    write(place / "lifetimes", lifetimes(
        ("alive", None, None, None), ("done", None, None, None), ("done", "t", "expired", 9),
        *(("dead", HOSTILE, "max-reserves", 60 * at) for at in (7, 3, 5)),
        ("dead", HOSTILE, "expired", 60),
        *(("alive", None, None, None) for _ in range(2000)),
        ("dead", HOSTILE, "max-reserves", 0),
    ))  # fmt: skip
    write(place / "poison", pa.Table.from_pylist(
        [kind(at, sample=readable(f'{{"note": "{HOSTILE}", "at": {at}}}'.encode()))
         for at in range(30)]
    ))  # fmt: skip
    write_workers(place, (worker(at, 1 + at // 10, 600 * at) for at in range(20)))
    write_attempts(place, [attempt(1, 2)])
    write(place / "starts", pa.table({
        "server": [SERVER, SERVER], "incarnation": pa.array([1, 2], pa.int32()),
        **{f"{name}_ns": [START_S * 10**9, (START_S + 6000) * 10**9]
           for name in ("first", "newest")},
        "stopped_ns": pa.array([None, None], pa.int64()),
    }))  # fmt: skip
    return place
