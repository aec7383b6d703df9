"""The signals that end a process that works: the first in order, the second at once."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""What ends it: what a supervisor sends, and Ctrl-C."""

BY_SIGNAL: Final = 128
"""Added to a signal's number this is the exit code, as a shell has it."""


class Signals:
    """
    Listens to them.

    Before there is anything to stop, the process ends at the first one: it has no job.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], object] = _leave
        self._drop: Callable[[], object] = lambda: None
        self._has_come = False

    def listen(self) -> None:
        """From now on they come here."""
        for number in SIGNALS:
            signal.signal(number, self._told)

    def when_told(self, stop: Callable[[], object], drop: Callable[[], object]) -> None:
        """
        There is something to stop now.

        :param stop: called at the first one; it begins to stop.
        :param drop: called at the second one, just before the process ends, and wherever its own
            thread may be.
        """
        self._stop, self._drop = stop, drop
        self.listen()

    def _told(self, number: int, frame: FrameType | None) -> None:
        if not self._has_come:
            self._has_come = True
            self._stop()
            return
        try:
            self._drop()
            sys.stdout.flush()
        finally:
            # No exception, as sys.exit is: a thread that hangs, or a reactor, would not heed it.
            os._exit(BY_SIGNAL + number)


def _leave() -> NoReturn:
    sys.exit(0)
