"""The states of a group commit, and what it does about the one that lasts: a disk without space."""

from collections.abc import Callable
from typing import Final, cast

from twisted.python.failure import Failure

from beanstalk_twisted.binlog.space_budget import PreallocatedSegment, SpaceBudget
from beanstalk_twisted.states import Transitions, Triggers
from beanstalk_twisted.storage.environment import CommitEvents
from beanstalk_twisted.storage.io_thread import Clock, Timer

SPACE_RETRY_S: Final = 1.0
"""From one try on a full disk to the next: soon for a person, seldom for the disk."""

IDLE: Final = "idle"
PREPARING: Final = "preparing"
WRITING: Final = "writing"
SYNCING: Final = "syncing"
NO_SPACE: Final = "no space"
ENDING: Final = "ending"
ENDED: Final = "ended"
ABANDONED: Final = "abandoned"


TRANSITIONS: Final[Transitions] = {
    IDLE: Triggers(
        prepare=PREPARING, write=WRITING, sync=SYNCING, end=ENDING, abandon=ABANDONED,
    ),
    PREPARING: Triggers(done=IDLE, abandon=ABANDONED),
    WRITING: Triggers(done=IDLE, refused=NO_SPACE, abandon=ABANDONED),
    SYNCING: Triggers(done=IDLE, abandon=ABANDONED),
    NO_SPACE: Triggers(retry=WRITING, abandon=ABANDONED),
    ENDING: Triggers(done=ENDED, abandon=ABANDONED),
    ENDED: Triggers(),
    ABANDONED: Triggers(),
}  # fmt: skip
"""What a `GroupCommit` does, by state and trigger.  Any other trigger ends the server, and so does
an error of the disk in every state, after which no reply leaves and nothing is begun.

- prepare: a file is allocated ahead, or one that is too small deleted; if the disk refuses, this is
  done all the same, and tried again.
- write: a batch is written, and synced if replies wait for that or a sync is wanted.
- sync: what was written is synced, for an interval that has passed or whoever asked.
- end: CLEAN_STOP and the seal are written and synced.
- refused: the disk has no space for the batch; retry: a second has passed, or some was freed.
- abandon: another server has taken over.
"""

# What is wanted of the disk beside the batches that replies wait for; each includes those before.
NOTHING: Final = 0
WRITE: Final = 1
SYNC: Final = 2
END: Final = 3


class Space:
    """Keeps as much space allocated as the queue wants, and tries a full disk again."""

    def __init__(
        self, budget: SpaceBudget, clock: Clock, events: CommitEvents, again: Callable[[], None]
    ) -> None:
        """:param again: called when a disk that was full is to be tried again."""
        self.budget = budget
        self._events = events
        self._clock = clock
        self._again = again
        self._pause: Timer | None = None

    def wanted(self) -> PreallocatedSegment | None:
        """Return the segment to allocate now, if one is wanted."""
        budget = self.budget
        if self._pause is not None or budget.rest > budget.ample:
            return None
        return budget.wanted(self._events.demand())

    def next(self, is_ending: bool) -> PreallocatedSegment | None:
        """As `wanted`, but room may be lacking, and nothing is allocated if the log is to end.
        Without a segment to allocate, a disk that was full may be asked for something else, and
        there may be room for who waits for it, since a segment has begun.
        """
        budget = self.budget
        demand = self._events.demand()
        is_asked = self._pause is None and not is_ending
        segment = budget.wanted(demand) if is_asked else None
        if segment is None and (demand.waiting or (budget.is_short and self._pause is None)):
            self.was_given()
        return segment

    def was_given(self) -> None:
        """A disk that was full no longer is when it has given all that is wanted, not before: else
        each segment that compaction frees would be news.
        """
        budget = self.budget
        if not budget.is_short or budget.wanted(self._events.demand()) is None:
            budget.is_short = False
            self._events.space_changed(None)

    def was_refused(self, failure: Failure) -> None:
        """The disk is full: the next try is a second from now, also if another one was planned."""
        self.budget.is_short = True
        self.stop()
        self._pause = cast("Timer", self._clock.callLater(SPACE_RETRY_S, self._end_pause))
        self._events.space_changed(failure)

    def try_now(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._end_pause()

    def stop(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _end_pause(self) -> None:
        self._pause = None
        self._again()
