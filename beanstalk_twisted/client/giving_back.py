"""Jobs that have come for a `reserve` that was cancelled: they are released."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client.commands.methods import Commands
from beanstalk_twisted.client.stats import JobStats

# That of the connection, whose log line it was first.
_log: Final = Logger(namespace="beanstalk_twisted.client.connection.Connection")


class GivingBack:
    """
    Releases jobs of one connection, with the priorities that they have.

    A `reserve` that is wanted meanwhile would be in the way of a release, and wait for another job:
    as long as ``awaited`` is not 0 it is postponed, and what follows it too.

    :ivar awaited: how many answers have to come before all is released.
    """

    def __init__(
        self, commands: Commands,
        send_first: Callable[[Callable[[], Deferred[Any]]], Deferred[Any]],
        send_postponed: Callable[[], object],
    ) -> None:  # fmt: skip
        """
        :param commands: where the jobs are reserved.
        :param send_first: has what is sent in a function go ahead of what is postponed.
        :param send_postponed: called when there may be no reason to postpone any more.
        """
        self.awaited = 0
        self._commands = commands
        self._send_first = send_first
        self._send_postponed = send_postponed

    def give(self, job_id: int) -> None:
        """Release a job."""

        def release(stats: JobStats) -> Deferred[None]:
            self.awaited -= 1
            released = self._send_first(lambda: self._commands.release(job_id, priority=stats.pri))
            self._send_postponed()
            return released

        def give_up(failure: Failure) -> Failure:
            self.awaited -= 1
            self._send_postponed()
            return failure

        def note(failure: Failure) -> None:
            _log.info("job {job}, which nobody wants, not released: {why}",
                      job=job_id, why=failure.getErrorMessage())  # fmt: skip

        self.awaited += 1
        asked = self._send_first(lambda: self._commands.stats_job(job_id))
        asked.addErrback(give_up).addCallback(release).addErrback(note)

    def expect(self) -> None:
        """Jobs of a `reserve-batch` are to be released when they have come."""
        self.awaited += 1

    def give_all(self, job_ids: Iterable[int]) -> None:
        """Release those that were expected, if any have come."""
        for job_id in job_ids:
            self.give(job_id)
        self.awaited -= 1
        self._send_postponed()
