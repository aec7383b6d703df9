"""Kicking: buried jobs, or delayed ones, are ready again; many of them slice by slice."""

from typing import Final

from beanstalk_twisted.jobs.ordered import ID_MASK, OrderedJobs
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS, Timekeeping, Work
from beanstalk_twisted.wire import replies

RUN_JOBS: Final = 1000
"""
Jobs that one slice kicks where nobody waits for them: 0.5 ms, with a log 1 ms, and at most 8 ms if
they have their places far apart among a million.  More would not be quicker.
"""


class Kicks:
    """Makes buried and delayed jobs ready."""

    def __init__(self, state: QueueState, changes: Changes, timekeeping: Timekeeping) -> None:
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping

    def kick(self, session: Session, now_ns: int, bound: int) -> Answer | None:
        """
        Kick up to ``bound`` jobs of the used tube, all buried or all delayed; fewer on a disk that
        becomes full.
        """
        tube = session.using
        jobs = tube.buried if tube.buried.count else tube.delayed
        count = min(bound, jobs.count)
        if count and not self._changes.has_room:
            return NO_ROOM
        kicked = self._kick_slice(session, tube, jobs, count, now_ns)
        if kicked == count or not kicked or not jobs.count:
            return self._kicked(kicked)
        work = self._kick_rest(session, tube, jobs, count, kicked)
        self._timekeeping.answer_later(session, work)
        return None

    def _kick_slice(
        self, session: Session, tube: Tube, jobs: OrderedJobs, most: int, now_ns: int
    ) -> int:  # fmt: skip
        """
        Kick some of the first jobs.

        :return: how many; 0 if there are none, or no room for a change.
        """
        kicked = singly = 0
        most = min(most, RUN_JOBS)
        while kicked < most and singly < SLICE_JOBS:
            run = 0
            if not tube.waiting or tube.is_closed:
                run = self._changes.kick(tube, jobs, most - kicked, session.number, now_ns)
            if not run:
                run = self._kick_one(session, tube, jobs, now_ns)
                singly += run
            if not run:
                break
            kicked += run
        if self._state.times is not None:
            self._state.times.of(tube).kicks += kicked
        self._timekeeping.settle(tube, now_ns)
        return kicked

    def _kick_one(self, session: Session, tube: Tube, jobs: OrderedJobs, now_ns: int) -> int:
        """
        Kick the first job if there is one, and room.  A waiting session gets it at once; timers are
        set at the slice's end.
        """
        key = jobs.first()
        if key is None or not self._changes.has_room:
            return 0
        job = self._state.jobs.get(key & ID_MASK)
        assert job is not None
        self._changes.make(job.kicked(now_ns, session.number))
        if tube.waiting:
            self._timekeeping.settle(tube, now_ns)
        return 1

    def _kick_rest(
        self, session: Session, tube: Tube, jobs: OrderedJobs, count: int, kicked: int
    ) -> Work:  # fmt: skip
        """
        Later slices of a large kick.  Others may act in between; the bound holds all the same.
        """
        some = 1
        while kicked < count and some and jobs.count:
            now_ns = yield None
            some = self._kick_slice(session, tube, jobs, count - kicked, now_ns)
            kicked += some
        return self._kicked(kicked)

    def _kicked(self, count: int) -> Answer:
        return self._changes.of_state(replies.Kicked(count))
