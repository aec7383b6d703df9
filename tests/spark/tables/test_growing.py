"""
Stored tables that are brought up to date are those that are made at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlog_tools.spark.histories.sla import Target
from tests.spark.histories.test_histories import servers_of
from tests.spark.tables import queue_model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGETS = (("mail", Target(wait_ns=10**9, share=0.5)), ("*", Target(run_ns=10**9)))
KEYS = {
    "lifetimes": ("server", "job"), "attempts": ("server", "job", "revivals", "attempt"),
    "workers": ("server", "incarnation", "connection"),
    "tube_minutes": ("server", "tube", "minute"), "sla": ("server", "tube", "hour"),
}  # fmt: skip


def _newer(spark: SparkSession, events: pa.Table, until_ns: int) -> Callable[[Any], DataFrame]:
    def newer(known: dict[str, int]) -> DataFrame:
        there = events.filter(pc.less_equal(events["logged_ns"], until_ns))
        last = [known.get(name, -1) for name in there["server"].to_pylist()]
        return spark.createDataFrame(there.filter(pc.greater(there["lsn"], pa.array(last))))

    return newer


def _rows(out: Path, name: str) -> list[dict[str, Any]]:
    from binlog_tools.spark.storing.opening import open_stored
    from binlog_tools.spark.storing.stored import dataset

    found = dataset(open_stored(f"{out}/{name}")).to_table()
    rows: list[dict[str, Any]] = found.sort_by(
        [(key, "ascending") for key in KEYS[name]]).to_pylist()  # fmt: skip
    return rows


@pytest.mark.exhaustive
def test_stored_tables_grow_are_killed_and_are_those_made_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.tables.growing import update
    from binlog_tools.spark.tables.layouts import LAYOUTS

    rows = [row for part in servers_of((3, 5, 9, 12)).values() for row in part]
    events = queue_model.table(rows)
    moments = sorted(row["logged_ns"] for row in rows)
    end = moments[-1]
    whole, plain, grown = (tmp_path / name for name in ("whole", "plain", "grown"))

    def run(out: Path, newer: Callable[[Any], DataFrame], form: str = "delta") -> Iterator[str]:
        every = partial(spark.createDataFrame, events)
        return (made.name for made in update(spark, str(out), newer, every, form, TARGETS))

    assert list(run(whole, _newer(spark, events, end)))
    assert list(run(plain, _newer(spark, events, end), "parquet"))
    first = _newer(spark, events, moments[len(moments) // 2])
    for last in ("workers", "starts"):
        # The rest is not committed, as if the run had been killed.
        assert last in run(grown, first)
    for newer in (first, _newer(spark, events, end)):
        assert {*run(grown, newer)} == {*LAYOUTS, "poison"}
        assert not list(run(grown, newer))
    for name in KEYS:
        expected = _rows(whole, name)
        assert expected and _rows(grown, name) == expected, name
        # Plain files do not say of which type the values of their folders are.
        folders = {*LAYOUTS[name].partition_by} - {"server"}
        assert _without(_rows(plain, name), folders) == _without(expected, folders), name


def _without(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in sorted(row.keys() - names)} for row in rows]
