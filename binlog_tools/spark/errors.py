"""What can go wrong, in one line with a code in brackets: Spark keeps the text of an error and
loses its type.
"""

import importlib.util
import re
import shlex
import sys
from typing import Final

from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.logs.sources import NoLog

_CODES_BY_EXIT: Final = {
    64: (
        "BINLOG_OPTION", "BINLOG_SCHEMA", "TABLE_OPTION", "SINK_OPTION",
        "SINK_MODE", "SINK_COLUMNS",
    ),
    65: (
        "BINLOG_DAMAGED", "BINLOG_NUMBER_TOO_LARGE", "BINLOG_HISTORIES_DIFFER", "BINLOG_CHANGED",
        "TABLE_COLUMN", "SINK_VALUE", "SINK_JOB_TOO_BIG", "SINK_ROWS_CHANGED",
    ),
    66: ("BINLOG_TRIMMED", "BINLOG_NOT_FOUND", "BINLOG_NO_LOG", "TABLE_NOT_FOUND"),
    69: (
        "TABLE_FORMAT", "NO_JAVA", "NO_PACKAGE", "WORKER_PYTHON", "SPARK_TOO_OLD",
        "SPARK_NO_SERVER", "SINK_NO_SERVER",
    ),
    73: ("TABLE_EXISTS", "TABLE_UNWRITABLE"),
    74: ("BINLOG_UNREADABLE",),
    75: ("TABLE_BUSY", "SINK_CONNECTION_LOST", "SINK_REFUSED"),
    76: ("SINK_REPLY", "SINK_NO_TAG"),
    78: ("BINLOG_UNKNOWN_FORMAT",),
}  # fmt: skip

JAVA_ADVICE: Final = (
    "Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless, or set JAVA_HOME, or "
    "in a checkout of beanstalk-twisted: pip install '.[java]'"
)

CODES: Final = {code: number for number, codes in _CODES_BY_EXIT.items() for code in codes}
"""The codes, and with which number a program ends because of one (sysexits.h)."""


class CodedError(Exception):
    """Something that a user can mend; ``code`` is one of `CODES`."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"[{code}] {' '.join(what.split())}")
        self.code = code

    @property
    def what(self) -> str:
        """The message without the code."""
        return str(self).partition("] ")[2]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.what)


class SourceError(CodedError):
    """Something is wrong with a log, or with what was asked for."""


class TableError(CodedError):
    """A table cannot be made, or cannot be read."""


class SinkError(CodedError):
    """Rows cannot become jobs."""


class SparkTooOld(CodedError):
    """This Spark has no interface for what was asked of it."""

    @classmethod
    def of(cls, what: str, since: str, instead: str) -> "SparkTooOld":
        return cls("SPARK_TOO_OLD", f"{what} needs Spark {since} or newer; {instead}")


def damaged(path: str, offset: int, what: str) -> SourceError:
    checked = path
    if is_url(path):
        # Of object storage a folder is checked.
        where, mark, options = path.partition("?")
        checked = where.rpartition("/")[0] + mark + options
    check = f"run: binlog-inspect check {shlex.quote(checked)}"
    return SourceError(
        "BINLOG_DAMAGED",
        f"{path}: frame at byte {offset}: {what}; {check}; or read what is left "
        "with .option('damage', 'skip'), or --damage skip",
    )


def unknown_format(path: str, why: str) -> SourceError:
    """The error of a segment in a format that this version does not know."""
    return SourceError(
        "BINLOG_UNKNOWN_FORMAT",
        f"{path}: {why}; nothing was changed, and the log is not damaged as far as this version "
        f"can tell; install the version that wrote it, or a newer one, then run: binlog-inspect "
        f"check {shlex.quote(path)}",
    )


def bad_url(url: str, problem: ValueError) -> SourceError:
    """:param problem: says why it names nothing."""
    return SourceError("BINLOG_OPTION", f"option path: {url}: {problem}")


def unreadable(error: OSError, path: str = "") -> SourceError:
    where = str(error.filename or path)
    code = "BINLOG_UNREADABLE"
    if isinstance(error, FileNotFoundError):
        code = "BINLOG_NO_LOG" if isinstance(error, NoLog) else "BINLOG_NOT_FOUND"
    return SourceError(code, f"{where}: {error.strerror or error}")


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
        "the workers' Python has no {0}; give them our wheel, renamed: spark-submit "
        "--py-files beanstalk_spark.zip",
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


def explain_error(error: BaseException) -> str:
    """Return the one line that a person needs of an error of Spark's."""
    text = str(error)
    ours = [found for found in _OURS.finditer(text) if found[1] in CODES]
    if ours:
        return _unwrapped(ours[-1][0])
    if "[JAVA_GATEWAY_EXITED]" in text:
        return f"[NO_JAVA] Java did not start; {JAVA_ADVICE}"
    for theirs, meaning in _OF_WORKERS:
        found = theirs.search(text)
        if found:
            return f"[WORKER_PYTHON] {meaning.format(*found.groups())}"
    python = _LAST_LINE.findall(text)
    if python:
        return _unwrapped(python[-1])
    return _unwrapped(_CALL.sub("", text.strip()).partition("\n")[0]) or type(error).__name__


def _unwrapped(line: str) -> str:
    """Without what Spark puts behind our words."""
    return line.partition(" SQLSTATE: ")[0].rstrip()


def exit_code(error: BaseException) -> int:
    found = re.match(r"\[([A-Z_]+)\]", explain_error(error))
    return CODES.get(found[1], OTHER_EXIT) if found else OTHER_EXIT


def need(extra: str, *modules: str) -> None:
    """End the program, and name the extra to install, if one of these modules is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"[NO_PACKAGE] {sys.executable} has no {', '.join(missing)}; run in a "
            f"checkout of beanstalk-twisted: {sys.executable} -m pip install '.[{extra}]'",
            file=sys.stderr,
        )
        raise SystemExit(CODES["NO_PACKAGE"])
