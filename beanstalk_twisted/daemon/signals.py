"""What signals do: drain, reopen and read again, stop in order, stop at once.

SIGUSR1 drains, as beanstalkd's does.  Differs from beanstalkd: SIGHUP ends only a server whose
terminal is gone, SIGTERM and SIGINT end it at once only when they come twice, and `IGNORED` not at
all.
"""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Protocol

from twisted.logger import Logger

from beanstalk_twisted.daemon.early_signals import has_terminal
from beanstalk_twisted.server.audit import Audit
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.fail_stop import end_process
from beanstalk_twisted.storage.io_thread import Reactor

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

IGNORED: Final = tuple(
    getattr(signal, name)
    for name in ("SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPOLL", "SIGSTKFLT", "SIGPWR")
    if hasattr(signal, name)
)
"""Signals that have no meaning here, and would end the process without an ordered stop.  Those that
say that it is to end, or that something is broken, keep what they do.
"""

KILLED: Final = 128
"""What a shell adds to the number of the signal that has ended a process."""


class Signalled(Protocol):
    """What signals act on: the service, or that of the present term."""

    @property
    def audit(self) -> Audit:
        """Tells what operators do."""

    @property
    def settings(self) -> Settings:
        """How the server was told to be."""

    def drain(self) -> None:
        """Take no new jobs from now on."""

    def begin_stop(self) -> None:
        """Let connections that end from now on change nothing."""


def ignore_others() -> None:
    """Ignore the signals of `IGNORED` that nobody handles."""
    for number in IGNORED:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)


def drain_on_signal(service: Signalled, reactor: Reactor) -> None:
    """SIGUSR1 drains."""

    def drain() -> None:
        service.audit.tell("SIGUSR1", "drain")
        service.drain()

    signal.signal(signal.SIGUSR1, lambda *_: reactor.callFromThread(drain))


class Hangup:
    """Tells whether SIGHUP says that the terminal is gone in which the server was started."""

    def __init__(
        self, is_there: Callable[[], bool] = has_terminal, was_there: bool | None = None
    ) -> None:
        """Made before SIGHUP has its handler: who has it ignored, as `nohup` does, wants the server
        to go on.

        :param was_there: whether there was a terminal when the process began; None: as it is now.
        """
        self._is_there = is_there
        began_there = is_there() if was_there is None else was_there
        self._was_there = began_there and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    @property
    def has_come(self) -> bool:
        """Whether there was a terminal, and is none any more."""
        return self._was_there and not self._is_there()


def reload_on_signal(
    service: Signalled, reactor: Reactor, steps: Iterable[Callable[[], None]],
    hangup: Hangup,
) -> None:  # fmt: skip
    """SIGHUP takes these steps, one after the other; but where the server's own terminal is gone it
    stops in order: nobody is left who could see it.
    """
    steps = tuple(steps)

    def reload() -> None:
        if hangup.has_come:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        service.audit.tell("SIGHUP", "reload")
        for step in steps:
            step()

    signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(reload))


class StopTwice:
    """Lets the first SIGTERM or SIGINT through to the reactor, which stops in order.  The second
    one ends the process at once: what was answered is with the kernel at least, so nothing is lost
    that a crash would not lose.
    """

    log = Logger()

    def __init__(
        self, service: Signalled, reactor: Reactor,
        end: Callable[[int, Callable[[], None]], object] = end_process,
    ) -> None:  # fmt: skip
        """:param end: ends the process with an exit code, after the last words."""
        self._service = service
        self._reactor = reactor
        self._end = end
        self._is_stopping = False

    def take_over(self) -> None:
        """Replace the handlers that are there; called when the reactor has set its own."""
        for number in STOPPING:
            first = signal.getsignal(number)
            if callable(first):
                signal.signal(number, self._in_front_of(first))

    def _in_front_of(
        self, first: Callable[[int, FrameType | None], Any]
    ) -> Callable[[int, FrameType | None], None]:
        def receive(number: int, frame: FrameType | None) -> None:
            if self._is_stopping:
                self._end(KILLED + number, lambda: self._tell_end(number))
                return
            self._is_stopping = True
            self._service.begin_stop()
            name = signal.Signals(number).name
            self._reactor.callFromThread(self._service.audit.tell, name, "stop")
            first(number, frame)

        return receive

    def _tell_end(self, number: int) -> None:
        """The last words; called in the middle of anything."""
        pidfile = self._service.settings.pidfile
        if pidfile:
            with suppress(OSError):
                os.unlink(pidfile)
        self.log.warn(
            "stopped at once by a second signal, {name}; nothing that was answered is lost",
            event="stopped-at-once", name=signal.Signals(number).name,
        )  # fmt: skip
