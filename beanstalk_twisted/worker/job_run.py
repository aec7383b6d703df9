"""A job from its reservation to its verdict."""

from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, execute
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.handlers import awaited, verdict_of
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
from beanstalk_twisted.worker.reserver import Reservation, Reserver, Session
from beanstalk_twisted.worker.settings import Settings, Work

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

EARLIEST: Final = 0.5
"""Share of the TTR before a touch: each touch is a command, and is written to the log."""

LATEST: Final = 0.65
"""The same at the latest: a third is left for the way, and more than the last second, in which the
server says DEADLINE_SOON.  Chance decides in between, so that touches spread.
"""

AGAIN: Final = 0.5
"""Of the time left, before another try when the server has refused one for another reason."""

LEAST_S: Final = 0.1
"""Less than this before another try, seconds, and there is none."""

ANSWER_S: Final = 1.0
"""For the answer to a touch that is late already, seconds: the server knows better than we do."""


class KeepAlive:
    """Looks after the reservation of one attempt."""

    def __init__(
        self, settings: Settings, attempt: Attempt[Any], touches: bool,
        touch: Callable[[], Deferred[None]], why_refused: Callable[[], Deferred[Ending]],
    ) -> None:  # fmt: skip
        """:param touches: whether it touches the job in time.
        :param why_refused: asked when the server does not know the job as ours."""
        self._settings = settings
        self._clock = settings.clock
        self._attempt = attempt
        self._touches = touches
        self._ask = touch
        self._why_refused = why_refused
        self._is_over = False
        self._timer: IDelayedCall | None = None

    def plan(self) -> None:
        """Plan the next touch, or the end of the TTR, from the attempt's deadline."""
        if self._touches:
            share = EARLIEST + (LATEST - EARLIEST) * self._settings.chance()
            self._set(self._attempt.time_left_s() - self._ttr_s * (1 - share), self._touch_now)
        else:
            self._set(self._attempt.time_left_s(), self._end_of_ttr)

    def stop(self) -> None:
        self._is_over = True
        cancel(self._timer)
        self._timer = None

    def touch(self) -> Deferred[None]:
        """Ask for the whole TTR once more."""
        # It begins again when the server reads this, so not before now.
        deadline_s = self._clock.seconds() + self._ttr_s
        return self._ask().addCallback(self._agreed, deadline_s).addErrback(self._refused)

    @property
    def _ttr_s(self) -> int:
        return max(1, self._attempt.stats.ttr)

    def _set(self, wait_s: float, then: Callable[[], object]) -> None:
        cancel(self._timer)
        self._timer = self._clock.callLater(max(0.0, wait_s), then)

    def _touch_now(self) -> None:
        # Until there is an answer, it ends with the TTR: other workers have other connections.
        left_s = self._attempt.time_left_s()
        self._set(left_s if left_s > LEAST_S else ANSWER_S, self._end_of_ttr)
        self.touch().addErrback(lambda failure: None)

    def _agreed(self, _: None, deadline_s: float) -> None:
        if not self._is_over:
            self._attempt.deadline_s = max(deadline_s, self._attempt.deadline_s)
            self.plan()
            self._settings.hooks.call("touched", self._attempt)

    def _refused(self, failure: Failure) -> Any:
        if not self._is_over:
            if failure.check(errors.NotFound):
                return self._why_refused().addCallback(self._lost, failure)
            if failure.check(errors.ErrorReply) and self._touches:
                wait_s = self._attempt.time_left_s() * AGAIN
                if wait_s >= LEAST_S:
                    self._set(wait_s, self._touch_now)
        return failure

    def _lost(self, ending: Ending, failure: Failure) -> Failure:
        self._attempt.cancel(ending)
        return failure

    def _end_of_ttr(self) -> None:
        self._attempt.cancel(Ending.TTR)


