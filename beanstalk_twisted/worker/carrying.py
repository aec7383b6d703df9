"""
A job from its reservation to its verdict.
"""

import math
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from twisted.internet.defer import CancelledError, Deferred, execute, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.forms import Job
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.worker import results
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.demand import REST_S
from beanstalk_twisted.worker.hooks import Told
from beanstalk_twisted.worker.keepalive import KeepAlive
from beanstalk_twisted.worker.lane import Held, Lane, Session
from beanstalk_twisted.worker.policy import Policy
from beanstalk_twisted.worker.serialisers import Serialiser
from beanstalk_twisted.worker.threads import Threads
from beanstalk_twisted.worker.verdicts import (
    Bury,
    Decided,
    Delete,
    Release,
    TookTooLong,
    TooManyAttempts,
    Verdict,
)

T = TypeVar("T")
V = TypeVar("V")

Doer = Callable[[Attempt[T]], Any]
"""What does jobs: a function, one that gives a Deferred or an asyncio future, or a coroutine's."""

AT_ONCE: Final = Release()
"""What becomes of a job that was not tried to its end, by no fault of its own."""

AFTER_A_FAULT: Final = Release(delay_s=60)
"""The same when it was the worker's fault, which may happen again at once: not in a busy loop."""

STATS_TRIES: Final = 2
"""How often the server is asked about a job before it is given back."""


class Ways(NamedTuple, Generic[T]):
    """
    How a worker does its jobs; see `service.Worker`.
    """

    clock: Any
    chance: Callable[[], float]
    doer: Doer[T]
    serialiser: Serialiser[T]
    policy: Policy
    told: Told
    threads: Threads | None
    touches: bool
    limit_s: float | None


