"""Telling a service manager how the server is: systemd's protocol of ``Type=notify``, sd_notify(3).

Each message is one datagram to the UNIX socket that ``NOTIFY_SOCKET`` names, lines of
``NAME=VALUE``:

======================  ============================================================================
``STATUS``              while the log is read, how far that is; then jobs and connections
``EXTEND_TIMEOUT_USEC`` with it while the log is read: a start takes as long as it takes
``READY=1``             the log is read, ports are open, the reactor turns
``WATCHDOG=1``          the reactor turns, said twice in each ``WATCHDOG_USEC``; a reactor that is
                        stuck says nothing, and systemd ends the process
``STOPPING=1``          the stop has begun
======================  ============================================================================
"""

import errno
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

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


class Notifications(Protocol):
    """Where messages go."""

    is_heard: bool
    """Whether anybody asked for messages."""

    def send(self, message: str) -> bool:
        """:return: whether the message was taken.  Never waits, never raises."""


class Unheard:
    """Nobody asked."""

    is_heard = False

    def send(self, message: str) -> bool:
        return False


class NotifySocket:
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
    """:param environment: that of the process; what is used up is removed, so that no child
    has it.
    """
    address = environment.pop("NOTIFY_SOCKET", "")
    watchdog_s = _watchdog_s(environment)
    if not address.startswith(("/", "@")):
        return ServiceManager(Unheard())
    return ServiceManager(NotifySocket(address), watchdog_s)


def _watchdog_s(environment: MutableMapping[str, str]) -> float | None:
    """:return: seconds after which a silent process is ended; None if nobody watches this one."""
    limit = environment.pop("WATCHDOG_USEC", "")
    pid = environment.pop("WATCHDOG_PID", str(os.getpid()))
    is_ours = limit.isascii() and limit.isdigit() and pid == str(os.getpid())
    return int(limit) / 1_000_000 or None if is_ours else None


class ServiceManager:
    """Whoever started the server and may watch it."""

    def __init__(
        self, notifications: Notifications | None = None, watchdog_s: float | None = None
    ) -> None:
        """:param watchdog_s: seconds after which it ends a silent process; None if it does not."""
        self._notifications = Unheard() if notifications is None else notifications
        self._pings = watchdog_s is not None
        self._interval_s = STATUS_S if watchdog_s is None else min(STATUS_S, watchdog_s / 2)
        self._is_ready = False
        self._call: IDelayedCall | None = None

    def loading_at(self, seconds: Callable[[], float]) -> "LoadingStatus":
        """:param seconds: a clock.
        :return: what tells of a start.
        """
        return LoadingStatus(self._notifications, seconds)

    def start(self, clock: IReactorTime, status: Callable[[], str]) -> None:
        """The server serves: say so when the reactor turns, and go on.

        :param status: how the server is, some words.
        """
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
        """The stop has begun."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        self._notifications.send("STOPPING=1\nSTATUS=stopping")

    def refused(self, message: str) -> None:
        """The server does not start; why."""
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
    """:return: how a running server is, in a few words."""
    draining = ", draining" if is_draining else ""
    return f"{_counted(jobs, 'job')}, {_counted(connections, 'connection')}{draining}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
