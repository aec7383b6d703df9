"""One connection of a worker, with what is reserved on it.

`client.service.Client` brings it back when it is lost.  Then the reservations are gone: each
attempt is told, and whatever was being asked for is given up.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.methods import first_error
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.client.stats import ServerStats
from beanstalk_twisted.worker.attempt import Ending
from beanstalk_twisted.worker.demand import REST_S
from beanstalk_twisted.worker.settings import Settings

if TYPE_CHECKING:
    from beanstalk_twisted.worker.job_run import JobRun

T = TypeVar("T")

DEADLINE_SOON_S: Final = 1.0
"""How long before the end of a TTR a server says so, seconds (protocol.txt, "reserve")."""


class Session:
    """One connection, told from those before and after it."""

    def __init__(self, server: str | None) -> None:
        """:param server: the ``id`` that the server has given in ``stats``, random for each of its
        processes; None if it has told none.
        """
        self._server = server

    def knows_jobs_of(self, other: "Session") -> bool:
        """Whether a number that was a job's there is the same job's here.

        No process gives a number twice.  Another one may: a server without a log begins with 1
        again, and behind one address there may be several servers.
        """
        return self is other or (self._server is not None and self._server == other._server)


def server_id(stats: ServerStats) -> str | None:
    """Give what a process of a server calls itself; None if it does not."""
    server = stats.get("id")
    return None if server is None else str(server)


def no_server_id(failure: Failure) -> None:
    failure.trap(errors.ErrorReply, errors.BadReply)


class Reserver:
    """One connection of a worker.

    :ivar client: the client that makes it.
    :ivar session: the one that there is, with its tubes watched; None if there is none.
    :ivar asked: the `reserve`s that have no answer.
    :ivar polls: how many `reserve`s were sent on it that do not wait and have no answer.
    :ivar is_blocking: whether one was that may wait.
    :ivar jobs: what is reserved on it, or was and is still worked on.
    :ivar stuck: what was given up, and whose handler still runs.
    :ivar no_wait_until_s: when a `reserve` may wait on it again, by the reactor's clock.
    """

    def __init__(self, settings: Settings[Any], number: int, changed: Callable[[], object]) -> None:
        """:param number: from 0.
        :param changed: called when it has a session, or no more.
        """
        self.client = settings.make_client(number, connected=self._watch, lost=self._lost)
        self.session: Session | None = None
        self.jobs: set[JobRun[Any]] = set()
        self.stuck: set[JobRun[Any]] = set()
        self.asked: set[Deferred[Job]] = set()
        self.polls = 0
        self.is_blocking = False
        self.no_wait_until_s = 0.0
        self._settings = settings
        self._clock = settings.clock
        self._is_stopped = True
        self._closed: Deferred[None] | None = None
        self._newest: dict[int, JobRun[Any]] = {}
        self._bound: set[Deferred[Any]] = set()
        self._waiting: list[Deferred[Session]] = []
        self._timer: IDelayedCall | None = None
        self._changed = changed

    @property
    def is_empty(self) -> bool:
        """Whether it has no job and none can come."""
        return not self.jobs and not self.asked

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent on it any more: the server takes back what comes now."""
        return self._closed is not None

    def start(self) -> None:
        """Connect, and watch the worker's tubes alone."""
        self._is_stopped = False
        self._closed = None
        self.stuck.clear()  # Threads of a former start are none of the new ones.
        self.client.startService()

    def ask(self, seconds: int) -> Deferred[Job]:
        """Ask for a job, and wait so long for one.  With jobs in hand, that must be 0."""
        assert seconds == 0 or self.is_empty, "a delete would wait behind it"
        asked = self.client.reserve_with_timeout(seconds)
        self.asked.add(asked)
        if seconds:
            self.is_blocking = True
        else:
            self.polls += 1
        return asked.addBoth(self._answered, asked)

    def hold(self, number: int, held: "JobRun[Any]") -> None:
        """Note what was reserved on it."""
        self.jobs.add(held)
        self._newest[number] = held

    def leave(self, number: int, held: "JobRun[Any]") -> None:
        """Note that a handler still runs although its reservation has ended."""
        self.drop(number, held)
        self.stuck.add(held)

    def drop(self, number: int, held: "JobRun[Any]") -> None:
        """Forget a reservation that has ended."""
        self.jobs.discard(held)
        self.stuck.discard(held)
        if self._newest.get(number) is held:
            del self._newest[number]

    def holder(self, number: int) -> "JobRun[Any] | None":
        """Give what holds the job of that number, or does in its own view; None if nothing does."""
        return self._newest.get(number)

    def send_in(
        self, session: Session, name: str, job: Job, send: Callable[[Client], Deferred[T]]
    ) -> Deferred[T]:
        """Send a command about a job in this session, and in no later one: there its number may be
        another job's.

        :raise NotCarriedOut: through the Deferred: that session is over.
        :raise Unanswered: through the Deferred: it has ended before the answer.
        """
        over = errors.Closed("the connection that had reserved it was lost")
        if self.session is not session:
            return fail(errors.NotCarriedOut(name, job.id, over))

        def lost(failure: Failure) -> Failure:
            is_cancelled = failure.check(CancelledError)
            return Failure(errors.Unanswered(name, job.id, over)) if is_cancelled else failure

        return self._bind(send(self.client)).addErrback(lost)

    def when_up(self) -> Deferred[Session]:
        """Wait for a session.

        :raise Closed: through the Deferred: there will be none.
        """
        waiting: Deferred[Session] = Deferred()
        if self.session is not None:
            waiting.callback(self.session)
        elif self._is_stopped:
            waiting.errback(errors.Closed("the worker was stopped"))
        else:
            self._waiting.append(waiting)
        return waiting

    def take_no_more(self) -> None:
        """Have no more jobs given to us on it.  A `reserve` that waits ends with the connection,
        which holds no job; one that does not wait is answered.
        """
        if self.is_blocking:
            self._closed = self.client.hang_up()

    def cancel_reserves(self) -> None:
        """No job is wanted any more.  One that comes all the same, the client gives back."""
        for asked in list(self.asked):
            asked.cancel()

    def stop(self) -> Deferred[Any]:
        """Part, when all that was sent is answered; at once if it has nothing to lose."""
        self.session = None
        self._is_stopped = True
        self._stop_timer()
        self.cancel_reserves()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.errback(errors.Closed("the worker was stopped"))
        return self.client.quit() if self._closed is None else self._closed

    def _answered(self, answer: Any, asked: Deferred[Job]) -> Any:
        self.asked.discard(asked)
        if self.is_blocking:
            self.is_blocking = False
        else:
            self.polls -= 1
        if isinstance(answer, Failure) and answer.check(errors.DeadlineSoon):
            # It has a job of ours, maybe one that we could not give back: until that one's TTR has
            # ended, a reserve that may wait is answered at once.
            self.no_wait_until_s = self._clock.seconds() + DEADLINE_SOON_S
        return answer

    def _bind(self, sent: Deferred[T]) -> Deferred[T]:
        """Give this up when the connection is lost; the client would send it to the next one."""
        self._bound.add(sent)

        def answered(answer: Any) -> Any:
            self._bound.discard(sent)
            return answer

        return sent.addBoth(answered)

    # Coming up.

    def _watch(self) -> None:
        """Watch the tubes.  Nothing is reserved before the server has confirmed them all: a job of
        another tube is not ours to do.
        """
        if self._is_stopped:
            return
        asked = self._settings.watch_tubes(self.client)
        asked.append(self.client.stats().addCallbacks(server_id, no_server_id))
        watched = gatherResults([self._bind(each) for each in asked], consumeErrors=True)
        watched.addCallbacks(self._watched, self._not_watched)

    def _watched(self, answers: Sequence[Any]) -> None:
        if self._is_stopped:
            return
        self.session = Session(answers[-1])
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(self.session)
        self._changed()

    def _not_watched(self, failure: Failure) -> None:
        error = first_error(failure)
        lost = (CancelledError, errors.Unanswered, errors.NotCarriedOut)
        if self._is_stopped or error is None or isinstance(error, lost):
            return  # The next connection is told anew.
        self._settings.hooks.call("troubled", error)
        self._timer = self._clock.callLater(REST_S, self._watch)

    def _stop_timer(self) -> None:
        cancel(self._timer)
        self._timer = None

    def _lost(self, losses: Losses) -> None:
        self.session = None
        self._stop_timer()
        self._settings.hooks.call("disconnected", losses)
        self.cancel_reserves()
        for sent in list(self._bound):
            sent.cancel()
        for held in list(self.jobs):
            held.cancel(Ending.DISCONNECTED)
        self._changed()
