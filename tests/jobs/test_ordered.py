"""Job ids in order, any of which can leave."""

from __future__ import annotations

import sys
from array import array
from bisect import insort
from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from beanstalk_twisted.jobs.ordered import BLOCK_KEYS, FEW, ID_MASK, LEAST, OrderedJobs
from tests.rules.memory import growth_bytes
from tests.sampling import one_in, share

Jobs = list[tuple[int, int]]

MANY = 40_000
"""Enough for 80 blocks and more."""

MOST_CALLS = 24
"""So many calls, of Python or C, are made at most by one that is for one job."""


def queue_of(jobs: Jobs) -> OrderedJobs:
    """Let jobs enter one by one."""
    queue = OrderedJobs()
    for major, job_id in jobs:
        queue.add(major, job_id)
    return queue


def first(queue: OrderedJobs) -> tuple[int, int] | None:
    """Give major and id of the first job."""
    key = queue.first()
    return None if key is None else (key >> 64, key & ID_MASK)


def firsts(queue: OrderedJobs, most: int) -> Jobs:
    """Give the same of the first jobs."""
    jobs = [(key >> 64, key & ID_MASK) for key in queue.behind(LEAST, most)]
    assert [job_id for _, job_id in jobs] == queue.first_ids(most)
    return jobs


def drain(queue: OrderedJobs) -> Iterator[tuple[int, int]]:
    """Take the jobs in their order."""
    while (found := first(queue)) is not None:
        yield found
        queue.discard(*found)


