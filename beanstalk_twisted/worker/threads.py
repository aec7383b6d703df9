"""Where functions run that block."""

from collections.abc import Callable
from threading import Thread
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, execute
from twisted.python.threadpool import ThreadPool

T = TypeVar("T")


class Threads(Protocol):
    """Runs what blocks."""

    def start(self) -> None:
        """Work will come."""

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """Run it.

        :return: its outcome, in the reactor's thread.
        """

    def stop(self) -> None:
        """No more work will come."""


class _DaemonPool(ThreadPool):
    """Threads that do not keep the process alive: one that hangs must not."""

    @staticmethod
    def threadFactory(*args: Any, **options: Any) -> Thread:  # type: ignore[override]
        """Make a thread that does not keep the process alive."""
        return Thread(*args, **options, daemon=True)


class PoolThreads(Threads):
    """Real threads, as many as there is work for at once."""

    def __init__(self, reactor: Any, most: int) -> None:
        self._reactor = reactor
        self._most = most
        self._running = 0
        self._pool: ThreadPool | None = None

    def start(self) -> None:
        self._pool = _DaemonPool(0, self._most, "beanstalk-worker")
        self._pool.start()

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        assert self._pool is not None
        self._running += 1
        outcome: Deferred[T] = Deferred()

        def ended(is_good: bool, result: Any) -> None:
            self._reactor.callFromThread(self._ended, outcome, is_good, result)

        self._pool.callInThreadWithCallback(ended, work)
        return outcome

    def _ended(self, outcome: Deferred[T], is_good: bool, result: Any) -> None:
        # No callback of `outcome`: that would wait for a Deferred which the work has given, and
        # nobody could cancel it.
        self._running -= 1
        (outcome.callback if is_good else outcome.errback)(result)

    def stop(self) -> None:
        """End the threads.  A thread that still works is left behind: to wait for it would
        block.
        """
        if self._pool is not None and not self._running:
            self._pool.stop()
        self._pool = None


class InlineThreads(Threads):
    """None: the work is done at once, in the thread that asks for it.  For tests."""

    def start(self) -> None:
        pass

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        done: Deferred[T] = execute(work)
        return done

    def stop(self) -> None:
        pass
