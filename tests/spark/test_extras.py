"""A program whose packages are not installed says so in one line, and how to get them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.binlog.scribe import segment_files
from tests.spark.histories import any_log
from tests.tools.folders import archived

ROOT = Path(__file__).resolve().parents[2]

ALONE = """
import runpy, sys
sys.path[1:1] = sys.argv.pop(1).split(":")
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


OLD = """
import sys
import pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None  # Spark 4.0 and 4.1 have no such module.
from binlog_tools.spark.cli import cli
cli(sys.argv[1:], prog_name="cli")
"""


@pytest.mark.exhaustive
def test_only_what_follows_logs_needs_a_spark_that_can(tmp_path: Path) -> None:
    log = archived(tmp_path / "log", segment_files(any_log(11, batches=3).directory))
    for words, code, said in (
        (["events", log, "-o", tmp_path / "events"], 0, ""),
        (["live", log, "-o", tmp_path / "live"], 69,
         "[SPARK_TOO_OLD] following logs needs Spark 4.2 or newer; "),
    ):  # fmt: skip
        done = subprocess.run([sys.executable, "-c", OLD, *map(str, words)], cwd=ROOT,
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        assert done.returncode == code, done.stderr
        assert done.stderr.startswith(said) and done.stderr.count("\n") == bool(said)
    assert not (tmp_path / "live").exists()


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("binlog_tools.spark", "pyspark, pyarrow, numpy, pandas", "spark"),
        ("binlog_tools.spark.report", "numpy, pyarrow, deltalake", "report"),
    ],
)
def test_what_is_not_installed_is_named_with_the_extra_that_brings_it(
    module: str, missing: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    words = ("tables", "events", "-o", "out") if extra == "spark" else ("tables", "-o", "out")
    done = subprocess.run(
        [sys.executable, "-S", "-c", ALONE, f"{ROOT}:{tmp_path}", module, *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == (
        f"[NO_PACKAGE] {sys.executable} has no {missing}; run in a checkout of "
        f"beanstalk-twisted: {sys.executable} -m pip install '.[{extra}]'\n"
    )
    assert done.returncode == 69
