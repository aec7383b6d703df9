"""A server that runs in this process turn by turn, and what its turns cost.

It is the real service on a clock that stands still, with a log on a simulated disk; what the I/O
thread would do meanwhile does not count.  A turn is one packet of one client, or none, and what is
due then: as much as a client waits, at most, until the sockets are looked at again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Final, TypeVar

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred

from beanstalk_twisted.daemon.memory import Collecting
from beanstalk_twisted.storage.io_thread import InlineIo
from beanstalk_twisted.testing.memory_server import (
    READ_BYTES,
    Client,
    MemoryServer,
    SimulatedDirectory,
)

T = TypeVar("T")

SEGMENT_BYTES: Final = 10 << 20
"""Of the log, as the server's default."""

MAX_JOB_BYTES: Final = 2 << 20


class TimedIo(InlineIo):
    """Does the work of the I/O thread at once, and knows how much it was.

    :ivar used_s: processor time, seconds.
    """

    def __init__(self) -> None:
        self.used_s = 0.0

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        return super().run(lambda: self.call(work))

    def call(self, work: Callable[[], T]) -> T:
        began_s = thread_time()
        try:
            return work()
        finally:
            self.used_s += thread_time() - began_s


class Pauses:
    """What garbage collections take.

    :ivar used_s: processor time of all, seconds; ``longest_s`` of the longest one.
    """

    def __init__(self) -> None:
        self.used_s = self.longest_s = self._began_s = 0.0

    def told(self, phase: str, about: dict[str, int]) -> None:
        """Called by the collector."""
        if phase == "start":
            self._began_s = thread_time()
        else:
            took_s = thread_time() - self._began_s
            self.used_s += took_s
            self.longest_s = max(self.longest_s, took_s)


class Meter:
    """A server that runs turn by turn, and the longest of them.

    :ivar longest_s: processor time without garbage collections, seconds.
    :ivar turns: how many there were.
    """

    def __init__(self, pauses: Pauses, *, has_log: bool = True) -> None:
        """:param has_log: whether jobs are kept on the simulated disk too."""
        self.longest_s = 0.0
        self.turns = 0
        self._pauses = pauses
        self._io = TimedIo()
        self.server = MemoryServer(
            directory=SimulatedDirectory() if has_log else None, io=lambda: self._io,
            max_job_bytes=MAX_JOB_BYTES, segment_bytes=SEGMENT_BYTES,
        )  # fmt: skip

    @property
    def paused_s(self) -> float:
        """Processor time of all garbage collections so far, seconds."""
        return self._pauses.used_s

    def begin(self) -> None:
        """Forget what it took to come so far."""
        self.settle()
        gc.collect()
        self.longest_s = self._pauses.longest_s = 0.0
        self.turns = 0

    def connect(self) -> Client:
        """One more client."""
        return self.server.connect()

    def ask(self, client: Client, request: bytes) -> bytes:
        """Send packets, one in each turn.

        :return: the replies, when all that follows at once has been done.
        """
        for at in range(0, len(request), READ_BYTES):
            packet = request[at : at + READ_BYTES]
            self.turn(lambda packet=packet: client.send(packet))  # type: ignore[misc]
        self.settle()
        return client.take()

    def leave(self, client: Client) -> None:
        """End a connection."""
        self.turn(client.hang_up)
        self.settle()

    def settle(self) -> None:
        """Go on while there is something to do at once."""
        while self._due:
            self.turn()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.server.clock.rightNow += seconds
        self.settle()

    def turn(self, bring: Callable[[], object] = lambda: None) -> None:
        """One turn: what has come, and what is due."""
        others_s = self._io.used_s + self._pauses.used_s
        began_s = thread_time()
        bring()
        for call in self._due:
            if call.active():
                self.server.clock.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
        took_s = thread_time() - began_s - (self._io.used_s + self._pauses.used_s - others_s)
        self.longest_s = max(self.longest_s, took_s)
        self.turns += 1

    @property
    def _due(self) -> list[DelayedCall]:
        clock = self.server.clock
        return [call for call in clock.calls if call.getTime() <= clock.seconds()]


@contextmanager
def watched_collections() -> Iterator[Pauses]:
    """Collect garbage as a server does, and measure it."""
    collecting, pauses = Collecting(lambda: 0), Pauses()
    collecting.start()
    gc.callbacks.append(pauses.told)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(pauses.told)
        collecting.stop()
