"""Whatever happens in between, in the end every job was done, and the worker holds nothing."""

from __future__ import annotations

import random

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost

from beanstalk_twisted.client import errors
from beanstalk_twisted.testing.double import MemoryLink
from beanstalk_twisted.worker.policy import Release, Retry, times_given_back
from tests.sampling import one_in
from tests.worker.world import Shop, Slow

SEEDS = 60
STEPS = 60


class Storm:
    """A worker that gets no rest, chosen by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.shop = Shop(has_log=True)
        self.slow = Slow()
        self.done: set[int] = set()
        self.put: set[int] = set()
        self.worker = self.shop.worker(
            self.slow, self.chance.randint(1, 6), connections=self.chance.randint(1, 3),
            chance=self.chance.random, grace_s=5, touches=self.chance.random() < 0.8,
            policy=Retry(self.chance.choice((10**6, None)), 1, 4, count=times_given_back),
        )  # fmt: skip

    def step(self) -> None:
        happenings = {
            self._put: 6, self._finish: 8, self._fail: 2, self._give_back: 2, self._break: 1,
            self._cut_off: 1, self._restart: 1, self._wait: 4,
        }  # fmt: skip
        self.chance.choices(list(happenings), list(happenings.values()))[0]()
        self.shop.world.settle()
        assert self.worker.jobs_in_hand <= self.worker.concurrency

    def _put(self) -> None:
        self.put.add(self.shop.put(ttr=self.chance.randint(1, 20)))

    def _any_waiting(self) -> int | None:
        waiting = [job for job, each in self.slow.waiting.items() if not each.called]
        return self.chance.choice(waiting) if waiting else None

    def _finish(self) -> None:
        if (job := self._any_waiting()) is not None:
            self.done.add(job)
            self.slow.finish(job)

    def _fail(self) -> None:
        if (job := self._any_waiting()) is not None:
            self.slow.fail(job, RuntimeError("by chance"))

    def _give_back(self) -> None:
        if (job := self._any_waiting()) is not None:
            self.slow.finish(job, Release(self.chance.randint(0, 3)))

    def _link(self) -> MemoryLink | None:
        links = [link for link in self.shop.links if not link.transport.is_closed]
        return self.chance.choice(links) if links else None

    def _break(self) -> None:
        if (link := self._link()) is not None:
            link.transport.end(ConnectionLost())
            link.wire.peer.hang_up()

    def _cut_off(self) -> None:
        if (link := self._link()) is not None:
            link.wire.cut_off()
            self.shop.world.advance(self.chance.random() * 10)
            link.wire.peer.hang_up()

    def _restart(self) -> None:
        self.shop.world.kill()
        self.shop.world.advance(self.chance.random() * 3)
        self.shop.world.restart()
        self.shop.world.advance(60)

    def _wait(self) -> None:
        self.shop.world.advance(self.chance.random() * 5)

    def calm(self) -> None:
        for _ in range(1000):
            self._finish()
            self.shop.world.advance(1)
            if not self.shop.jobs():
                return
        raise AssertionError(self.shop.jobs())


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", one_in(5, range(SEEDS)))
def test_every_job_is_done_in_the_end_whatever_happens(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(STEPS):
        storm.step()
    storm.calm()
    assert storm.done == storm.put
    stopped: Deferred[None] = storm.worker.stopService()
    storm.shop.world.advance(60)
    storm.shop.world.result(stopped)
    assert storm.worker.jobs_in_hand == 0
    assert not any(isinstance(each[0], errors.BadReply) for each in storm.shop.noted.told)
