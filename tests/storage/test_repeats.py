"""What comes again and again is told once a minute."""

from __future__ import annotations

from twisted.internet.task import Clock

from beanstalk_twisted.storage.repeats import TELL_S, Repeats, Trouble, times


def test_the_first_is_told_at_once_and_then_how_many_once_a_minute() -> None:
    clock, told = Clock(), list[tuple[int, str]]()
    repeats: Repeats[str] = Repeats(clock, lambda *news: told.append(news))
    assert repeats.note("a")
    assert [repeats.note(each) for each in "bcd"] == [False] * 3
    assert told == [(1, "a")]
    clock.advance(TELL_S - 0.001)
    assert told == [(1, "a")]
    clock.advance(0.001)
    assert told == [(1, "a"), (3, "d")]
    clock.advance(TELL_S)
    assert len(told) == 2 and clock.getDelayedCalls() == []
    assert repeats.note("e")
    assert told[2:] == [(1, "e")]
    repeats.stop()


def test_of_several_the_worst_is_told_if_that_is_wanted() -> None:
    clock, told = Clock(), list[tuple[int, int]]()
    repeats: Repeats[int] = Repeats(clock, lambda *news: told.append(news), max)
    for each in (1, 5, 9, 7):
        repeats.note(each)
    clock.advance(TELL_S)
    repeats.note(2)
    clock.advance(TELL_S)
    assert told == [(1, 1), (3, 9), (1, 2)]
    clock.advance(TELL_S)
    assert clock.getDelayedCalls() == []


def test_a_stop_tells_the_rest_and_leaves_no_timer() -> None:
    clock, told = Clock(), list[tuple[int, str]]()
    repeats: Repeats[str] = Repeats(clock, lambda *news: told.append(news))
    repeats.stop()
    for each in "abc":
        repeats.note(each)
    repeats.stop()
    repeats.stop()
    assert told == [(1, "a"), (2, "c")] and clock.getDelayedCalls() == []


def test_what_a_line_ends_with_says_of_how_many_it_is_one() -> None:
    assert times(1) == ""
    assert times(2) == "; the newest of 2 since the last such line"
    assert times(3, "slowest") == "; the slowest of 3 since the last such line"


def test_trouble_is_told_when_it_begins_and_when_it_is_over_for_a_minute() -> None:
    clock, told = Clock(), list[object]()
    trouble = Trouble(clock, lambda: told.append("begun"), told.append)
    for _ in range(3):
        trouble.changed(True)
        clock.advance(5)
        trouble.changed(False)
        clock.advance(TELL_S - 0.001)
    trouble.changed(True)
    assert told == ["begun"]
    clock.advance(10 * TELL_S)
    assert told == ["begun"]
    trouble.changed(False)
    clock.advance(TELL_S)
    assert told == ["begun", 4] and clock.getDelayedCalls() == []
    trouble.changed(True)
    assert told == ["begun", 4, "begun"]


def test_trouble_that_is_stopped_leaves_no_timer() -> None:
    clock = Clock()
    trouble = Trouble(clock, lambda: None, lambda count: None)
    trouble.changed(True)
    trouble.changed(False)
    trouble.stop()
    trouble.stop()
    assert clock.getDelayedCalls() == []
