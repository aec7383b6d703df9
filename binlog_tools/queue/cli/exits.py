"""How a command ends; what ``binlog-inspect`` has too has its codes."""

from typing import Final, NoReturn

from binlog_tools.console.output import aside
from binlog_tools.queue.cli.signals import DeferredSignal, signal_name

PROGRAM: Final = "beanstalk"

DONE: Final = 0
NOTHING: Final = 1
"""There was no job."""
USAGE: Final = 2
BURIED: Final = 3
"""The job that was waited for was buried."""
REFUSED: Final = 4
"""There is no server, or no such job or tube, or the server has refused."""
MISSING: Final = 5
"""The server does not have the command that is needed."""
TIMED_OUT: Final = 124
"""The job that was waited for is still there; as of timeout(1)."""
INTERRUPTED: Final = 130


def warn(message: str) -> None:
    """Say something on stderr, and go on."""
    aside(f"{PROGRAM}: {message}")


def fail(code: int, message: str) -> NoReturn:
    """End with one line on stderr."""
    warn(message)
    raise SystemExit(code)


def reason(problem: Exception) -> str:
    """Say what went wrong, and with which server or file."""
    filename, why = getattr(problem, "filename", None), getattr(problem, "strerror", None)
    return f"{filename}: {why or problem}" if filename else f"{why or problem}"


def end_if_told(stop: DeferredSignal, done: str) -> None:
    """End if a signal has come, and say what was done until then."""
    if stop.number is not None:
        warn(f"{signal_name(stop.number)}: stopped after {done}")
        raise SystemExit(stop.exit_code)
