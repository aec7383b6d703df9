"""A stream is read in order over what has expired, and what was purged is not taken for it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.replication.stream.interface import Message
from beanstalk_twisted.replication.stream.messages import MAX_IN_FLIGHT, Gaps
from beanstalk_twisted.replication.stream_reading import Behind, StreamReader
from tests.replication.stream.memory import READ_MESSAGES, Fate, MemoryLog, MemoryStream
from tests.replication.world import Process

T = TypeVar("T")


class Bench:
    """A stream of numbers, and who reads it."""

    def __init__(self, count: int) -> None:
        self.log = MemoryLog()
        for at in range(count):
            self.log.append(b"%d" % (at + 1), at)
        self.reactor = Process()
        self.stream = MemoryStream(self.log, self.reactor)
        self.reader = StreamReader(self.stream, self.ask)

    async def ask(self, ask: Callable[[], Future[T]]) -> T:
        answer: Deferred[T] = Deferred()
        ask().add_done_callback(
            lambda asked: self.reactor.callFromThread(lambda: answer.callback(asked.result()))
        )
        return await answer

    def done(self, work: Coroutine[Deferred[Any], Any, T]) -> T:
        outcomes: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(outcomes.append)
        self.reactor.pass_s(1.0)
        [outcome] = outcomes
        if isinstance(outcome, Failure):
            outcome.raiseException()
        found: T = outcome
        return found

    async def all_from(self, position: int) -> list[int]:
        found = list[int]()
        async for message in self.reader.all_from(position):
            assert message.payload == b"%d" % message.position
            found.append(message.position)
        return found


@pytest.mark.parametrize(
    "gone", [set(), {1}, {2, 3}, {10}, set(range(2, 10)), set(range(3, 2 * READ_MESSAGES + 7))]
)
def test_all_that_is_left_is_read_once_in_order(gone: set[int]) -> None:
    count = 10 if max(gone, default=0) <= 10 else 3 * READ_MESSAGES
    bench = Bench(count)
    for position in gone:
        bench.log.expire(position)
    ends = bench.done(bench.reader.begin())
    left = [at for at in range(1, count + 1) if at not in gone]
    assert bench.done(bench.all_from(ends.first)) == left
    bench.log.append(b"later", count)
    assert bench.done(bench.all_from(ends.first)) == left
    for at in range(ends.first, count + 1):
        behind = [each for each in left if each >= at]
        found = bench.done(bench.reader.first_from(at))
        assert found == (Message(behind[0], b"%d" % behind[0]) if behind else None)


def test_the_stream_is_asked_once_a_batch_whether_what_is_missing_was_purged() -> None:
    bench = Bench(4 * READ_MESSAGES)
    for position in range(2, 4 * READ_MESSAGES, 2):
        bench.log.expire(position)
    bench.done(bench.reader.begin())
    asked: list[str] = []

    def note(kind: str) -> Fate:
        asked.append(kind)
        return Fate()

    bench.stream.fate = note
    assert len(bench.done(bench.all_from(1))) == 2 * READ_MESSAGES + 1
    assert asked.count("ends") <= asked.count("read") <= 4


def test_what_was_purged_meanwhile_is_not_taken_for_expired() -> None:
    bench = Bench(9)
    bench.log.expire(4)
    bench.done(bench.reader.begin())
    bench.log.purge(4)
    with pytest.raises(Behind, match="below 5 were purged"):
        bench.done(bench.reader.first_from(3))
    found = bench.done(bench.reader.first_from(5))
    assert found is not None and found.position == 5
    bench.log.purge(10)
    with pytest.raises(Behind, match="below 10"):
        bench.done(bench.all_from(5))


def test_a_gap_is_open_until_a_write_goes_on() -> None:
    gaps = Gaps()
    gaps.told_of(9, 8)
    for before, position, since in ((3, 4, None), (4, 7, 4), (7, 9, 4)):
        gaps.step(before, position)
        assert (gaps.since, gaps.is_torn) == (since, False)
    gaps.told_of(8, 8)
    assert not gaps.is_torn
    gaps.passed_over()
    gaps.step(9, 9 + MAX_IN_FLIGHT)
    gaps.told_of(9, 8)
    assert not gaps.is_torn
    gaps.step(9 + MAX_IN_FLIGHT, 10 + MAX_IN_FLIGHT)
    gaps.told_of(9, 8)
    gaps.told_of(8, 8)
    assert gaps.is_torn
    gaps.went_on()
    assert (gaps.since, gaps.is_torn) == (None, False)


def test_what_was_acknowledged_and_did_not_come_needs_no_gap_to_be_missed() -> None:
    gaps = Gaps()
    gaps.step(3, 4)
    gaps.passed_over()
    gaps.acknowledged(8, 8)
    assert not gaps.is_torn
    for at in (5, 6):
        gaps.step(at - 1, at)
        gaps.acknowledged(9, 8)
    found = [(gaps.since, gaps.is_torn)]
    gaps.went_on()
    found.append((gaps.since, gaps.is_torn))
    assert found == [(5, True), (None, False)]
