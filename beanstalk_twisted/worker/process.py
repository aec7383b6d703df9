"""A worker's process: signals, children, and its end if it hangs, so that a supervisor can start
another one.
"""

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from time import monotonic, sleep
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from twisted.internet.tcp import Connection

from beanstalk_twisted.printable import escape
from beanstalk_twisted.worker.hooks import Event, is_of_application
from beanstalk_twisted.worker.policy import TookTooLong

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""What ends it: what a supervisor sends, and Ctrl-C."""

BY_SIGNAL: Final = 128
"""Added to a signal's number this is the exit code, as a shell has it."""


FORKED: Final = 70
"""The exit code of a child that returns from its handler (EX_SOFTWARE of sysexits.h)."""

_SAID: Final = (
    b"a function has forked and not ended its child: exiting; call os._exit in the child\n"
)

STUCK: Final = 70
"""The exit code of a process that hangs (EX_SOFTWARE of sysexits.h)."""

BEAT_S: Final = 0.5
"""Between two signs of life of the reactor, and between two looks at them, seconds."""

TRIES: Final = 3
"""How often a function that blocks the reactor is interrupted before the process ends."""

TRY_S: Final = 1.0
"""From one of these to the next, seconds."""

HELD_S: Final = 10.0
"""Seconds after the limit until a process ends in which one thread holds the interpreter."""

REPORT_S: Final = 1.0
"""How long the last message may take, seconds: stderr may be a pipe that nothing reads."""

INTERRUPT: Final = signal.SIGURG
"""Wakes the reactor's thread; without effect if it comes too late."""

T = TypeVar("T")


class Signals:
    """Listens to `SIGNALS`.  Until there is something to stop, the first one ends the process."""

    def __init__(self) -> None:
        self._stop: Callable[[], object] = sys.exit
        self._drop: Callable[[], object] = lambda: None
        self._has_come = False

    def listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._told)

    def when_told(self, stop: Callable[[], object], drop: Callable[[], object]) -> None:
        """:param stop: called at the first one; it begins to stop.
        :param drop: called at the second one, just before the process ends, wherever its own thread
            may be.
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
            # No exception, as sys.exit is: it would not end a thread that hangs, or a reactor.
            os._exit(BY_SIGNAL + number)


def in_this_process(call: Callable[[], T]) -> T:
    """Call a function, and end each child that returns: it would use the parent's connections."""
    pid = os.getpid()
    try:
        return call()
    finally:
        if os.getpid() != pid:
            end_child()


def end_child() -> NoReturn:
    try:
        if sys.__stderr__ is not None:
            os.write(sys.__stderr__.fileno(), _SAID)
    finally:
        os._exit(FORKED)


def close_in_children(reactor: Any) -> None:
    """Close the reactor's connections in each child that is forked from now on: a server would
    otherwise not notice the end of the worker while a child runs.  A child that returns to the
    reactor, by an ``await`` too, ends.  ``subprocess`` is not affected.
    """

    def forked() -> None:
        for each in {*reactor.getReaders(), *reactor.getWriters()}:
            if isinstance(each, Connection):
                each.socket.close()
        reactor.callFromThread(end_child)

    os.register_at_fork(after_in_child=forked)


class Watchdog:
    """Checks from a thread of its own whether the reactor runs.

    A function that blocks it for too long is interrupted by `TookTooLong`.  If it keeps blocking,
    the process ends.

    :ivar most_s: how long the reactor may be blocked, seconds; None for ever.
    """

    def __init__(self, drop: Callable[[], object]) -> None:
        """:param drop: called just before the process ends, from any thread."""
        self.most_s: float | None = None
        self._drop = drop
        self._beats = 0
        self._blamed: int | None = None
        self._main = threading.get_ident()
        self._end_s: float | None = None
        self._end_code = STUCK
        self._end_why = ""

    def start(self, reactor: Any) -> None:
        signal.signal(INTERRUPT, self._interrupt)
        self._beat_again(reactor)
        threading.Thread(target=self._watch, name="beanstalk-watchdog", daemon=True).start()

    def stopping(self, most_s: float, blocked_s: float) -> None:
        """End the process after ``most_s`` seconds, or if the reactor is blocked for ``blocked_s``
        of them; may be called by a handler of signals.
        """
        self.most_s = blocked_s if self.most_s is None else min(self.most_s, blocked_s)
        self._beats += 1  # From now on.
        self.end_within(most_s, STUCK, f"did not stop within {most_s:g} s")

    def end_within(self, most_s: float, code: int, why: str) -> None:
        self._end_code, self._end_why = code, why
        self._end_s = monotonic() + most_s

    def __call__(self, event: Event) -> None:
        """Note a hook's event: many functions may run in one turn of the reactor."""
        if event.name in ("began", "raised", "ended"):
            self._beats += 1

    def _beat_again(self, reactor: Any) -> None:
        self._beats += 1
        reactor.callLater(BEAT_S, self._beat_again, reactor)

    def _watch(self) -> None:
        seen, silent_s, tries = -1, 0.0, 0
        while True:
            if self.most_s is not None and sys.__stderr__ is not None:
                # Ends the process unless it is called again: while one thread holds the
                # interpreter, as a regular expression may, no other Python thread runs.
                wait_s = self.most_s + HELD_S
                faulthandler.dump_traceback_later(wait_s, file=sys.__stderr__, exit=True)
            before_s = monotonic()
            sleep(BEAT_S)
            now_s = monotonic()
            if self._end_s is not None and now_s >= self._end_s:
                self._end(self._end_code, self._end_why)
            if self._beats != seen:
                seen, silent_s, tries = self._beats, 0.0, 0
                continue
            # The whole process may have stood still.
            silent_s += min(now_s - before_s, 2 * BEAT_S)
            if self.most_s is None or silent_s < self.most_s + tries * TRY_S:
                continue
            if tries == TRIES:
                why = "a function blocks the reactor, and does not end when it is interrupted"
                frame = sys._current_frames().get(self._main)
                stack = "".join(traceback.format_stack(frame)).rstrip()
                self._end(STUCK, f"{why}:\n{stack}")
            tries += 1
            self._blamed = seen
            signal.pthread_kill(self._main, INTERRUPT)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise in code of the application that still blocks the reactor."""
        is_blocked = self._blamed == self._beats
        self._blamed = None
        if is_blocked and frame is not None and is_of_application(frame.f_code.co_filename):
            raise TookTooLong(f"blocked the reactor for more than {self.most_s:g} s")

    def _end(self, code: int, why: str) -> None:
        last = threading.Thread(target=self._report, args=(code, why), daemon=True)
        last.start()
        last.join(REPORT_S)
        os._exit(code)

    def _report(self, code: int, why: str) -> None:
        try:
            sys.stderr.write(escape(f"beanstalk-work: exit code {code}: {why}\n", "\n\t"))
            sys.stderr.flush()
            sys.stdout.flush()
        finally:
            self._drop()
