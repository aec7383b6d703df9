"""Stored tables through Spark: from a directory and from an S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from binlog_tools.spark.storing import StoredTable, open_stored
from tests.binlog.scribe import segment_files
from tests.object_storage.s3_server import S3Server, running
from tests.spark.expected import rows_of
from tests.spark.histories import any_log
from tests.spark.test_storing import LAYOUT, ODD, SCHEMA, add, rows
from tests.tools.folders import archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
READS = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("twisted", "zope", "click", "rich", "pandas"):
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
from pyspark.sql.types import LongType, StructField, StructType
import binlog_tools.spark.sink
import binlog_tools.spark.tables.engines
from binlog_tools.spark.source import BinlogSource
source = BinlogSource({"path": sys.argv[1]})
reader = source.reader(schema=StructType([StructField("lsn", LongType())]))
print(sum(len(batch) for each in reader.partitions() for batch in reader.read(each)))
"""


def test_a_log_is_read_where_there_is_no_twisted(tmp_path: Path) -> None:
    files = segment_files(any_log(1).directory)
    archive = archived(tmp_path / "archive", files)
    done = subprocess.run(
        [sys.executable, "-c", READS, str(archive)], capture_output=True, text=True,
        cwd=tmp_path, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(len(rows_of(raw)) for raw in files.values())


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running() as started:
        yield started


def sorted_rows(frame: Any) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: row["lsn"])


def read(spark: SparkSession, place: str) -> None:
    """Check a table of three servers, one of them null, and a column that its first file lacks."""
    from binlog_tools.spark.tasks import read_frame

    parts = rows([1, 2], "1e5"), rows([3], ODD), rows([4], None)
    add(open_stored(place, LAYOUT), *parts)
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    table: StoredTable = open_stored(place, LAYOUT._replace(schema=wider))
    last = rows([5]).append_column("more", pa.array([7]))
    add(table, last)
    frame = read_frame(spark, table)
    assert sorted(frame.columns) == sorted([*SCHEMA.names, "more"])
    assert frame.schema["lsn"].metadata["comment"] == "number of the record"
    expected = [{**row, "more": None} for part in parts for row in part.to_pylist()]
    assert sorted_rows(frame) == [*expected, *last.to_pylist()]
    assert [row["lsn"] for row in sorted_rows(read_frame(spark, table, ["lsn"]))] == [1, 2, 3, 4, 5]


def test_a_table_becomes_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    read(spark, str(tmp_path / "a table, größer"))


@pytest.mark.exhaustive
def test_the_same_in_object_storage(spark: SparkSession, server: S3Server) -> None:
    read(spark, server.url(f"{os.urandom(8).hex()}/t"))
