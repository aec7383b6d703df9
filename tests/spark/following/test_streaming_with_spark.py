"""Streams through Spark itself: a checkpoint, restarts, and kill -9 of the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from binlog_tools.spark.errors import explain_error
from binlog_tools.spark.session import PATIENCE_S
from binlog_tools.spark.source import register
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, put
from tests.spark.following.living import Folders, remove

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def following(spark: SparkSession) -> SparkSession:
    """The session, which knows the format."""
    return register(spark)


def grown(folders: Folders, scribe: Scribe, first: int, last: int) -> None:
    """Put jobs with these ids."""
    for number in range(first, last):
        scribe.write(put(number, b"x" * 300))
    scribe.mark()
    folders.deliver(scribe.files())
    folders.show(scribe.files())


def follow(spark: SparkSession, folder: Path, live: Path, **options: Any) -> None:
    """Read all that there is, into Parquet."""
    rows = spark.readStream.format("beanstalk_binlog").options(**options).load(str(live))
    query = (
        rows.writeStream.format("parquet").option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(PATIENCE_S)


def jobs(table: DataFrame) -> list[int]:
    """The ids, in order."""
    return sorted(row.job for row in table.select("job").collect())


@pytest.mark.exhaustive
def test_a_stream_goes_on_from_its_checkpoint_also_in_the_archive(
    following: SparkSession, tmp_path: Path
) -> None:
    folders = Folders(tmp_path / "log")
    scribe = Scribe(opening=[DEFAULT_TUBE])
    grown(folders, scribe, 1, 40)
    options = {
        "archive": folders.archive,
        "maxBytesPerTrigger": 12_000,
        "columns": "server,lsn,job",
    }
    follow(following, tmp_path, folders.live, **options)
    assert jobs(following.read.parquet(str(tmp_path / "out"))) == list(range(1, 40))
    grown(folders, scribe, 40, 90)
    remove(folders.live, 1)
    follow(following, tmp_path, folders.live, **options)
    assert jobs(following.read.parquet(str(tmp_path / "out"))) == list(range(1, 90))


@pytest.mark.exhaustive
def test_what_is_wrong_with_a_stream_is_said_in_one_line(
    following: SparkSession, tmp_path: Path
) -> None:
    folders = Folders(tmp_path / "log")
    scribe = Scribe(opening=[DEFAULT_TUBE])
    grown(folders, scribe, 1, 10)
    follow(following, tmp_path, folders.live, columns="lsn")
    grown(folders, scribe, 10, 90)
    remove(folders.live, 1)
    with pytest.raises(Exception, match="BINLOG_TRIMMED") as raised:
        follow(following, tmp_path, folders.live, columns="lsn")
    said = explain_error(raised.value)
    assert said.startswith("[BINLOG_TRIMMED] store ")
    assert said.endswith(".option('failOnDataLoss', 'false')")
