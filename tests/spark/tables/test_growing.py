"""Stored tables that are brought up to date are those that are made at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.histories.entries import DAY_NS
from binlog_tools.spark.histories.failing import FAILURES
from binlog_tools.spark.histories.sla import Target
from binlog_tools.spark.storing.stored import LOG, Change
from binlog_tools.spark.tasks import Rows
from tests.spark.histories.test_histories import assert_same, servers_of
from tests.spark.histories.test_increments import stretched
from tests.spark.storing.counting import counted_opens
from tests.spark.tables import oracle, queue_model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGETS = (("mail", Target(wait_ns=10**9, share=0.5)), ("*", Target(run_ns=10**9)))
KEYS = {
    "lifetimes": ("server", "job"), "attempts": ("server", "job", "revivals", "attempt"),
    "workers": ("server", "incarnation", "connection"),
    "tube_minutes": ("server", "tube", "minute"), "sla": ("server", "tube", "hour"),
    "poison": ("tube", "fingerprint"),
}  # fmt: skip


def _newer(events: pa.Table, until_ns: int, parts: int = 5) -> Callable[[Any], Rows]:
    """In so many parts, with events that are known already."""
    there = events.filter(pc.less_equal(events["logged_ns"], until_ns))

    def newer(known: dict[str, int]) -> Rows:
        rows = -(-there.num_rows // parts)
        cut = [there.slice(start, rows) for start in range(0, there.num_rows, rows)]
        return Rows(cut, there.schema, lambda part, names: part.select(names).to_batches())

    return newer


def _table(out: Path, name: str) -> pa.Table:
    from binlog_tools.spark.storing.opening import open_stored

    return open_stored(f"{out}/{name}").dataset().to_table()


def _rows(out: Path, name: str) -> list[dict[str, Any]]:
    ordered = _table(out, name).sort_by([(key, "ascending") for key in KEYS[name]])
    rows: list[dict[str, Any]] = ordered.to_pylist()
    return rows


@pytest.mark.exhaustive
def test_stored_tables_grow_are_killed_and_are_those_made_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.tables.growing import update
    from binlog_tools.spark.tables.layouts import LAYOUTS

    servers = list(servers_of((3, 5, 9, 12)).values())
    # Two logs without gaps, of which tasks find whole jobs in what they read, and two with gaps.
    servers[:2] = [[{**row, "lsn": lsn} for lsn, row in enumerate(part)] for part in servers[:2]]
    # Of several days, of which some rest.
    servers[1], servers[3] = (stretched(servers[place], 3) for place in (1, 3))
    rows = [row for part in servers for row in part]
    events = queue_model.table(rows)
    moments = sorted(row["logged_ns"] for row in rows)
    end = moments[-1]
    whole, grown = tmp_path / "whole", tmp_path / "grown"

    def run(out: Path, newer: Callable[[Any], Rows]) -> Iterator[str]:
        return (made.name for made in update(spark, str(out), newer, TARGETS))

    assert list(run(whole, _newer(events, end)))
    first = _newer(events, moments[len(moments) // 2])
    for last in ("workers", "starts", "failing"):
        # The rest is not committed, as if the run had been killed.
        assert last in run(grown, first)
    for newer in (first, _newer(events, end)):
        assert {*run(grown, newer)} == {*LAYOUTS, "poison"}
        assert not list(run(grown, newer))
        if newer is first:
            # Minutes are there, of entries that are not, or of some more.
            for part, last in ((5, "tube_minutes"), (6, "sla"), (7, "entries")):
                assert last in run(grown, _newer(events, moments[len(moments) * part // 8]))
    for name in KEYS:
        expected = _rows(whole, name)
        assert expected and _rows(grown, name) == expected, name
    assert_same(_table(whole, "poison"), oracle.poison(rows, FAILURES), KEYS["poison"])


def test_an_increment_opens_each_table_once_and_commits_it_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.tables.growing import update
    from binlog_tools.spark.tables.layouts import LAYOUTS

    rows = [row for part in servers_of((3, 5, 9, 12)).values() for row in part]
    events = queue_model.table(rows)
    moments = sorted(row["logged_ns"] for row in rows)
    names = {*LAYOUTS, "poison"}

    def run(until_ns: int) -> list[str]:
        return [made.name for made in update(spark, str(tmp_path), _newer(events, until_ns, 2))]

    assert {*run(moments[len(moments) // 2])} == names
    with counted_opens() as opens:
        assert sorted(run(moments[-1])) == sorted(names)
    assert sorted(Path(place).name for place in opens) == sorted(names)
    for name in names:
        assert len(list((tmp_path / name / LOG).glob("*.json"))) == 2, name
    with counted_opens() as opens:
        assert not run(moments[-1])
    assert len(opens) == len(names)


def test_what_is_known_of_days_whose_jobs_rest_is_not_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.storing.opening import open_stored
    from binlog_tools.spark.tables.growing import update
    from binlog_tools.spark.tables.server_days import UNSETTLED, ServerDay, day_of

    # A server without an event on the last day, and one with some.
    rows = [*queue_model.history(5), *stretched(queue_model.history(13), 4)]
    events = queue_model.table(rows)
    end = max(row["logged_ns"] for row in rows)

    def unsettled(name: str) -> dict[ServerDay, set[str]]:
        found: dict[ServerDay, set[str]] = defaultdict(set)
        within = {} if name == "open" else UNSETTLED
        for file in open_stored(f"{tmp_path}/{name}").files(within):
            found[day_of(file)].add(file.path)
        return found

    names = ("lifetimes", "open")
    assert list(update(spark, str(tmp_path), _newer(events, end - DAY_NS)))
    before = {name: unsettled(name) for name in names}
    assert list(update(spark, str(tmp_path), _newer(events, end)))
    after = {name: unsettled(name) for name in names}
    kept = {name: {day for day, files in before[name].items() if after[name].get(day) == files}
            for name in names}  # fmt: skip
    assert kept["lifetimes"] == kept["open"] and 0 < len(kept["open"]) < len(before["open"])


def test_tables_of_a_version_that_kept_less_are_refused(tmp_path: Path) -> None:
    from binlog_tools.spark.storing.opening import open_stored
    from binlog_tools.spark.tables.growing import update
    from binlog_tools.spark.tables.layouts import LAYOUTS

    open_stored(f"{tmp_path}/open", LAYOUTS["open"]).commit(Change())
    spark: Any = None
    with pytest.raises(
        TableError, match=r"^\[TABLE_FORMAT\] .*nothing was written.* -o NEW_FOLDER$"
    ):
        next(update(spark, str(tmp_path), _newer(queue_model.table([]), 0)))
