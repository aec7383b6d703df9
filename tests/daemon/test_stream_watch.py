"""Settings of a stream that change while it is used."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.replicated_state import LOOK_S, StreamWatch
from tests.replication.simulated import SimulatedReactor
from tests.replication.stream.memory import MemoryLog, MemoryStream

COPIES, DROPS = "nats://h/q: 1 of 3 copies", "nats://h/q: drops what is old"


class Watched:
    """A stream that was opened."""

    def __init__(self, *warnings: str) -> None:
        self.log = MemoryLog()
        self.log.warnings = list(warnings)
        self.reactor = SimulatedReactor()
        self.stream = MemoryStream(self.log, self.reactor)
        self.knows_to = self.start = 0
        self.settings = StreamWatch(
            self.stream, self.reactor, lambda: (self.knows_to, self.start)
        )  # fmt: skip

    def said(self, seconds: float) -> list[str]:
        """What is said in this time."""
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
