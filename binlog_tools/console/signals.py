"""Signals that end a command, but only between two things that it does."""

import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

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


def end_if_told(stop: DeferredSignal, done: str) -> None:
    if stop.number is not None:
        warn(f"{signal_name(stop.number)}: stopped after {done}")
        raise SystemExit(stop.exit_code)
