"""What all parts of a standby share: their surroundings, and waiting in the reactor's thread for
what comes in the thread of NATS.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from twisted.internet.defer import CancelledError, Deferred, execute

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.replication.membership import Identity
from beanstalk_twisted.replication.stream.interface import Stream
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.io_thread import Io, Reactor

T = TypeVar("T")


class Node(NamedTuple):
    """One server of a replicated queue, and its surroundings.

    :ivar stream: open.
    :ivar directory: locked; its log is written in segments of ``segment_bytes``.
    :ivar queue: without jobs at first.
    :ivar lease_s: of this server, if it becomes active; ``now_ns`` the monotonic clock.
    """

    stream: Stream
    directory: Directory
    queue: WorkQueue
    clock: LogClock
    reactor: Reactor
    io: Io
    lease_s: float
    segment_bytes: int
    now_ns: Callable[[], int]
    who: Identity


def in_reactor(asked: "Future[T]", reactor: Reactor) -> "Deferred[T]":
    """A future's outcome, in the reactor's thread; dropped if this is cancelled."""
    answer: Deferred[T] = Deferred()

    def tell() -> None:
        if not answer.called:
            execute(asked.result).chainDeferred(answer)

    asked.add_done_callback(lambda _: reactor.callFromThread(tell))
    return answer


class Waits:
    """All that one piece of work waits for, which ends together."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waited: set[Deferred[object]] = set()
        self._is_over = False

    @property
    def count(self) -> int:
        return len(self._waited)

    async def wait(self, waited: "Deferred[T]") -> T:
        """:raise CancelledError: `end` or `leave` was called meanwhile."""
        self._waited.add(waited)  # type: ignore[arg-type]
        is_dropped = False
        try:
            return await waited
        except GeneratorExit:
            # Nobody refers to the coroutine any more: what it raises now is printed.
            is_dropped = True
            raise
        finally:
            self._waited.discard(waited)
            if self._is_over and not is_dropped:
                raise CancelledError

    async def sleep(self, seconds: float) -> None:
        pause: Deferred[None] = Deferred()

        def end() -> None:
            if not pause.called:
                pause.callback(None)

        call = self._reactor.callLater(seconds, end)
        try:
            await self.wait(pause)
        finally:
            if call.active():
                call.cancel()

    def leave(self) -> None:
        """Whoever waits ends when the answer comes."""
        self._is_over = True

    def end(self) -> None:
        """Whoever waits ends now."""
        self._is_over = True
        for waited in list(self._waited):
            waited.cancel()
