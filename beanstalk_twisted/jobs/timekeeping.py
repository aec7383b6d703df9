"""
Timers of the queue: delays, pauses and TTRs end, and large work goes on slice by slice.

Differs from beanstalkd: others are served between the slices of a large `kick` or of the end of a
session with many jobs; there, they wait.
"""

from collections import deque
from collections.abc import Generator
from typing import Final

from beanstalk_twisted.binlog.records import JobImage, Reason
from beanstalk_twisted.jobs.changes import Changes
from beanstalk_twisted.jobs.due import DueTimes
from beanstalk_twisted.jobs.job_waits import JobWaits
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.reservations import Reservations
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.statistics import Tally
from beanstalk_twisted.jobs.tube import Tube

Slices = Generator[None, int, None]
"""Work that pauses after about `SLICE_JOBS` jobs, and is then sent the time."""

SLICE_JOBS: Final = 500
"""Jobs that one slice of work moves: about 5 ms."""


class Timekeeping:
    """
    Knows when something is due, and does it.
    """

    def __init__(
        self, state: QueueState, changes: Changes, reservations: Reservations, job_waits: JobWaits,
        tally: Tally,
    ) -> None:  # fmt: skip
        self._state = state
        self._changes = changes
        self._reservations = reservations
        self._job_waits = job_waits
        self._tally = tally
        self._delays: DueTimes[Tube] = DueTimes()
        self._pauses: DueTimes[Tube] = DueTimes()
        self._slices: deque[Slices] = deque()

    @property
    def is_working(self) -> bool:
        """
        Whether work in slices goes on.
        """
        return bool(self._slices)

    def tick(self, now_ns: int) -> None:
        """
        Do all that is due, in beanstalkd's order: delays, pauses, then deadlines of sessions.
        """
        if self._slices:
            self._next_slice(self._slices.popleft(), now_ns)
        self._end_delays(now_ns)
        self._end_pauses(now_ns)
        self._end_deadlines(now_ns)

    def next_due_ns(self) -> int | None:
        if self._slices:
            return 0
        due_ns = self._reservations.deadlines.first_ns()
        for agenda in (self._delays, self._pauses):
            other_ns = agenda.first_ns()
            if other_ns is not None and (due_ns is None or other_ns < due_ns):
                due_ns = other_ns
        return due_ns

    def change(self, image: JobImage, now_ns: int) -> int:
        """
        Make a change, then `settle` its tube.

        :return: the record's LSN.
        """
        lsn = self._changes.make(image)
        self.settle(self._state.tubes.by_id(image.tube_id), now_ns)
        return lsn

    def settle(self, tube: Tube, now_ns: int) -> None:
        """
        Give a changed tube's ready jobs to waiting sessions, and plan when it needs attention.
        """
        if tube.waiting:
            self._reservations.match(tube, now_ns)
        if tube.delayed.count or tube.pause_until_ns:
            self.arm(tube)

    def arm(self, tube: Tube) -> None:
        """
        Plan for the tube's first delayed job, and for the end of its pause.
        """
        first = tube.delayed.first()
        if first is not None:
            self._delays.arm(tube, first >> 64)
        if tube.pause_until_ns:
            self._pauses.arm(tube, tube.pause_until_ns)

    def drop_if_unused(self, tube: Tube, now_ns: int) -> None:
        """
        Forget a tube that nothing refers to, and its pause with it.
        """
        if tube.is_referred_to:
            return
        if tube.pause_until_ns:
            self._changes.pause(tube, 0, now_ns, Reason.NONE)
        self._delays.forget(tube)
        self._pauses.forget(tube)
        self._state.tubes.drop(tube)

    def work_in_slices(self, work: Slices) -> None:
        """
        Do the first slice now and leave the rest, if any, to the next ticks.
        """
        if next(work, self) is None:
            self._slices.append(work)

    def _next_slice(self, work: Slices, now_ns: int) -> None:
        try:
            work.send(now_ns)
        except StopIteration:
            return
        self._slices.append(work)

    def _end_delays(self, now_ns: int) -> None:
        for _ in range(SLICE_JOBS):
            tube = self._delays.pop_due(now_ns)
            if tube is None:
                return
            first = tube.delayed.first()
            if first is not None and first >> 64 <= self._delays_end_ns(now_ns):
                self._state.promote(first & ID_MASK)
                self._reservations.match(tube, now_ns)
            self.arm(tube)

    def _delays_end_ns(self, now_ns: int) -> int:
        """
        Until when a tube may be served before another one's turn comes.
        """
        next_ns = self._delays.first_ns()
        return now_ns if next_ns is None else min(now_ns, next_ns)

    def _end_pauses(self, now_ns: int) -> None:
        while (tube := self._pauses.pop_due(now_ns)) is not None:
            if 0 < tube.pause_until_ns <= now_ns:
                tube.pause_until_ns = 0
                tube.tell()
                self._reservations.match(tube, now_ns)
                self.drop_if_unused(tube, now_ns)
            self.arm(tube)

    def _end_deadlines(self, now_ns: int) -> None:
        for _ in range(SLICE_JOBS):
            session = self._reservations.deadlines.pop_due(now_ns)
            if session is None:
                return
            image = self._reservations.expired(session, now_ns)
            if image is not None:
                self._tally.timeouts += 1
                self.change(image, now_ns)
            self._job_waits.end_wait(session, now_ns)
            self._reservations.end_wait(session, now_ns)
