"""Commands that only look: at a job, at statistics, at the names of tubes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.looking import statistics
from beanstalk_twisted.rules.reservations import Answer, Reservations
from beanstalk_twisted.rules.timekeeping import Timekeeping, Work
from beanstalk_twisted.wire import replies, yaml
from beanstalk_twisted.wire.extensions import CAPABILITIES

SLICE_NAMES: Final = 100
"""
Tubes that one slice of a list is asked about: 0.1 ms, or 11 ms with 100 patterns of the worst kind
(see `MAX_PATTERNS`).
"""


class Looks:
    """Shows what there is, and changes nothing."""

    def __init__(
        self, state: QueueState, changes: Changes, timekeeping: Timekeeping,
        reservations: Reservations,
    ) -> None:  # fmt: skip
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping
        self._reservations = reservations

    def peek(self, session: Session, now_ns: int, job_id: int) -> Answer | None:
        """Look at any job."""
        return self._found(session, job_id)

    def peek_ready(self, session: Session, now_ns: int) -> Answer | None:
        """
        Look at the first ready job of the used tube that may be handed out; if there is none, at
        the first.
        """
        return self._found_first(session, session.using.first_ready())

    def peek_delayed(self, session: Session, now_ns: int) -> Answer | None:
        """Look at the delayed job of the used tube that is due first."""
        return self._found_first(session, session.using.delayed.first())

    def peek_buried(self, session: Session, now_ns: int) -> Answer | None:
        """Look at the job of the used tube that was buried first."""
        return self._found_first(session, session.using.buried.first())

    def stats_job(self, session: Session, now_ns: int, job_id: int) -> Answer:
        """A job's statistics."""
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        tube = self._state.tubes.by_id(job.tube_id)
        return replies.statistics(statistics.job(job, tube, now_ns)), job.lsn

    def stats_tube(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """A tube's statistics."""
        tube = self._state.tubes.find(name)
        if tube is None:
            return self._changes.not_found()
        return self._changes.of_state(replies.statistics(statistics.tube(tube, now_ns)))

    def stats_group(self, session: Session, now_ns: int, group: bytes) -> Answer:
        """A group's statistics, if it has a job or one waits for it."""
        groups = self._state.groups
        if not groups.members(group) and not groups.waiting(group):
            return self._changes.not_found()
        return self._changes.of_state(replies.statistics(statistics.group(groups, group)))

    def list_tubes(self, session: Session, now_ns: int) -> Answer:
        """All tubes."""
        return self._changes.of_state(
            replies.names(tube.name for tube in self._state.tubes.in_order)
        )

    def list_tubes_that(
        self, session: Session, is_shown: Callable[[bytes], object]
    ) -> Answer | None:
        """
        The tubes that are to be shown, by their names; if they are many, slice by slice, and the
        answer will come.
        """
        names = [tube.name for tube in self._state.tubes.in_order]
        if len(names) <= SLICE_NAMES:
            return self._changes.of_state(replies.names(filter(is_shown, names)))
        self._timekeeping.answer_later(session, self._chosen(names, is_shown))
        return None

    def _chosen(self, names: Sequence[bytes], is_shown: Callable[[bytes], object]) -> Work:
        shown: list[bytes] = []
        for at in range(0, len(names), SLICE_NAMES):
            shown += filter(is_shown, names[at : at + SLICE_NAMES])
            yield None
        return self._changes.of_state(replies.names(shown))

    def list_tube_used(self, session: Session, now_ns: int) -> Answer:
        """The tube that puts go into."""
        return replies.Using(session.using.name), 0

    def list_tubes_watched(self, session: Session, now_ns: int) -> Answer:
        """The tubes that reserves take from."""
        return self._changes.of_state(replies.names(tube.name for tube in session.watching_order))

    def capabilities(self, session: Session, now_ns: int) -> Answer:
        """Name the commands and tags that beanstalkd does not have."""
        return replies.names(map(yaml.item, CAPABILITIES)), 0

    def _found(self, session: Session, job_id: int) -> Answer | None:
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        if job.body is None:
            read = partial(self._found_in_log, job_id)
            self._reservations.answer_with_body(session, job_id, read)
            return None
        return replies.Found(job_id, job.body, job.priority), job.lsn

    def _found_in_log(self, job_id: int, now_ns: int) -> Answer:
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        if job.body is None:
            return replies.INTERNAL_ERROR, 0
        return replies.Found(job_id, job.body, job.priority), job.lsn

    def _found_first(self, session: Session, key: int | None) -> Answer | None:
        return self._changes.not_found() if key is None else self._found(session, key & ID_MASK)
