"""What the log of a replicated server says, and how often; how it looks at the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.replicated_state import (
    LOOK_S,
    NEWS_S,
    PROGRESS_S,
    SEE_NATS,
    ReplicationLog,
    StreamWatch,
)
from beanstalk_twisted.replication.receiving import FOLLOWS, StandbyFigures
from beanstalk_twisted.replication.stream.messages import Foreign
from tests.replication.stream.memory import MemoryLog, MemoryStream
from tests.replication.world import Process


class Said:
    """A log, and what it has said."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.log = ReplicationLog("a", 3.0, self.clock.seconds)
        self._lines: list[str] = []

    @contextmanager
    def _heard(self) -> Iterator[None]:
        with capturedLogs() as events:
            yield
        self._lines = [formatEvent(each) for each in events]

    def does(self, doing: str, trouble: str = "", active: str = "b", lsn: int = 7) -> list[str]:
        """What is said when a standby does this."""
        is_in_sync = doing == FOLLOWS
        figures = StandbyFigures(doing, active, 1, lsn, 0, 0, 0.0, is_in_sync, trouble)
        with self._heard():
            self.log.standby_does(figures, 5)
        return self._lines

    def passed(self, foreign: Foreign) -> list[str]:
        """What is said when these were passed over."""
        with self._heard():
            self.log.foreign_passed("nats://h/q", foreign)
        return self._lines

    def stream_is(self, why: str, trouble: str = "") -> list[str]:
        """What is said when changes are refused for this, or are not."""
        with self._heard():
            self.log.stream_is(why, trouble)
        return self._lines


def test_how_far_a_standby_is_is_said_every_10_s() -> None:
    said = Said()
    assert said.does("reads: 1 of 9") == ["standby: reads: 1 of 9"]
    said.clock.advance(PROGRESS_S - 1)
    assert said.does("reads: 2 of 9") == []
    said.clock.advance(1)
    assert said.does("reads: 3 of 9") == ["standby: reads: 3 of 9"]
    assert said.does(FOLLOWS) == ["in sync: follows b, 5 jobs loaded"]
    assert said.does(FOLLOWS) == []


def test_why_a_standby_waits_is_said_when_it_is_known_and_then_once_a_minute() -> None:
    said = Said()
    assert said.does("hears nothing") == ["standby: hears nothing"]
    assert said.does("hears nothing", "it is full") == ["standby: hears nothing (it is full)"]
    said.clock.advance(NEWS_S - 1)
    assert said.does("hears nothing", "no answer") == []
    said.clock.advance(1)
    assert said.does("hears nothing", "no answer") == ["standby: hears nothing (no answer)"]


def test_a_standby_says_who_is_active_when_that_is_another_one() -> None:
    said = Said()
    said.does(FOLLOWS, active="")
    assert said.does(FOLLOWS, active="b") == []
    assert said.does(FOLLOWS, active="") == []
    line = "c is active now, b was before; all up to LSN 9 is here"
    assert said.does(FOLLOWS, active="c", lsn=9) == [line]
    assert said.does(FOLLOWS, active="c") == []


def test_a_server_that_was_active_says_who_is_now() -> None:
    said = Said()
    said.log.is_active("nats://h/q", "b was silent")
    said.log.begins_term()
    assert "b is active now, a was before; all up to LSN 7 is here" in said.does(FOLLOWS)


def test_that_the_stream_takes_nothing_is_said_with_the_reason_as_soon_as_it_is_known() -> None:
    said = Said()
    assert said.stream_is("") == []
    assert said.stream_is("it takes nothing for 1 s") == [f"it takes nothing for 1 s.{SEE_NATS}"]
    assert said.stream_is("it takes nothing for 2 s") == []
    assert said.stream_is("it takes nothing: it is full", "it is full") == [
        "it takes nothing: it is full."
    ]
    said.clock.advance(NEWS_S - 1)
    assert said.stream_is("it takes nothing: no answer", "no answer") == []
    said.clock.advance(1)
    assert said.stream_is("it takes nothing: no answer", "no answer") == [
        "it takes nothing: no answer."
    ]
    assert said.stream_is("") == ["the stream answers again: changes are taken"]
    assert said.stream_is("") == []


def test_what_a_term_that_has_ended_said_of_the_stream_is_no_more_true() -> None:
    said = Said()
    said.stream_is("it takes nothing")
    said.log.is_active("nats://h/q", "b was silent")
    assert said.stream_is("") == []


