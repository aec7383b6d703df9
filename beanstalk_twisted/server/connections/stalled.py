"""Closing connections whose peers have begun a command and do not go on (`--stalled-timeout`).

A line has to come whole within the timeout, as what follows it: a body, or the jobs of a batch,
which may take longer if each timeout brings `LEAST_RATE` bytes a second of it, however they are
cut.  So whoever sends one byte now and then is closed too.  Time counts only while the server reads
the connection: not behind a `reserve` that waits, or replies that are not read.  A connection that
has begun nothing may be idle for ever.

There is one timer for all, and none while nobody has begun anything.  It is coarse: a connection is
closed up to a quarter of the timeout late.

Differs from beanstalkd: there, half a command keeps its connection and its memory for ever.
"""

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall

from beanstalk_twisted.server.connections.host import ServedConnection
from beanstalk_twisted.storage.io_thread import Clock

DEFAULT_STALLED_S: Final = 60
"""Seconds: longer than a network is away that comes back, TCP's own retries included, and as long
as proxies wait for a request.
"""

MAX_STALLED_S: Final = 86_400
"""A day is as good as never."""

LEAST_RATE: Final = 1024
"""Bytes of a body in a second: a modem brings more."""

LOOKS: Final = 4
"""So often a connection is looked at in each timeout."""

SLICE_CONNECTIONS: Final = 1000
"""Looked at in one go: less than a millisecond."""

NS: Final = 1_000_000_000


class StalledInput:
    """Looks at the connections that owe the rest of something."""

    def __init__(
        self, clock: Clock, now_ns: Callable[[], int], limit_s: float,
        close: Callable[[ServedConnection], None],
    ) -> None:  # fmt: skip
        """:param limit_s: the timeout, seconds; 0 for none.
        :param close: called with a connection that has stalled.
        """
        self._clock = clock
        self._now_ns = now_ns
        self._limit_ns = round(limit_s * NS)
        self._period_s = limit_s / LOOKS
        self._close = close
        self._owing: set[ServedConnection] = set()
        self._unseen: list[ServedConnection] = []
        self._timer: IDelayedCall | None = None

    def note(self, connection: ServedConnection) -> None:
        """The rest of what it has begun is to come."""
        if self._limit_ns:
            self._owing.add(connection)
            if self._timer is None:
                self._timer = self._clock.callLater(self._period_s, self._look)

    def forget(self, connection: ServedConnection) -> None:
        """It has ended."""
        self._owing.discard(connection)

    def stop(self) -> None:
        """Leave no timer."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._limit_ns = 0

    def _look(self) -> None:
        if not self._unseen:
            self._unseen = list(self._owing)
        some = self._unseen[-SLICE_CONNECTIONS:]
        del self._unseen[-SLICE_CONNECTIONS:]
        now_ns = self._now_ns()
        for connection in some:
            since_ns = connection.owes_since(now_ns)
            if since_ns is None:
                self._owing.discard(connection)
            elif now_ns - since_ns >= self._limit_ns:
                self._close(connection)
        self._timer = None
        if self._unseen or self._owing:
            delay_s = 0 if self._unseen else self._period_s
            self._timer = self._clock.callLater(delay_s, self._look)
