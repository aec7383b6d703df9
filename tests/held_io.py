"""Work for a disk that waits until the test lets it happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.defer import execute as execute_now
from twisted.python.failure import Failure

from beanstalk_twisted.testing.memory_server import MemoryServer

T = TypeVar("T")


class HeldIo:
    """A `WatchableIo` of which each piece of work waits until the test lets it happen.

    :ivar is_stopped: whether it was told that no more comes.
    """

    def __init__(self) -> None:
        self.is_stopped = False
        self._waiting: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """:return: fires in the reactor's thread with what ``work`` returned or raised."""
        assert not self.is_stopped
        result: Deferred[T] = Deferred()
        self._waiting.append((work, result))
        return result

    @property
    def is_free(self) -> bool:
        """Nothing is done before the test lets it."""
        return False

    def call(self, work: Callable[[], T]) -> T:
        """Do work in this thread, however long it takes. Only while this is free."""
        raise AssertionError("there was to be none, since this is not free")

    def stop(self) -> None:
        """End when all that was given is done."""
        self.is_stopped = True

    def watch(self, look: Callable[[], None], failed: Callable[[Failure], None]) -> None:
        """No work is ever done in the thread that gave it."""

    def step(self) -> None:
        """Do the oldest work and tell its outcome."""
        work, result = self._waiting.popleft()
        execute_now(work).addBoth(result.callback)

    def forget(self) -> None:
        """The process that asked is gone."""
        self._waiting.clear()
        self.is_stopped = False


def finish(server: MemoryServer, io: HeldIo) -> None:
    """Let the disk do all that there is."""
    server.advance()
    while io:
        io.step()
        server.advance()
