"""The process as others see it.  Differs from beanstalkd: SIGHUP ends only a server whose terminal
is gone, SIGTERM and SIGINT end it at once only when they come twice, and `IGNORED` not at all.
"""

import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from beanstalk_twisted.daemon.early_signals import has_terminal
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.fail_stop import end_process
from beanstalk_twisted.storage.io_thread import Reactor

log = Logger()

STDERR: Final = 2


class Refused(Exception):
    """The server cannot start.  :ivar exit_code: of the process, where it may choose its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# `twistd` shows the first 98 bytes of what a daemon died of, and Python puts the module before the
# name of any exception that is not built in: 32 bytes that tell nobody anything.
Refused.__module__ = "builtins"


class Launcher:
    """What `twistd` was told, as far as a start needs it.

    :ivar is_foreground: whether the process may end itself with an exit code of its own.
    :ivar pidfile: its absolute path, empty if there is none.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.is_foreground = bool(options.get("nodaemon", True))
        self.pidfile = os.path.abspath(options["pidfile"]) if options.get("pidfile") else ""
        self._logs_elsewhere = bool(options.get("logfile")) and options["logfile"] != "-"
        self._terminal: int | None = None

    def keep_terminal(self) -> None:
        """Keep stderr, which is closed when a daemon starts, for a start that fails."""
        if not self.is_foreground or self._logs_elsewhere:
            self._terminal = os.dup(STDERR)

    def let_go(self) -> None:
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            os.close(terminal)

    def refuse(self, message: str, code: int) -> NoReturn:
        """End a start.  In the background `twistd` removes the pidfile; it knows of no exit code.

        :raise SystemExit: in the foreground.
        :raise Refused: in the background.
        """
        if self._terminal is not None:
            with suppress(OSError):
                os.write(self._terminal, f"error: {message}\n".encode())
        self.let_go()
        if self.is_foreground:
            if self.pidfile:
                with suppress(OSError):
                    os.unlink(self.pidfile)
            raise SystemExit(code)
        sys.excepthook = _report
        raise Refused(message, code) from None


def _report(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """A `sys.excepthook` that shows no refusals: they are in the log."""
    if kind is not Refused:
        sys.__excepthook__(kind, error, traceback)


def refuse_start(launcher: Launcher, manager: "ServiceManager", why: str, code: int) -> NoReturn:
    """End a start: tell the log, the service manager and whoever started the server.

    :raise SystemExit: in the foreground.
    :raise Refused: in the background.
    """
    log.critical(
        "the server does not start: {why}", event="start-refused", why=why, exit_code=code
    )  # fmt: skip
    manager.refused(why)
    launcher.refuse(why, code)


STATUS_S: Final = 10.0
"""Seconds between two states of a running server, at most; a look at two numbers."""

PROGRESS_S: Final = 1.0
"""Seconds between two states of a start, at least: a log is reported every few milliseconds."""

EXTENSION_S: Final = 300
"""Seconds that a start asks for with each progress.  The longest silence is a part of the log that
holds no living job: 1 GiB is read in 10 s on a slow disk.
"""

TRANSIENT: Final = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ECONNREFUSED, errno.EINTR})
"""What sending fails of while the manager is busy, or starts anew; the next message may pass."""


class Notifications:
    """Where messages go: nowhere, as nobody asked."""

    is_heard = False

    def send(self, message: str) -> bool:
        """:return: whether the message was taken.  Never waits, never raises."""
        return False


