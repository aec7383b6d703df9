"""
How a command ends; the codes are those of ``binlog-inspect``.
"""

from typing import Final, NoReturn

from binlog_tools.console.output import aside

PROGRAM: Final = "beanstalk"

DONE: Final = 0
NOTHING: Final = 1
"""There was no job."""
USAGE: Final = 2
REFUSED: Final = 4
"""There is no server, or no such job or tube, or the server has refused."""
INTERRUPTED: Final = 130


def warn(message: str) -> None:
    """
    Say something on stderr, and go on.
    """
    aside(f"{PROGRAM}: {message}")


def fail(code: int, message: str) -> NoReturn:
    """
    End with one line on stderr.
    """
    warn(message)
    raise SystemExit(code)
