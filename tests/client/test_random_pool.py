"""A pool under random calls and failures: no job is lost, and none is held that nobody has
asked for.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.pool.connections import PoolJob
from beanstalk_twisted.client.pool.pool import Pool
from tests.client.fleet import Fleet
from tests.sampling import share

NAMES = ("a", "b", "c")
TTR_S = 100_000

GONE = (errors.NotCarriedOut, errors.Unanswered, errors.ServerDown)
"""What may befall a command when its server is away."""


class Run:
    """A fleet, a pool, and what the application knows of its jobs.

    :ivar there: jobs that were put, and not ended by us for certain.
    :ivar hands: jobs that we were given, and have not ended.
    :ivar doubtful: jobs whose end was not answered.
    """

    def __init__(self) -> None:
        self.fleet = Fleet(*NAMES, has_log=True)
        self.tubes = [self.fleet.tube_on(name) for name in NAMES]
        self.pool: Pool = self.fleet.pool(tubes=self.tubes, patience_s=1)
        self.there: set[tuple[str, int]] = set()
        self.hands: list[PoolJob] = []
        self.doubtful: set[tuple[str, int]] = set()
        self.waits: list[Deferred[Any]] = []
        self.is_away = dict.fromkeys(NAMES, False)

    def put(self, which: int) -> None:
        put = self.pool.put(self.tubes[which % len(NAMES)], b"x", ttr=TTR_S)
        put.addCallback(lambda job: self.there.add((job.server, job.id)))
        put.addErrback(lambda failure: failure.trap(*GONE))

    def reserve(self, which: int) -> None:
        pool = self.pool
        seconds = (None, None, 3, 0)[which % 4]
        wait = pool.reserve() if seconds is None else pool.reserve_with_timeout(seconds)
        self.waits.append(wait)
        wait.addCallback(self.hands.append)
        wait.addErrback(
            lambda failure: failure.trap(CancelledError, errors.TimedOut, errors.ServerDown)
        )

    def cancel(self, which: int) -> None:
        if self.waits:
            self.waits.pop(which % len(self.waits)).cancel()

    def end(self, which: int) -> None:
        if not self.hands:
            return
        job = self.hands.pop(which % len(self.hands))
        key = (job.server, job.id)
        if which % 3:
            self.doubtful.add(key)

            def is_ended(_: None) -> None:
                self.doubtful.discard(key)
                self.there.discard(key)

            def is_not(failure: Failure) -> None:
                if failure.trap(*GONE) is errors.NotCarriedOut:
                    self.doubtful.discard(key)

            self.pool.delete(job).addCallbacks(is_ended, is_not)
        else:
            self.pool.release(job).addErrback(lambda failure: failure.trap(*GONE))

    def settle(self, which: int) -> None:
        self.fleet.settle()

    def step(self, which: int) -> None:
        self.fleet[NAMES[which % len(NAMES)]].step()

    def advance(self, which: int) -> None:
        self.fleet.advance((0.3, 2, 40)[which % 3])

    def kill(self, which: int) -> None:
        name = NAMES[which % len(NAMES)]
        if self.is_away[name]:
            self.fleet[name].restart()
        else:
            self.fleet[name].kill()
            self.hands[:] = [job for job in self.hands if job.server != name]
        self.is_away[name] = not self.is_away[name]

    def calm(self) -> None:
        """Bring all servers back, give up waiting, and wait until all is quiet."""
        for name in NAMES:
            if self.is_away[name]:
                self.fleet[name].restart()
        for wait in self.waits:
            wait.cancel()
        self.fleet.advance(100)

    def look(self) -> None:
        stats = self.fleet.result(self.pool.stats())
        assert not stats.failed
        assert stats.total["current-jobs-reserved"] == len(self.hands)
        assert stats.total["current-waiting"] == 0
        found = set()
        for job in self.there:
            try:
                self.fleet.result(self.pool.stats_job(PoolJob(*job)))
                found.add(job)
            except errors.NotFound:
                assert job in self.doubtful
        assert found >= self.there - self.doubtful


STEPS = st.sampled_from(
    ["put"] * 4 + ["reserve"] * 4 + ["end"] * 3 + ["cancel", "settle", "settle", "step", "step"]
    + ["advance", "kill"]
)  # fmt: skip


@settings(max_examples=share(150), deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 11)), min_size=5, max_size=80))
def test_no_job_is_lost_and_none_held_that_nobody_asked_for(steps: list[tuple[str, int]]) -> None:
    run = Run()
    for name, which in steps:
        getattr(run, name)(which)
    run.calm()
    run.look()
