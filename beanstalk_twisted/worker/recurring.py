"""
Puts recurring jobs: one for each time, however many schedulers run.

A scheduler keeps nothing: what was put is known to the server, which remembers the unique key of
each job (`schedule.Schedule.tags`).  So any number of them may run, stop and start as they like.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client.commands.tags import Inserted
from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.client.endpoints import the_reactor
from beanstalk_twisted.client.service import Client, tell
from beanstalk_twisted.worker.hooks import text_of
from beanstalk_twisted.worker.schedule import Schedule

LOOK_S: Final = 60.0
"""The longest sleep, seconds: a wall clock that was set is noticed within a minute."""

RETRY_S: Final = 10.0
"""After a put that the server has refused, seconds."""


class Run(NamedTuple):
    """
    A recurring job for one time.

    :ivar time_s: when it was due, seconds since 1970 UTC.
    :ivar job: its number; ``is_new`` says whether this scheduler has put it, and no other one.
    """

    schedule: Schedule
    time_s: int
    job: Inserted


class Recurring(Service):
    """The scheduler, as a service."""

    _log = Logger(namespace="beanstalk_twisted.worker.recurring")

    def __init__(
        self, endpoint: str | IStreamClientEndpoint, schedules: Iterable[Schedule], *,
        put: Callable[[Run], object] = lambda run: None, reactor: Any = None,
        wall_clock: Callable[[], float] = time.time, **options: Any,
    ) -> None:  # fmt: skip
        """
        :param endpoint: where the server is, as of `Client`.
        :param put: called for each job that is there, put by this scheduler or another one.
        :param wall_clock: gives the seconds since 1970 UTC.
        :param options: of `Client`.
        :raise ValueError: there is no schedule, or two of a tube have the same name.
        """
        self._clock = reactor or the_reactor()
        self._wall_clock = wall_clock
        self._put = put
        self._client = Client(endpoint, reactor=self._clock, probes=True, **options)
        self._series = [_Series(self, each) for each in schedules]
        if not self._series:
            raise ValueError("there is no schedule")
        places = {(each.schedule.tube, each.schedule.name) for each in self._series}
        if len(places) < len(self._series):
            raise ValueError("two schedules of a tube have the same name")

    def startService(self) -> None:
        super().startService()
        self._client.startService()
        for each in self._series:
            each.start()

    def stopService(self) -> Deferred[None]:
        """Put no more; what was sent may be there."""
        super().stopService()
        for each in self._series:
            each.stop()
        return self._client.stopService()

    # What its series call.

    def now_s(self) -> float:
        return self._wall_clock()

    def clock_s(self) -> float:
        return float(self._clock.seconds())

    def later(self, seconds: float, call: Callable[..., object], *args: object) -> IDelayedCall:
        delayed: IDelayedCall = self._clock.callLater(seconds, call, *args)
        return delayed

    def ask(self, schedule: Schedule, time_s: int) -> Deferred[Inserted]:
        """Put the job for a time."""
        return self._client.put(
            schedule.body_for(time_s), tube=schedule.tube, priority=schedule.priority,
            ttr=schedule.ttr, tags=schedule.tags(time_s),
        )  # fmt: skip

    def succeeded(self, run: Run) -> None:
        if run.job.is_new:
            self._log.info("{name}: job {job} put into {tube}", name=run.schedule.name,
                           job=int(run.job), tube=run.schedule.tube)  # fmt: skip
        tell(self._log, self._put, run)

    def failed(self, schedule: Schedule, error: BaseException) -> None:
        self._log.warn("{name}: {error}; retrying", name=schedule.name,
                       error=text_of(error))  # fmt: skip

    def missed(self, schedule: Schedule) -> None:
        self._log.warn("{name}: a run was missed: no job could be put in {seconds} s",
                       name=schedule.name, seconds=schedule.window_s)  # fmt: skip


class _Series:
    """The runs of one schedule."""

    def __init__(self, recurring: Recurring, schedule: Schedule) -> None:
        self.schedule = schedule
        self._recurring = recurring
        self._timer: IDelayedCall | None = None
        self._looked_s = 0.0
        self._puts: dict[int, Deferred[Any] | None] = {}

    def start(self) -> None:
        """Begin with what was missed, or was put by others."""
        self._looked_s = 0.0
        self._look()

    def stop(self) -> None:
        cancel(self._timer)
        for time_s in list(self._puts):
            self._give_up(time_s)

    def _look(self) -> None:
        """Put what is due, give up what has waited too long, and sleep until the next time."""
        now_s, schedule = self._recurring.now_s(), self.schedule
        self._timer = None
        due = schedule.due(self._looked_s, now_s)
        self._looked_s = now_s
        for time_s in list(self._puts):
            if time_s < now_s - schedule.window_s:
                self._recurring.missed(schedule)
                self._give_up(time_s)
            elif schedule.missed == "one" and due:
                self._give_up(time_s)  # The newest will do.
            elif self._puts[time_s] is None:
                due.append(time_s)
        for time_s in due:
            self._ask(time_s)
        self._sleep(min(schedule.next_s(now_s) - now_s, LOOK_S))

    def _sleep(self, most_s: float) -> None:
        """Look again after so many seconds, or before, if that was said already."""
        if self._timer is None or self._timer.getTime() > self._recurring.clock_s() + most_s:
            cancel(self._timer)
            self._timer = self._recurring.later(most_s, self._look)

    def _ask(self, time_s: int) -> None:
        """Put the job for a time, again if that was tried before."""
        self._puts[time_s] = None
        try:
            asked = self._recurring.ask(self.schedule, time_s)
        except Exception as error:  # The application makes the body.
            self._failed(Failure(error), time_s)
            return
        self._puts[time_s] = asked
        asked.addCallbacks(self._succeeded, self._failed, (time_s,), errbackArgs=(time_s,))

    def _succeeded(self, job: Inserted, time_s: int) -> None:
        del self._puts[time_s]
        self._recurring.succeeded(Run(self.schedule, time_s, job))

    def _failed(self, failure: Failure, time_s: int) -> None:
        if time_s not in self._puts:
            return  # It was given up.
        assert failure.value is not None
        self._puts[time_s] = None
        self._sleep(RETRY_S)
        self._recurring.failed(self.schedule, failure.value)

    def _give_up(self, time_s: int) -> None:
        asked = self._puts.pop(time_s)
        if asked is not None:
            asked.cancel()