class JobRun(Reservation, Generic[T]):
    """:ivar attempt: what the handler was given; None if it has not begun."""

    def __init__(
        self, settings: Settings, reserver: Reserver[Any], job: Job,
        may_give_back: Callable[[], Deferred[None]], left: Callable[["JobRun[T]"], object],
    ) -> None:  # fmt: skip
        """:param left: called when the attempt was given up and its handler still runs."""
        super().__init__(settings, reserver, job, may_give_back)
        self.attempt: Attempt[T] | None = None
        self._work: Work[T]
        self._result: Any = None
        self._deadline_s = self._began_s
        self._keep: KeepAlive | None = None
        self._ending: Ending | None = None
        self._asked: Deferred[JobStats] | None = None
        self._left = left
        self._limit: IDelayedCall | None = None
        self._giving_up: Deferred[None] | None = None
        self._has_handler_ended = False

    async def carry_out(self) -> None:
        """Do all of it."""
        stats = await self._ask_for_stats()
        if stats is None:
            return  # It was lost before it was begun.
        attempt: Attempt[T] = Attempt(self._clock, self._job, stats, self._deadline_s)
        self._work = self._settings.route.work_for(attempt)
        self._keep = KeepAlive(
            self._settings, attempt, self._work.touches, self.touch,
            lambda: Deferred.fromCoroutine(self.find_loss(attempt)),
        )  # fmt: skip
        attempt.begin(self._keep.touch)
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

    async def _conclude(self, attempt: Attempt[T], verdict: Verdict | None) -> None:
        """:param verdict: None if the job is not ours any more."""
        if verdict is not None and not self.is_settled:
            await self._reply(attempt, verdict)
        if self.is_settled:
            self._report_error(attempt)
        elif verdict is None:
            await self.tell_loss(attempt)
        else:
            await self.settle(attempt, verdict)

    async def _reply(self, attempt: Attempt[T], verdict: Verdict) -> None:
        """Report the result before the job's end: a job that is gone has its reply."""
        reply = self._work.reply
        if reply is None or not isinstance(verdict, Delete | Bury):
            return
        error = self._error
        if error is None and isinstance(verdict, Bury):
            error = Decided(verdict)  # Whoever waits for a result must not take it for done.
        result = None if isinstance(self._result, Verdict) else self._result
        try:
            await reply(attempt, result, error)
        except Exception:
            self._log.failure("no reply for {job}", job=attempt)

    def cancel(self, ending: Ending) -> None:
        self._ending = self._ending or ending
        if self.attempt is not None:
            if ending is Ending.DISCONNECTED:
                self._stop()  # There is nothing left to touch.
            self.attempt.cancel(ending)
        elif self._asked is not None:
            self._asked.cancel()

    def hand_over(self, session: Session, ending: Ending) -> None:
        """End the attempt, and tell the server no more, if the job of this number in that session
        is the same: it was reserved by us again, and a command would act on that reservation.
        """
        if session.knows_jobs_of(self._session):
            self._is_handed_over = True
        if self._is_handed_over:
            self._stop()
            self.cancel(ending)

    def do_not_begin(self) -> None:
        """Give it back if it has not begun yet: the worker stops."""
        if self.attempt is None:
            self._ending = self._ending or Ending.STOPPED

    def delete_sent(self) -> None:
        if self._has_handler_ended:
            self._reserver.delete_sent(self._reserver)

    async def abandon(self, most_s: float) -> None:
        """Give its job back, although its handler was cancelled and still runs.

        :param most_s: how long a verdict that is being carried out is waited for, seconds.
        """
        attempt = self.attempt
        if self._settled is not None and self._reserver.session is self._session:
            # It may take two commands, and needs the connection for both.
            await self._settled.addTimeout(most_s, self._clock, lambda *_: None)
        elif attempt is not None and not self.is_settled and not _is_lost(attempt):
            self._stop()
            await self.settle(attempt, AT_ONCE)

    async def _ask_for_stats(self) -> JobStats | None:
        for _ in range(STATS_TRIES):
            asked_s = self._clock.seconds()
            self._asked = self._reserver.client.stats_job(self._job)
            try:
                stats = await self._asked
                # A command about it that was on its way when it came may have ended its
                # reservation: the release of an attempt whose TTR was over, say.
                if stats.get("state") != RESERVED:
                    return None
                self._deadline_s = _deadline(stats, self._began_s, asked_s)
                return stats
            except (CancelledError, errors.NotFound, errors.NotCarriedOut, errors.Unanswered):
                return None
            except errors.ClientError as error:
                self._hooks.call("troubled", error=error)
        await self.give_back_unseen()
        return None

    def _stop(self) -> None:
        if self._keep is not None:
            self._keep.stop()

    async def _verdict(self, attempt: Attempt[T]) -> Verdict | None:
        """Run the handler and decide; None if the job is not ours any more."""
        if self._ending is not None:
            return AT_ONCE
        early = self._before(attempt)
        if early is not None:
            return early
        assert self._keep is not None
        self._keep.plan()
        self._hooks.call("began", attempt)
        limit_s = self._work.limit_s
        if limit_s is not None:
            self._limit = self._clock.callLater(limit_s, self._limit_is_over, attempt)
        try:
            read: Deferred[Any] = execute(attempt.read, self._work.serialiser.load)
            read.addCallback(lambda _: self._do(attempt)).addErrback(no_exit)
            self._result = await read
            verdict = verdict_of(self._result)
        except GeneratorExit:
            raise
        except Decided as decided:
            verdict = decided.verdict
        except BaseException as error:
            return self._failed(attempt, error)
        finally:
            cancel(self._limit)
        # Done is done, though another worker may have the job: a delete may still be in time.
        return verdict if isinstance(verdict, Delete) or not _is_lost(attempt) else None

    def _before(self, attempt: Attempt[T]) -> Verdict | None:
        ask = partial(self._work.policy.before, attempt.stats)
        verdict: Verdict | None = self._decide(attempt, "before", ask, Verdict | None)
        if verdict is not None:
            why = f"this would be attempt {attempt.number}, and is not made"
            self._error = TooManyAttempts(why)
        return verdict

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

    def _limit_is_over(self, attempt: Attempt[T]) -> None:
        # Before it is cancelled: it may end at once, and stop this timer.
        stuck_s = self._work.stuck_s
        self._limit = self._clock.callLater(stuck_s, self._begin_to_give_up, attempt)
        attempt.cancel(Ending.LIMIT)

    def _begin_to_give_up(self, attempt: Attempt[T]) -> None:
        verdict = self._failed(attempt, TookTooLong())
        self._giving_up = Deferred.fromCoroutine(self._give_up(attempt, verdict))
        self._giving_up.addErrback(
            lambda failure: self._log.failure("a fault in the worker", failure)
        )

    async def _give_up(self, attempt: Attempt[T], verdict: Verdict | None) -> None:
        """End the attempt although its handler still runs, whose result counts no longer."""
        self._stop()
        await self._conclude(attempt, verdict)
        attempt.end()
        if not self._has_handler_ended:
            self._left(self)

    def _do(self, attempt: Attempt[T]) -> Deferred[Any]:
        handler, threads = self._work.handler, self._settings.threads
        running: Deferred[Any]
        if self._work.in_threads and threads is not None:
            # No thread can be cancelled; a coroutine that comes out of it can.
            running = threads.run(partial(in_this_process, partial(handler, attempt)))
        else:
            running = execute(in_this_process, partial(handler, attempt))
        return running.addCallback(awaited, attempt, self._clock)

    def _failed(self, attempt: Attempt[T], error: BaseException) -> Verdict | None:
        if self._giving_up is not None or _is_lost(attempt):
            return None
        if attempt.ending is Ending.STOPPED:
            return AT_ONCE
        if attempt.ending is Ending.LIMIT:
            error = TookTooLong(f"not done within {self._work.limit_s:g} s")
        self._error = error
        self._hooks.call("raised", attempt, error=error)
        chance = self._settings.chance()
        ask = partial(self._work.policy.after, attempt.stats, error, chance)
        return self._decide(attempt, "after", ask, Verdict)


def no_exit(failure: Failure) -> Failure:
    """A function that raises GeneratorExit has failed as any other; it must not end ours."""
    if failure.check(GeneratorExit):
        raise NoResult("raised GeneratorExit") from failure.value
    return failure


def _is_lost(attempt: Attempt[Any]) -> bool:
    return attempt.ending is not None and attempt.ending.is_loss


def _deadline(stats: JobStats, began_s: float, asked_s: float) -> float:
    """Give the earliest end of a TTR, by our clock.

    It began when the server gave us the job, and we may have read that late.  The server's answer
    on how much is left is later than ``asked_s``, in whole seconds, the rest cut off: so a full TTR
    less a second may be full.

    :param began_s: when the job was read.
    """
    ttr_s = max(1, stats.ttr)
    left_s = stats.time_left
    return began_s + ttr_s if left_s >= ttr_s - 1 else min(began_s + ttr_s, asked_s + left_s)
