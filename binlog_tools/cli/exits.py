"""How a command ends."""

from typing import Final, NoReturn

from beanstalk_twisted.binlog.errors import BinlogError, Incompatible
from binlog_tools.console.interrupts import INTERRUPTED as INTERRUPTED
from binlog_tools.console.output import aside

SOUND: Final = 0
TORN: Final = 1
USAGE: Final = 2
DAMAGED: Final = 3
CANNOT_READ: Final = 4
UNKNOWN_FORMAT: Final = 78
"""A log in a format that this version does not know: nothing is said of damage."""

INCOMPLETE: Final = 1
"""What was asked for was made, without what only a source that is away has."""

CODES: Final = {"sound": SOUND, "torn": TORN, "damaged": DAMAGED}
"""The exit code of each verdict on a log."""


def warn(message: str) -> None:
    """One line, or a few, on stderr."""
    aside(f"binlog-inspect: {message}")


def fail(code: int, message: str) -> NoReturn:
    """End with one line, or a few, on stderr."""
    warn(message)
    raise SystemExit(code)


def code_of(problem: BinlogError | OSError) -> int:
    if isinstance(problem, Incompatible) and problem.is_newer:
        return UNKNOWN_FORMAT
    return DAMAGED if isinstance(problem, BinlogError) else CANNOT_READ


def message_of(problem: BinlogError | OSError) -> str:
    if isinstance(problem, BinlogError):
        return str(problem)
    why = problem.strerror or str(problem)
    return f"{problem.filename}: {why}" if problem.filename else why
