"""A job from its reservation to its verdict."""

import math
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker.attempt import Attempt, Ending, KeepAlive
from beanstalk_twisted.worker.handlers import awaited, verdict_of
from beanstalk_twisted.worker.hooks import frames_of, log_fault, text_of
from beanstalk_twisted.worker.policy import (
    Bury,
    Decided,
    Delete,
    NoResult,
    Release,
    Return,
    TookTooLong,
    TooManyAttempts,
    Verdict,
)
from beanstalk_twisted.worker.process import in_this_process
from beanstalk_twisted.worker.reserver import REST_S, Reserver, ReserveScheduler, Session
from beanstalk_twisted.worker.settings import Reply, Settings, Work

T = TypeVar("T")
V = TypeVar("V")

AT_ONCE: Final = Return()
"""What becomes of a job that was not tried to its end, by no fault of its own."""

AFTER_A_FAULT: Final = Release(delay=60)
"""The same when it was the worker's fault, which may happen again: not in a busy loop."""

RESERVED: Final = "reserved"
"""What `stats-job` says of the state of a job that somebody has."""

STATS_TRIES: Final = 2
"""How often the server is asked about a job before it is given back."""


class JobRun(Generic[T]):
    """:ivar attempt: what the handler was given; None if it has not begun."""

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(
        self, settings: Settings, scheduler: ReserveScheduler, reserver: Reserver, job: Job,
        left: Callable[["JobRun[T]"], object], is_again: bool,
    ) -> None:  # fmt: skip
        """:param left: called when the attempt was given up and its handler still runs.
        :param is_again: an attempt at this job of ours was still in hand, so that a command about
            it that was on its way may have ended this reservation: the release of one whose TTR
            was over, say.
        """
        assert reserver.session is not None, "a job comes by a connection"
        self.attempt: Attempt[T] | None = None
        self.job = job
        self.reserver = reserver
        self._session = reserver.session
        self._scheduler = scheduler
        self._settings = settings
        self._clock = settings.clock
        self._hooks = settings.hooks
        self._left = left
        self._is_again = is_again
        self._began_s: float = settings.clock.seconds()
        self._settled: Deferred[None] | None = None
        self._is_handed_over = False
        self._error: BaseException | None = None
        self._result: Any = None
        self._work: Work[T]
        self._keep: KeepAlive | None = None
        self._ending: Ending | None = None
        self._asked: Deferred[None] | None = None
        self._limit: IDelayedCall | None = None
        self._giving_up: Deferred[None] | None = None
        self._has_handler_ended = False

    # From the job to its verdict.

    async def carry_out(self) -> None:
        attempt: Attempt[T] = Attempt(self._clock, self.job)
        self._work = self._settings.route.work_for(attempt)
        needs_stats = self._is_again or getattr(self._work.policy, "needs_stats", True)
        if needs_stats and not await self._is_ours(attempt):
            return  # It was lost before it was begun.
        self._keep = KeepAlive(self._settings, self, attempt, self._work.touches)
        attempt.begin(self._keep.touch, partial(self.learn, attempt))
        self.attempt = attempt
        try:
            verdict = await self._verdict(attempt)
        except Exception:
            self._log.failure("a fault in the worker, doing {job}", job=attempt)
            verdict = None if _is_lost(attempt) else AFTER_A_FAULT
        finally:
            self._stop()
        self._has_handler_ended = True
        if self._giving_up is not None:
            await self._giving_up
        else:
            attempt.end()
            await self._conclude(attempt, verdict)

    def learn(self, attempt: Attempt[Any]) -> Deferred[None]:
        """Ask the server about the job, if that was not done yet.

        :raise NotFound: through the Deferred: it is not ours.
        """
        if attempt.known is not None:
            return succeed(None)
        asked_s = self._clock.seconds()

        def learn(stats: JobStats) -> None:
            if stats.get("state") != RESERVED:
                raise errors.NotFound("stats-job", self.job.id)
            attempt.learn(stats, asked_s)

        return self.send("stats-job").addCallback(learn)

    async def _is_ours(self, attempt: Attempt[T]) -> bool:
        """Learn about the job before its attempt."""
        for _ in range(STATS_TRIES):
            self._asked = asked = self.learn(attempt)
            try:
                await asked
                return True
            except (CancelledError, errors.NotFound, errors.NotCarriedOut, errors.Unanswered):
                return False
            except errors.ClientError as error:
                self._hooks.call("troubled", error=error)
        # Without its TTR it cannot be kept, and its priority is not known.
        await self._scheduler.may_give_back()
        try:
            await self.send("release", delay=math.ceil(REST_S))  # Not to be asked at once again.
        except errors.ClientError as error:
            self._hooks.call("troubled", error=error)
        return False

    async def _verdict(self, attempt: Attempt[T]) -> Verdict | None:
        """Run the handler and decide; None if the job is not ours any more."""
        if self._ending is not None:
            return AT_ONCE
        if attempt.known is not None:
            ask = partial(self._work.policy.before, attempt.known)
            early: Verdict | None = self._decide(attempt, "before", ask, Verdict | None)
            if early is not None:
                why = f"this would be attempt {attempt.number}, and is not made"
                self._error = TooManyAttempts(why)
                return early
        self._hooks.call("began", attempt)
        try:
            self._result = await self._do(attempt)
            verdict = verdict_of(self._result)
        except GeneratorExit:
            raise
        except Decided as decided:
            verdict = decided.verdict
        except BaseException as error:
            return await self._failed(attempt, error)
        finally:
            cancel(self._limit)
        # Done is done, though another worker may have the job: a delete may still be in time.
        return verdict if isinstance(verdict, Delete) or not _is_lost(attempt) else None

    async def _do(self, attempt: Attempt[T]) -> Any:
        without_exit(attempt.read, self._work.serialiser.load)
        call = partial(without_exit, in_this_process, partial(self._work.handler, attempt))
        threads = self._settings.threads if self._work.in_threads else None
        began_s: float = self._clock.seconds()
        if threads is None:
            coming = awaited(call(), attempt, self._clock)
            if not isinstance(coming, Deferred):
                return coming
        else:  # No thread can be cancelled; a coroutine that comes out of it can.
            coming = threads.run(call).addCallback(awaited, attempt, self._clock)
        # Before, no timer could run.
        assert self._keep is not None
        self._keep.plan()
        if (limit_s := self._work.limit_s) is not None:
            left_s = max(0.0, began_s + limit_s - self._clock.seconds())
            self._limit = self._clock.callLater(left_s, self._limit_is_over, attempt)
        return await coming.addErrback(no_exit)

    async def _failed(self, attempt: Attempt[T], error: BaseException) -> Verdict | None:
        if self._giving_up is not None or _is_lost(attempt):
            return None
        if attempt.ending is Ending.STOPPED:
            return AT_ONCE
        if attempt.ending is Ending.LIMIT:
            error = TookTooLong(f"not done within {self._work.limit_s:g} s")
        self._error = error
        self._hooks.call("raised", attempt, error=error)
        try:
            await self.learn(attempt)
        except errors.ClientError:
            return AFTER_A_FAULT
        chance = self._settings.chance()
        ask = partial(self._work.policy.after, attempt.stats, error, chance)
        return self._decide(attempt, "after", ask, Verdict)

    def _decide(
        self, attempt: Attempt[T], when: str, ask: Callable[[], V], kinds: UnionType
    ) -> V | Bury:
        """Ask the policy; one that fails, or gives no verdict, buries."""
        try:
            verdict = ask()
            if not isinstance(verdict, kinds):
                raise TypeError(f"a policy gives a verdict, not {verdict!r}")
        except BaseException:
            self._log.failure("in the policy, {when} {job}", when=when, job=attempt)
            return Bury()
        return verdict

    # Its early end.

    def cancel(self, ending: Ending) -> None:
        self._ending = self._ending or ending
        if self.attempt is not None:
            if ending is Ending.DISCONNECTED:
                self._stop()  # There is nothing left to touch.
            self.attempt.cancel(ending)
        elif self._asked is not None:
            self._asked.cancel()

    def do_not_begin(self) -> None:
        """Give it back if it has not begun yet: the worker stops."""
        if self.attempt is None:
            self._ending = self._ending or Ending.STOPPED

    def hand_over(self, session: Session, ending: Ending) -> None:
        """End the attempt, and tell the server no more, if the job of this id in that session is
        the same: it was reserved by us again, and a command would act on that reservation.
        """
        if session.knows_jobs_of(self._session):
            self._is_handed_over = True
        if self._is_handed_over:
            self._stop()
            self.cancel(ending)

    async def abandon(self, most_s: float) -> None:
        """Give its job back, although its handler was cancelled and still runs.

        :param most_s: how long a verdict that is being carried out is waited for, seconds.
        """
        attempt = self.attempt
        if self._settled is not None and self.reserver.session is self._session:
            # It may take two commands, and needs the connection for both.
            await self._settled.addTimeout(most_s, self._clock, lambda *_: None)
        elif attempt is not None and self._settled is None and not _is_lost(attempt):
            self._stop()
            await self._settle(attempt, AT_ONCE)

    def _stop(self) -> None:
        if self._keep is not None:
            self._keep.stop()

    def _limit_is_over(self, attempt: Attempt[T]) -> None:
        # Before it is cancelled: it may end at once, and stop this timer.
        stuck_s = self._work.stuck_s
        self._limit = self._clock.callLater(stuck_s, self._give_up, attempt)
        attempt.cancel(Ending.LIMIT)

    def _give_up(self, attempt: Attempt[T]) -> None:
        """End the attempt although its handler still runs, whose result counts no longer."""
        self._stop()

        async def conclude() -> None:
            await self._conclude(attempt, await self._failed(attempt, TookTooLong()))
            attempt.end()
            if not self._has_handler_ended:
                self._left(self)

        self._giving_up = Deferred.fromCoroutine(conclude()).addErrback(log_fault)

    # What the server is told.

    async def _conclude(self, attempt: Attempt[T], verdict: Verdict | None) -> None:
        """:param verdict: None if the job is not ours any more."""
        if verdict is not None and self._settled is None and self._work.reply is not None:
            await self._reply(self._work.reply, attempt, verdict)
        if self._settled is not None:
            self._report_error(attempt)
        elif verdict is None:
            await self._tell_loss(attempt)
        else:
            await self._settle(attempt, verdict)

    async def _reply(self, reply: Reply, attempt: Attempt[T], verdict: Verdict) -> None:
        """Report the result before the job's end: a job that is gone has its reply."""
        if not isinstance(verdict, Delete | Bury):
            return
        error = self._error
        if error is None and isinstance(verdict, Bury):
            error = Decided(verdict)  # Whoever waits for a result must not take it for done.
        result = None if isinstance(self._result, Verdict) else self._result
        try:
            await reply(attempt, result, error)
        except Exception:
            self._log.failure("no reply for {job}", job=attempt)

    async def _settle(self, attempt: Attempt[Any], verdict: Verdict) -> None:
        """Carry out a verdict."""
        self._settled = Deferred()
        try:
            verdict = await self._tell_server(attempt, verdict)
        except errors.NotFound:
            await self._tell_loss(attempt)
        except errors.ClientError as error:
            self._report_error(attempt)
            self._hooks.call("unsettled", attempt, verdict=verdict, error=error)
        else:
            self._report_error(attempt)
            seconds = self._clock.seconds() - self._began_s
            self._hooks.call("ended", attempt, verdict=verdict, seconds=seconds)
        finally:
            self._settled.callback(None)

    async def _tell_server(self, attempt: Attempt[Any], verdict: Verdict) -> Verdict:
        """:return: what was done: a server that has no `return-job` is sent a release."""
        if isinstance(verdict, Delete):
            await self._delete()
            return verdict
        if isinstance(verdict, Return):
            await self._scheduler.may_give_back()
            try:
                await self.send("return-job", delay=verdict.delay)
                return verdict
            except errors.NotAnnounced:
                verdict = Release(verdict.delay)
        await self.learn(attempt)
        priority = attempt.stats.pri if verdict.priority is None else verdict.priority
        if isinstance(verdict, Bury):
            await self.send("bury", priority=priority)
            return verdict
        if verdict.prefers_backoff and await self._has_backoff(attempt):
            verdict = Release(priority=verdict.priority)
        await self._scheduler.may_give_back()
        await self.send("release", priority=priority, delay=verdict.delay)
        return verdict

    async def _has_backoff(self, attempt: Attempt[Any]) -> bool:
        """Return True if the server delays what comes back to the tube."""
        try:
            policy = await self.reserver.client.tube_policy(attempt.tube)
        except (errors.ErrorReply, errors.BadReply, errors.NotAnnounced):
            return False
        return policy is not None and policy.get("backoff") is not None

    async def _delete(self) -> None:
        """Delete it; if the connection is lost before the answer, once more on the next: the server
        has made the job ready, and anybody may delete that.  But only if it is the same process of
        a server: another one may have given the id to another job.
        """
        session, unanswered = self._session, None
        while session.knows_jobs_of(self._session) and not self._is_handed_over:
            try:
                deleted = self.reserver.send_in(session, "delete", self.job.id)
                if self._has_handler_ended and not deleted.called:
                    self._scheduler.ask_after_delete(self.reserver)
                await deleted
                return
            except errors.Unanswered as error:
                unanswered = error
            except errors.NotCarriedOut:
                if self.reserver.session is session:
                    raise
            except errors.NotFound:
                break
            session = await self.reserver.when_up()
        # It was deleted the first time, or another worker has it, or may: that is not known.
        raise unanswered or errors.NotFound("delete", self.job.id) from None

    def send(self, name: str, **values: int) -> Deferred[Any]:
        if self._is_handed_over:
            return fail(errors.NotFound(name, self.job.id))
        return self.reserver.send_in(self._session, name, self.job, **values)

    async def find_loss(self, attempt: Attempt[Any]) -> Ending:
        """Find out why the server does not know the job as ours: one that is gone before its TTR
        has ended was cancelled.
        """
        ending = attempt.ending
        if ending is not None and ending.is_loss:
            return ending
        if attempt.time_left_s() > 0:
            try:
                await self.send("stats-job")
            except errors.NotFound:
                return Ending.CANCELLED
            except errors.ClientError:
                pass  # What became of it is not known.
        return Ending.NOT_OURS

    async def _tell_loss(self, attempt: Attempt[Any]) -> None:
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


def without_exit(call: Callable[..., V], *args: Any) -> V:
    """Call a function, as of `no_exit`."""
    try:
        return call(*args)
    except GeneratorExit as error:
        raise NoResult("raised GeneratorExit") from error


def no_exit(failure: Failure) -> Failure:
    """A function that raises GeneratorExit has failed as any other; it must not end ours."""
    if failure.check(GeneratorExit):
        raise NoResult("raised GeneratorExit") from failure.value
    return failure


def _is_lost(attempt: Attempt[Any]) -> bool:
    return attempt.ending is not None and attempt.ending.is_loss
