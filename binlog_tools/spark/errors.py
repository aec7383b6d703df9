"""What a person needs to know of an error of Spark's, or of a missing package, in one line."""

import importlib.util
import re
import sys
from typing import Final

from binlog_tools.spark.definitions.errors import CODES, JAVA_ADVICE

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
    """The one line that a person needs of an error of Spark's, which holds stacks of two
    languages.
    """
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
    """End the program, and say what to do, if one of these is not installed.

    :param extra: which of the extras of this distribution brings them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"[NO_PACKAGE] {sys.executable} has no {', '.join(missing)}; run in a "
            f"checkout of beanstalk-twisted: {sys.executable} -m pip install '.[{extra}]'",
            file=sys.stderr,
        )
        raise SystemExit(CODES["NO_PACKAGE"])
