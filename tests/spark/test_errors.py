"""
What a person reads when something goes wrong.
"""

from __future__ import annotations

import pickle

import pytest

from binlog_tools.spark.errors import SourceError, damaged, exit_code, explain_error
from binlog_tools.spark.java import NoJava
from binlog_tools.spark.session import explained

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
    missing = "Traceback:\n  File x\nModuleNotFoundError: No module named 'pyarrow'\n\nJVM"
    assert explain_error(RuntimeError(missing)) == (
        "ModuleNotFoundError: No module named 'pyarrow'"
    )
    theirs = "[UNRESOLVED_COLUMN] A column cannot be resolved. SQLSTATE: 42703;\n'Project"
    assert explain_error(RuntimeError(theirs)) == "[UNRESOLVED_COLUMN] A column cannot be resolved."
    assert exit_code(RuntimeError(theirs)) == 70
    assert explain_error(KeyError()) == "KeyError"


def test_an_error_has_one_line_and_survives_the_way_from_the_workers() -> None:
    error = damaged("/log/1.tql", 4096, "the checksum\nof its header is wrong")
    assert "\n" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code) == (str(error), "BINLOG_DAMAGED")


def test_a_program_ends_with_the_line_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    for error, code in [
        (SourceError("BINLOG_OPTION", "option x: unknown"), 64),
        (NoJava("There is no Java here."), 69),
        (RuntimeError(STACKS), 66),
    ]:
        with pytest.raises(SystemExit) as ended, explained():
            raise error
        assert ended.value.code == code
        said = capsys.readouterr().err
        assert said.startswith("[") and said.count("\n") == 1
