"""Where blocking work is done, so that the reactor's thread does not wait for a disk."""

import signal
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Protocol, TypeVar

from twisted.internet.defer import Deferred, execute
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.storage.fail_stop import BALLAST

T = TypeVar("T")

LOOK_S: Final = 1.0
"""How often an idle thread looks at work of the reactor's: a second is nothing to a hang."""


class Timer(Protocol):
    """What is needed of an IDelayedCall, where this is compiled: zope's interfaces are no types to
    the compiler.
    """

    def active(self) -> bool: ...

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What is needed of an IReactorTime."""

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object
    ) -> IDelayedCall: ...


class Reactor(Clock, Protocol):
    """What is needed of a reactor."""

    def seconds(self) -> float: ...

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None: ...


class Io(Protocol):
    """Runs blocking work, one piece after the other."""

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        """:return: fires in the reactor's thread with what ``work`` returned or raised."""

    @property
    def is_free(self) -> bool:
        """Whether no work is under way, so that there may be a `call`."""

    def call(self, work: Callable[[], T]) -> T:
        """Do work in this thread, however long it takes; only while this is free.  A plain call:
        Deferreds would take a tenth of the command.
        """

    def stop(self) -> None:
        """End when all that was given is done."""


class WatchableIo(Io, Protocol):
    """One that can be watched also while it keeps the reactor's thread."""

    def watch(self, look: Callable[[], None], fail_stop: Callable[[Failure], None]) -> None:
        """:param look: called about once a second, in another thread, while the reactor does work
            itself.
        :param fail_stop: called, in whatever thread, when an outcome cannot be reported.
        """


class IoThread(WatchableIo):
    """A `WatchableIo` of one thread.  Should work hang that is done in the reactor's thread, the
    reactor hangs with it; so meanwhile this thread looks once a second.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._under_way = 0
        self._look: Callable[[], None] = lambda: None
        self.fail_stop: Callable[[Failure], None] = Failure.raiseException
        self._is_here = self._is_looking = False
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a hung disk must not keep the process from ending.
        self._thread = Thread(target=self._main, name="binlog", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        result: Deferred[T] = Deferred()
        self._under_way += 1
        self._work.put(partial(self._run, work, result))
        return result

    @property
    def is_free(self) -> bool:
        return not self._under_way

    def call(self, work: Callable[[], T]) -> T:
        self._is_here = True
        if not self._is_looking:
            self._work.put(self._begin_looks)
        try:
            return work()
        finally:
            self._is_here = False

    def watch(self, look: Callable[[], None], fail_stop: Callable[[Failure], None]) -> None:
        self._look, self.fail_stop = look, fail_stop

    def stop(self) -> None:
        self._work.put(None)

    def _main(self) -> None:
        """Report what ends the thread; what work raises is its outcome."""
        # Signals are the main thread's, which has to see a stop before what comes after it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while (work := self._next()) is not None:
                work()
        except BaseException:
            BALLAST.release()
            self.fail_stop(Failure())

    def _next(self) -> Callable[[], None] | None:
        """Wait for work, or for the next look.  When that finds no work in the reactor's thread it
        is the last one.

        None begins unseen, since `_is_looking` is set in this thread only, and the other one says
        that it is at work before it reads that.  If it reads False, `_begin_looks` is in the queue,
        and comes after what is done here.  If it reads True, that was before the first line below,
        so the second finds it at work; or it was after both, and the looks go on anyway.
        """
        try:
            return self._work.get(timeout=LOOK_S if self._is_looking else None)
        except Empty:
            self._is_looking = False
            self._is_looking = self._is_here
            return self._look

    def _begin_looks(self) -> None:
        self._is_looking = True

    def _run(self, work: Callable[[], T], result: "Deferred[T]") -> None:
        try:
            value = work()
        except BaseException:
            self._reactor.callFromThread(self._end, result.errback, Failure())
        else:
            self._reactor.callFromThread(self._end, result.callback, value)

    def _end(self, tell: Callable[[T], None], outcome: T) -> None:
        self._under_way -= 1
        tell(outcome)


class InlineIo(WatchableIo):
    """A `WatchableIo` that does the work at once, for tests without threads."""

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        return execute(work)

    @property
    def is_free(self) -> bool:
        return True

    def call(self, work: Callable[[], T]) -> T:
        return work()

    def stop(self) -> None:
        pass

    def watch(self, look: Callable[[], None], fail_stop: Callable[[Failure], None]) -> None:
        pass
