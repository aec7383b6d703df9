"""What each Spark from 4.0 on has to do, and what older ones say that they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from binlog_tools.spark.errors import explain_error
from tests.binlog.scribe import segment_files
from tests.server_process import Connection, ServerProcess, ours_at_once
from tests.spark.expected import rows_of
from tests.spark.histories import any_log
from tests.spark.test_sink import address_of, jobs_in
from tests.tools.folders import archived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.exhaustive

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
STREAMS_FROM_LOGS = (4, 2)
STREAMS_INTO_QUEUES = (4, 1)
FILES = segment_files(any_log(11, batches=12).directory)
ROWS = [row for raw in FILES.values() for row in rows_of(raw)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return archived(tmp_path / "log", FILES)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Connection]:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        yield server.connect()


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    from binlog_tools.spark.session import session

    return session()


def load(spark: SparkSession, log: Path, **options: str) -> DataFrame:
    reading = spark.read.format("beanstalk_binlog").option("columns", "lsn,event,job")
    return reading.options(**options).load(str(log))


def has_run(stream: DataStreamWriter, tmp_path: Path, since: tuple[int, int], what: str) -> bool:
    options = stream.option("checkpointLocation", str(tmp_path / "at"))
    if since <= VERSION:
        options.trigger(availableNow=True).start().awaitTermination()
        return True
    with pytest.raises(Exception, match=r"\[SPARK_TOO_OLD\]") as raised:
        options.trigger(availableNow=True).start().awaitTermination()
    assert f"{what} needs Spark {since[0]}.{since[1]} or newer" in explain_error(raised.value)
    return False


def test_a_batch_is_read(spark: SparkSession, log: Path) -> None:
    found = load(spark, log).orderBy("lsn").toArrow()["lsn"].to_pylist()
    assert found == sorted(row["lsn"] for row in ROWS)
    few = load(spark, log).where("lsn < 20")
    assert few.count() == sum(row["lsn"] < 20 for row in ROWS)


def test_jobs_are_written(spark: SparkSession, client: Connection) -> None:
    jobs = spark.range(3).selectExpr("concat('job ', id) as body")
    jobs.write.format("beanstalk").mode("append").option("address", address_of(client)).save()
    assert sorted(jobs_in(client, "default")) == ["job 0", "job 1", "job 2"]


def test_the_commands_make_a_table(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    from binlog_tools.spark.cli import cli
    from binlog_tools.spark.storing import open_stored

    for words in (["events", str(log), "-o", f"{tmp_path}/events"],
                  ["tables", f"{tmp_path}/events", "-o", f"{tmp_path}/tables"]):  # fmt: skip
        cli.main(words, standalone_mode=False)
    alive = open_stored(f"{tmp_path}/tables/snapshot").read()["job"].to_pylist()
    rows = [row for raw in FILES.values() for row in rows_of(raw, None, "jobs", "keep")]
    newest = {row["job"]: row["state"] for row in rows if row["job"] is not None}
    assert set(alive) == {job for job, state in newest.items() if state != "gone"}


def test_a_stream_follows_a_log_or_says_which_spark_does(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    reading = spark.readStream.format("beanstalk_binlog").option("columns", "lsn").load(str(log))
    stream = reading.writeStream.format("memory").queryName("followed")
    if has_run(stream, tmp_path, STREAMS_FROM_LOGS, "following logs"):
        assert spark.table("followed").count() == len(ROWS)


def test_a_stream_becomes_jobs_or_says_which_spark_does_that(
    spark: SparkSession, client: Connection, tmp_path: Path
) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "one.txt").write_text("job\n")
    rows = spark.readStream.schema("value string").text(str(tmp_path / "rows"))
    jobs = rows.selectExpr("value as body").writeStream.format("beanstalk")
    stream = jobs.option("address", address_of(client))
    if has_run(stream, tmp_path, STREAMS_INTO_QUEUES, "a stream into a queue"):
        assert jobs_in(client, "default") == ["job"]