class Carrying(Held, Generic[T]):
    """
    One job in the worker's hands.

    :ivar is_settled: the server was told what becomes of it, or need not be.
    """

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(self, ways: Ways[T], lane: Lane, job: Job) -> None:
        self.is_settled = False
        self._ways = ways
        assert lane.session is not None, "a job comes by a connection"
        self._lane = lane
        self._session = lane.session
        self._job = job
        self._began_s: float = ways.clock.seconds()
        self._attempt: Attempt[T] | None = None
        self._keep: KeepAlive | None = None
        self._ending: Ending | None = None
        self._asked: Deferred[JobStats] | None = None

    # What the worker calls.

    async def carry_out(self) -> None:
        """
        Do all of it.
        """
        stats = await self._ask_for_stats()
        if stats is None:
            return  # It was lost before it was begun.
        attempt = self._begin(stats)
        try:
            verdict = await self._verdict(attempt)
        except Exception:
            self._log.failure("a fault in the worker, doing {job}", job=attempt)
            verdict = None if _is_lost(attempt) else AFTER_A_FAULT
        finally:
            self._stop()
        if verdict is not None and not self.is_settled:
            await self._settle(attempt, verdict)
        elif not self.is_settled:
            self._tell_loss(attempt)
        attempt.end()

    def cancel(self, ending: Ending) -> None:
        """
        See `Held`.
        """
        self._ending = self._ending or ending
        if self._attempt is not None:
            if ending is Ending.DISCONNECTED:
                self._stop()  # There is nothing left to touch.
            self._attempt.cancel(ending)
        elif self._asked is not None:
            self._asked.cancel()

    def do_not_begin(self) -> None:
        """
        The worker stops: what has not begun yet is given back.
        """
        if self._attempt is None:
            self._ending = self._ending or Ending.STOPPED

    async def abandon(self) -> None:
        """
        It was cancelled and goes on.  It can be left, but its job is given back.
        """
        attempt = self._attempt
        if attempt is not None and not self.is_settled and not _is_lost(attempt):
            self._stop()
            await self._settle(attempt, AT_ONCE)

    # Its parts.

    async def _ask_for_stats(self) -> JobStats | None:
        for _ in range(STATS_TRIES):
            self._asked = self._lane.client.stats_job(self._job)
            try:
                return await self._asked
            except (CancelledError, errors.NotFound, errors.NotCarriedOut, errors.Unanswered):
                return None
            except errors.ClientError as error:
                self._ways.told.tell("troubled", error)
        await self._give_back_unseen()
        return None

    async def _give_back_unseen(self) -> None:
        """
        Nobody knows its TTR, so it cannot be kept.  Nor is its priority known.
        """
        delay = math.ceil(REST_S)  # Not to be asked about again at once.
        try:
            await self._send("release", lambda client: client.release(self._job, delay=delay))
        except errors.ClientError as error:
            self._ways.told.tell("troubled", error)

    def _begin(self, stats: JobStats) -> Attempt[T]:
        ways = self._ways
        attempt: Attempt[T] = Attempt(
            ways.clock, self._job, stats, self._began_s + max(1, stats.ttr)
        )
        self._keep = KeepAlive(
            ways.clock, attempt, self._touch, ways.chance,
            lambda touched: ways.told.tell("touched", touched),
        )  # fmt: skip
        attempt.begin(self._keep.touch)
        self._attempt = attempt
        return attempt

    def _touch(self) -> Deferred[None]:
        return self._send("touch", lambda client: client.touch(self._job))

    def _stop(self) -> None:
        if self._keep is not None:
            self._keep.stop()

    async def _verdict(self, attempt: Attempt[T]) -> Verdict | None:
        """
        Try it.

        :return: what is to become of it; None if that is not ours to say any more.
        """
        if self._ending is not None:
            return AT_ONCE
        early = self._before(attempt)
        if early is not None:
            return early
        assert self._keep is not None
        self._keep.start(self._ways.touches)
        self._ways.told.tell("began", attempt)
        limit = self._start_limit(attempt)
        try:
            verdict = results.verdict_of(await self._run(attempt))
        except GeneratorExit:
            raise
        except Decided as decided:
            verdict = decided.verdict
        except BaseException as error:
            return self._failed(attempt, error)
        finally:
            if limit is not None and limit.active():
                limit.cancel()
        # Done is done, whoever has the job now: a delete may still be in time.
        return verdict if isinstance(verdict, Delete) or not _is_lost(attempt) else None

    def _before(self, attempt: Attempt[T]) -> Verdict | None:
        def ask() -> Verdict | None:
            return self._ways.policy.before(attempt.stats)

        verdict = self._decide(attempt, "before", ask, Verdict | None)
        if verdict is not None:
            why = f"this would be attempt {attempt.number}, and is not made"
            self._ways.told.tell("failed", attempt, TooManyAttempts(why))
        return verdict

    def _decide(
        self, attempt: Attempt[T], when: str, ask: Callable[[], V], kinds: UnionType
    ) -> V | Bury:
        """
        Ask the policy; one with a fault, or that says nothing, buries.
        """
        try:
            verdict = ask()
            if not isinstance(verdict, kinds):
                raise TypeError(f"a policy gives a verdict, not {verdict!r}")
        except BaseException:
            self._log.failure("in the policy, {when} {job}", when=when, job=attempt)
            return Bury()
        return verdict

    def _start_limit(self, attempt: Attempt[T]) -> IDelayedCall | None:
        def over() -> None:
            # If it does not heed this, its TTR ends, and somebody else gets the job.
            assert self._keep is not None
            self._keep.let_go()
            attempt.cancel(Ending.LIMIT)

        ways = self._ways
        if ways.limit_s is None:
            return None
        timer: IDelayedCall = ways.clock.callLater(ways.limit_s, over)
        return timer

    def _run(self, attempt: Attempt[T]) -> Deferred[Any]:
        read: Deferred[Any] = execute(attempt.read, self._ways.serialiser.load)
        return read.addCallback(lambda _: self._do(attempt)).addErrback(results.no_exit)

    def _do(self, attempt: Attempt[T]) -> Deferred[Any]:
        doer, threads = self._ways.doer, self._ways.threads
        running: Deferred[Any]
        if threads is not None:
            # No thread can be cancelled; a coroutine that comes out of it can.
            running = threads.run(lambda: doer(attempt))
        else:
            running = maybeDeferred(doer, attempt)
            attempt.when_cancelled(running.cancel)
        return running.addCallback(results.awaited, attempt)

    def _failed(self, attempt: Attempt[T], error: BaseException) -> Verdict | None:
        if _is_lost(attempt):
            return None
        if attempt.ending is Ending.STOPPED:
            return AT_ONCE
        if attempt.ending is Ending.LIMIT:
            error = TookTooLong(f"not done within {self._ways.limit_s:g} s")
        self._ways.told.tell("failed", attempt, error)
        ways = self._ways
        ask = partial(ways.policy.after, attempt.stats, error, ways.chance())
        return self._decide(attempt, "after", ask, Verdict)

    # What the server is told.

    async def _settle(self, attempt: Attempt[T], verdict: Verdict) -> None:
        self.is_settled = True
        try:
            await self._tell_server(attempt, verdict)
        except errors.NotFound:
            self._tell_loss(attempt)
        except errors.ClientError as error:
            self._ways.told.tell("unsettled", attempt, verdict, error)
        else:
            seconds = self._ways.clock.seconds() - self._began_s
            self._ways.told.tell("ended", attempt, verdict, seconds)

    async def _tell_server(self, attempt: Attempt[T], verdict: Verdict) -> None:
        if isinstance(verdict, Delete):
            await self._delete()
            return
        priority = attempt.stats.pri if verdict.priority is None else verdict.priority
        if isinstance(verdict, Release):
            delay = verdict.delay_s
            await self._send("release", lambda client: client.release(
                self._job, priority=priority, delay=delay))  # fmt: skip
        else:
            await self._send("bury", lambda client: client.bury(self._job, priority=priority))

    async def _delete(self) -> None:
        """
        Delete it; if the connection is lost before the answer, once more on the next: the server
        has made the job ready, and anybody may delete that.  But only if it is the same process
        of a server: another one may have given the number to another job.
        """
        session, unanswered = self._session, None
        while session.knows_jobs_of(self._session):
            try:
                await self._send("delete", lambda client: client.delete(self._job), session)
                return
            except errors.Unanswered as error:
                unanswered = error
            except errors.NotCarriedOut:
                if self._lane.session is session:
                    raise
            except errors.NotFound:
                break
            session = await self._lane.when_up()
        # It was deleted the first time, or somebody else has it, or may have: nobody knows.
        raise unanswered or errors.NotFound("delete", self._job.id) from None

    def _send(
        self, name: str, send: Callable[[Client], Deferred[None]], session: Session | None = None
    ) -> Deferred[None]:
        """
        Send a command that is about the job only where it is known to be.
        """
        return self._lane.send_in(session or self._session, name, self._job, send)

    def _tell_loss(self, attempt: Attempt[T]) -> None:
        ending = attempt.ending
        why = ending if ending is not None and ending.is_loss else Ending.NOT_OURS
        self._ways.told.tell("lost", attempt, why)


def _is_lost(attempt: Attempt[Any]) -> bool:
    return attempt.ending is not None and attempt.ending.is_loss