def test_somebody_else_who_writes_is_told_with_a_count_once_a_minute() -> None:
    said, foreign = Said(), Foreign()
    assert said.passed(foreign) == []
    for position in (7, 8, 8, 7):
        foreign.note(position, "it is short")
    [line] = said.passed(foreign)
    assert line.startswith(
        "nats://h/q: 2 messages, up to 8, are of no server of a queue (it is short): somebody "
    )
    assert line.endswith("publish to q.log to the servers of the queue alone")
    foreign.note(9, "it is short")
    said.clock.advance(NEWS_S - 1)
    assert said.passed(foreign) == []
    said.clock.advance(1)
    assert said.passed(foreign)[0].startswith("nats://h/q: 1 messages, up to 9, are")
    said.clock.advance(NEWS_S)
    assert said.passed(foreign) == []


def test_another_term_counts_foreign_messages_anew() -> None:
    said, foreign = Said(), Foreign()
    foreign.note(7, "it is short")
    assert said.passed(foreign)
    said.log.begins_term()
    said.clock.advance(NEWS_S)
    again = Foreign()
    again.note(12, "it is short")
    assert said.passed(again)


COPIES, DROPS = "nats://h/q: 1 of 3 copies", "nats://h/q: drops what is old"


class Watched:
    """A stream that was opened."""

    def __init__(self, *warnings: str) -> None:
        self.log = MemoryLog()
        self.log.warnings = list(warnings)
        self.reactor = Process()
        self.stream = MemoryStream(self.log, self.reactor)
        self.knows_to = self.start = 0
        self.settings = StreamWatch(
            self.stream, self.reactor, lambda: (self.knows_to, self.start)
        )  # fmt: skip

    def said(self, seconds: float) -> list[str]:
        with capturedLogs() as events:
            self.reactor.pass_s(seconds)
        return [formatEvent(each) for each in events]


def test_what_is_changed_is_said_once_and_that_it_was_undone() -> None:
    watched = Watched(COPIES)
    with capturedLogs() as events:
        watched.settings.opened([COPIES])
    assert [formatEvent(each) for each in events] == [COPIES]
    assert watched.said(2 * LOOK_S) == [] and not watched.settings.problems
    watched.log.warnings.append(DROPS)
    assert watched.said(3 * LOOK_S) == [DROPS]
    assert watched.settings.problems == (DROPS,)
    watched.log.warnings.remove(DROPS)
    [again] = watched.said(2 * LOOK_S)
    assert again.endswith("its settings are again what they were when it was opened")
    assert not watched.settings.problems
    watched.settings.stop()


def test_a_stream_that_does_not_answer_is_looked_at_again() -> None:
    watched = Watched()
    watched.settings.opened([])
    watched.stream.cut()
    watched.log.warnings.append(DROPS)
    assert watched.said(3 * LOOK_S) == []
    watched.stream.mend()
    assert watched.said(3 * LOOK_S) == [DROPS]
    watched.settings.stop()


def test_nothing_is_looked_at_after_the_stop() -> None:
    watched = Watched()
    watched.settings.opened([])
    watched.reactor.pass_s(LOOK_S)
    watched.settings.stop()
    watched.log.warnings.append(DROPS)
    assert watched.said(3 * LOOK_S) == []
    assert not watched.reactor.getDelayedCalls()


def purged(first: int = 7) -> Watched:
    """A stream of 9 messages, of which those are left from a position on."""
    watched = Watched()
    for position in range(9):
        watched.log.append(b"%d" % position, position)
    watched.log.purge(first)
    watched.knows_to = 9
    watched.settings.opened([])
    return watched


@pytest.mark.parametrize("first", [7, 10])
def test_messages_that_are_missing_of_what_is_in_use_are_told_once(first: int) -> None:
    watched = purged(first)
    watched.start = first - 1
    assert watched.said(LOOK_S - 1) == []
    [line] = watched.said(LOOK_S)
    assert f"that begins at message {first - 1}, and what is left at {first}" in line
    assert "'nats stream purge log'" in line and watched.settings.problems == (line,)
    assert watched.said(3 * LOOK_S) == [] and watched.settings.problems == (line,)
    watched.start = 0
    assert watched.said(LOOK_S) == [] and watched.settings.problems == (line,)
    watched.start = first
    [again] = watched.said(2 * LOOK_S)
    assert again.endswith("it has all of the log that is in use again")
    assert not watched.settings.problems
    watched.settings.stop()


def test_what_is_purged_up_to_what_is_in_use_is_not_missing() -> None:
    watched = purged(7)
    watched.start = 7
    assert watched.said(5 * LOOK_S) == [] and not watched.settings.problems
    watched.settings.stop()


def test_who_does_not_know_yet_what_is_dead_does_not_say_that_it_is_missing() -> None:
    watched = purged(7)
    watched.start, watched.knows_to = 1, 8
    assert watched.said(5 * LOOK_S) == [] and not watched.settings.problems
    watched.start, watched.knows_to = 7, 9
    assert watched.said(5 * LOOK_S) == [] and not watched.settings.problems
    watched.settings.stop()
