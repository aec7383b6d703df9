"""The model with one flaw each no longer says what the server does, and `test_everything` finds it:
the proof that it could fail.  A difference is found from whichever side it comes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.commands import Commands
from tests.model.queue import LIMIT, TICKS, Bucket, Job
from tests.sampling import one_in
from tests.stateful.scenes import Scenes
from tests.stateful.test_everything import ALL_EXAMPLES, STEPS


class LeavesTheTtr(Commands):
    def update(
        self, number: int, job_id: int, pri: int, delay: int, ttr: int, body: str | None
    ) -> str:  # fmt: skip
        job = self.is_seen(number, job_id)
        due = job.due if job is not None and job.state == "reserved" else 0
        said = super().update(number, job_id, pri, delay, ttr, body)
        if due and job is not None:
            job.due = due
        return said


class KicksPastKeys(Commands):
    def kick_dead(self, tube: str, bound: int) -> str:
        keys = {job.job_id: job.unique for job in self.letters(tube)}
        for job in self.letters(tube):
            job.unique = ""
        said = super().kick_dead(tube, bound)
        for job in self.jobs.values():
            job.unique = keys.get(job.job_id, job.unique)
        return said


class OneMoreThan(Commands):
    key = ""

    def most(self, tube: str, key: str) -> int:
        return super().most(tube, key) + (key == self.key)


class TakesOneMore(OneMoreThan):
    key = "max-jobs"


class TakesOneByteMore(OneMoreThan):
    key = "max-bytes"


class ReservesOneMore(OneMoreThan):
    key = "max-reserved"


class TriesOnceMore(OneMoreThan):
    key = "max-reserves"


class LetsOneMoreOfAKeyGo(Commands):
    def has_place(self, job: Job) -> bool:
        return super().has_place(job) or super().has_place(Job(**(vars(job) | {"limit": 2})))


class DeadSinceItsPut(Commands):
    def ends_of_age(self, job: Job) -> int:
        ends = super().ends_of_age(job)
        return ends + job.created - job.since


class ForgetsTagsAtAStart(Commands):
    def restart(self) -> None:
        super().restart()
        for job in self.jobs.values():
            job.after = ""


class GroupOfOneHasEnded(Commands):
    def members(self, group: str) -> list[Job]:
        return super().members(group)[1:]


class RemembersTooLong(Commands):
    def drop(self, job: Job, *, forgets: bool = False) -> None:
        job.unique_s += bool(job.unique_s)
        super().drop(job, forgets=forgets)


class ForgetsKeysAtAStart(Commands):
    def restart(self) -> None:
        super().restart()
        self.remembered = {}


class ReservesOneMoreOfABatch(Commands):
    def reserve_batch(
        self, number: int, count: int, chosen: Sequence[int] = (), is_timed: bool = False
    ) -> str:
        return super().reserve_batch(number, count + 1, chosen, is_timed)


class FlushesAllButOne(Commands):
    def flush(self, tube: str, state: str, most: int = 9, keys: int = LIMIT) -> str:
        return super().flush(tube, state, most, keys)


class HalfABatch(Commands):
    def put(
        self, number: int, jobs: list[Job], *, is_batch: bool, at: int | None = None
    ) -> str:  # fmt: skip
        if is_batch and self.refusal(self.peers[number].using, jobs):
            super().put(number, jobs[:1], is_batch=True, at=at)
        return super().put(number, jobs, is_batch=is_batch, at=at)


class PutsAtTheNextSecond(Commands):
    def put(
        self, number: int, jobs: list[Job], *, is_batch: bool, at: int | None = None
    ) -> str:  # fmt: skip
        later = None if at is None else at + TICKS
        return super().put(number, jobs, is_batch=is_batch, at=later)


class FillsTwoBuckets(Commands):
    def bucket(self, tube: str) -> Bucket | None:
        found = super().bucket(tube)
        if found is not None:
            found.most = max(found.most, 3 * TICKS)
        return found


class TakesOneByteMoreOfABatch(Commands):
    def measured(self, jobs: list[Job]) -> tuple[int, int]:
        count, size = super().measured(jobs)
        return count, size - (count > 1)


class CountsABatchAsOneJob(Commands):
    def measured(self, jobs: list[Job]) -> tuple[int, int]:
        count, size = super().measured(jobs)
        return min(count, 1), size


class EndsAGroupOneJobEarly(Commands):
    def drop(self, job: Job, *, forgets: bool = False) -> None:
        super().drop(job, forgets=forgets)
        for each in self.jobs.values():
            if each.is_waiting and each.after == job.group and len(self.members(job.group)) == 1:
                self.let_go(each, each.created + each.delay * TICKS)


FLAWS = [
    TakesOneMore, KicksPastKeys, LeavesTheTtr, TakesOneByteMore, ReservesOneMore, TriesOnceMore,
    LetsOneMoreOfAKeyGo, DeadSinceItsPut, ForgetsTagsAtAStart, GroupOfOneHasEnded,
    RemembersTooLong, ForgetsKeysAtAStart, ReservesOneMoreOfABatch, FlushesAllButOne, HalfABatch,
    FillsTwoBuckets, PutsAtTheNextSecond, TakesOneByteMoreOfABatch, CountsABatchAsOneJob,
    EndsAGroupOneJobEarly,
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("flaw", one_in(4, FLAWS), ids=lambda flaw: flaw.__name__)
def test_a_flaw_is_found(flaw: type[Commands]) -> None:
    class Flawed(Scenes):
        commands = flaw

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Flawed,
            settings=settings(
                max_examples=ALL_EXAMPLES, stateful_step_count=STEPS, deadline=None,
                derandomize=True, phases=[Phase.generate], report_multiple_bugs=False,
                database=None, suppress_health_check=[*HealthCheck],
            ),
        )  # fmt: skip
