"""What a person reads when something goes wrong."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from binlog_tools.spark.errors import CodedError, SourceError, damaged, exit_code, explain_error
from binlog_tools.spark.session import explained
from tests.tools.cli.newer_logs import FIELDS, NEWER, WRITER, newer_log
from tests.tools.folders import contents, written

COMMANDS = {
    "events": ("events", "LOG", "-o", "NEW", "--damage", "skip"),
    "tables": ("tables", "LOG", "-o", "NEW", "--damage", "skip"),
}  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("which", NEWER)
@pytest.mark.parametrize("field", FIELDS)
def test_every_program_names_the_writer_and_changes_nothing(
    words: tuple[str, ...], which: str, field: str, tmp_path: Path
) -> None:
    from binlog_tools.spark.cli import cli

    files = newer_log(field, which)
    places = {"LOG": str(written(tmp_path / "log", files)), "NEW": str(tmp_path / "new")}
    result = CliRunner().invoke(cli, [places.get(word, word) for word in words])
    assert result.exit_code == 78, result.output
    assert result.stderr.startswith("[BINLOG_UNKNOWN_FORMAT] ")
    assert result.stderr.count("\n") == 1
    assert FIELDS[field][3] in result.stderr and f"{WRITER} wrote it" in result.stderr
    assert "nothing was changed" in result.stderr
    assert "run: binlog-inspect check " in result.stderr
    assert contents(tmp_path / "log") == files
    assert not (tmp_path / "new").exists()


STACKS = """[PYTHON_DATA_SOURCE_ERROR] Failed to generate partitions: Traceback
  File "worker.py", line 1, in main
    raise SourceError(code, what)
binlog_tools.spark.errors.SourceError: [BINLOG_NO_LOG] /log: there are no segments here

. SQLSTATE: 38000
JVM stacktrace:
\tat org.apache.spark.Thing
"""


def test_our_line_is_found_among_the_stacks() -> None:
    error = RuntimeError(STACKS)
    assert explain_error(error) == "[BINLOG_NO_LOG] /log: there are no segments here"
    assert exit_code(error) == 66


def test_other_errors_of_python_and_of_spark_are_cut_to_a_line() -> None:
    missing = "Traceback:\n  File x\nModuleNotFoundError: No module named 'theirs'\n\nJVM"
    assert explain_error(RuntimeError(missing)) == "ModuleNotFoundError: No module named 'theirs'"
    theirs = "[UNRESOLVED_COLUMN] A column cannot be resolved. SQLSTATE: 42703;\n'Project"
    assert explain_error(RuntimeError(theirs)) == "[UNRESOLVED_COLUMN] A column cannot be resolved."
    assert exit_code(RuntimeError(theirs)) == 70
    assert explain_error(KeyError()) == "KeyError"
    called = "An error occurred while calling o12.save.\n: java.io.IOException: Disk full\n\tat x"
    assert explain_error(RuntimeError(called)) == "java.io.IOException: Disk full"


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python "
            "in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run "
            "with different minor versions.",
            "the workers run Python 3.12 and the driver 3.11; let PYSPARK_PYTHON name a Python "
            "3.11 that they all have",
        ),
        (
            "Traceback:\n  File x\nModuleNotFoundError: No module named 'pyarrow'\n\nJVM",
            "the workers' Python has no pyarrow; let PYSPARK_PYTHON name one that has numpy, "
            "pandas and pyarrow",
        ),
        (
            "Traceback:\n  File x\nModuleNotFoundError: No module named 'binlog_tools'\n\nJVM",
            "the workers' Python has no binlog_tools; give them our wheel, renamed: spark-submit "
            "--py-files beanstalk_spark.zip",
        ),
        (
            "An error occurred while calling z:collectAndServe.\n: Job aborted: "
            'java.io.IOException: Cannot run program "/no/python": error=2, No such file',
            "there is no /no/python where the workers are; let PYSPARK_PYTHON name the Python "
            "that they have",
        ),
    ],
)
def test_another_python_on_the_workers_is_told_with_what_to_do(theirs: str, said: str) -> None:
    assert explain_error(RuntimeError(theirs)) == f"[WORKER_PYTHON] {said}"
    assert exit_code(RuntimeError(theirs)) == 69


def test_an_error_has_one_line_and_survives_the_way_from_the_workers() -> None:
    error = damaged("/log/1.tql", 4096, "the checksum\nof its header is wrong")
    assert "\n" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code) == (str(error), "BINLOG_DAMAGED")


def test_a_program_ends_with_the_line_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    for error, code in [
        (SourceError("BINLOG_OPTION", "option x: unknown"), 64),
        (CodedError("NO_JAVA", "there is no java"), 69),
        (RuntimeError(STACKS), 66),
    ]:
        with pytest.raises(SystemExit) as ended, explained():
            raise error
        assert ended.value.code == code
        said = capsys.readouterr().err
        assert said.startswith("[") and said.count("\n") == 1
