"""The simulated stream's faults; what it shares with the real one is in test_door.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from beanstalk_twisted.replication.stream.interface import (
    Ends,
    Message,
    StreamError,
    Unreachable,
    WrongPosition,
)
from tests.replication.stream.memory import (
    DELIVERED_TOGETHER,
    TIMEOUT_S,
    Fate,
    MemoryLog,
    MemoryStream,
)
from tests.replication.world import Process


class Case:
    """A log, a client of it, and its clock."""

    def __init__(self) -> None:
        self.clock = Process()
        self.log = MemoryLog()
        self.fates: list[Fate] = []
        self.door = self.another()
        self.door.fate = lambda kind: self.fates.pop(0) if self.fates else Fate()

    def another(self, fate: Callable[[str], Fate] = lambda kind: Fate()) -> MemoryStream:
        return MemoryStream(self.log, self.clock, fate)

    def pass_time(self, seconds: float = 0.0) -> None:
        for _ in range(5):
            self.clock.pass_s(0)
        for _ in range(8):
            self.clock.pass_s(seconds / 8)


@pytest.fixture
def case() -> Case:
    return Case()


def outcome(future: Future[Any]) -> object:
    """The result of a future that is done, or the class of its error."""
    assert future.done()
    error = future.exception(0)
    return future.result(0) if error is None else type(error)


def test_nothing_is_done_inside_of_a_call(case: Case) -> None:
    future = case.door.append(b"a", 0)
    assert not future.done()
    assert case.log.last == 0
    case.pass_time()
    assert outcome(future) == 1


@pytest.mark.parametrize(
    ("fate", "last"),
    [
        (Fate(there=None), 0),
        (Fate(back=None), 1),
        (Fate(back=TIMEOUT_S + 1), 1),
        (Fate(there=TIMEOUT_S + 1), 0),
    ],
    ids=["request lost", "reply lost", "reply late", "request late"],
)
def test_an_append_without_an_answer_in_time_may_have_been_done(
    case: Case, fate: Fate, last: int
) -> None:
    case.fates = [fate]
    future = case.door.append(b"a", 0)
    case.pass_time(TIMEOUT_S)
    assert outcome(future) is Unreachable
    assert case.log.last == last
    case.pass_time(2)
    # It is carried out after its caller gave up.
    assert case.log.messages == ({} if fate.there is None else {1: b"a"})


def test_a_slow_request_holds_up_those_behind_it_unless_they_overtake(case: Case) -> None:
    case.fates = [Fate(there=2), Fate(there=0), Fate(there=1, in_order=False)]
    first, second, third = [
        case.door.append(text, at) for at, text in enumerate((b"a", b"b", b"c"))
    ]
    case.pass_time(1)
    assert outcome(third) is WrongPosition
    case.pass_time(1.5)
    assert (outcome(first), outcome(second)) == (1, 2)


def test_a_follower_behind_a_cut_goes_on_without_a_gap(case: Case) -> None:
    seen: list[Message] = []
    case.door.follow(1, seen.extend, lambda why: None)
    writer = case.another()
    count = DELIVERED_TOGETHER + 1
    for at in range(count):
        writer.append(b"%d" % at, at)
        if at == 2:
            case.pass_time()
            case.door.cut(sending=False)
    case.pass_time(TIMEOUT_S)
    assert [message.position for message in seen] == [1, 2, 3]
    case.door.mend()
    case.pass_time()
    assert [message.position for message in seen] == list(range(1, count + 1))


def test_a_lost_delivery_comes_later_and_a_doubled_one_twice(case: Case) -> None:
    seen: list[int] = []
    case.fates = [Fate(back=None)]
    case.door.follow(1, lambda found: seen.extend(each.position for each in found), print)
    case.another().append(b"a", 0)
    case.pass_time(TIMEOUT_S - 1)
    assert seen == []
    case.pass_time(2)
    assert seen == [1]
    case.fates = [Fate(twice=True)]
    case.another().append(b"b", 1)
    case.pass_time()
    assert seen == [1, 2, 2]


def test_a_follower_is_ended_once(case: Case) -> None:
    seen: list[Message] = []
    ends: list[StreamError] = []
    case.door.follow(1, seen.extend, ends.append)
    why = Unreachable("gone")
    case.door.end_followings(why)
    case.door.end_followings(why)
    case.another().append(b"a", 0)
    case.pass_time()
    assert (seen, ends) == ([], [why])


def test_what_is_told_may_be_lost_on_either_half_of_its_way(case: Case) -> None:
    heard: list[bytes] = []
    other = case.another(lambda kind: Fate(back=None) if kind == "hear" and is_deaf else Fate())
    other.hear(heard.append)
    for is_deaf, fate in [(False, Fate(there=None)), (True, Fate()), (False, Fate())]:
        case.fates = [fate]
        case.door.tell(b"%d" % is_deaf)
        case.pass_time()
    assert heard == [b"0"]


def test_a_client_that_asks_a_former_leader_does_not_see_the_newest(case: Case) -> None:
    for at in range(3):
        case.door.append(b"%d" % at, at)
    case.pass_time()
    case.door.behind = 2
    ends, newest = case.door.ends(), case.door.read(2)
    case.pass_time()
    assert outcome(ends) == Ends(1, 1)
    assert outcome(newest) is None


def test_answers_but_those_to_appends_come_in_the_order_of_the_calls(case: Case) -> None:
    case.fates = [Fate(back=3), Fate(back=1)]
    order: list[str] = []
    case.door.ends().add_done_callback(lambda _: order.append("first"))
    case.door.ends().add_done_callback(lambda _: order.append("second"))
    case.pass_time(10)
    assert order == ["first", "second"]


def test_closing_ends_what_is_under_way_but_not_what_has_left(case: Case) -> None:
    seen: list[Message] = []
    case.door.follow(1, seen.extend, lambda why: None)
    appending = case.door.append(b"a", 0)
    first, second = case.door.ends(), case.door.ends()
    assert outcome(case.door.close()) is None
    assert outcome(appending) is outcome(first) is outcome(second) is Unreachable
    assert outcome(case.door.ends()) is Unreachable
    case.pass_time()
    assert (case.log.last, seen) == (1, [])
