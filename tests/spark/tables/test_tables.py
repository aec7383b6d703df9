"""The command `tables`: by Spark and in one process, from logs and events tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from binlog_tools.spark.cli import cli
from binlog_tools.spark.errors import CODES, TableError
from binlog_tools.spark.storing import open_stored
from binlog_tools.spark.tables.engines import InProcess, Spark
from binlog_tools.spark.tables.increments import INTERNAL, LAYOUTS, update
from tests.binlog.scribe import segment_files
from tests.spark.histories import any_log
from tests.spark.histories.test_histories import servers_of
from tests.spark.tables import queue_model
from tests.spark.tables.test_increments import assert_tables, newer_of, run, stored, stretched
from tests.tools.folders import archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = segment_files(any_log(11, batches=12, has_extensions=True).directory)


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def no_spark() -> Any:
    raise AssertionError("Spark was started")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    log = archived(folder / "log", FILES)
    done = command("events", log, "-o", folder / "events", "--body")
    assert done.exit_code == 0, done.output
    return folder / "events"


def rows_of(place: Path) -> dict[str, list[str]]:
    return {name: sorted(map(str, stored(place, name).to_pylist())) for name in LAYOUTS}


@pytest.mark.exhaustive
def test_spark_makes_the_rows_of_the_oracle_and_of_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    servers = servers_of((3, 5, 9, 12, 14, 31))
    for name in list(servers)[::2]:
        servers[name] = stretched(servers[name], 3)
    rows = sorted((row for part in servers.values() for row in part),
                  key=lambda row: (row["logged_ns"], row["server"], row["lsn"]))  # fmt: skip
    for size in (len(rows) // 3, len(rows)):
        given = queue_model.table(rows[:size])
        assert run(tmp_path / "spark", given, Spark(lambda: spark)) == list(LAYOUTS)
        run(tmp_path / "local", given)
    assert not run(tmp_path / "spark", given, Spark(no_spark))
    assert_tables(tmp_path / "spark", servers)
    assert rows_of(tmp_path / "spark") == rows_of(tmp_path / "local")


def test_tables_of_a_log_are_those_of_its_events_table(events: Path, tmp_path: Path) -> None:
    log = events.parent / "log"
    for name, source in (("log", log), ("events", events)):
        done = command("tables", source, "-o", tmp_path / name, "--local")
        assert done.exit_code == 0, done.output
        assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
            name for name in LAYOUTS if name not in INTERNAL
        ]
        again = command("tables", source, "-o", tmp_path / name)
        assert again.output == f"{tmp_path / name}: nothing new\n"
    found = rows_of(tmp_path / "log")
    assert found == rows_of(tmp_path / "events")
    assert all(found[name] for name in ("lifetimes", "attempts", "tube_minutes", "snapshot"))


def test_each_table_has_the_types_and_comments_that_it_says(events: Path, tmp_path: Path) -> None:
    assert command("tables", events, "-o", tmp_path, "--local").exit_code == 0
    for name, layout in LAYOUTS.items():
        found = open_stored(f"{tmp_path}/{name}").schema()
        assert {field.name: (field.type, field.metadata) for field in found} == {
            field.name: (field.type, field.metadata) for field in layout.schema
        }, name


def test_later_events_may_be_left_out(tmp_path: Path) -> None:
    rows = queue_model.history(9)
    given = queue_model.table(rows)
    until_ns = rows[len(rows) // 2]["logged_ns"]
    first = [row for row in rows if row["logged_ns"] <= until_ns]
    assert list(update(str(tmp_path / "until"), newer_of(given), InProcess(), until_ns))
    run(tmp_path / "first", queue_model.table(first))
    assert rows_of(tmp_path / "until") == rows_of(tmp_path / "first")
    assert not list(update(str(tmp_path / "until"), newer_of(given), InProcess(), until_ns))
    assert run(tmp_path / "until", given)
    run(tmp_path / "all", given)
    assert rows_of(tmp_path / "until") == rows_of(tmp_path / "all")


def test_events_without_a_column_are_refused_in_one_line(tmp_path: Path) -> None:
    given = queue_model.table(queue_model.history(9))
    text = given["job"].cast(pa.string())
    place = given.schema.get_field_index("lsn")
    for wrong, said in (
        (given.drop_columns(["lsn"]), r"^\[TABLE_COLUMN\] .*no column lsn"),
        (given.set_column(place, "lsn", text), r"^\[TABLE_COLUMN\] column lsn .* is string, not "),
    ):
        with pytest.raises(TableError, match=said) as raised:
            run(tmp_path, wrong)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["tables", "no-such-log", "-o", "t"], "BINLOG_NOT_FOUND"),
        (["tables", "no-such-log", "-o", "t", "--until", "yesterday"], "TABLE_OPTION"),
        (["events", "no-such-log", "-o", "t"], "BINLOG_NOT_FOUND"),
        (["events", ".", "-o", "t", "--servers", "mine"], "BINLOG_OPTION"),
        (["optimize", "no-such-table"], "TABLE_NOT_FOUND"),
    ],
)
def test_a_program_ends_with_one_line_and_a_code(
    tmp_path: Path, words: list[str], code: str
) -> None:
    result = command(*[str(tmp_path / word) if word.startswith("no-such") or word == "t" else word
                       for word in words])  # fmt: skip
    assert result.exit_code == CODES[code]
    assert result.stderr.startswith(f"[{code}] ") and result.stderr.count("\n") == 1


def test_damage_ends_the_run_before_a_table_is_written_or_is_skipped(tmp_path: Path) -> None:
    newest = max(FILES)
    spoilt = {**FILES, newest: FILES[newest][: 4096 + 70] + b"\xff" + FILES[newest][4096 + 71 :]}
    log, out = archived(tmp_path / "log", spoilt), tmp_path / "tables"
    refused = command("tables", log, "-o", out, "--local")
    assert refused.exit_code == CODES["BINLOG_DAMAGED"] and refused.stderr.count("\n") == 1
    assert not out.exists()
    assert command("tables", log, "-o", out, "--local", "--damage", "skip").exit_code == 0
    assert stored(out, "lifetimes").num_rows
