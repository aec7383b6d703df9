"""When to send a `reserve`, and on which connection; the package's docstring says why."""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.worker.demand import PATIENCE_S, REST_S, Demand
from beanstalk_twisted.worker.reserver import Reserver
from beanstalk_twisted.worker.settings import Settings

LAST_ANSWER_S: Final = 5.0
"""How long a worker that stops waits for the answers to its polls, seconds."""


class ReserveScheduler:
    """
    Sends the `reserve`s of one worker.

    :ivar reservers: its connections.
    """

    _log = Logger(namespace="beanstalk_twisted.worker")

    def __init__(
        self, settings: Settings[Any], reserved: Callable[[Job, Reserver], object],
        quiet: Callable[[], object],
    ) -> None:  # fmt: skip
        """
        :param reserved: called with each job that comes.
        :param quiet: called when it was stopped, and no job can come any more.
        """
        self.reservers = [
            Reserver(settings, number, self.look)
            for number in range(min(settings.connections, settings.concurrency))
        ]
        self._settings = settings
        self._clock = settings.clock
        self._reserved = reserved
        self._quiet = quiet
        self._demand = Demand(settings.concurrency)
        self._timer: IDelayedCall | None = None
        self._limit: IDelayedCall | None = None
        self._rest_until_s = 0.0
        self._is_looking = False
        self._is_over = False
        self._waiting: list[Deferred[None]] = []

    def start(self) -> None:
        """Connect, and take jobs from now on."""
        self._is_over = False
        for reserver in self.reservers:
            reserver.start()

    @property
    def jobs_in_hand(self) -> int:
        """How many jobs the connections have."""
        return sum(len(reserver.jobs) for reserver in self.reservers)

    @property
    def stuck(self) -> int:
        """How many handlers still run though their attempts were given up."""
        return sum(len(reserver.stuck) for reserver in self.reservers)

    # Looking.

    def look(self) -> None:
        """Ask for jobs, where and as often as it is worthwhile now."""
        if self._is_looking or self._is_over:
            return
        self._is_looking = True
        try:
            while self._free() > 0 and (place := self._place()) is not None:
                self._ask(*place)
        finally:
            self._is_looking = False

    def ended(self) -> None:
        """There is one job less in hand."""
        self._demand.ended(self._clock.seconds())
        self.look()

    def _free(self) -> int:
        asked = sum(reserver.polls + reserver.is_blocking for reserver in self.reservers)
        return self._settings.concurrency - self.jobs_in_hand - self.stuck - asked

    def _place(self) -> tuple[Reserver, int] | None:
        """Say on which connection to ask next, and how long to wait there; None to leave it."""
        up = [reserver for reserver in self.reservers if reserver.session is not None]
        now_s = self._clock.seconds()
        if not up or any(reserver.is_blocking for reserver in up):
            return None
        if now_s < self._rest_until_s:
            self._later(self._rest_until_s - now_s)
            return None
        polls = sum(reserver.polls for reserver in up)
        if not self._demand.is_dry:
            return (up[0], 0) if polls < self._demand.at_once else None
        if polls:
            return None
        for reserver in up:
            if reserver.is_empty and now_s >= reserver.no_wait_until_s:
                return reserver, PATIENCE_S
        if now_s < self._demand.next_s:
            self._later(self._demand.next_s - now_s)
            return None
        return up[0], 0

    def _later(self, wait_s: float) -> None:
        cancel(self._timer)
        self._timer = self._clock.callLater(wait_s, self.look)

    def _ask(self, reserver: Reserver, seconds: int) -> None:
        asked = reserver.ask(seconds)
        asked.addCallbacks(self._job, self._none, callbackArgs=(reserver,))
        asked.addErrback(lambda failure: self._log.failure("a fault in the worker", failure))
        asked.addCallback(self._answered)

    def _job(self, job: Job, reserver: Reserver) -> None:
        self._demand.got()
        self._reserved(job, reserver)
        self.look()

    def _none(self, failure: Failure) -> None:
        if failure.check(CancelledError) or self._is_over:
            return
        self._demand.got_none(self._clock.seconds())
        if not failure.check(errors.TimedOut, errors.DeadlineSoon):
            self._rest_until_s = self._clock.seconds() + REST_S
            self._settings.hooks.call("troubled", failure.value)
        self.look()

    # Stopping.

    def stop(self) -> None:
        """
        Ask no more, and see to it that nothing more is given to us: a job that is given back must
        not come to another connection of ours.
        """
        self._is_over = True
        cancel(self._timer)
        for reserver in self.reservers:
            reserver.take_no_more()
        self._limit = self._clock.callLater(LAST_ANSWER_S, self._give_up)
        self._answered(None)

    def may_give_back(self) -> Deferred[None]:
        """
        Wait until a job may be released: at once as long as jobs are wanted, and otherwise when
        none can come any more.
        """
        if not self._is_over or self.is_quiet:
            return succeed(None)
        self._waiting.append(Deferred())
        return self._waiting[-1]

    @property
    def is_quiet(self) -> bool:
        """Whether every `reserve` has its answer."""
        return not any(reserver.asked for reserver in self.reservers)

    def _answered(self, _: object) -> None:
        if not self._is_over or not self.is_quiet:
            return
        cancel(self._limit)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)
        self._quiet()

    def _give_up(self) -> None:
        for reserver in self.reservers:
            reserver.cancel_reserves()