def calls(action: Callable[[], object]) -> int:
    """Count the calls that this makes, its own counted in."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("major", [lambda at: 7, lambda at: -at, lambda at: at % 3])
def test_from_any_key_on_the_keys_behind_it_can_be_had(major: Callable[[int], int]) -> None:
    jobs = [(major(at), at) for at in range(3 * BLOCK_KEYS)]
    queue = queue_of(jobs)
    gone = jobs[BLOCK_KEYS // 2 : 2 * BLOCK_KEYS]
    for job in gone:
        queue.discard(*job)
    keys = queue.behind(LEAST, queue.count)
    assert queue.last() == keys[-1]
    for passed in [LEAST, *(job[0] << 64 | job[1] for job in jobs)]:
        behind = [key for key in keys if key > passed]
        for most in (1, BLOCK_KEYS, 3 * BLOCK_KEYS):
            assert queue.behind(passed, most) == behind[:most]


def test_a_job_that_is_not_here_cannot_leave() -> None:
    queue = queue_of([(7, 1), (7, 3)])
    with pytest.raises(AssertionError):
        queue.discard(7, 2)


@pytest.mark.parametrize("more", [0, 1])
def test_keys_in_order_begin_another_block_when_one_is_full(more: int) -> None:
    queue = queue_of([(7, job_id) for job_id in range(BLOCK_KEYS + more)])
    assert [len(block) for block in queue._ids] == [BLOCK_KEYS] + [more] * more


@pytest.mark.parametrize("more", [0, 1])
def test_a_block_is_cut_in_halves_when_a_key_in_between_makes_it_too_large(more: int) -> None:
    queue = queue_of([(7, 10 * job_id) for job_id in range(1, BLOCK_KEYS)])
    for at in range(1 + more):
        queue.add(7, 5 + at)
    half = BLOCK_KEYS // 2
    assert [len(block) for block in queue._ids] == ([half + 1, half] if more else [BLOCK_KEYS])


def test_many_small_groups_between_others_do_not_make_many_small_blocks() -> None:
    queue = OrderedJobs()
    queue.add_run(0, list(range(0, 100 * BLOCK_KEYS, 100)))
    for job_id in range(0, 100 * BLOCK_KEYS, 100):
        queue.add_run(0, [job_id + 2, job_id + 4])
        queue.add_run(0, [job_id + 1])
    assert queue.count == 4 * BLOCK_KEYS
    assert len(queue._ids) <= 2 * 4 + 1


@pytest.mark.parametrize("major", [lambda turn: 0, lambda turn: -turn % 1000, lambda turn: turn])
def test_jobs_that_come_and_go_leave_no_memory_behind(major: Callable[[int], int]) -> None:
    queue = queue_of([(0, 1)])

    def come_and_go() -> None:
        for turn in range(10_000):
            queue.add(major(turn), turn + 2)
            queue.discard(major(turn), turn + 2)

    assert growth_bytes(come_and_go) < 10_000
    assert list(drain(queue)) == [(0, 1)]


def test_many_jobs_that_left_leave_no_memory_behind() -> None:
    queue = queue_of([(7, 0)])

    def come_and_go() -> None:
        queue.add_run(7, list(range(1, MANY)))
        for job_id in range(MANY - 1, 0, -1):
            queue.discard(7, job_id)

    assert growth_bytes(come_and_go) < 20_000
    assert queue.count == 1


# However much has left, nothing takes long.

MAJORS = pytest.mark.parametrize(
    "major",
    [
        pytest.param(lambda at: 7, id="one"),
        pytest.param(lambda at: at % 3, id="three"),
        pytest.param(lambda at: at * 7919 % 1_000_003, id="random"),
        pytest.param(lambda at: 1_000_000 - at, id="falling"),
    ],
)
LEAVING: dict[str, Callable[[Jobs], Jobs]] = {
    "all but the first of the best half": lambda jobs: jobs[1 : MANY // 2],
    "all but two of the best half": lambda jobs: jobs[2 : MANY // 2],
    "the best half": lambda jobs: jobs[: MANY // 2],
    "the worst half": lambda jobs: jobs[: MANY // 2 : -1],
    "every other": lambda jobs: jobs[::2],
    "all but a hundred": lambda jobs: [job for at, job in enumerate(jobs) if at % 400],
    "all but the last": lambda jobs: jobs[:-1],
}


@pytest.mark.one_in(5)
@MAJORS
@pytest.mark.parametrize("which", one_in(3, LEAVING))
def test_no_call_takes_long_whatever_left_before_it(
    major: Callable[[int], int], which: str
) -> None:
    jobs = [(major(at), at) for at in range(MANY)]
    queue = queue_of(jobs)
    jobs.sort()
    leaving = LEAVING[which](jobs)
    shuffled = leaving[:]
    Random(7).shuffle(shuffled)
    longest = 0
    for at, job in enumerate(shuffled):
        if at % 100:
            queue.discard(*job)
        else:
            longest = max(longest, calls(lambda job=job: queue.discard(*job)))  # type: ignore[misc]
    staying = sorted(set(jobs) - set(leaving))
    assert max(map(len, queue._ids)) <= BLOCK_KEYS, "no more is moved in one go"
    for job in staying[:500]:
        longest = max(longest, calls(lambda: first(queue)))
        assert first(queue) == job
        longest = max(longest, calls(lambda job=job: queue.discard(*job)))  # type: ignore[misc]
    for job in staying[:500]:
        longest = max(longest, calls(lambda job=job: queue.add(*job)))  # type: ignore[misc]
    assert 0 < longest <= MOST_CALLS
    assert firsts(queue, MANY) == staying


@pytest.mark.one_in(5)
@MAJORS
@pytest.mark.parametrize("which", one_in(3, LEAVING))
def test_the_first_jobs_together_take_no_longer_whatever_left_before(
    major: Callable[[int], int], which: str
) -> None:
    jobs = sorted((major(at), at) for at in range(MANY))
    queue = queue_of(jobs)
    leaving = LEAVING[which](jobs)
    for job in leaving:
        queue.discard(*job)
    staying = sorted(set(jobs) - set(leaving))
    taken = len(staying[:100])
    # Each block that it looks at has one of them at least.
    assert calls(lambda: queue.first_ids(100)) <= MOST_CALLS + 3 * taken
    assert firsts(queue, 100) == staying[:100]
    assert calls(lambda: queue.discard_firsts(taken)) <= MOST_CALLS + 2 * taken
    assert firsts(queue, MANY) == staying[taken:]
    assert queue.count == len(staying) - taken


# Against a plain sorted list.

MAJOR = st.one_of(st.integers(0, 3), st.integers(-(1 << 63), (1 << 63) - 1))


class Comparison(RuleBasedStateMachine):
    """The same done to a queue and to a sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = OrderedJobs()
        self.expected: Jobs = []
        self.gone: Jobs = []

    def drop(self, jobs: Jobs) -> None:
        """Take these out of the list."""
        leaving = set(jobs)
        self.expected = [job for job in self.expected if job not in leaving]
        self.gone = jobs[-1000:]

    @rule(major=MAJOR, job_id=st.integers(0, 40) | st.integers(0, ID_MASK))
    def add(self, major: int, job_id: int) -> None:
        job = (major, job_id)
        if job not in self.expected:
            insort(self.expected, job)
            assert self.queue.add(major, job_id) == (self.expected[0] == job)

    @precondition(lambda self: self.gone)
    @rule(chance=st.randoms())
    def come_back(self, chance: Random) -> None:
        missing = sorted(set(self.gone).difference(self.expected))
        for job in chance.sample(missing, len(missing)):
            assert self.queue.add(*job) == (not self.expected or job < self.expected[0])
            insort(self.expected, job)
        self.gone = []

    @rule(
        majors=st.lists(st.integers(0, 3), min_size=1, max_size=4),
        start=st.integers(0, 3 * BLOCK_KEYS),
        count=st.integers(1, 2 * FEW) | st.integers(1, 3 * BLOCK_KEYS),
        stride=st.sampled_from([1, 2, 7, BLOCK_KEYS]),
    )
    def add_all(self, majors: list[int], start: int, count: int, stride: int) -> None:
        ids = range(start, start + stride * count, stride)
        jobs = {(majors[n % len(majors)], job_id) for n, job_id in enumerate(ids)}
        new = sorted(jobs.difference(self.expected))
        if new:
            was_first = self.expected[0] if self.expected else (4, 0)
            columns = array("q", [job[0] for job in new]), array("Q", [job[1] for job in new])
            is_first = self.queue.add_all(*columns)
            self.expected = sorted(self.expected + new)
            assert is_first == (new[0] < was_first)

    @precondition(lambda self: self.expected)
    @rule(where=st.data())
    def discard(self, where: st.DataObject) -> None:
        job = self.expected[where.draw(st.integers(0, len(self.expected) - 1))]
        self.queue.discard(*job)
        self.drop([job])

    @precondition(lambda self: self.expected)
    @rule(where=st.data(), chance=st.randoms(), step=st.integers(1, 5))
    def discard_many(self, where: st.DataObject, chance: Random, step: int) -> None:
        start = where.draw(st.integers(0, len(self.expected) - 1))
        end = where.draw(st.integers(start, len(self.expected)))
        leaving = self.expected[start:end:step]
        chance.shuffle(leaving)
        for job in leaving:
            self.queue.discard(*job)
        self.drop(leaving)

    @precondition(lambda self: self.expected)
    @rule(where=st.data())
    def discard_firsts(self, where: st.DataObject) -> None:
        most = where.draw(st.integers(1, len(self.expected)))
        self.queue.discard_firsts(most)
        self.drop(self.expected[:most])

    @rule(most=st.integers(1, 3 * BLOCK_KEYS))
    def look_at_firsts(self, most: int) -> None:
        assert firsts(self.queue, most) == self.expected[:most]

    @invariant()
    def they_are_the_same(self) -> None:
        assert self.queue.count == len(self.expected)
        assert first(self.queue) == (self.expected[0] if self.expected else None)
        assert firsts(self.queue, len(self.expected) + 1) == self.expected

    @invariant()
    def blocks_are_neither_too_large_nor_empty(self) -> None:
        sizes = [len(block) for block in self.queue._ids]
        assert max(sizes) <= BLOCK_KEYS
        assert all(sizes) or sizes == [0]
        assert len(self.queue._starts) == len(sizes)


TestAgainstASortedList = Comparison.TestCase
TestAgainstASortedList.settings = settings(
    max_examples=share(60), stateful_step_count=25, deadline=None
)