class NotifySocket(Notifications):
    """Sends to the manager's socket."""

    log = Logger()
    is_heard = True

    def __init__(self, address: str) -> None:
        """:param address: a path, or ``@`` and a name of Linux's abstract ones."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._has_failed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, message: str) -> bool:
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as problem:
            self._tell(problem)
            return False
        return True

    def _tell(self, problem: OSError) -> None:
        """Log the first failure that will not pass by itself."""
        if problem.errno in TRANSIENT or self._has_failed:
            return
        self._has_failed = True
        self.log.warn(
            "NOTIFY_SOCKET {address}: {why}; the service manager hears nothing",
            event="not-notified", address=self._address.replace("\0", "@"), why=problem.strerror,
        )  # fmt: skip


def asked_for(environment: MutableMapping[str, str]) -> "ServiceManager":
    """What is used up of the environment is removed, so that no child has it."""
    address = environment.pop("NOTIFY_SOCKET", "")
    watchdog_s = _watchdog_s(environment)
    if not address.startswith(("/", "@")):
        return ServiceManager()
    return ServiceManager(NotifySocket(address), watchdog_s)


def _watchdog_s(environment: MutableMapping[str, str]) -> float | None:
    """:return: seconds after which a silent process is ended; None if nobody watches this one."""
    limit = environment.pop("WATCHDOG_USEC", "")
    pid = environment.pop("WATCHDOG_PID", str(os.getpid()))
    is_ours = limit.isascii() and limit.isdigit() and pid == str(os.getpid())
    return int(limit) / 1_000_000 or None if is_ours else None


class ServiceManager:
    """Whoever started the server and may watch it: systemd's protocol of ``Type=notify``,
    sd_notify(3).

    Each message is one datagram to the UNIX socket that ``NOTIFY_SOCKET`` names, lines of
    ``NAME=VALUE``:

    ======================  ========================================================================
    ``STATUS``              while the log is read, how far that is; then jobs and connections
    ``EXTEND_TIMEOUT_USEC`` with it while the log is read: a start takes as long as it takes
    ``READY=1``             the log is read, ports are open, the reactor turns
    ``WATCHDOG=1``          the reactor turns, said twice in each ``WATCHDOG_USEC``; a reactor that
                            is stuck says nothing, and systemd ends the process
    ``STOPPING=1``          the stop has begun
    ======================  ========================================================================
    """

    def __init__(
        self, notifications: Notifications | None = None, watchdog_s: float | None = None
    ) -> None:
        """:param watchdog_s: seconds after which it ends a silent process; None if it does not."""
        self._notifications = Notifications() if notifications is None else notifications
        self._pings = watchdog_s is not None
        self._interval_s = STATUS_S if watchdog_s is None else min(STATUS_S, watchdog_s / 2)
        self._is_ready = False
        self._call: IDelayedCall | None = None

    def loading_at(self, seconds: Callable[[], float]) -> "LoadingStatus":
        return LoadingStatus(self._notifications, seconds)

    def start(self, clock: IReactorTime, status: Callable[[], str]) -> None:
        """The server serves: say so, and ``status`` in words, when the reactor turns, and go on."""
        if self._notifications.is_heard:
            self._clock, self._status = clock, status
            self._call = clock.callLater(0, self._tell)

    def _tell(self) -> None:
        self._call = self._clock.callLater(self._interval_s, self._tell)
        lines = [f"STATUS={self._status()}"]
        if self._pings:
            lines.append("WATCHDOG=1")
        if not self._is_ready:
            lines.append("READY=1")
        if self._notifications.send("\n".join(lines)):
            self._is_ready = True

    def stopping(self) -> None:
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        self._notifications.send("STOPPING=1\nSTATUS=stopping")

    def refused(self, message: str) -> None:
        self._notifications.send(f"STATUS=not started: {' '.join(message.split())}")


class LoadingStatus:
    """Tells of a start; an `opening.Report`.

    In megabytes, not jobs: how many live is known when the whole log is read, since any record may
    delete one.
    """

    def __init__(self, notifications: Notifications, seconds: Callable[[], float]) -> None:
        self._notifications = notifications
        self._seconds = seconds
        self._told_s = float("-inf")

    def read(self, done: int, total: int) -> None:
        percent = done * 100 // total if total else 100
        self._tell(f"{done >> 20:,} of {total >> 20:,} MB of the log read ({percent} %)")

    def loaded(self, jobs: int) -> None:
        self._tell(f"{jobs:,} jobs loaded")

    def _tell(self, status: str) -> None:
        now_s = self._seconds()
        if now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            extension_us = EXTENSION_S * 1_000_000
            self._notifications.send(f"STATUS={status}\nEXTEND_TIMEOUT_USEC={extension_us}")


def how_it_is(jobs: int, connections: int, is_draining: bool) -> str:
    draining = ", draining" if is_draining else ""
    return f"{_counted(jobs, 'job')}, {_counted(connections, 'connection')}{draining}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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


Signalled = Callable[[], BeanstalkService]
"""Gives what signals act on: the service, or that of the present term."""


def ignore_others() -> None:
    for number in IGNORED:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)


def drain_on_signal(service: Signalled, reactor: Reactor) -> None:
    """SIGUSR1 drains, as beanstalkd's does."""

    def drain() -> None:
        service().audit.tell("SIGUSR1", "drain")
        service().drain()

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
        service().audit.tell("SIGHUP", "reload")
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
            self._service().begin_stop()
            name = signal.Signals(number).name
            self._reactor.callFromThread(self._service().audit.tell, name, "stop")
            first(number, frame)

        return receive

    def _tell_end(self, number: int) -> None:
        """The last words; called in the middle of anything."""
        pidfile = self._service().settings.pidfile
        if pidfile:
            with suppress(OSError):
                os.unlink(pidfile)
        self.log.warn(
            "stopped at once by a second signal, {name}; nothing that was answered is lost",
            event="stopped-at-once", name=signal.Signals(number).name,
        )  # fmt: skip
