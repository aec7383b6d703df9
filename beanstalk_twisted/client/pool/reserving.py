"""Which server is asked for jobs, and when."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.pool.connections import JobConnections, PoolJob, PoolMember

REST_S: Final = 1.0
"""After an error, before a server is asked for jobs again, seconds."""

LATE_S: Final = 0.25
"""Seconds that others wait for a poll's answer: a server that hangs must not keep their jobs."""


class Waiter:
    """:ivar is_patient: it waits until there is a job, or for a time; else it only asks."""

    def __init__(
        self, forget: Callable[["Waiter"], None], command: str, is_patient: bool
    ) -> None:  # fmt: skip
        self.job: Deferred[PoolJob] = Deferred(lambda _: forget(self))
        self.command = command
        self.is_patient = is_patient
        self.timer: IDelayedCall | None = None


class Source:
    """:ivar is_fresh: it was not found empty since the last caller has begun to ask.
    :ivar is_late: it owes an answer to a poll for a while.
    """

    def __init__(self, member: PoolMember, job_connections: JobConnections) -> None:
        self.member = member
        self.job_connections = job_connections
        self.is_fresh = True
        self.is_late = False
        self._rest: IDelayedCall | None = None
        self._late: IDelayedCall | None = None

    @property
    def polls(self) -> int:
        """Give how many polls are worth waiting for."""
        return 0 if self.is_late else self.job_connections.polls

    @property
    def is_there(self) -> bool:
        """Return True if it can be asked."""
        return self.member.is_up and self._rest is None and not self.is_late

    @property
    def can_poll(self) -> bool:
        """Return True if a poll is of use now."""
        job_connections = self.job_connections
        return (
            self.is_there
            and self.is_fresh
            and not job_connections.is_blocking
            and job_connections.can_poll
        )

    def expect(self, clock: Any, late: Callable[[], object]) -> None:
        """Have ``late`` called if the answer to the oldest poll is not there in time."""

        def be_late() -> None:
            self._late = None
            self.is_late = True
            late()

        if self.job_connections.polls and self._late is None and not self.is_late:
            self._late = clock.callLater(LATE_S, be_late)

    def stop_expecting(self) -> None:
        """An answer has come, or none will."""
        self.is_late = False
        cancel(self._late)
        self._late = None

    def rest(self, clock: Any, over: Callable[[], object]) -> None:
        """Do not ask it for a while."""

        def end() -> None:
            self._rest = None
            over()

        self.stop_rest()
        self._rest = clock.callLater(REST_S, end)

    def stop_rest(self) -> None:
        cancel(self._rest)
        self._rest = None


