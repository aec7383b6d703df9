"""What runs the blocking work: in order, in another thread, or at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.storage.io_thread import (
    LOOK_S,
    InlineIo,
    IoThread,
)
from tests.conftest import the_reactor


def failed(failure: Failure) -> None:
    failure.raiseException()


def outcome(fired: Deferred[int]) -> object:
    results: list[object] = []
    fired.addBoth(results.append)
    return results[0]


def test_inline_io_works_at_once_and_passes_on_what_was_raised() -> None:
    assert outcome(InlineIo().run(lambda: 5)) == 5
    assert isinstance(outcome(InlineIo().run(lambda: 1 // 0)), Failure)
    assert InlineIo().is_free and InlineIo().call(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        InlineIo().call(lambda: 1 // 0)


class DeafReactor:
    """A reactor that cannot be told anything any more."""

    def seconds(self) -> float:
        return 0.0

    def callLater(self, delay: float, callable: Callable[..., object], *args: object) -> Any:
        """Nothing is called."""

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        raise MemoryError


@pytest.mark.parametrize("work", [lambda: 5, lambda: 1 // 0])
def test_a_thread_that_cannot_tell_an_outcome_does_not_end_unheard(
    work: Callable[[], int],
) -> None:
    io, heard = IoThread(DeafReactor()), threading.Event()
    failures: list[Failure] = []

    def fail(failure: Failure) -> None:
        failures.append(failure)
        heard.set()

    io.watch(lambda: None, fail)
    io.run(work)
    assert heard.wait(20)
    assert [failure.type for failure in failures] == [MemoryError]


async def test_the_io_thread_works_in_order_in_another_thread() -> None:
    io = IoThread(the_reactor())
    order: list[int] = []
    names: list[Deferred[str]] = []
    for number in range(100):
        io.run(partial(order.append, number))
        names.append(io.run(lambda: threading.current_thread().name))
    assert await names[-1] == "binlog"
    assert order == list(range(100))
    io.stop()


async def test_the_io_thread_ends_when_all_that_it_was_given_is_done() -> None:
    io = IoThread(the_reactor())
    thread = io.run(threading.current_thread)
    done = io.run(lambda: None)
    io.stop()
    await done
    (await thread).join(timeout=10)
    assert not (await thread).is_alive()


class SteppedReactor(Clock):
    """A reactor whose time stands still, and whose thread is the test's.

    :ivar from_thread: what the other thread wants to have called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.from_thread: list[Callable[[], object]] = []
        self._has_come = threading.Semaphore(0)

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        self.from_thread.append(partial(callable, *args))
        self._has_come.release()

    def turn(self) -> None:
        """Wait for what the other thread wants to have called next, and call it."""
        assert self._has_come.acquire(timeout=10)
        self.from_thread.pop(0)()


class Bench:
    """A thread and its reactor."""

    def __init__(self) -> None:
        self.reactor = SteppedReactor()
        self.io = IoThread(self.reactor)


def test_work_that_failed_in_the_thread_is_over_too() -> None:
    bench = Bench()
    failed = bench.io.run(lambda: 1 // 0)
    bench.reactor.turn()
    assert isinstance(outcome(failed), Failure)
    assert bench.io.is_free
    bench.io.stop()


def test_a_call_is_work_done_here() -> None:
    bench = Bench()
    assert bench.io.call(threading.current_thread) is threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        bench.io.call(lambda: 1 // 0)
    bench.io.stop()


def test_it_is_not_free_for_a_call_before_all_work_that_was_given_has_been_told() -> None:
    bench = Bench()
    may_go_on = threading.Event()
    bench.io.run(lambda: may_go_on.wait(10))
    assert not bench.io.is_free
    may_go_on.set()
    bench.reactor.turn()
    assert bench.io.is_free
    bench.io.stop()


@pytest.mark.exhaustive
def test_while_work_hangs_here_the_thread_looks_again_and_again() -> None:
    bench = Bench()
    looks: list[str] = []
    third = threading.Event()

    def look() -> None:
        looks.append(threading.current_thread().name)
        if len(looks) == 3:
            third.set()

    bench.io.watch(look, failed)
    bench.io.call(lambda: third.wait(20))
    assert third.is_set()
    assert looks[:3] == ["binlog"] * 3
    bench.io.stop()


class PausedAtTheLastLook(IoThread):
    """The thread stops right after it has seen that nobody is at work, until somebody is."""

    def __init__(self, reactor: SteppedReactor) -> None:
        self.has_seen_nobody, self.may_go_on = threading.Event(), threading.Event()
        super().__init__(reactor)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "_is_here" and not found:
            self.has_seen_nobody.set()
            assert self.may_go_on.wait(20)
        return found


def test_work_that_begins_here_in_the_moment_of_the_last_look_is_looked_at_too() -> None:
    io = PausedAtTheLastLook(SteppedReactor())
    looks = threading.Semaphore(0)
    io.watch(looks.release, failed)
    io.call(lambda: None)
    assert io.has_seen_nobody.wait(20)

    def hang() -> bool:
        io.may_go_on.set()
        # The first is the one that was under way.
        return looks.acquire(timeout=20) and looks.acquire(timeout=20)

    assert io.call(hang)
    io.stop()


@pytest.mark.exhaustive
def test_where_there_is_no_work_here_the_looks_end() -> None:
    bench = Bench()
    looked = threading.Semaphore(0)
    bench.io.watch(looked.release, failed)
    for _ in range(2):
        bench.io.call(lambda: None)
        assert looked.acquire(timeout=20)
    assert not looked.acquire(timeout=2 * LOOK_S)
    bench.io.stop()
