"""What the log of a replicated server says, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.replicated_state import (
    NEWS_S,
    PROGRESS_S,
    SEE_NATS,
    ReplicationLog,
)
from beanstalk_twisted.replication.reception import FOLLOWS, StandbyFigures
from beanstalk_twisted.replication.stream.messages import Foreign


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
