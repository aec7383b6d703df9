"""One connection of a worker, and what the server is told of the jobs reserved on it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.pending import cancel, first_error
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.client.stats import ServerStats
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.hooks import frames_of, text_of
from beanstalk_twisted.worker.policy import REST_S, Delete, Release, Return, Verdict
from beanstalk_twisted.worker.settings import Settings

T = TypeVar("T")
H = TypeVar("H", bound="Reservation")

DEADLINE_SOON_S: Final = 1.0
"""How long before the end of a TTR a server says so, seconds (protocol.txt, "reserve")."""


class Session:
    """A connection; those before and after it are others."""

    def __init__(self, server: str | None) -> None:
        """:param server: the ``id`` in its ``stats``, random for each process; None for none."""
        self._server = server

    def knows_jobs_of(self, other: "Session") -> bool:
        """Return True if a number that was a job's there is the same job's here.  One process gives
        no number twice, but another may: a server without a log begins with 1 again, and behind one
        address there may be several servers.
        """
        return self is other or (self._server is not None and self._server == other._server)


def _server_id(stats: ServerStats) -> str | None:
    server = stats.get("id")
    return None if server is None else str(server)


def _no_server_id(failure: Failure) -> None:
    failure.trap(errors.ErrorReply, errors.BadReply)


class Reserver(Generic[H]):
    """One connection of a worker, with what is reserved on it.

    `client.service.Client` brings it back when it is lost.  Then the reservations are gone: each
    attempt is told, and whatever was being asked for is given up.

    :ivar session: the one that there is, with its tubes watched; None if there is none.
    :ivar asked: the `reserve`s that have no answer.
    :ivar polls: how many of them do not wait.
    :ivar is_blocking: whether one of them may wait.
    :ivar jobs: what is reserved on it, or was and is still worked on.
    :ivar delete_sent: called with it when it was sent the delete of a job that nothing works on.
    :ivar newest: the newest reservations of jobs, by their numbers.
    :ivar stuck: what was given up, and whose handler still runs.
    :ivar no_wait_until_s: when a `reserve` may wait on it again, by the reactor's clock.
    """

    def __init__(
        self, settings: Settings, number: int, changed: Callable[[], object],
        delete_sent: Callable[["Reserver[Any]"], object],
    ) -> None:  # fmt: skip
        """:param changed: called when it has a session, or has none any more."""
        self.client = settings.make_client(number, connected=self._watch, lost=self._lost)
        self.session: Session | None = None
        self.jobs: set[H] = set()
        self.stuck: set[H] = set()
        self.asked: set[Deferred[Job]] = set()
        self.polls = 0
        self.is_blocking = False
        self.no_wait_until_s = 0.0
        self._settings = settings
        self._clock = settings.clock
        self._is_stopped = True
        self._closed: Deferred[None] | None = None
        self.newest: dict[int, H] = {}
        self._bound: set[Deferred[Any]] = set()
        self._waiting: list[Deferred[Session]] = []
        self._timer: IDelayedCall | None = None
        self._changed = changed
        self.delete_sent = delete_sent

    @property
    def is_empty(self) -> bool:
        """Return True if it has no job and none can come."""
        return not self.jobs and not self.asked

    @property
    def is_closing(self) -> bool:
        """Return True if nothing can be sent on it: the server takes back what comes now."""
        return self._closed is not None

    def start(self) -> None:
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

    def hold(self, number: int, held: H) -> None:
        self.jobs.add(held)
        self.newest[number] = held

    def leave(self, number: int, held: H) -> None:
        """Forget a reservation that has ended, but not its handler, which still runs."""
        self.drop(number, held)
        self.stuck.add(held)

    def drop(self, number: int, held: H) -> None:
        """Forget a reservation that has ended."""
        self.jobs.discard(held)
        self.stuck.discard(held)
        if self.newest.get(number) is held:
            del self.newest[number]

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
        """:raise Closed: through the Deferred: there will be no session."""
        waiting: Deferred[Session] = Deferred()
        if self.session is not None:
            waiting.callback(self.session)
        elif self._is_stopped:
            waiting.errback(errors.Closed("the worker was stopped"))
        else:
            self._waiting.append(waiting)
        return waiting

    def take_no_more(self) -> None:
        """End a `reserve` that waits, with the connection, which holds no job."""
        if self.is_blocking:
            self._closed = self.client.hang_up()

    def cancel_reserves(self) -> None:
        """A job that comes all the same, the client gives back."""
        for asked in list(self.asked):
            asked.cancel()

    def stop(self) -> Deferred[Any]:
        """Part, when all that was sent is answered; now if it has nothing to lose."""
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
        """Have it cancelled when the connection is lost: the client would send it to the next."""
        self._bound.add(sent)

        def answered(answer: Any) -> Any:
            self._bound.discard(sent)
            return answer

        return sent.addBoth(answered)

    def _watch(self) -> None:
        """Watch the tubes; all are confirmed before a reserve, since no other jobs are ours."""
        if self._is_stopped:
            return
        asked = self._settings.watch_tubes(self.client)
        asked.append(self.client.stats().addCallbacks(_server_id, _no_server_id))
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
            return  # The next connection is asked again.
        self._settings.hooks.call("troubled", error=error)
        self._timer = self._clock.callLater(REST_S, self._watch)

    def _stop_timer(self) -> None:
        cancel(self._timer)
        self._timer = None

    def _lost(self, losses: Losses) -> None:
        self.session = None
        self._stop_timer()
        self._settings.hooks.call("disconnected", losses=losses)
        self.cancel_reserves()
        for sent in list(self._bound):
            sent.cancel()
        for held in list(self.jobs):
            held.cancel(Ending.DISCONNECTED)
        self._changed()


class Reservation:
    """:ivar is_settled: the server was told what becomes of the job, or need not be."""

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(
        self, settings: Settings, reserver: Reserver[Any], job: Job,
        may_give_back: Callable[[], Deferred[None]],
    ) -> None:  # fmt: skip
        """:param may_give_back: asked before each release; its Deferred fires when it may be."""
        self.is_settled = False
        self._settled: Deferred[None] | None = None
        assert reserver.session is not None, "a job comes by a connection"
        self._settings = settings
        self._clock = settings.clock
        self._hooks = settings.hooks
        self._reserver = reserver
        self._session = reserver.session
        self._job = job
        self._is_handed_over = False
        self._error: BaseException | None = None
        self._may_give_back = may_give_back
        self._began_s: float = settings.clock.seconds()

    def cancel(self, ending: Ending) -> None:
        """End the attempt at it."""
        raise NotImplementedError

    def delete_sent(self) -> None:
        """Its answer is awaited."""

    async def settle(self, attempt: Attempt[Any], verdict: Verdict) -> None:
        """Carry out a verdict."""
        self.is_settled = True
        self._settled = Deferred()
        try:
            verdict = await self._tell_server(attempt, verdict)
        except errors.NotFound:
            await self.tell_loss(attempt)
        except errors.ClientError as error:
            self._report_error(attempt)
            self._hooks.call("unsettled", attempt, verdict=verdict, error=error)
        else:
            self._report_error(attempt)
            seconds = self._clock.seconds() - self._began_s
            self._hooks.call("ended", attempt, verdict=verdict, seconds=seconds)
        finally:
            self._settled.callback(None)

    async def give_back_unseen(self) -> None:
        """Release it: without its TTR it cannot be kept.  Nor is its priority known."""
        await self._may_give_back()
        delay = math.ceil(REST_S)  # Not to be asked about again at once.
        try:
            await self._send("release", lambda client: client.release(self._job, delay=delay))
        except errors.ClientError as error:
            self._hooks.call("troubled", error=error)

    def touch(self) -> Deferred[None]:
        """Let its TTR begin again."""
        return self._send("touch", lambda client: client.touch(self._job))

    async def find_loss(self, attempt: Attempt[Any]) -> Ending:
        """Find out why the server does not know the job as ours: one that is gone before its TTR
        has ended was cancelled.
        """
        ending = attempt.ending
        if ending is not None and ending.is_loss:
            return ending
        if attempt.time_left_s() > 0:
            try:
                await self._send("stats-job", lambda client: client.stats_job(self._job))
            except errors.NotFound:
                return Ending.CANCELLED
            except errors.ClientError:
                pass  # What became of it is not known.
        return Ending.NOT_OURS

    async def tell_loss(self, attempt: Attempt[Any]) -> None:
        why = await self.find_loss(attempt)
        attempt.cancel(why)
        if why is Ending.CANCELLED:
            self._hooks.call("cancelled", attempt)
            error, self._error = self._error, None
            if error is not None and self._settings.logs:
                self._log.debug("{job}: failed, but was cancelled: {kind}: {error}{frames}",
                                job=attempt, kind=type(error).__name__, error=text_of(error),
                                frames=frames_of(error))  # fmt: skip
        else:
            self._report_error(attempt)
            self._hooks.call("lost", attempt, ending=why)

    def _report_error(self, attempt: Attempt[Any]) -> None:
        """Report why the attempt has failed, after the server's answer: the job of a cancelled
        attempt has not failed.
        """
        error, self._error = self._error, None
        if error is not None:
            self._hooks.call("failed", attempt, error=error)

    async def _tell_server(self, attempt: Attempt[Any], verdict: Verdict) -> Verdict:
        """:return: what was done: a server that has no `return-job` is sent a release."""
        if isinstance(verdict, Delete):
            await self._delete()
            return verdict
        if isinstance(verdict, Return):
            await self._may_give_back()
            delay = verdict.delay
            try:
                await self._send(
                    "return-job", lambda client: client.return_job(self._job, delay=delay)
                )
            except errors.NotAnnounced:
                verdict = Release(delay)
            else:
                return verdict
        priority = attempt.stats.pri if verdict.priority is None else verdict.priority
        if isinstance(verdict, Release):
            if verdict.prefers_backoff and await self._has_backoff(attempt):
                verdict = Release(priority=verdict.priority)
            await self._may_give_back()
            delay = verdict.delay
            await self._send("release", lambda client: client.release(
                self._job, priority=priority, delay=delay))  # fmt: skip
        else:
            await self._send("bury", lambda client: client.bury(self._job, priority=priority))
        return verdict

    async def _has_backoff(self, attempt: Attempt[Any]) -> bool:
        """Return True if the server delays what comes back to the tube."""
        try:
            policy = await self._send(
                "tube-policy", lambda client: client.tube_policy(attempt.tube)
            )
        except (errors.ErrorReply, errors.BadReply, errors.NotAnnounced):
            return False
        return policy is not None and policy.get("backoff") is not None

    async def _delete(self) -> None:
        """Delete it; if the connection is lost before the answer, once more on the next: the server
        has made the job ready, and anybody may delete that.  But only if it is the same process of
        a server: another one may have given the number to another job.
        """
        session, unanswered = self._session, None
        while session.knows_jobs_of(self._session) and not self._is_handed_over:
            try:
                deleted = self._reserver.send_in(
                    session, "delete", self._job, lambda client: client.delete(self._job.id)
                )
                if not deleted.called:
                    self.delete_sent()
                await deleted
                return
            except errors.Unanswered as error:
                unanswered = error
            except errors.NotCarriedOut:
                if self._reserver.session is session:
                    raise
            except errors.NotFound:
                break
            session = await self._reserver.when_up()
        # It was deleted the first time, or another worker has it, or may: that is not known.
        raise unanswered or errors.NotFound("delete", self._job.id) from None

    def _send(self, name: str, send: Callable[[Client], Deferred[T]]) -> Deferred[T]:
        if self._is_handed_over:
            return fail(errors.NotFound(name, self._job.id))
        return self._reserver.send_in(self._session, name, self._job, send)
