"""
Where blocking work is done, so that the reactor's thread does not wait for a disk.

A write without a sync goes to the kernel's memory: it takes 10 µs, and to have another thread do it
takes 60 more.  So such *brief* work is done at once, as long as it is brief: when the disk cannot
keep up the kernel lets writers wait, and then the thread has the work for a while.  Should it hang,
the reactor hangs with it; so meanwhile the thread looks once a second, whoever wants to be told.

Round trips on one connection with a log and no fsync, processor time a command, as a ratio to
beanstalkd's (unoptimised CPython 3.11): 5.1 instead of 7.3.  On 50 connections, where one write
serves many commands, it makes no difference.
"""

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Protocol, TypeVar

from twisted.internet.defer import Deferred, execute
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

T = TypeVar("T")

BRIEF_S: Final = 0.002
"""Brief work that took longer has waited for a disk: 2 ms are half of what a turn may take."""

WARY_S: Final = 1.0
"""For so long the thread then has all of it: a disk that is behind may be so for many seconds."""

LOOK_S: Final = 1.0
"""How often a thread that has nothing to do looks at brief work: a second is nothing to a hang."""


class Clock(Protocol):
    """
    What is needed of an IReactorTime.
    """

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object
    ) -> IDelayedCall:
        """
        See `IReactorTime.callLater`.
        """


class Reactor(Clock, Protocol):
    """
    What is needed of a reactor.
    """

    def seconds(self) -> float:
        """
        See `IReactorTime.seconds`.
        """

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        """
        See `IReactorFromThreads.callFromThread`.
        """


class Io(Protocol):
    """
    Runs blocking work, one piece after the other.
    """

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        """
        :return: fires in the reactor's thread with what ``work`` returned or raised.
        """

    def run_brief(self, work: Callable[[], T]) -> "Deferred[T]":
        """
        As `run`; as a rule this work does not block, so it may be done before this returns.
        """

    def stop(self) -> None:
        """
        End when all that was given is done.
        """


class WatchableIo(Io, Protocol):
    """
    One that can be watched also while it keeps the reactor's thread.
    """

    def watch(self, look: Callable[[], None]) -> None:
        """
        Let ``look`` be called about once a second, in another thread, while the reactor's thread
        does brief work.
        """


class IoThread:
    """
    A `WatchableIo` of one thread.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._under_way = 0
        self._look: Callable[[], None] = _nothing
        self._is_brief = self._is_looking = False
        self._wary_until_s = reactor.seconds()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a hung disk must not keep the process from ending.
        self._thread = Thread(target=self._main, name="binlog", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        """
        See `Io.run`.
        """
        result: Deferred[T] = Deferred()
        self._under_way += 1
        self._work.put(partial(self._run, work, result))
        return result

    def run_brief(self, work: Callable[[], T]) -> "Deferred[T]":
        """
        See `Io.run_brief`.
        """
        began_s = self._reactor.seconds()
        if self._under_way or began_s < self._wary_until_s:
            return self.run(work)
        self._is_brief = True
        if not self._is_looking:
            self._is_looking = True
            self._work.put(_nothing)
        result = execute(work)
        self._is_brief = False
        ended_s = self._reactor.seconds()
        if ended_s - began_s > BRIEF_S:
            self._wary_until_s = ended_s + WARY_S
        return result

    def watch(self, look: Callable[[], None]) -> None:
        """
        See `WatchableIo.watch`.
        """
        self._look = look

    def stop(self) -> None:
        """
        See `Io.stop`.
        """
        self._work.put(None)

    def _main(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        """
        Wait for work, or for the next look.  When that finds no brief work it is the last one; the
        order here lets none begin unseen.
        """
        try:
            return self._work.get(timeout=LOOK_S if self._is_looking else None)
        except Empty:
            self._is_looking = False
            self._is_looking = self._is_brief
            return self._look

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


def _nothing() -> None:
    pass


class InlineIo:
    """
    A `WatchableIo` that does the work at once, for tests without threads.
    """

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        """
        See `Io.run`.
        """
        return execute(work)

    def run_brief(self, work: Callable[[], T]) -> "Deferred[T]":
        """
        See `Io.run_brief`.
        """
        return execute(work)

    def stop(self) -> None:
        """
        Nothing runs.
        """

    def watch(self, look: Callable[[], None]) -> None:
        """
        There is no other thread to look.
        """
