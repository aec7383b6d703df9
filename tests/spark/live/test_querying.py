"""The query that keeps live tables, with Spark."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from click.testing import CliRunner

from benchmarks.spark.history import Made
from binlog_tools.spark.cli.main import SHOWN_SERVERS, begin_text, cli
from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.definitions.errors import CODES
from binlog_tools.spark.live.open_jobs import NAMES
from binlog_tools.spark.live.querying import Wish, behind, names_of, run
from binlog_tools.spark.live.running import LiveTables
from binlog_tools.spark.source import register
from tests.binlog.scribe import DEFAULT_TUBE, UUID, Scribe, put
from tests.spark.following.living import Folders
from tests.spark.live.test_running import rows_of
from tests.spark.without_spark import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def late_python(folder: Path) -> Path:
    """A Python whose process that plans batches takes 12 seconds to begin, the first time."""
    path, mark = folder / "python", shlex.quote(str(folder / "late"))
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in *python_streaming_source_runner*)\n'
        f"    [ -e {mark} ] || {{ touch {mark}; sleep 12; }} ;;\n"
        "esac\n"
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.exhaustive
def test_a_query_whose_python_process_is_late_is_started_again(
    spark: SparkSession, history: Made, tmp_path: Path
) -> None:
    before = spark.sparkContext.pythonExec
    spark.sparkContext.pythonExec = str(late_python(tmp_path))
    try:
        register(spark)
        wish = Wish((str(history.log),), str(tmp_path / "live"), {"archive": str(history.archive)},
                    is_once=True)  # fmt: skip
        with LiveTables(wish.output) as tables:
            run(spark, wish, tables)
    finally:
        spark.sparkContext.pythonExec = before
        register(spark)
    assert (tmp_path / "late").exists()
    found = rows_of(tmp_path / "live")
    assert len({row["job"] for row in found["lifetimes"]}) == len(found["lifetimes"]) > 1000


def test_it_is_told_what_there_is_to_take(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for number in range(1, 60):
        scribe.write(put(number, b"x" * 300))
    scribe.mark()
    folders = Folders(tmp_path / "one")
    folders.show(scribe.files())
    options = {"servers": f"{UUID.hex()}:a"}
    wish = Wish((str(folders.live),), str(tmp_path / "live"), options)
    with LiveTables(wish.output) as tables:
        (before,) = behind(wish, names_of(wish), tables).values()
        assert (before.server, before.lsn) == ("a", 1) and before.lag.records >= 59
        assert begin_text({"": before}) == (
            f"live: reads a from LSN 1 on, {before.lag.records} records behind"
        )
        many = dict.fromkeys(map(str, range(SHOWN_SERVERS + 2)), before)
        assert begin_text(many).endswith("; and 2 servers more")
        rows = read(folders.live, copies="keep", tags=True, **options)
        tables.take(pa.Table.from_pylist(rows, arrow_schema(NAMES)))
        (after,) = behind(wish, names_of(wish), tables).values()
        assert after.lsn >= 59 and after.lag.records < 3


def test_a_log_that_is_not_there_is_told_before_spark_is_started(tmp_path: Path) -> None:
    words = ["live", str(tmp_path / "nothere"), "-o", str(tmp_path / "live"), "--master", "none"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == CODES["BINLOG_NOT_FOUND"]
    assert not (tmp_path / "live").exists()
    assert done.stderr.startswith("[BINLOG_NOT_FOUND] ") and done.stderr.count("\n") == 1
