"""Executors need numpy, pyarrow and our modules, and neither Twisted nor click."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.binlog.scribe import segment_files
from tests.spark.expected import rows_of
from tests.spark.histories import any_log
from tests.tools.folders import archived

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
