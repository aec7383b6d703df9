"""
How a command ends.
"""

from typing import Final, NoReturn

import click

from beanstalk_twisted.binlog.errors import BinlogError, Incompatible

SOUND: Final = 0
TORN: Final = 1
USAGE: Final = 2
DAMAGED: Final = 3
CANNOT_READ: Final = 4
INTERRUPTED: Final = 130
"""As after SIGINT in a shell; a reader that goes away shows as 141, by SIGPIPE itself."""


def fail(code: int, message: str) -> NoReturn:
    """
    End with one line, or a few, on stderr.
    """
    click.echo(f"binlog-inspect: {message}", err=True)
    raise SystemExit(code)


def code_of(problem: BinlogError | OSError) -> int:
    """
    The exit code for something that went wrong.
    """
    return DAMAGED if isinstance(problem, BinlogError) else CANNOT_READ


def message_of(problem: BinlogError | OSError) -> str:
    """
    What to say about it.
    """
    if isinstance(problem, Incompatible):
        return str(problem)
    if isinstance(problem, BinlogError):
        return str(problem)
    path = problem.filename
    why = problem.strerror or str(problem)
    return f"{path}: {why}" if path else why
