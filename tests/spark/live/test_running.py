"""Each row of the live tables comes once, wherever the process is killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from binlog_tools.spark.cli.main import cli
from binlog_tools.spark.errors import CODES, TableError
from binlog_tools.spark.live import SCHEMAS, LiveTables
from binlog_tools.spark.storing import StoredTable, open_stored
from tests.sampling import one_in
from tests.spark.live.test_steps import Row, add, history, server_of, table_of

SEED = 30


class Killed(BaseException):
    """As kill -9: nothing handles it."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Ends the process before or after the n-th write to a table."""
    left = {"before": 0, "after": 0}
    write = StoredTable.write

    def counted(self: StoredTable, *words: Any) -> int:
        left["before"] -= 1
        if left["before"] == 0:
            raise Killed
        version = write(self, *words)
        left["after"] -= 1
        if left["after"] == 0:
            raise Killed
        return version

    monkeypatch.setattr(StoredTable, "write", counted)
    return left


def events_of(seed: int = SEED) -> pa.Table:
    return table_of(history(seed))


def pieces(events: pa.Table, seed: int) -> list[pa.Table]:
    """As batches have it."""
    chance = random.Random(seed)
    found, at = [], 0
    while at < events.num_rows:
        size = chance.choice([30, 60])
        found.append(events.slice(at, size))
        at += size
    return found


def rows_of(place: Path) -> dict[str, list[Row]]:
    """What the tables have, in order."""
    found: dict[str, list[Row]] = {}
    for name in SCHEMAS:
        rows = []
        if (place / name).is_dir():
            rows = open_stored(str(place / name)).read(names=SCHEMAS[name].names).to_pylist()
        found[name] = sorted(rows, key=str)
    return found


def expected(events: pa.Table) -> dict[str, list[Row]]:
    """What one process makes that is never killed."""
    told: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    add(told, server_of(events).step(events))
    return {name: sorted(rows, key=str) for name, rows in told.items()}


def run(place: Path, events: pa.Table, seed: int, is_stored: bool = False) -> bool:
    """Take what is not taken, as a follower does; return True if it was killed."""
    try:
        tables = LiveTables(str(place))
        known = [server.newest_lsn for server in tables.servers.values()]
        rest = events.filter(pa.compute.greater(events["lsn"], (known or [-1])[0]))
        for number, piece in enumerate(pieces(rest, seed)):
            tables.take(piece)
            if is_stored and number % 2:
                tables.store_open()
    except Killed:
        return True
    return False


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("after", one_in(4, range(1, 24)))
def test_a_kill_at_any_commit_loses_and_doubles_nothing(
    tmp_path: Path, kill_at: dict[str, int], after: int, is_stored: bool
) -> None:
    events = events_of()
    kill_at["after"] = after
    was_killed = run(tmp_path, events, 1, is_stored)
    kill_at["before"] = after // 2 + 2
    run(tmp_path, events, 2, is_stored)
    kill_at["before"] = 0
    assert not run(tmp_path, events, 3, is_stored)
    assert rows_of(tmp_path) == expected(events)
    assert was_killed or after > 10


def test_the_second_process_on_the_same_tables_ends(tmp_path: Path) -> None:
    first, second = LiveTables(str(tmp_path)), LiveTables(str(tmp_path))
    events = events_of()
    half = events.num_rows // 2
    first.take(events.slice(0, half))
    with pytest.raises(TableError, match=r"^\[TABLE_BUSY\] .*another run has changed this table"):
        second.take(events.slice(0, half))
    open_stored(str(tmp_path / "lifetimes")).optimize()
    first.take(events.slice(half))
    assert rows_of(tmp_path) == expected(events)


def test_a_log_that_is_not_there_is_reported(tmp_path: Path) -> None:
    words = ["live", str(tmp_path / "nothere"), "-o", str(tmp_path / "live")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == CODES["BINLOG_NOT_FOUND"]
    assert not (tmp_path / "live").exists()
    assert done.stderr.startswith("[BINLOG_NOT_FOUND] ") and done.stderr.count("\n") == 1
