"""The worker, as a service: what it is made of, when it begins and when it stops."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import random as any_random
from typing import Any, Final, Generic, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger, LogLevel

from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.connection import GRACE_S
from beanstalk_twisted.client.endpoints import Backoff, the_reactor
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.worker.attempt import Ending
from beanstalk_twisted.worker.handlers import Threads
from beanstalk_twisted.worker.hooks import Hook, Hooks, log_fault
from beanstalk_twisted.worker.job_run import JobRun
from beanstalk_twisted.worker.policy import Policy
from beanstalk_twisted.worker.reserver import CLOSING, LAST_ANSWER_S, Reserver, ReserveScheduler
from beanstalk_twisted.worker.serialisers import Serialiser
from beanstalk_twisted.worker.settings import (
    BYTES,
    FIFO,
    RETRY,
    STUCK_S,
    Handler,
    Route,
    Settings,
    Tube,
    Work,
    threads_of,
)

T = TypeVar("T")

FINISH_S: Final = 25.0
"""How long jobs in hand may take at a stop, seconds: others kill after 30 (Kubernetes, Docker)."""

CONNECTIONS: Final = 2
"""One for jobs, and one on which a `reserve` can wait meanwhile."""


class Worker(Service, Generic[T]):
    """Takes jobs from tubes, and has a function do up to ``concurrency`` of them at a time."""

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(
        self, endpoint: str | IStreamClientEndpoint, tubes: str | Sequence[Tube],
        handler: Handler[T] | Route, concurrency: int = 1, *,
        weights: Mapping[Tube, int] | None = None, mode: str = FIFO,
        serialiser: Serialiser[T] = BYTES, policy: Policy = RETRY, hooks: Iterable[Hook] = (),
        logs: bool = True, log_level: Any = LogLevel.debug,
        in_threads: bool | Threads = False, touches: bool = True, limit_s: float | None = None,
        stuck_s: float = STUCK_S, all_stuck: Callable[[], object] | None = None,
        finish_s: float = FINISH_S, connections: int = CONNECTIONS, reactor: Any = None,
        grace_s: float = GRACE_S, backoff: Callable[[], Backoff] | None = None,
        chance: Callable[[], float] = any_random, token: str | None = None,
    ) -> None:  # fmt: skip
        """:param endpoint: where the server is, as of `Client`.
        :param handler: does a job, given an `attempt.Attempt`; or a `settings.Route`, which has
            the options of each kind of job instead of this.  The job is done when this returns, or
            when the Deferred or coroutine that it gives has; an exception means that it is not.
            A `policy.Verdict` that it gives decides what becomes of the job.
        :param concurrency: jobs at once, 1 to `MAX_CONCURRENCY`.
        :param weights: of tubes, 1 to 1,000; those without one have 1.
        :param mode: how a reserve chooses among the tubes: ``fifo``, the best job of all; by the
            weights ``weighted``, jobs of each tube, or ``weighted-fair``, time of workers.
        :param logs: write to Twisted's log what happens, from ``log_level`` on.
        :param in_threads: the handler blocks: run it in threads, as many as ``concurrency``.
        :param touches: touch each job in time for as long as it is worked on.
        :param limit_s: how long an attempt may take, seconds; None for ever.  Then it is cancelled.
        :param stuck_s: how long a handler may take to end then, seconds.  After that its attempt
            has failed all the same, and its slot is stuck.
        :param all_stuck: called when all slots are stuck, so that no job is taken any more: end the
            process.  Without it, that is logged.
        :param finish_s: how long the jobs in hand may take when the worker stops, seconds.
        :param connections: at most ``concurrency`` are used.
        :param chance: gives a number from 0 up to 1 for each call.
        :raise ValueError: a number is out of its range, a tube has no such name, weights do not
            count in this mode, a coroutine is to run in threads, or anything on a clock.
        :raise TypeError: something is of another kind.
        """
        clock = reactor or the_reactor()
        threads = threads_of(in_threads, handler, clock)
        route = handler if isinstance(handler, Route) else Work(
            handler=handler, serialiser=serialiser, policy=policy, touches=touches,
            in_threads=threads is not None, limit_s=limit_s, stuck_s=stuck_s,
        )  # fmt: skip
        self._settings = Settings(
            endpoint=endpoint, route=route, concurrency=concurrency, connections=connections,
            tubes=(tubes,) if isinstance(tubes, str | bytes) else tuple(tubes),
            weights=dict(weights or {}), mode=mode, threads=threads,
            hooks=Hooks(hooks, logs, log_level), logs=logs,
            finish_s=finish_s, clock=clock, grace_s=grace_s, backoff=backoff, chance=chance,
            token=token,
        )  # fmt: skip
        self.concurrency = concurrency
        self._all_stuck = all_stuck or self._log_all_stuck
        self._scheduler = ReserveScheduler(self._settings, self._reserved)
        self._is_stopping = False
        self._when_idle: Deferred[None] | None = None
        self._when_stopped: list[Deferred[None]] | None = None

    @property
    def jobs_in_hand(self) -> int:
        return self._scheduler.jobs_in_hand

    @property
    def stuck_slots(self) -> int:
        """Count handlers that still run though their attempts were given up."""
        return self._scheduler.stuck

    # What Twisted calls.

    def startService(self) -> None:
        """Take jobs; if it is stopping, when it has stopped."""
        was_running = self.running
        super().startService()
        if not was_running and self._when_stopped is None:
            self._begin()

    def _begin(self) -> None:
        self._is_stopping = False
        if self._settings.threads is not None:
            self._settings.threads.start()
        self._scheduler.start()

    def stopService(self) -> Deferred[None]:
        """Take no more jobs, finish those in hand, and give back those that take longer than
        ``finish_s``.

        :return: fires when all is settled and the connections are closed.
        """
        super().stopService()  # It may have been started while it stops.
        if self._when_stopped is None:
            self._when_stopped = []
            return Deferred.fromCoroutine(self._stop())
        self._when_stopped.append(Deferred())
        return self._when_stopped[-1]

    async def _stop(self) -> None:
        self._is_stopping = True
        for run in self._runs():
            run.do_not_begin()
        self._when_idle = Deferred()
        limit = self._settings.clock.callLater(self._settings.finish_s, self._give_back)
        self._scheduler.stop().addCallback(self._look_whether_idle)
        try:
            await self._when_idle
            cancel(limit)
            if self._settings.threads is not None:
                self._settings.threads.stop()
            await gatherResults([reserver.stop() for reserver in self._scheduler.reservers])
        finally:
            waiting, self._when_stopped = self._when_stopped or [], None
            if self.running:  # That was asked for last.
                self._begin()
            for again in waiting:
                again.callback(None)

    def drop(self) -> None:
        """Cancel the jobs in hand: the process ends now, and the server gives them to others."""
        for run in self._runs():
            run.cancel(Ending.STOPPED)

    # Jobs that come and go.

    def _runs(self) -> list[JobRun[T]]:
        return [run for reserver in self._scheduler.reservers for run in reserver.jobs]

    def _reserved(self, job: Job, reserver: Reserver) -> None:
        if reserver.state == CLOSING:
            return  # The server takes it back when it ends the connection.
        is_again = self._hand_over(job, reserver)
        run: JobRun[T] = JobRun(
            self._settings, self._scheduler, reserver, job, self._left, is_again
        )
        reserver.hold(run)
        if self._is_stopping:
            run.do_not_begin()
        ended = Deferred.fromCoroutine(run.carry_out())
        ended.addErrback(log_fault).addCallback(self._ended, run)

    def _hand_over(self, job: Job, reserver: Reserver) -> bool:
        """End an attempt at this very job that is still in hand: its TTR has ended unnoticed, for
        the process stood still, or something kept the reactor busy for too long.

        :return: whether there is one.
        """
        is_again = False
        assert reserver.session is not None, "a job comes by a connection"
        for each in self._scheduler.reservers:
            if (run := each.newest.get(job.id)) is not None:
                is_again = True
                run.hand_over(reserver.session, Ending.TTR if each is reserver else Ending.NOT_OURS)
        return is_again

    def _ended(self, _: None, run: JobRun[T]) -> None:
        run.reserver.drop(run)
        self._scheduler.ended()
        self._look_whether_idle()

    def _left(self, run: JobRun[T]) -> None:
        run.reserver.drop(run, is_stuck=True)
        stuck = self.stuck_slots
        self._settings.hooks.call("stuck", run.attempt, stuck=stuck, slots=self.concurrency)
        self._scheduler.look()
        self._look_whether_idle()
        if stuck == self.concurrency and not self._is_stopping:
            self._all_stuck()

    def _log_all_stuck(self) -> None:
        self._log.critical("all {slots} slots are stuck in functions that do not end: no job is "
                           "taken any more", slots=self.concurrency)  # fmt: skip

    # Stopping.

    def _look_whether_idle(self, _: object = None) -> None:
        if self._when_idle is not None and not self.jobs_in_hand and self._scheduler.is_quiet:
            self._leave()

    def _give_back(self) -> None:
        runs = self._runs()
        for run in runs:
            run.cancel(Ending.STOPPED)
        left = [
            Deferred.fromCoroutine(run.abandon(LAST_ANSWER_S)).addErrback(log_fault) for run in runs
        ]
        # By then, what was to be released is on its way.
        given_back = DeferredList(left).addCallback(lambda _: self._scheduler.may_give_back())
        given_back.addCallback(self._leave)

    def _leave(self, _: object = None) -> None:
        """Leave what still runs although it was cancelled."""
        if self._when_idle is not None and not self._when_idle.called:
            self._when_idle.callback(None)
