"""How a command ends; what ``binlog-inspect`` has too has its codes."""

import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

from beanstalk_twisted.programs import INTERRUPTED
from binlog_tools.console.errors import warn

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A terminal's Ctrl-C, a polite kill, and a terminal that is closed."""

SIGNALLED: Final = 128
"""What a shell adds to the number of a signal, for the exit code of what that has ended."""


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # Those for real time have no names of their own.


class DeferredSignal:
    """While the block lasts, the first of these signals is noted only; the next does what it did
    before.  A signal that is ignored (as by nohup) stays so.

    :ivar number: the signal that has come; None as long as there was none.
    """

    def __init__(self, signals: Sequence[signal.Signals] = ENDING) -> None:
        self._signals = signals
        self.number: int | None = None
        self._before: dict[int, Callable[..., Any] | int | None] = {}

    @property
    def exit_code(self) -> int:
        return SIGNALLED + (self.number or 0)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._restore()

    def _restore(self) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)

    def __enter__(self) -> "DeferredSignal":
        for each in self._signals:
            before = signal.getsignal(each)
            if before != signal.SIG_IGN:
                self._before[each] = before
                signal.signal(each, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()


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


WORDS: Final = {
    NOTHING: "NOTHING", USAGE: "USAGE", BURIED: "BURIED", REFUSED: "REFUSED", MISSING: "MISSING",
    TIMED_OUT: "TIMED_OUT", INTERRUPTED: "INTERRUPTED",
}  # fmt: skip
"""The ``code`` of errors in JSON; where the server has refused, it is the server's reply."""

NO_SERVER: Final = "NO_SERVER"
"""The ``code`` where there is no server, or the connection was lost."""


def end_if_told(stop: DeferredSignal, done: str) -> None:
    if stop.number is not None:
        warn(f"{signal_name(stop.number)}: stopped after {done}")
        raise SystemExit(stop.exit_code)