class BlockingReserves:
    """All callers, and all servers that jobs may come from.

    Polls, which do not wait, go to one server after the other, and are never more than the callers
    that no blocking `reserve` can serve: no more jobs are reserved than are wanted.  Only when
    polls have found nothing does a `reserve` block at each server; all are ended as soon as no
    caller waits.
    """

    _log = Logger(namespace="beanstalk_twisted.client.pool.pool")

    def __init__(self, clock: Any, sources: Sequence[Source]) -> None:
        self._clock = clock
        # The one to be asked next is the first.
        self._sources = list(sources)
        self._waiters: dict[Waiter, None] = {}
        self._is_stopped = True

    def start(self) -> None:
        self._is_stopped = False
        for source in self._sources:
            source.job_connections.start()

    def stop(self) -> Deferred[Any]:
        """Fail all that wait; what is reserved is ready again."""
        self._is_stopped = True
        for waiter in list(self._waiters):
            self._fail(waiter, stopped(waiter.command))
        for source in self._sources:
            source.stop_rest()
            source.stop_expecting()
        return gatherResults([source.job_connections.stop() for source in self._sources])

    def take(self, command: str, seconds: float | None) -> Deferred[PoolJob]:
        """Wait for a job, some seconds at most; None waits for ever."""
        waiter = Waiter(self._forget, command, seconds is None or seconds > 0)
        if self._is_stopped:
            waiter.job.errback(stopped(command))
            return waiter.job
        self._waiters[waiter] = None
        if seconds:
            waiter.timer = self._clock.callLater(seconds, self._time_out, waiter)
        for source in self._sources:
            source.is_fresh = True
        self.look()
        return waiter.job

    def server_changed(self, member: PoolMember) -> None:
        for source in self._sources:
            if source.member is member:
                source.stop_rest()
                source.is_fresh = True
        self.look()

    def look(self) -> None:
        """Ask where that is of use now."""
        if self._is_stopped:
            return
        if not self._waiters:
            for each in self._sources:
                each.job_connections.cancel_blocking()
            return
        while self._wants_polls() and (source := self._next()) is not None:
            self._ask(source, source.job_connections.poll())
            source.expect(self._clock, self.look)
        if self._polls() or not self._waiters:
            return  # A poll that was answered immediately has looked already.
        self._end_who_only_ask()
        if self._waiters:
            self._block()

    # Who waits.

    def _forget(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)
        cancel(waiter.timer)
        self.look()

    def _time_out(self, waiter: Waiter) -> None:
        self._fail(waiter, self._no_job(waiter))
        self.look()

    def _fail(self, waiter: Waiter, error: Exception) -> None:
        del self._waiters[waiter]
        cancel(waiter.timer)
        waiter.job.errback(error)

    def _no_job(self, waiter: Waiter) -> Exception:
        down = [source.member.name for source in self._sources if not source.is_there]
        if len(down) == len(self._sources):
            only = self._sources[0].member.client.trouble if len(down) == 1 else None
            return errors.ServerDown(waiter.command, *down, reason=only)
        return errors.TimedOut(waiter.command)

    def _end_who_only_ask(self) -> None:
        """Fail those that do not wait, since nothing was found on the servers that are there.  But
        while none is there, and one may be up in a moment, they wait as any other command does.
        """
        members = [source.member for source in self._sources]
        if not any(member.is_up for member in members) and not all(
            member.is_down for member in members
        ):
            return
        for waiter in [waiter for waiter in self._waiters if not waiter.is_patient]:
            if waiter in self._waiters:
                self._fail(waiter, self._no_job(waiter))

    # Who is asked.

    def _polls(self) -> int:
        return sum(source.polls for source in self._sources)

    def _wants_polls(self) -> bool:
        blocking = sum(source.job_connections.is_blocking for source in self._sources)
        only_ask = sum(not waiter.is_patient for waiter in self._waiters)
        return self._polls() < max(len(self._waiters) - blocking, only_ask)

    def _next(self) -> Source | None:
        for source in self._sources:
            if source.can_poll:
                self._sources.remove(source)
                self._sources.append(source)
                return source
        return None

    def _block(self) -> None:
        for source in list(self._sources):
            if source.is_there and not source.job_connections.is_blocking:
                self._ask(source, source.job_connections.block())

    def _ask(self, source: Source, asked: Deferred[PoolJob | None]) -> None:
        asked.addCallbacks(
            self._answered, self._failed, callbackArgs=(source,), errbackArgs=(source,)
        )

    def _answered(self, job: PoolJob | None, source: Source) -> None:
        source.stop_expecting()
        source.expect(self._clock, self.look)
        source.is_fresh = job is not None
        if job is None:
            self.look()
            return
        waiter = next(iter(self._waiters), None)
        if waiter is None:
            source.job_connections.give_back(job)
            return
        del self._waiters[waiter]
        cancel(waiter.timer)
        # First the caller: if it asks for more, what is blocking stays.
        waiter.job.callback(job)
        self.look()

    def _failed(self, failure: Failure, source: Source) -> None:
        if self._is_stopped or failure.check(CancelledError):
            return
        source.stop_expecting()
        source.expect(self._clock, self.look)
        if source.member.is_up:
            self._log.info(
                "cannot reserve from the server {server}: {why}",
                server=source.member.name, why=failure.getErrorMessage(),
            )  # fmt: skip
            source.rest(self._clock, self.look)
        self.look()


def stopped(command: str) -> errors.NotCarriedOut:
    return errors.NotCarriedOut(command, None, errors.Closed("the pool was stopped"))
