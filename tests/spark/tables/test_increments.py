"""Stored tables that grew by increments are those that the oracle makes of the whole history."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlog_tools.spark.errors import TableError
from binlog_tools.spark.histories.failing import FAILURES
from binlog_tools.spark.storing import LOG, StoredTable, open_stored
from binlog_tools.spark.tables.engines import InProcess
from binlog_tools.spark.tables.increments import LAYOUTS, update
from binlog_tools.spark.tasks import Rows
from tests.sampling import one_in
from tests.spark.histories.test_histories import assert_same, of_each, servers_of
from tests.spark.tables import oracle, queue_model

Row = dict[str, Any]
DAY_NS = 86_400 * queue_model.NS


def newer_of(events: pa.Table, parts: int = 5) -> Callable[[Any], Rows]:
    def newer(known: dict[str, int]) -> Rows:
        rows = max(1, -(-events.num_rows // parts))
        cut = [events.slice(start, rows) for start in range(0, events.num_rows, rows)]
        return Rows(cut, events.schema, lambda part, names: part.select(names).to_batches())

    return newer


def stored(out: Path, name: str) -> pa.Table:
    return open_stored(f"{out}/{name}").read()


def stretched(rows: list[Row], days: int) -> list[Row]:
    found, size = [], max(1, -(-len(rows) // days))
    for place, row in enumerate(rows):
        more = place // size * DAY_NS
        found.append({
            name: value + more if name.endswith("_ns") and isinstance(value, int)
            and value < 1 << 62 else value
            for name, value in row.items()
        })  # fmt: skip
    return found


def assert_tables(out: Path, servers: dict[str, list[Row]]) -> None:
    """All tables are those of the oracle."""
    rows = [row for part in servers.values() for row in part]
    keys = {"lifetimes": ("server", "job"), "attempts": ("server", "job", "revivals", "attempt"),
            "workers": ("server", "incarnation", "connection")}  # fmt: skip
    for name, key in keys.items():
        assert_same(stored(out, name), of_each(servers, getattr(oracle, name)), key)
    minutes = stored(out, "tube_minutes")
    seconds = pc.divide(minutes["minute"].cast(pa.int64()), 1_000_000)
    place = minutes.schema.get_field_index("minute")
    assert_same(minutes.set_column(place, "minute", seconds),
                of_each(servers, oracle.tube_minutes), ("server", "tube", "minute"))  # fmt: skip
    assert_same(stored(out, "poison"), oracle.poison(rows, FAILURES), ("tube", "fingerprint"))
    alive = [{"server": name, **row} for name, part in servers.items()
             for row in oracle.snapshot(part, None, None)]  # fmt: skip
    assert_same(stored(out, "snapshot"), alive, ("server", "job"))


def run(out: Path, events: pa.Table, engine: Any = None) -> list[str]:
    return [made.name for made in update(str(out), newer_of(events), engine or InProcess())]


def cuts(rows: Sequence[Row], seed: int) -> Iterable[pa.Table]:
    chance = random.Random(seed)
    ends = sorted(chance.sample(range(1, len(rows) + 1), min(4, len(rows))))
    for end in (*ends, len(rows)):
        yield queue_model.table(rows[:end])


@pytest.mark.parametrize("seed", one_in(10, range(60)))
def test_increments_in_random_cuts_make_the_rows_of_the_oracle(tmp_path: Path, seed: int) -> None:
    servers = servers_of(range(seed * 3, seed * 3 + 3))
    for place, name in enumerate(servers):
        if (seed + place) % 2:
            servers[name] = stretched(servers[name], 2 + seed % 3)
    rows = sorted((row for part in servers.values() for row in part),
                  key=lambda row: (row["logged_ns"], row["server"], row["lsn"]))  # fmt: skip
    for events in cuts(rows, seed):
        run(tmp_path, events)
        assert not run(tmp_path, events)
    assert_tables(tmp_path, servers)


@pytest.mark.parametrize("committed", range(1, len(LAYOUTS) + 1))
def test_a_run_that_was_killed_is_repeated_by_the_next(tmp_path: Path, committed: int) -> None:
    servers = {name: stretched(rows, 3) for name, rows in servers_of((3, 9)).items()}
    rows = sorted((row for part in servers.values() for row in part),
                  key=lambda row: (row["logged_ns"], row["server"], row["lsn"]))  # fmt: skip
    for size in (len(rows) // 2, len(rows) * 3 // 4):
        steps = update(str(tmp_path), newer_of(queue_model.table(rows[:size])), InProcess())
        for _, _ in zip(range(committed), steps, strict=False):
            pass
    run(tmp_path, queue_model.table(rows))
    assert_tables(tmp_path, servers)


def test_a_table_that_is_gone_is_not_begun_again_in_its_middle(tmp_path: Path) -> None:
    first, second = servers_of((3, 9)).values()
    assert "workers" in run(tmp_path, queue_model.table(first))
    (tmp_path / "workers").rename(tmp_path / "elsewhere")
    with pytest.raises(TableError, match=r"workers is gone.* write into a new folder"):
        run(tmp_path, queue_model.table([*first, *second]))


def test_of_two_runs_at_the_same_time_one_says_that_it_lost(tmp_path: Path) -> None:
    events = queue_model.table([row for part in servers_of((3,)).values() for row in part])
    first = update(str(tmp_path), newer_of(events), InProcess())
    second = update(str(tmp_path), newer_of(events), InProcess())
    assert next(first).name == "lifetimes"
    with pytest.raises(TableError, match=r"^\[TABLE_BUSY\] .*another run has changed this table"):
        next(second)
    assert len(list(first)) == len(LAYOUTS) - 1
    for name in LAYOUTS:
        assert len(list((tmp_path / name / LOG).glob("*.json"))) == 1, name


@pytest.mark.parametrize("committed", [0, 1])
def test_a_long_table_takes_several_commits_and_may_be_killed_between_them(
    tmp_path: Path, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlog_tools.spark.tables.increments.COMMIT_ROWS", 1)
    servers = {name: stretched(rows, 3) for name, rows in servers_of((3, 9, 12)).items()}
    rows = sorted((row for part in servers.values() for row in part),
                  key=lambda row: (row["logged_ns"], row["server"], row["lsn"]))  # fmt: skip
    run(tmp_path, queue_model.table(rows[: len(rows) // 2]))
    write, left = StoredTable.write, [committed + 1]

    def killed(self: StoredTable, *words: Any) -> int:
        left[0] -= 1
        if left[0] == 0 and committed:
            raise KeyboardInterrupt
        return write(self, *words)

    monkeypatch.setattr(StoredTable, "write", killed)
    if committed:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, queue_model.table(rows))
    run(tmp_path, queue_model.table(rows))
    assert_tables(tmp_path, servers)
    assert len(list((tmp_path / "lifetimes" / LOG).glob("*.json"))) > 3
