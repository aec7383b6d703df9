"""
What follows from a change for other jobs than its own: one with a concurrency key is no longer
reserved, so others may be, which sessions wait for; a group has ended, so jobs that wait for it go.

A command whose change has such consequences carries them out at once, up to a slice of jobs; the
next ticks do the rest.  On a full disk groups wait for room, and are looked at again until there is
some.  A crash in between loses nothing: on loading, groups without jobs have ended.
"""

from itertools import islice
from typing import Final, Protocol

from beanstalk_twisted.binlog.records.jobs import READY, Kind, Reason, State
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.reservations import NS, Reservations

RELEASED_JOBS: Final = 500
"""Jobs that a command lets go whose groups have ended: about 5 ms."""


class Settler(Protocol):
    """Gives a changed tube's ready jobs to waiting sessions, and plans when it needs attention."""

    def settle(self, tube: Tube, now_ns: int) -> None:
        """A tube has changed."""


class Consequences:
    """Serves sessions that wait for jobs with concurrency keys, and ends groups."""

    def __init__(
        self, state: QueueState, changes: Changes, reservations: Reservations, settler: Settler
    ) -> None:
        self._state = state
        self._changes = changes
        self._reservations = reservations
        self._settler = settler
        self._is_behind = False

    @property
    def are_due(self) -> bool:
        """Whether there is anything to do, and room to do it."""
        state = self._state
        concurrency = state.concurrency
        return (
            bool(concurrency.opened)
            or concurrency.is_opening
            or (bool(state.groups.ended) and self._changes.has_room)
        )

    def go_on(self, now_ns: int, most: int) -> None:
        """Do a tick's slice: let up to ``most`` jobs go whose groups have ended."""
        self._state.concurrency.open_next()
        self.serve(None, now_ns)
        if self._state.groups.ended:
            self._is_behind = self._end_groups(now_ns, most)

    def serve(self, changed: Tube | None, now_ns: int) -> None:
        """
        Give jobs that may be reserved again to waiting sessions, the best one first.

        :param changed: a tube that has another ready job beside, perhaps.
        """
        opened = self._state.concurrency.opened
        if not opened:
            return
        if changed is not None:
            opened[changed] = None
        firsts = [(key, tube) for tube in opened if (key := tube.first_open()) is not None]
        opened.clear()
        # No key is there twice, so tubes are never compared.
        for _, tube in sorted(firsts):
            self._reservations.match(tube, now_ns)

    def end_groups(self, now_ns: int) -> None:
        """
        Let jobs go whose groups have ended, for a command; leave them to the ticks while there are
        more of them than one slice has done.
        """
        if not self._state.groups.ended:
            self._is_behind = False
        elif not self._is_behind:
            self._is_behind = self._end_groups(now_ns, RELEASED_JOBS)

    def _end_groups(self, now_ns: int, most: int) -> bool:
        """
        Let up to ``most`` jobs go whose groups have ended.

        :return: whether there are more, and room for them.
        """
        groups = self._state.groups
        left = most
        for group in list(islice(groups.ended, most)):
            keys = groups.first_waiting(group, left)
            for key in keys:
                # The log holds extensions already: a job with tags is in it.
                if not self._changes.has_room:
                    return False
                job = self._state.jobs.get(key & ID_MASK)
                assert job is not None
                self._let_go(job, now_ns)
            left -= len(keys)
            if not left:
                break
        return bool(groups.ended)

    def _let_go(self, job: Job, now_ns: int) -> None:
        """A job waits for its group no longer, but for the rest of its delay, from its put on."""
        ready_ns = job.created_ns + job.delay_s * NS
        is_delayed = ready_ns > now_ns
        self._changes.make(job.image(
            Kind.GROUP_ENDED, State.DELAYED if is_delayed else READY, Reason.NONE, now_ns,
            deadline_ns=ready_ns if is_delayed else 0,
        ))  # fmt: skip
        self._settler.settle(self._state.tubes.by_id(job.tube_id), now_ns)
