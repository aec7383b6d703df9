"""
What can go wrong when a log is read as a table, in one line each.

Spark keeps the text of an error and loses its type, so each begins with a code in brackets that
programs may look for, and says all in its first line.
"""

import re
import shlex
from typing import Final

from binlog_tools.logs.sources import NoLog

CODES: Final = {
    "BINLOG_DAMAGED": 65,
    "BINLOG_UNKNOWN_FORMAT": 65,
    "BINLOG_NUMBER_TOO_LARGE": 65,
    "BINLOG_HISTORIES_DIFFER": 65,
    "BINLOG_CHANGED": 65,
    "BINLOG_TRIMMED": 66,
    "BINLOG_NOT_FOUND": 66,
    "BINLOG_NO_LOG": 66,
    "BINLOG_UNREADABLE": 74,
    "BINLOG_OPTION": 64,
    "BINLOG_SCHEMA": 64,
    "REBUILD_SERVERS": 64,
    "REBUILD_GAP": 66,
    "REBUILD_TARGET": 73,
    "TABLE_BUSY": 75,
    "TABLE_COLUMN": 65,
    "TABLE_EXISTS": 73,
    "TABLE_FORMAT": 69,
    "TABLE_NOT_FOUND": 66,
    "TABLE_OPTION": 64,
    "TABLE_UNWRITABLE": 73,
    "NO_PACKAGE": 69,
    "WORKER_PYTHON": 69,
    "SINK_OPTION": 64,
    "SINK_MODE": 64,
    "SINK_COLUMNS": 64,
    "SINK_SPECULATION": 64,
    "SINK_VALUE": 65,
    "SINK_JOB_TOO_BIG": 65,
    "SINK_RESUME": 65,
    "SINK_NO_SERVER": 69,
    "SINK_CONNECTION_LOST": 75,
    "SINK_REFUSED": 75,
    "SINK_TWICE": 75,
    "SINK_REPLY": 76,
}
"""The codes, and with which number a program ends because of one (sysexits.h)."""

OTHER_EXIT: Final = 70
"""How a program ends because of an error that is not one of these."""

_OURS: Final = re.compile(r"\[([A-Z]+_[A-Z_]+)\] [^\n]*")
_OF_WORKERS: Final = (
    (
        re.compile(
            r"Python in worker has different version: (\S+) than that in driver: ([\d.]+\d)"
        ),
        "the workers run Python {0} and the driver {1}; let PYSPARK_PYTHON name a Python {1} that "
        "they all have",
    ),
    (
        re.compile(
            r"^ModuleNotFoundError: No module named '(binlog_tools|beanstalk_twisted)\b", re.M
        ),
        "the workers' Python has no {0}; give them ours: python -m binlog_tools.spark.pyfiles, "
        "and spark-submit --py-files beanstalk_spark.zip",
    ),
    (
        re.compile(
            r"^ModuleNotFoundError: No module named '(numpy|pandas|pyarrow|pyspark)\b", re.M
        ),
        "the workers' Python has no {0}; let PYSPARK_PYTHON name one that has numpy, pandas and "
        "pyarrow",
    ),
    (
        re.compile(r'Cannot run program "([^"]+)"'),
        "there is no {0} where the workers are; let PYSPARK_PYTHON name the Python that they have",
    ),
)
"""What Spark says if its workers run another Python than they should, and what we say of it."""

_CALL: Final = re.compile(r"\AAn error occurred while calling [^\n]*\n: ")
_LAST_LINE: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception|Exit)): .+$", re.MULTILINE)


class SourceError(Exception):
    """
    Something is wrong with a log, or with what was asked for.

    :ivar code: one of `CODES`.
    """

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"[{code}] {' '.join(what.split())}")
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return SourceError, (self.code, str(self).partition("] ")[2])


def damaged(path: str, offset: int, what: str) -> SourceError:
    """
    Bytes that were durable cannot be read.
    """
    return SourceError(
        "BINLOG_DAMAGED",
        f"{path}: frame at byte {offset}: {what}; run: binlog-inspect check {shlex.quote(path)}; "
        f"or read what is left with .option('damage', 'skip'), or --damage skip",
    )


def unreadable(error: OSError, path: str = "") -> SourceError:
    """
    A file or directory that cannot be read, in our words.
    """
    where = str(error.filename or path)
    code = "BINLOG_UNREADABLE"
    if isinstance(error, FileNotFoundError):
        code = "BINLOG_NO_LOG" if isinstance(error, NoLog) else "BINLOG_NOT_FOUND"
    return SourceError(code, f"{where}: {error.strerror or error}")


def explain_error(error: BaseException) -> str:
    """
    The one line that a person needs, out of an error of Spark's, which holds stacks of two
    languages.
    """
    text = str(error)
    ours = [found for found in _OURS.finditer(text) if found[1] in CODES]
    if ours:
        return _unwrapped(ours[-1][0])
    for theirs, meaning in _OF_WORKERS:
        found = theirs.search(text)
        if found:
            return f"[WORKER_PYTHON] {meaning.format(*found.groups())}"
    python = _LAST_LINE.findall(text)
    if python:
        return _unwrapped(python[-1])
    return _unwrapped(_CALL.sub("", text.strip()).partition("\n")[0]) or type(error).__name__


def _unwrapped(line: str) -> str:
    """
    Without what Spark puts behind our words.
    """
    return line.partition(" SQLSTATE: ")[0].rstrip()


def exit_code(error: BaseException) -> int:
    """
    The number with which a program ends because of an error.
    """
    found = re.match(r"\[([A-Z_]+)\]", explain_error(error))
    return CODES.get(found[1], OTHER_EXIT) if found else OTHER_EXIT
