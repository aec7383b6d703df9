"""The source through Spark itself: few tests, since each query costs half a second."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from binlog_tools.spark.errors import exit_code, explain_error
from binlog_tools.spark.session import PATIENCE, PATIENCE_S, SETTINGS
from binlog_tools.spark.source import register
from tests.binlog.scribe import DEFAULT_TUBE, UUID, Scribe, flipped, put, segment_files
from tests.spark.expected import rows_of
from tests.spark.following.living import Folders, remove
from tests.spark.histories import any_log
from tests.tools.folders import archived, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def grown(folders: Folders, scribe: Scribe, first: int, last: int) -> None:
    for number in range(first, last):
        scribe.write(put(number, b"x" * 300))
    scribe.mark()
    folders.deliver(scribe.files())
    folders.show(scribe.files())


def follow(spark: SparkSession, folder: Path, live: Path, **options: Any) -> None:
    rows = spark.readStream.format("beanstalk_binlog").options(**options).load(str(live))
    query = (
        rows.writeStream.format("parquet").option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(PATIENCE_S)


def jobs(table: DataFrame) -> list[int]:
    return sorted(row.job for row in table.select("job").collect())


@pytest.mark.exhaustive
def test_a_stream_goes_on_from_its_checkpoint_also_in_the_archive(
    spark: SparkSession, tmp_path: Path
) -> None:
    folders = Folders(tmp_path / "log")
    scribe = Scribe(opening=[DEFAULT_TUBE])
    grown(folders, scribe, 1, 40)
    options = {
        "archive": folders.archive,
        "maxBytesPerTrigger": 12_000,
        "columns": "server,lsn,job",
    }
    follow(spark, tmp_path, folders.live, **options)
    assert jobs(spark.read.parquet(str(tmp_path / "out"))) == list(range(1, 40))
    grown(folders, scribe, 40, 90)
    remove(folders.live, 1)
    follow(spark, tmp_path, folders.live, **options)
    assert jobs(spark.read.parquet(str(tmp_path / "out"))) == list(range(1, 90))


ROOT = Path(__file__).parents[2]
FILES = segment_files(any_log(11, batches=60).directory)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archived(tmp_path_factory.mktemp("archive"), FILES)


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    return register(spark)


def load(spark: SparkSession, *paths: Path, **options: Any) -> DataFrame:
    reading = spark.read.format("beanstalk_binlog").options(**options)
    return reading.load([str(path) for path in paths])


def rows(table: DataFrame) -> list[dict[str, Any]]:
    arrow: pa.Table = table.orderBy("lsn").toArrow()
    found: list[dict[str, Any]] = arrow.to_pylist()
    return found


@pytest.mark.parametrize("name", [*SETTINGS, *PATIENCE])
def test_what_a_session_sets_is_a_setting_of_this_spark(spark: SparkSession, name: str) -> None:
    settings: Any = spark.sparkContext._jvm
    assert settings.org.apache.spark.internal.config.ConfigEntry.findEntry(name) is not None
    assert spark.conf.get(name) == {**SETTINGS, **PATIENCE}[name]


def test_spark_gives_the_rows_of_the_second_reader(spark: SparkSession, archive: Path) -> None:
    table = load(
        spark, archive, body=True, tags=True, records="all", copies="keep", partitionBytes="64K"
    )
    expected = [row for raw in FILES.values() for row in rows_of(raw, None, "all", "keep")]
    assert rows(table) == expected
    assert table.rdd.getNumPartitions() > 1


def test_a_view_in_sql_and_a_schema_choose_columns(spark: SparkSession, archive: Path) -> None:
    reading = spark.read.format("beanstalk_binlog").schema("lsn long, event string, time timestamp")
    assert reading.load(str(archive)).columns == ["lsn", "event", "time"]
    spark.sql(
        f"create or replace temporary view log using beanstalk_binlog "
        f"options (path '{archive}', servers '{UUID.hex()}:mail')"
    )
    found = spark.sql("select server, count(*) as n from log group by server").collect()
    expected = sum(len(rows_of(raw)) for raw in FILES.values())
    assert [(row.server, row.n) for row in found] == [("mail", expected)]


def test_the_example_tells_what_has_happened(
    spark: SparkSession, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "spark_history.py"))
    example["tell"](spark, [str(archive)])
    said = capsys.readouterr().out
    puts = [row for raw in FILES.values() for row in rows_of(raw) if row["event"] == "put"]
    mail = sum(row["tube"] == "mail" for row in puts)
    assert re.search(rf"\|mail +\|put +\|{mail} *\|", said)


@pytest.mark.parametrize(
    ("options", "code", "exits"),
    [
        ({}, "BINLOG_DAMAGED", 65),
        ({"tubes": "mail"}, "BINLOG_OPTION", 64),
        ({"paths": '["/nowhere"]'}, "BINLOG_NOT_FOUND", 66),
    ],
)
def test_an_error_is_explained_in_one_line(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], code: str, exits: int
) -> None:
    name = min(FILES)
    damaged = flipped(FILES[name], FILES[name].index(b"\xb5TQF", 4200) + 9)
    path = written(tmp_path, {**FILES, name: damaged})
    reading = spark.read.format("beanstalk_binlog").options(**{"paths": f'["{path}"]', **options})
    with pytest.raises(Exception) as failed:
        reading.load().count()
    said = explain_error(failed.value)
    assert said.startswith(f"[{code}] ") and "\n" not in said and "SQLSTATE" not in said
    assert exit_code(failed.value) == exits
    if code == "BINLOG_DAMAGED":
        assert f"{path}/{name}: frame at byte " in said and "binlog-inspect check" in said
