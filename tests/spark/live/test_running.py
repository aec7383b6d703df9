"""Each row of the live tables comes once, wherever the process is killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.live.open_jobs import NAMES
from binlog_tools.spark.live.running import (
    CHECKPOINT_COMMITS,
    FOLDER,
    SNAPSHOT_STEPS,
    Journal,
    LiveTables,
    Snapshot,
    Step,
)
from binlog_tools.spark.live.steps import SCHEMAS, LiveState
from binlog_tools.spark.storing.locations import Files, Location
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import LOG
from tests.sampling import one_in
from tests.spark.live.test_steps import FIVE_SECONDS, Row, add, history, table_of
from tests.spark.storing.faulty import FaultyFiles

SEED = 30


class Killed(BaseException):
    """As kill -9: nothing handles it."""


class Killer:
    """Ends the process at the n-th operation on files."""

    def __init__(self, after: int) -> None:
        self.left = after

    def door(self, location: Location) -> Files:
        """To the files of a place."""
        return FaultyFiles(location.files(), self.fault)

    def fault(self, operation: str, name: str) -> None:
        """One operation."""
        self.left -= 1
        if self.left == 0:
            raise Killed


def events_of(seed: int = SEED) -> pa.Table:
    """A history."""
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
        if (place / name).is_dir():
            table = open_stored(str(place / name)).dataset().to_table().drop_columns(["date"])
            found[name] = sorted(table.to_pylist(), key=str)
        else:
            found[name] = []
    return found


def expected(batches: list[pa.Table]) -> dict[str, list[Row]]:
    """What one process tells that is never killed."""
    state = LiveState(FIVE_SECONDS)
    told: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    for batch in batches:
        add(told, state.step(batch))
    return {name: sorted(rows, key=str) for name, rows in told.items()}


def test_rows_of_steps_are_in_the_tables(tmp_path: Path) -> None:
    batches = pieces(events_of(), 1)
    with LiveTables(str(tmp_path), FIVE_SECONDS) as tables:
        for number, batch in enumerate(batches):
            tables.take(batch, number)
    assert rows_of(tmp_path) == expected(batches)
    assert all(rows for rows in rows_of(tmp_path).values())
    assert tables.figures()["steps"] == len(batches)


def test_a_table_has_a_checkpoint_after_so_many_commits_and_the_same_rows(tmp_path: Path) -> None:
    events = events_of()
    batches = [events.slice(at, 5) for at in range(0, events.num_rows, 5)]
    counts = dict.fromkeys(SCHEMAS, 0)
    with LiveTables(str(tmp_path), FIVE_SECONDS) as tables:
        for batch in batches:
            tables.take(batch)
            for name in SCHEMAS:
                log = tmp_path / name / LOG
                counts[name] = len(list(log.glob("*.json")))
                checkpoints = sorted(path.name for path in log.glob("*.checkpoint.parquet"))
                assert checkpoints == [
                    f"{number - 1:020}.checkpoint.parquet"
                    for number in range(CHECKPOINT_COMMITS, counts[name] + 1, CHECKPOINT_COMMITS)
                ]
    assert max(counts.values()) > CHECKPOINT_COMMITS
    assert rows_of(tmp_path) == expected(batches)


def run(place: Path, batches: list[pa.Table], killer: Killer) -> bool:
    """Do all that Spark has not noted as done; it gives a batch again that was not.

    :return: whether it was killed.
    """
    try:
        with LiveTables(str(place), FIVE_SECONDS, killer.door) as tables:
            # As Spark does after a crash: from the last batch that is not known to be done.
            for number in range(max(0, tables._batch), len(batches)):
                tables.take(batches[number], number)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("after", one_in(8, range(1, 45, 3)))
def test_a_kill_at_any_operation_loses_and_doubles_nothing(tmp_path: Path, after: int) -> None:
    batches = pieces(events_of(), 1)
    was_killed = run(tmp_path, batches, Killer(after))
    run(tmp_path, batches, Killer(after // 2 + 3))
    assert not run(tmp_path, batches, Killer(0))
    assert rows_of(tmp_path) == expected(batches)
    assert was_killed or after > 25


def test_a_step_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    batches = pieces(events_of(), 1)
    with LiveTables(str(tmp_path), FIVE_SECONDS) as tables:
        tables.take(batches[0], 0)
    cut = tmp_path / FOLDER / "state" / f"step-{2:020}.arrow"
    for size in (0, 3, 40):
        cut.write_bytes(b"x" * size)
        LiveTables(str(tmp_path), FIVE_SECONDS).close()
    with LiveTables(str(tmp_path), FIVE_SECONDS) as tables:
        for number, batch in enumerate(batches[1:], 1):
            tables.take(batch, number)
    assert rows_of(tmp_path) == expected(batches)


def test_a_new_checkpoint_reads_the_log_anew_and_changes_nothing(tmp_path: Path) -> None:
    batches = pieces(events_of(), 1)
    for _ in range(2):
        with LiveTables(str(tmp_path), FIVE_SECONDS) as tables:
            for number, batch in enumerate(batches):
                tables.take(batch, number)
    assert rows_of(tmp_path) == expected(batches)


def test_a_journal_of_an_earlier_version_lacks_reasons_and_is_gone_on_with(tmp_path: Path) -> None:
    events = events_of().select(NAMES)
    first, second = events.slice(0, 60), events.slice(60)
    place = tmp_path / FOLDER / "state"
    place.mkdir(parents=True)
    kept = first.drop_columns(["reason"])
    Journal(Location.of(str(place)).files(), kept[:0]).append(Step(1, 0, None, kept))
    with LiveTables(str(tmp_path), FIVE_SECONDS) as tables:
        tables.take(second, 1)
    place_of_reason = first.schema.get_field_index("reason")
    nulls = pa.nulls(first.num_rows, pa.string())
    assert rows_of(tmp_path) == expected(
        [first.set_column(place_of_reason, "reason", nulls), second]
    )


def test_a_checkpoint_that_is_ahead_of_the_tables_is_refused(tmp_path: Path) -> None:
    tables = LiveTables(str(tmp_path), FIVE_SECONDS)
    tables.take(events_of().slice(0, 5), 0)
    with pytest.raises(TableError, match="its newest batch is 0, that of the checkpoint 1: they"):
        tables.take(events_of().slice(5, 5), 2)


def test_after_a_failure_nothing_goes_on(tmp_path: Path) -> None:
    killer = Killer(0)
    tables = LiveTables(str(tmp_path), FIVE_SECONDS, killer.door)
    killer.left = 1
    with pytest.raises(Killed):
        tables.take(events_of().slice(0, 5), 0)
    with pytest.raises(TableError, match="an earlier step has failed; start it again"):
        tables.take(events_of().slice(5, 5), 1)


def test_a_wait_that_has_become_too_long_is_told_while_it_lasts(tmp_path: Path) -> None:
    (put, *_) = [row for row in history(SEED) if row["event"] == "put" and row["state"] == "ready"]
    row: dict[str, Any] = {**put, "tube": "default"}
    tables = LiveTables(str(tmp_path), FIVE_SECONDS)
    tables.take(table_of([row]), 0)
    since_ns = row["time_ns"]
    at_ns = since_ns + 6_000_000_000
    assert not tables.tick(at_ns - 1)
    assert rows_of(tmp_path)["breaches"] == []
    assert tables.tick(at_ns)
    (told,) = rows_of(tmp_path)["breaches"]
    assert (told["job"], told["since_ns"], told["target_ns"]) == (row["job"], since_ns, 5 * 10**9)
    tables.close()
    again = LiveTables(str(tmp_path), FIVE_SECONDS)
    assert not again.tick(at_ns + 10**12)
    assert len(rows_of(tmp_path)["breaches"]) == 1


def test_a_second_one_on_the_same_output_is_refused(tmp_path: Path) -> None:
    batches = pieces(events_of(), 1)
    with LiveTables(str(tmp_path), FIVE_SECONDS) as tables:
        tables.take(batches[0], 0)
        with pytest.raises(TableError, match=r"^\[TABLE_BUSY\] \S+: another live keeps these"):
            LiveTables(str(tmp_path), FIVE_SECONDS)
        for number, batch in enumerate(batches[1:], 1):
            tables.take(batch, number)
    assert rows_of(tmp_path) == expected(batches)
    LiveTables(str(tmp_path), FIVE_SECONDS).close()


@pytest.mark.parametrize("steps", [1, SNAPSHOT_STEPS + 1])
def test_where_nothing_can_be_locked_the_second_ends_at_its_first_step(
    tmp_path: Path, steps: int
) -> None:
    """A journal is all that two have in common there."""
    files, events = Location.of(str(tmp_path)).files(), events_of()
    first, second = (Journal(files, events[:0]) for _ in range(2))
    for number in range(1, steps + 1):
        first.append(Step(number, 0, None, events[:1]))
        if first.is_long:
            first.keep(Snapshot("s", number, 0, {}, events[:1]))
    names = files.names()
    with pytest.raises(TableError, match=r"^\[TABLE_BUSY\] step 1 is there already: another live"):
        second.append(Step(1, 0, None, events[:2]))
    assert files.names() == names
