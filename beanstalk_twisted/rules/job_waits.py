"""Waiting for the end of a job: who is to hear that it is gone, or was buried.

A change of a job that nobody waits for costs nothing here: `QueueState.awaited` is empty then, and
that is all that is looked at.
"""

from collections.abc import Callable

from beanstalk_twisted.binlog.records.jobs import GONE, State
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.reservations import REFUSED, Answer, Reservations, leave
from beanstalk_twisted.wire import replies


class JobWaits:
    """Sessions by the job that they wait for, in the order they came; one waits for one job at
    most.

    :ivar is_to_end: asked, where rights are, whether a session may not wait for its job any more.
    """

    def __init__(self, state: QueueState, changes: Changes, reservations: Reservations) -> None:
        self.is_to_end: Callable[[Session], bool] | None = None
        self._state = state
        self._changes = changes
        self._reservations = reservations
        self._sessions: dict[int, dict[Session, None]] = {}

    def wait(
        self, session: Session, now_ns: int, job_id: int, timeout_ns: int
    ) -> Answer | None:  # fmt: skip
        """What became of the job, or None: the answer will come when it is gone or buried.

        :param timeout_ns: how long to wait at most.
        """
        job = self._state.jobs.look(job_id)
        if job is None:
            return self._changes.not_found()
        if job.state is State.BURIED:
            return replies.BURIED, job.lsn
        if timeout_ns == 0 or session.is_half_closed:
            return replies.TIMED_OUT, job.lsn
        if job_id not in self._sessions:
            self._sessions[job_id] = {}
            self._state.awaited[job_id] = self._ended
        self._sessions[job_id][session] = None
        session.awaited_id = job_id
        session.is_busy = True
        session.timeout_ns = now_ns + timeout_ns
        session.waits_from_ns = now_ns
        self._reservations.arm(session)
        return None

    def stop(self, session: Session) -> Answer:
        """A session waits no longer; its job is still there.

        :return: what it is told, if it is there itself.
        """
        job_id = session.awaited_id
        sessions = self._sessions[job_id]
        del sessions[session]
        if not sessions:
            del self._sessions[job_id], self._state.awaited[job_id]
        _go_on(session)
        job = self._state.jobs.look(job_id)
        assert job is not None
        return replies.TIMED_OUT, job.lsn

    def moved(self, job_id: int) -> None:
        """A job is in another tube now: who may not look there waits no longer."""
        if self.is_to_end is None:
            return
        for session in list(self._sessions.get(job_id, ())):
            if self.is_to_end(session):
                self.stop(session)
                leave(self._reservations.outbox, session, REFUSED)

    def forget(self, session: Session) -> None:
        """The session ends."""
        if session.awaited_id:
            self.stop(session)

    def end_wait(self, session: Session, now_ns: int) -> None:
        """Answer a session whose time is up."""
        if session.awaited_id and session.timeout_ns is not None and session.timeout_ns <= now_ns:
            leave(self._reservations.outbox, session, self.stop(session))

    def _ended(self, job: Job) -> None:
        reply = replies.DELETED if job.state is GONE else replies.BURIED
        for session in self._sessions.pop(job.job_id):
            _go_on(session)
            leave(self._reservations.outbox, session, (reply, job.lsn))


def _go_on(session: Session) -> None:
    session.awaited_id = 0
    session.is_busy = False
