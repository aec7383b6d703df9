"""
Settings of a stream that change while it is used.
"""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.terms.stream_watch import LOOK_S, StreamWatch
from beanstalk_twisted.replication.stream.memory import MemoryStream
from beanstalk_twisted.replication.stream.memory_log import MemoryLog
from tests.replication.simulated import SimulatedReactor

COPIES, DROPS = "nats://h/q: 1 of 3 copies", "nats://h/q: drops what is old"


class Watched:
    """
    A stream that was opened.
    """

    def __init__(self, *warnings: str) -> None:
        self.log = MemoryLog()
        self.log.warnings = list(warnings)
        self.reactor = SimulatedReactor()
        self.stream = MemoryStream(self.log, self.reactor)
        self.settings = StreamWatch(self.stream, self.reactor)

    def said(self, seconds: float) -> list[str]:
        """
        What is said in this time.
        """
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
