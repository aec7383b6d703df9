"""
The worker, as a service: what it is made of, when it begins and when it stops.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import random as any_random
from typing import Any, Final, Generic, TypeVar, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client.command_specs import Job
from beanstalk_twisted.client.connection import GRACE_S, the_reactor
from beanstalk_twisted.client.reconnecting import Backoff
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.worker.asking import Asking
from beanstalk_twisted.worker.attempt import Ending
from beanstalk_twisted.worker.checks import (
    check_numbers,
    check_parts,
    check_tubes,
    hooks_of,
    threads_of,
)
from beanstalk_twisted.worker.hooks import Hooks, Logged, Told
from beanstalk_twisted.worker.job_run import Doer, JobRun, Ways
from beanstalk_twisted.worker.policy import Policy, Retry
from beanstalk_twisted.worker.reserver import Reserver, Tube
from beanstalk_twisted.worker.serialisers import Bytes, Serialiser
from beanstalk_twisted.worker.threads import Threads

T = TypeVar("T")

FINISH_S: Final = 25.0
"""
How long a worker that stops waits for the jobs in hand, seconds: less than the 30 after which a
Kubernetes or a ``docker stop`` told so kills.
"""

CONNECTIONS: Final = 2
"""One for jobs, and one on which a `reserve` can wait meanwhile."""

_DEFAULT: Final = ("default", b"default")


class Worker(Service, Generic[T]):
    """
    Takes jobs from tubes, and has a function do them, so many at once.

    :ivar concurrency: how many.
    """

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(
        self, endpoint: str | IStreamClientEndpoint, tubes: str | Sequence[Tube],
        handler: Doer[T], concurrency: int = 1, *, serialiser: Serialiser[T] | None = None,
        policy: Policy | None = None, hooks: Iterable[Hooks] = (), logs: bool = True,
        in_threads: bool | Threads = False, touches: bool = True, limit_s: float | None = None,
        finish_s: float = FINISH_S, connections: int = CONNECTIONS, reactor: Any = None,
        grace_s: float = GRACE_S, backoff: Callable[[], Backoff] | None = None,
        chance: Callable[[], float] = any_random,
    ) -> None:  # fmt: skip
        """
        :param endpoint: where the server is, as of `Client`: ``127.0.0.1:11300``, or an endpoint.
        :param tubes: where jobs come from; one, or several.
        :param handler: does a job, given an `attempt.Attempt`.  It is done when this returns, or
            when the Deferred or coroutine that it gives has; an exception means that it is not.
            A `verdicts.Verdict` that it gives says what becomes of the job.
        :param concurrency: jobs at once, 1 to `MAX_CONCURRENCY`.
        :param serialiser: reads bodies; they are bytes without one.
        :param policy: decides about failures; `policy.Retry` without one.
        :param hooks: told what happens.
        :param logs: tell `hooks.Logged` as well, which writes to Twisted's log.
        :param in_threads: the handler blocks: run it in threads, as many as ``concurrency``.
        :param touches: touch each job in time for as long as it is worked on.
        :param limit_s: how long an attempt may take, seconds; None for ever.
        :param finish_s: how long the jobs in hand may take when the worker stops, seconds.
        :param connections: 1 to ``concurrency``; more than that is never used.
        :param chance: gives a number from 0 up to 1 for each call.
        :raise ValueError: a number is out of its range, there is no tube, one has a name that no
            tube can have, a coroutine is to run in threads, or anything on a clock.
        :raise TypeError: something is of another kind.
        """
        check_numbers(concurrency, connections, finish_s, limit_s)
        self._tubes = [tubes] if isinstance(tubes, str | bytes) else list(tubes)
        check_tubes(self._tubes)
        reads: Serialiser[T] = cast(Any, Bytes()) if serialiser is None else serialiser
        decides: Policy = Retry() if policy is None else policy
        check_parts(handler, reads, decides)
        told = (Logged(), *hooks_of(hooks)) if logs else hooks_of(hooks)
        self.concurrency = concurrency
        self._clock = reactor or the_reactor()
        self._finish_s = finish_s
        self._asking = Asking(
            self._clock, concurrency, self._got, self._troubled, self._look_whether_idle
        )
        self._ways: Ways[T] = Ways(
            self._clock, chance, handler, reads, decides, Told(told),
            threads_of(in_threads, handler, self._clock, concurrency), touches, limit_s,
            self._asking.may_give_back,
        )  # fmt: skip
        self._is_stopping = False
        self._when_idle: Deferred[None] | None = None
        self._when_stopped: list[Deferred[None]] | None = None

        def make_client(number: int, **callbacks: Any) -> Client:
            each = None if backoff is None else backoff()
            # All go to the same server: one is enough to say that it is not there.
            return Client(
                endpoint, reactor=reactor, grace_s=grace_s, backoff=each,
                logs=logs and number == 0, **callbacks,
            )  # fmt: skip

        self._reservers = [
            Reserver(
                self._clock,
                partial(make_client, number),
                self._asking.look,
                self._lost,
                self._troubled,
            )
            for number in range(min(connections, concurrency))
        ]  # fmt: skip
        self._asking.reservers = self._reservers

    @property
    def jobs_in_hand(self) -> int:
        """
        How many jobs it has.
        """
        return self._asking.jobs_in_hand

    # What Twisted calls.

    def startService(self) -> None:
        """
        Begin to take jobs; if it stops just now, when it has stopped.
        """
        super().startService()
        if self._when_stopped is None:
            self._begin()

    def _begin(self) -> None:
        self._is_stopping = False
        self._asking.start()
        if self._ways.threads is not None:
            self._ways.threads.start()
        ignores_default = not any(tube in _DEFAULT for tube in self._tubes)
        for reserver in self._reservers:
            reserver.start(self._tubes, ignores_default)

    def stopService(self) -> Deferred[None]:
        """
        Take no more jobs, finish those in hand, and give back those that take longer than
        ``finish_s``.

        :return: fires when all is settled and the connections are closed.
        """
        if self._when_stopped is not None:
            super().stopService()  # It may have been told to start meanwhile.
            again: Deferred[None] = Deferred()
            self._when_stopped.append(again)
            return again
        self._when_stopped = []
        super().stopService()
        self._is_stopping = True
        for reserver in self._reservers:
            for held in reserver.jobs:
                cast(JobRun[T], held).do_not_begin()
        finished = self._when_idle = Deferred()
        limit = self._clock.callLater(self._finish_s, self._give_back)
        self._asking.stop()
        return finished.addCallback(lambda _: self._part(limit)).addBoth(self._stopped)

    def drop(self) -> None:
        """
        Cancel the jobs in hand: the process ends now, and its connections with it, so that the
        server gives them to others.
        """
        for reserver in self._reservers:
            for held in list(reserver.jobs):
                held.cancel(Ending.STOPPED)

    # Jobs that come and go.

    def _got(self, job: Job, reserver: Reserver) -> None:
        if reserver.is_parting:
            return  # The server takes it back when it ends the connection.
        self._hand_over(job, reserver)
        carrying: JobRun[T] = JobRun(self._ways, reserver, job)
        reserver.hold(job.id, carrying)
        if self._is_stopping:
            carrying.do_not_begin()
        ended = Deferred.fromCoroutine(carrying.carry_out())
        ended.addErrback(self._log_failure).addCallback(self._ended, reserver, job.id, carrying)

    def _hand_over(self, job: Job, reserver: Reserver) -> None:
        """
        End the attempt at this very job that is still in hand: its TTR has ended without our
        knowing, for the process stood still, or something kept the reactor busy for too long.
        """
        assert reserver.session is not None, "a job comes by a connection"
        for each in self._reservers:
            if (held := each.holder(job.id)) is not None:
                held.hand_over(
                    reserver.session, Ending.TTR if each is reserver else Ending.NOT_OURS
                )

    def _ended(self, _: None, reserver: Reserver, number: int, carrying: JobRun[T]) -> None:
        reserver.drop(number, carrying)
        self._asking.ended()
        self._look_whether_idle()

    def _lost(self, losses: Losses) -> None:
        self._ways.told.tell("disconnected", losses)

    def _troubled(self, error: BaseException) -> None:
        self._ways.told.tell("troubled", error)

    def _log_failure(self, failure: Failure) -> None:
        self._log.failure("a fault in the worker", failure)

    # Stopping.

    def _look_whether_idle(self) -> None:
        """
        A worker that stops is done when it has no job, and none can come.
        """
        if not self.jobs_in_hand and self._asking.is_quiet:
            self._leave()

    def _give_back(self) -> None:
        """
        The jobs in hand take too long.
        """
        held = [cast(JobRun[T], each) for reserver in self._reservers for each in reserver.jobs]
        for each in held:
            each.cancel(Ending.STOPPED)
        left = [Deferred.fromCoroutine(each.abandon()) for each in held]
        for each_left in left:
            each_left.addErrback(self._log_failure)
        # By then, what was to be released is on its way.
        given_back = DeferredList(left).addCallback(lambda _: self._asking.may_give_back())
        given_back.addCallback(self._leave)

    def _leave(self, _: object = None) -> None:
        """
        What heeds no cancelling is left behind.
        """
        if self._when_idle is not None and not self._when_idle.called:
            self._when_idle.callback(None)

    def _part(self, limit: IDelayedCall) -> Deferred[None]:
        self._when_idle = None
        if limit.active():
            limit.cancel()
        if self._ways.threads is not None:
            self._ways.threads.stop()
        parted: Deferred[Any] = gatherResults([reserver.stop() for reserver in self._reservers])
        return parted.addCallback(lambda results: None)

    def _stopped(self, outcome: Any) -> Any:
        """
        Tell those who have asked for it once more, and begin anew if that was asked for last.
        """
        waiting, self._when_stopped = self._when_stopped or [], None
        if self.running:
            self._begin()
        for again in waiting:
            again.callback(None)
        return outcome
