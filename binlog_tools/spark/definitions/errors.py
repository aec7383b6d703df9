"""
What can go wrong, in one line each.

Spark keeps the text of an error and loses its type, so each begins with a code in brackets that
programs may look for, and says all in its first line.
"""

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
    "NO_JAVA": 69,
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


class CodedError(Exception):
    """
    Something that whoever started a program can mend.

    :ivar code: one of `CODES`.
    """

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"[{code}] {' '.join(what.split())}")
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, str(self).partition("] ")[2])


class SourceError(CodedError):
    """
    Something is wrong with a log, or with what was asked for.
    """


class TableError(CodedError):
    """
    A table cannot be made, or cannot be read.
    """


class SinkError(CodedError):
    """
    Rows cannot become jobs.
    """


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
