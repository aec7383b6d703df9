"""What runs the blocking work: in order, in another thread, or at once while that is quick."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.storage.io_thread import (
    BRIEF_S,
    LOOK_S,
    WARY_S,
    WATCHFUL_S,
    InlineIo,
    IoThread,
    count_waits,
)
from tests.conftest import the_reactor


def failed(failure: Failure) -> None:
    failure.raiseException()


def outcome(fired: Deferred[int]) -> object:
    results: list[object] = []
    fired.addBoth(results.append)
    return results[0]


def test_inline_io_works_at_once_and_passes_on_what_was_raised() -> None:
    for run in InlineIo().run, InlineIo().run_brief:
        assert outcome(run(lambda: 5)) == 5
        assert isinstance(outcome(run(lambda: 1 // 0)), Failure)
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
    """A thread, its reactor, and where work was done."""

    def __init__(self) -> None:
        self.reactor = SteppedReactor()
        self.io = IoThread(self.reactor, self.count)
        self.threads: list[str] = []
        self.questions = self._waits = 0

    def count(self) -> int:
        """How often it has waited; that somebody wants to know is counted too."""
        self.questions += 1
        return self._waits

    def work(self, seconds: float = 0.0, waits: int = 0) -> None:
        self.threads.append(threading.current_thread().name)
        self._waits += waits
        self.reactor.advance(seconds)


def test_brief_work_waits_for_the_work_that_was_given_before_it() -> None:
    bench = Bench()
    may_go_on = threading.Event()
    bench.io.run(lambda: may_go_on.wait(10))
    done = bench.io.run_brief(bench.work)
    assert not done.called
    may_go_on.set()
    bench.reactor.turn()
    bench.reactor.turn()
    assert done.called and bench.threads == ["binlog"]
    bench.io.run_brief(bench.work)
    assert bench.threads[1:] == [threading.current_thread().name]
    bench.io.stop()


def test_work_that_failed_in_the_thread_is_over_too() -> None:
    bench = Bench()
    failed = bench.io.run(lambda: 1 // 0)
    bench.reactor.turn()
    assert isinstance(outcome(failed), Failure)
    assert bench.io.run_brief(bench.work).called
    bench.io.stop()


@pytest.mark.parametrize(("seconds", "is_slow"), [(BRIEF_S, False), (BRIEF_S * 1.01, True)])
def test_after_two_that_waited_for_long_brief_work_goes_to_the_thread(
    seconds: float, is_slow: bool
) -> None:
    bench = Bench()
    for _ in range(2):
        assert bench.io.run_brief(partial(bench.work, seconds, waits=1)).called
    assert bench.io.run_brief(bench.work).called is not is_slow
    bench.io.stop()


def test_work_that_took_long_because_others_had_the_processor_is_done_here_all_the_same() -> None:
    bench = Bench()
    for _ in range(5):
        assert bench.io.run_brief(partial(bench.work, 10 * BRIEF_S)).called
    bench.io.stop()


def test_who_has_waited_is_asked_only_for_a_while_after_work_that_took_long() -> None:
    bench = Bench()
    bench.io.run_brief(bench.work)
    assert bench.questions == 0
    bench.io.run_brief(partial(bench.work, 2 * BRIEF_S, waits=1))
    bench.io.run_brief(bench.work)
    assert bench.questions == 1
    bench.reactor.advance(WATCHFUL_S)
    bench.io.run_brief(partial(bench.work, 2 * BRIEF_S, waits=1))
    assert (bench.questions, bench.threads[1:]) == (1, bench.threads[:1] * 3)
    bench.io.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_sleep_is_a_wait_and_work_is_none() -> None:
    before = count_waits()
    for _ in range(20):
        time.sleep(0.001)  # One that ends before the thread has left its core is none.
    assert count_waits() > before
    # Anything may stop this thread now and then, but not each time.
    quiet = 0
    for _ in range(100):
        before = count_waits()
        sum(range(1000))
        quiet += count_waits() == before
    assert quiet


def test_a_call_is_work_done_here_however_slow_others_were() -> None:
    bench = Bench()
    for _ in range(5):
        bench.io.call(partial(bench.work, 10 * BRIEF_S, waits=1))
    assert bench.threads == [threading.current_thread().name] * 5
    with pytest.raises(ZeroDivisionError):
        bench.io.call(lambda: 1 // 0)
    assert bench.questions == 0
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
@pytest.mark.parametrize("way", ["run_brief", "call"])
def test_while_work_hangs_here_the_thread_looks_again_and_again(way: str) -> None:
    bench = Bench()
    looks: list[str] = []
    third = threading.Event()

    def look() -> None:
        looks.append(threading.current_thread().name)
        if len(looks) == 3:
            third.set()

    bench.io.watch(look, failed)
    getattr(bench.io, way)(lambda: third.wait(20))
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
def test_where_there_is_no_brief_work_the_looks_end() -> None:
    bench = Bench()
    looked = threading.Semaphore(0)
    bench.io.watch(looked.release, failed)
    for _ in range(2):
        bench.io.run_brief(bench.work)
        assert looked.acquire(timeout=20)
    assert not looked.acquire(timeout=2 * LOOK_S)
    bench.io.stop()


def test_after_a_while_brief_work_is_tried_here_again() -> None:
    bench = Bench()
    for _ in range(2):
        bench.io.run_brief(partial(bench.work, 2 * BRIEF_S, waits=1))
    bench.reactor.advance(WARY_S * 0.99)
    bench.io.run_brief(bench.work)
    bench.reactor.turn()
    assert bench.threads[2:] == ["binlog"]
    bench.reactor.advance(WARY_S * 0.02)
    assert bench.io.run_brief(bench.work).called
    bench.io.stop()
