"""The tables that Spark makes are those that a person with a pencil would make of the same log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from binlog_tools.cli.commands import CANNOT_READ
from binlog_tools.spark.definitions.errors import CODES, TableError
from binlog_tools.spark.storing.locations import UNFINISHED
from binlog_tools.spark.storing.stored import Change
from tests.binlog.scribe import flipped, segment_files
from tests.spark.histories import any_log
from tests.spark.histories.test_histories import assert_same, of_each, servers_of
from tests.spark.tables import oracle, queue_model
from tests.tools.folders import archived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

# Each example is many histories, since what costs is Spark's start of a query.
SEEDS = st.lists(st.integers(0, 1 << 48), min_size=20, max_size=30, unique=True)
MANY = settings(
    max_examples=1, deadline=None, phases=[Phase.generate], database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.large_base_example],
)  # fmt: skip


def _events(spark: SparkSession, folder: Path, rows: Iterable[Row]) -> DataFrame:
    path = folder / "events.parquet"
    pq.write_table(queue_model.table(rows), path)
    return spark.read.parquet(str(path))


@pytest.mark.exhaustive
@MANY
@given(seeds=SEEDS)
def test_the_tables_are_what_the_log_says(
    spark: SparkSession, tmp_path: Path, seeds: list[int]
) -> None:
    from pyspark.sql import functions as F

    from binlog_tools.spark.tables.pipelines import PIPELINES

    servers = {f"{seed:032x}": queue_model.history(seed) for seed in seeds}
    servers = {name: rows for name, rows in servers.items() if rows}
    rows = [row for part in servers.values() for row in part]
    events = _events(spark, tmp_path, rows).cache()
    made = {name: pipeline.make for name, pipeline in PIPELINES.items()}

    def check(table: DataFrame, expected: Iterable[Row], *key: str) -> None:
        assert_same(table.toArrow(), expected, key)

    check(made["attempts"](events), of_each(servers, oracle.attempts),
          "server", "job", "revivals", "attempt")  # fmt: skip
    check(made["lifetimes"](events), of_each(servers, oracle.lifetimes), "server", "job")
    check(made["workers"](events), of_each(servers, oracle.workers),
          "server", "incarnation", "connection")  # fmt: skip
    minutes = made["tube_minutes"](events).withColumn("minute", F.col("minute").cast("bigint"))
    check(minutes, of_each(servers, oracle.tube_minutes), "server", "tube", "minute")
    check(made["poison"](events, 2), oracle.poison(rows, 2), "tube", "fingerprint")
    for at_ns, lsn in ((None, None), (queue_model.EPOCH_NS + 2400 * queue_model.NS, None),
                       (None, 500)):  # fmt: skip
        alive = [
            {"server": name, **row}
            for name, part in servers.items() for row in oracle.snapshot(part, at_ns, lsn)
        ]  # fmt: skip
        check(made["snapshot"](events, at_ns, lsn), alive, "server", "job")
    events.unpersist()


@pytest.mark.exhaustive
def test_what_cannot_be_made_is_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    from binlog_tools.spark.tables.histories import lifetimes
    from binlog_tools.spark.tables.pipelines import opened
    from binlog_tools.spark.tables.poison import poison
    from binlog_tools.spark.tables.snapshot import snapshot

    events = _events(spark, tmp_path, queue_model.history(1))
    for wrong, said in (
        (lambda: lifetimes(events.drop("lsn")), r"^\[TABLE_COLUMN\] .*no column lsn"),
        (lambda: lifetimes(events.withColumn("lsn", events.job.cast("string"))),
         r"^\[TABLE_COLUMN\] column lsn .* is string, not bigint"),
        (lambda: poison(events, 0), r"^\[TABLE_OPTION\] failures is 0"),
        (lambda: snapshot(events, 1, 1), r"^\[TABLE_OPTION\] .*not of both"),
        (lambda: opened("snapshot", str(tmp_path)), r"^\[TABLE_EXISTS\] .*not empty"),
    ):  # fmt: skip
        with pytest.raises(TableError, match=said) as raised:
            wrong()
        assert "\n" not in str(raised.value)


@pytest.mark.exhaustive
def test_each_table_is_stored_with_the_types_that_it_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.storing.files import dated
    from binlog_tools.spark.storing.opening import open_stored
    from binlog_tools.spark.tables.layouts import SINGLE
    from binlog_tools.spark.tables.pipelines import PIPELINES, opened, write

    rows = [row for part in servers_of((3, 5)).values() for row in part]
    events = _events(spark, tmp_path, rows).cache()
    for name in ("lifetimes", "tube_minutes", "poison", "poison_jobs", "snapshot"):
        pipeline = PIPELINES[name]
        place = str(tmp_path / name)
        count = write(name, pipeline.make(events), opened(name, place))
        table = open_stored(place).dataset().to_table()
        assert count == table.num_rows > 0, name
        assert table.schema.equals(SINGLE[name].schema), name
        if pipeline.dated_by:
            (batch,) = table.drop_columns(["date"]).combine_chunks().to_batches()
            assert [str(day) for day in table["date"].to_pylist()] == [
                str(day) for day in dated(batch, pipeline.dated_by)["date"].to_pylist()
            ]
    with pytest.raises(TableError, match=r"^\[TABLE_EXISTS\] .*--mode overwrite or append"):
        opened("lifetimes", str(tmp_path / "lifetimes"))
    events.unpersist()


def test_a_table_that_grows_is_not_taken_for_one_that_is_made_whole(tmp_path: Path) -> None:
    from binlog_tools.spark.storing.opening import open_stored
    from binlog_tools.spark.tables.layouts import LAYOUTS
    from binlog_tools.spark.tables.pipelines import opened

    place = str(tmp_path / "lifetimes")
    open_stored(place, LAYOUTS["lifetimes"]).commit(Change())
    with pytest.raises(TableError, match=r"^\[TABLE_EXISTS\] .*by settled, .*, not by server, d"):
        opened("lifetimes", place, mode="overwrite")


def _stored(place: Path) -> pa.Table:
    from binlog_tools.spark.storing.opening import open_stored

    return open_stored(str(place)).dataset().to_table()


def _run(*words: str | Path) -> Result:
    from binlog_tools.spark.cli.main import cli

    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.mark.exhaustive
def test_a_log_becomes_an_events_table_and_that_other_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.cli.main import FUTURE
    from binlog_tools.spark.events import read_events
    from binlog_tools.spark.source import register

    (tmp_path / "log").mkdir()
    log = archived(tmp_path / "log", segment_files(any_log(11, batches=12).directory))
    out = tmp_path / "events"
    first = _run("events", log, "-o", out, "--body")
    assert first.exit_code == 0, first.output
    assert _run("events", log, "-o", out, "--body").output.startswith("events: 0 segments, 0 rows")

    direct = (
        register(spark)
        .read.format("beanstalk_binlog")
        .options(copies="keep", records="history", body="true", tags="true")
    )
    expected = direct.load(str(log)).orderBy("lsn").toArrow().to_pylist()
    read = read_events(spark, str(out)).drop("date").orderBy("lsn")
    assert read.toArrow().to_pylist() == expected
    assert f"{len(expected)} rows" in first.output

    assert _run("snapshot", out, "-o", tmp_path / "alive", "--at", "now").exit_code == 0
    newest = {row["job"]: row["state"] for row in expected if row["job"] is not None}
    alive = sorted(job for job, state in newest.items() if state != "gone")
    assert sorted(_stored(tmp_path / "alive")["job"].to_pylist()) == alive

    again: list[str | Path] = [
        "snapshot",
        out,
        "-o",
        tmp_path / "alive",
        "--at",
        "2100-01-01T00:00:00Z",
    ]
    assert "\n[TABLE_EXISTS] " in _run(*again).stderr
    later = _run(*again, "--mode", "append")
    assert later.exit_code == 0 and later.stderr == f"{FUTURE}\n"
    assert f" {len(alive)} rows written to " in later.stdout
    assert _stored(tmp_path / "alive").num_rows == 2 * len(alive)
    assert _run(*again, "--mode", "overwrite").exit_code == 0
    assert _stored(tmp_path / "alive").num_rows == len(alive)

    (tmp_path / "file").touch()
    refused = _run("snapshot", out, "-o", tmp_path / "file" / "x", "--at", "now")
    assert refused.exit_code == CODES["TABLE_UNWRITABLE"]
    assert refused.stderr.startswith("[TABLE_UNWRITABLE] ") and refused.stderr.count("\n") == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["lifetimes", "no-such-log", "-o", "t"], "BINLOG_NOT_FOUND"),
        (["snapshot", "no-such-log", "-o", "t", "--at", "yesterday"], "TABLE_OPTION"),
        (["events", "no-such-log", "-o", "t"], "BINLOG_NOT_FOUND"),
        (["events", ".", "-o", "t", "--servers", "mine"], "BINLOG_OPTION"),
    ],
)
def test_a_program_ends_with_one_line_and_a_code(
    spark: SparkSession, tmp_path: Path, words: list[str], code: str
) -> None:
    result = _run(*[str(tmp_path / word) if word in ("no-such-log", "t") else word
                    for word in words])  # fmt: skip
    assert result.exit_code == CODES[code]
    assert result.stderr.startswith(f"[{code}] ") and result.stderr.count("\n") == 1


@pytest.mark.exhaustive
def test_tables_that_were_not_all_made_bear_a_sign_and_are_not_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    from binlog_tools.spark.report import command as report
    from binlog_tools.spark.tables.layouts import BESIDE, LAYOUTS

    files = segment_files(any_log(11, batches=12).directory)
    for name in ("sound", "damaged"):
        (tmp_path / name).mkdir()
    sound = archived(tmp_path / "sound", files)
    newest = max(files)
    spoilt = {**files, newest: flipped(files[newest], 4096 + 70)}
    damaged = archived(tmp_path / "damaged", spoilt)
    out, page = tmp_path / "tables", tmp_path / "report.html"
    assert _run("tables", damaged, "-o", out).exit_code == CODES["BINLOG_DAMAGED"]
    assert (out / UNFINISHED).exists()
    refused = CliRunner().invoke(report, [str(out), "-o", str(page)])
    assert refused.exit_code == CANNOT_READ and "has not come to its end" in refused.stderr
    assert not page.exists()

    targets = tmp_path / "targets.toml"
    targets.write_text('[[target]]\ntube = "*"\nwait_s = 1\n')
    made = _run("tables", sound, "-o", out, "--targets", targets)
    assert made.exit_code == 0, made.output
    assert not (out / UNFINISHED).exists()
    assert [line.partition(":")[0] for line in made.stdout.splitlines()] == [
        *(name for name in LAYOUTS if name not in BESIDE), "poison",
    ]  # fmt: skip
    again = _run("tables", sound, "-o", out)
    assert again.exit_code == 0 and again.stdout == f"{out}: nothing new\n"
    rmtree(out / "failing")
    refused = _run("tables", sound, "-o", out)
    assert refused.exit_code == CODES["TABLE_FORMAT"] and "an earlier version" in refused.stderr
    assert not (out / UNFINISHED).exists()
