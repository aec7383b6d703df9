"""Stored tables through Spark: what is written is read, from a directory and from an S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from binlog_tools.spark.storing.delta import DeltaStored
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.storing.stored import Change
from tests.object_storage.s3_server import S3Server, running
from tests.spark.storing.test_stored import LAYOUT, ODD, SCHEMA, add, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running() as started:
        yield started


def sorted_rows(frame: Any) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: row["lsn"])


def filled(place: str) -> DeltaStored:
    """A table of three servers, one of them null, and a column that its first file has not."""
    add(open_stored(place, LAYOUT), rows([1, 2], "1e5"), rows([3], ODD), rows([4], None))
    wider = LAYOUT._replace(schema=SCHEMA.append(pa.field("more", pa.int64())))
    table = open_stored(place, wider)
    table.commit(Change())
    return table


def test_a_frame_becomes_files_and_a_table_becomes_a_frame(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.frames import read_frame, write_frame

    place = str(tmp_path / "a [b] {c} * größer")
    table = filled(place)
    frame = read_frame(spark, table)
    assert frame.columns == [*SCHEMA.names, "more"]
    assert frame.schema["lsn"].metadata["comment"] == "number of the record"
    expected = [
        {**row, "more": None}
        for batch in (rows([1, 2], "1e5"), rows([3], ODD), rows([4], None))
        for row in batch.to_pylist()
    ]
    assert sorted_rows(frame) == expected
    assert sorted_rows(read_frame(spark, table, ["lsn"])) == [{"lsn": lsn} for lsn in (1, 2, 3, 4)]
    some = [file for file in table.files() if file.is_in({"server": ODD})]
    assert sorted_rows(read_frame(spark, table, files=some)) == [expected[2]]
    assert read_frame(spark, table, files=[]).count() == 0

    table.commit(Change(write_frame(frame, table.location, LAYOUT), ({},)))
    assert sorted_rows(read_frame(spark, open_stored(place))) == expected
    # What was there before can still be read, as long as it is kept.
    assert sorted_rows(frame) == expected


@pytest.mark.exhaustive
def test_the_same_in_object_storage(spark: SparkSession, server: S3Server) -> None:
    from binlog_tools.spark.frames import read_frame, write_frame

    place = server.url(f"{os.urandom(8).hex()}/t")
    table = filled(place)
    frame = read_frame(spark, table)
    assert [row["server"] for row in sorted_rows(frame)] == ["1e5", "1e5", ODD, None]
    assert frame.columns == [*SCHEMA.names, "more"]
    assert frame.schema["lsn"].metadata["comment"] == "number of the record"
    assert sorted_rows(read_frame(spark, table, ["lsn"])) == [{"lsn": lsn} for lsn in (1, 2, 3, 4)]
    table.commit(Change(write_frame(frame, table.location, LAYOUT), ({},)))
    assert [row["lsn"] for row in sorted_rows(read_frame(spark, open_stored(place)))] == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.exhaustive
def test_what_cannot_be_written_is_said_by_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    from binlog_tools.spark.errors import explain_error
    from binlog_tools.spark.frames import read_frame, write_frame

    table = filled(str(tmp_path / "t"))
    (tmp_path / "file").touch()
    with pytest.raises(Exception) as failed:
        write_frame(read_frame(spark, table), Location.of(str(tmp_path / "file" / "t")), LAYOUT)
    assert explain_error(failed.value).startswith("[TABLE_UNWRITABLE] ")
