"""
The query that keeps live tables, with Spark.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.history import Made
from binlog_tools.spark.live.querying import Wish, run
from binlog_tools.spark.live.running import LiveTables
from binlog_tools.spark.source import register
from tests.spark.live.test_running import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def late_python(folder: Path) -> Path:
    """
    A Python whose process that plans batches takes 12 seconds to begin, the first time.
    """
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
