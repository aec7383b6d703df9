"""Stored tables through Spark: what is written is read, from a directory and from an S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from binlog_tools.spark.frames import rows_of
from binlog_tools.spark.storing.tables import StoredTable, open_stored
from tests.object_storage.s3_server import S3Server, running
from tests.spark.storing.test_tables import LAYOUT, ODD, SCHEMA, add, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running() as started:
        yield started


def sorted_rows(frame: Any) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: row["lsn"])


def filled(place: str) -> StoredTable:
    """A table of three servers, one of them null, and a column that its first file has not."""
    add(open_stored(place, LAYOUT), rows([1, 2], "1e5"), rows([3], ODD), rows([4], None))
    wider = LAYOUT._replace(schema=SCHEMA.append(pa.field("more", pa.int64())))
    table = open_stored(place, wider)
    table.write(wider.schema.empty_table())
    return table


EXPECTED = [{**row, "more": None} for part in (rows([1, 2], "1e5"), rows([3], ODD), rows([4], None))
            for row in part.to_pylist()]  # fmt: skip


def test_the_rows_of_a_table_are_read_in_parts(tmp_path: Path) -> None:
    found = rows_of(filled(str(tmp_path / "a {c} * größer")))
    batches = [batch for part in found.parts for batch in found.read(part, found.schema.names)]
    read = pa.Table.from_batches(batches).to_pylist()
    names = [*SCHEMA.names, "more"]
    assert sorted(({name: row[name] for name in names} for row in read),
                  key=lambda row: row["lsn"]) == EXPECTED  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", ["directory", "s3"])
def test_a_table_becomes_a_frame(
    spark: SparkSession, tmp_path: Path, server: S3Server, where: str
) -> None:
    from binlog_tools.spark.frames import read_frame

    place = str(tmp_path / "a {c} * größer")
    if where == "s3":
        place = server.url(f"{os.urandom(8).hex()}/t")
    table = filled(place)
    frame = read_frame(spark, table)
    assert set(frame.columns) == {*SCHEMA.names, "more"}
    assert frame.schema["lsn"].metadata["comment"] == "number of the record"
    found = [{name: row[name] for name in EXPECTED[0]} for row in sorted_rows(frame)]
    assert found == EXPECTED
    assert sorted_rows(read_frame(spark, table, ["lsn"])) == [{"lsn": lsn} for lsn in (1, 2, 3, 4)]
    add(open_stored(place, LAYOUT), rows([9]), replaced="")
    # What was there before can still be read, as long as it is kept.
    assert [row["lsn"] for row in sorted_rows(frame)] == [1, 2, 3, 4]
