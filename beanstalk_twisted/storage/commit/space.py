"""
The space of a log: how much more is wanted of the disk, and when a full one is tried again.

Nothing is done here.  The committer asks between two batches what file is to be made ready, and
says what has become of it.  When the disk is full the log's `SpaceBudget` is short, which the
queue heeds, and the disk is left alone for a second: one timer, whatever was refused.
"""

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.space_budget import PreallocatedSegment, SpaceBudget
from beanstalk_twisted.storage.environment import CommitEvents
from beanstalk_twisted.storage.io_thread import Clock

SPACE_RETRY_S: Final = 1.0
"""From one try on a full disk to the next: soon for a person, seldom for the disk."""


class Space:
    """
    Sees that a log's room is as large as the queue wants it to be.

    :ivar budget: the log's."""

    def __init__(
        self, budget: SpaceBudget, clock: Clock, events: CommitEvents, again: Callable[[], None]
    ) -> None:
        """:param again: called when a disk that was full is to be tried again."""
        self.budget = budget
        self._events = events
        self._clock = clock
        self._again = again
        self._pause: IDelayedCall | None = None

    def wanted(self) -> PreallocatedSegment | None:
        """A file that is to be made ready now."""
        return None if self._pause is not None else self.budget.wanted(self._events.demand())

    def next(self, is_ending: bool) -> PreallocatedSegment | None:
        """
        As `wanted`, but none if the log is to end.  Without one a disk that was full may be asked
        for something else, and there may be room for who waits for it, since a segment has begun.
        """
        demand = self._events.demand()
        is_asked = self._pause is None and not is_ending
        segment = self.budget.wanted(demand) if is_asked else None
        if segment is None and (demand.waiting or (self.budget.is_short and self._pause is None)):
            self.was_given()
        return segment

    def made(self, segment: PreallocatedSegment) -> None:
        """The file is ready."""
        self.budget.add(segment)
        self.was_given()

    def was_given(self) -> None:
        """
        A disk that was full no longer is when it has given all that is wanted, not before: else
        each segment that compaction frees would be news.
        """
        budget = self.budget
        if not budget.is_short or budget.wanted(self._events.demand()) is None:
            budget.is_short = False
            self._events.space_changed(None)

    def was_refused(self, failure: Failure) -> None:
        """The disk is full: the next try is a second from now, also if another one was planned."""
        self.budget.is_short = True
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self._clock.callLater(SPACE_RETRY_S, self._end_pause)
        self._events.space_changed(failure)

    def try_now(self) -> None:
        """There may be space again: do not wait for the next try."""
        if self._pause is not None:
            self._pause.cancel()
            self._end_pause()

    def stop(self) -> None:
        """Try nothing any more."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _end_pause(self) -> None:
        self._pause = None
        self._again()
