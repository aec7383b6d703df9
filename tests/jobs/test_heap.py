"""
Queues that anything can leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.jobs.heap import (
    FEW,
    ID_MASK,
    MAX_LANES,
    SPARE_DEAD,
    SWEPT_AT_ONCE,
    LazyHeap,
    ReadyQueue,
)
from tests.jobs.memory import growth_bytes

Queue = LazyHeap | ReadyQueue
KINDS = pytest.mark.parametrize("make", [LazyHeap, ReadyQueue])


class Owner:
    """
    Jobs by id, each with the major number it stands under, and a queue that asks about them.
    """

    def __init__(self, make: Callable[[Callable[[int, int], bool]], Queue]) -> None:
        self.majors: dict[int, int] = {}
        self.queue = make(lambda major, job_id: self.majors.get(job_id) == major)

    def add(self, major: int, job_id: int) -> None:
        """
        A job enters.
        """
        self.majors[job_id] = major
        self.queue.add(major, job_id)

    def drop(self, job_id: int) -> None:
        """
        A job leaves.
        """
        self.queue.discard(self.majors.pop(job_id), job_id)

    def first(self) -> tuple[int, int] | None:
        """
        Give major and id of the first job.
        """
        key = self.queue.first()
        return None if key is None else (key >> 64, key & ID_MASK)

    def expected_first(self) -> tuple[int, int] | None:
        """
        Find the first job without the queue.
        """
        return min(((major, job_id) for job_id, major in self.majors.items()), default=None)

    def drain(self) -> Iterator[tuple[int, int]]:
        """
        Take the jobs in their order.
        """
        while (first := self.first()) is not None:
            yield first
            self.drop(first[1])


@KINDS
def test_an_empty_queue_has_no_first(make: type[Queue]) -> None:
    owner = Owner(make)
    assert owner.first() is None
    assert owner.queue.count == 0


@KINDS
def test_jobs_come_by_major_and_then_by_id_not_by_arrival(make: type[Queue]) -> None:
    owner = Owner(make)
    for major, job_id in [(5, 13), (5, 14), (4, 15), (5, 11), (5, 12), (0, 16)]:
        owner.add(major, job_id)
    assert list(owner.drain()) == [(0, 16), (4, 15), (5, 11), (5, 12), (5, 13), (5, 14)]


@KINDS
def test_majors_and_ids_are_compared_as_unsigned_numbers_of_full_width(make: type[Queue]) -> None:
    owner = Owner(make)
    jobs = [(0, ID_MASK), (1, 1 << 63), (1, (1 << 63) + 1), ((1 << 32) - 1, 1)]
    for major, job_id in reversed(jobs):
        owner.add(major, job_id)
    assert list(owner.drain()) == jobs


@KINDS
def test_a_job_in_the_middle_can_leave_and_come_back(make: type[Queue]) -> None:
    owner = Owner(make)
    for job_id in (1, 2, 3):
        owner.add(7, job_id)
    owner.drop(2)
    assert owner.queue.count == 2
    owner.add(7, 2)
    assert owner.first() == (7, 1)
    owner.drop(1)
    owner.add(3, 1)
    assert list(owner.drain()) == [(3, 1), (7, 2), (7, 3)]


@KINDS
def test_a_job_that_came_back_stands_in_the_queue_once(make: type[Queue]) -> None:
    owner = Owner(make)
    for _ in range(5):
        owner.add(7, 1)
        owner.drop(1)
    owner.add(7, 1)
    assert owner.queue.count == 1
    assert list(owner.drain()) == [(7, 1)]
    assert owner.queue.count == 0


def test_more_priorities_than_lanes_keep_their_order() -> None:
    owner = Owner(ReadyQueue)
    jobs = [(priority, 100 - priority) for priority in range(MAX_LANES + 2)]
    for priority, job_id in jobs:
        owner.add(priority, job_id)
    assert list(owner.drain()) == jobs
    owner.add(99, 1)  # The lanes of priorities that are used up are free again.
    assert owner.first() == (99, 1)


@KINDS
def test_a_hundred_thousand_jobs_can_fill_and_leave_a_queue(make: type[Queue]) -> None:
    owner = Owner(make)
    for job_id in range(1, 100_001):
        owner.add(job_id * 7919 % 5, job_id)
    assert owner.queue.count == 100_000
    taken = list(owner.drain())
    assert len(taken) == 100_000
    assert taken == sorted(taken)


@KINDS
@pytest.mark.parametrize("major", [lambda turn: 0, lambda turn: -turn % 1000, lambda turn: turn])
def test_jobs_that_come_and_go_leave_no_memory_behind(
    make: type[Queue], major: Callable[[int], int]
) -> None:
    owner = Owner(make)
    owner.add(0, 1)

    def come_and_go() -> None:
        for turn in range(20_000):
            owner.add(major(turn), turn + 2)
            owner.drop(turn + 2)

    assert growth_bytes(come_and_go) < 200_000
    assert list(owner.drain()) == [(0, 1)]


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 12)), max_size=200)


@given(make=st.sampled_from([LazyHeap, ReadyQueue]), steps=STEPS)
def test_whatever_comes_and_goes_the_first_is_the_least(
    make: type[Queue], steps: list[tuple[bool, int, int]]
) -> None:
    owner = Owner(make)
    for is_entering, major, job_id in steps:
        if job_id in owner.majors:
            owner.drop(job_id)
        if is_entering:
            owner.add(major, job_id)
        assert owner.first() == owner.expected_first()
        assert owner.queue.count == len(owner.majors)


@KINDS
def test_the_order_survives_that_most_of_a_queue_leaves_from_behind(make: type[Queue]) -> None:
    owner = Owner(make)
    for job_id in range(1, 5001):
        owner.add(job_id % 3, job_id)
    for job_id in range(5000, 10, -1):
        owner.drop(job_id)
    assert owner.queue.count == 10
    assert list(owner.drain()) == sorted((job_id % 3, job_id) for job_id in range(1, 11))


@given(steps=STEPS, most=st.integers(1, 15))
def test_the_first_jobs_can_leave_together(steps: list[tuple[bool, int, int]], most: int) -> None:
    owner = Owner(LazyHeap)
    queue = owner.queue
    assert isinstance(queue, LazyHeap)
    for is_entering, major, job_id in steps:
        if job_id in owner.majors:
            owner.drop(job_id)
        if is_entering:
            owner.add(major, job_id)
        if job_id == 12:
            expected = sorted((major, job_id) for job_id, major in owner.majors.items())
            keys = queue.firsts(most)
            firsts = [(key >> 64, key & ID_MASK) for key in keys]
            assert firsts == expected[: len(firsts)]
            assert 0 < len(firsts) <= most or not expected
            if is_entering:  # Otherwise they were only looked at.
                for _, gone in firsts:
                    del owner.majors[gone]
                queue.discard_firsts(len(keys))
        assert owner.first() == owner.expected_first()
        assert queue.count == len(owner.majors)


def test_first_jobs_that_leave_together_leave_no_memory_behind() -> None:
    owner = Owner(LazyHeap)
    queue = owner.queue
    assert isinstance(queue, LazyHeap)
    owner.add(1 << 40, 1)

    def come_and_go() -> None:
        for turn in range(2, 200_002, 100):
            for job_id in range(turn, turn + 100):
                owner.add(job_id * 7919 % 1000, job_id)
            for key in queue.firsts(100):
                del owner.majors[key & ID_MASK]
            queue.discard_firsts(100)

    assert growth_bytes(come_and_go) < 200_000
    assert list(owner.drain()) == [(1 << 40, 1)]


GROUPS = st.lists(
    st.tuples(st.integers(0, MAX_LANES + 3), st.sets(st.integers(1, 30), max_size=20)), max_size=40
)


@given(groups=GROUPS)
def test_jobs_of_one_priority_can_enter_together(groups: list[tuple[int, set[int]]]) -> None:
    owner = Owner(ReadyQueue)
    queue = owner.queue
    assert isinstance(queue, ReadyQueue)
    for priority, ids in groups:
        new = sorted(ids - owner.majors.keys())
        for job_id in (ids & owner.majors.keys()) if len(ids) % 3 else ():
            owner.drop(job_id)
        if new:
            before = owner.expected_first()
            owner.majors.update(dict.fromkeys(new, priority))
            may_be_first = queue.add_all(priority, new)
            is_better = before is None or (priority, new[0]) < before
            assert may_be_first or not is_better
        if len(ids) % 2:  # Otherwise nobody asks, and the first is not known.
            assert owner.first() == owner.expected_first()
        assert queue.count == len(owner.majors)
    expected = sorted((priority, job_id) for job_id, priority in owner.majors.items())
    assert list(owner.drain()) == expected


@KINDS
@pytest.mark.parametrize("major", [lambda at: 7, lambda at: at * 7919 % 10_007, lambda at: at % 3])
@pytest.mark.parametrize("is_random", [False, True])
def test_a_large_queue_that_most_jobs_leave_drops_them_in_small_pieces(
    make: type[Queue], major: Callable[[int], int], is_random: bool
) -> None:
    owner = Owner(make)
    asked = 0

    def is_alive(major: int, job_id: int) -> bool:
        nonlocal asked
        asked += 1
        return owner.majors.get(job_id) == major

    owner.queue = make(is_alive)
    ids = list(range(1, 20_001))
    for job_id in ids:
        owner.add(major(job_id), job_id)
    leaving = sorted(ids, key=lambda job_id: job_id * 7919 % 20_011) if is_random else ids[::-1]
    longest = 0
    for job_id in leaving[:-10]:
        before = asked
        owner.drop(job_id)
        longest = max(longest, asked - before)
    assert 0 < longest <= SWEPT_AT_ONCE < 2000
    assert owner.first() == owner.expected_first()
    before = asked
    assert list(owner.drain()) == sorted((major(job_id), job_id) for job_id in leaving[-10:])
    assert asked - before < 4 * SPARE_DEAD, "the others are forgotten"


@settings(max_examples=20, deadline=None)
@given(make=st.sampled_from([LazyHeap, ReadyQueue]), seed=st.integers(0, 1 << 32))
def test_a_large_queue_keeps_its_order_while_it_drops_the_dead(
    make: type[Queue], seed: int
) -> None:
    random = Random(seed)
    owner = Owner(make)
    majors = random.choice([1, 3, MAX_LANES + 4, 1 << 32])
    ids = range(1, 4001)
    for _ in range(6):
        leaves = random.random()
        for job_id in random.sample(ids, 3000) if random.random() < 0.5 else ids:
            is_known = job_id in owner.majors
            if is_known and random.random() < leaves:
                major = owner.majors[job_id]
                owner.drop(job_id)
                if random.random() < 0.2:  # It comes back to where it was.
                    owner.add(major, job_id)
            elif not is_known and random.random() > leaves:
                owner.add(random.randrange(majors), job_id)
            if random.random() < 0.005:
                assert owner.first() == owner.expected_first()
        if isinstance(owner.queue, LazyHeap) and owner.majors:
            keys = owner.queue.firsts(100)
            expected = sorted((major, job_id) for job_id, major in owner.majors.items())
            assert [(key >> 64, key & ID_MASK) for key in keys] == expected[: len(keys)]
    assert owner.queue.count == len(owner.majors)
    expected = sorted((major, job_id) for job_id, major in owner.majors.items())
    assert list(owner.drain()) == expected


@KINDS
def test_jobs_that_come_back_to_where_they_were_are_swept_as_rarely_as_others(
    make: type[Queue],
) -> None:
    owner = Owner(make)
    asked = 0

    def is_alive(major: int, job_id: int) -> bool:
        nonlocal asked
        asked += 1
        return owner.majors.get(job_id) == major

    owner.queue = make(is_alive)
    for job_id in range(1, 2001):
        owner.add(7, job_id)
    for _ in range(10):
        for job_id in range(1000, 1900):
            owner.drop(job_id)
            owner.add(7, job_id)
    assert 0 < asked < 3 * 10 * 900
    assert list(owner.drain()) == [(7, job_id) for job_id in range(1, 2001)]


def test_jobs_are_put_before_others_of_their_priority_only_where_they_belong() -> None:
    owner = Owner(ReadyQueue)
    queue = owner.queue
    assert isinstance(queue, ReadyQueue)
    owner.majors = {n: 5 for n in range(1, 10)} | {20: 6}
    assert queue.add_before(5, [7, 8])
    assert not queue.add_before(5, [6, 9]), "some come behind"
    assert not queue.add_before(5, [9]), "it comes behind"
    assert queue.count == 2
    assert queue.add_before(5, [5, 6])
    assert queue.add_before(6, [20])
    queue.add_all(5, [1, 2, 3, 4, 9])
    assert list(owner.drain()) == [*((5, n) for n in range(1, 10)), (6, 20)]


def test_without_a_lane_for_their_priority_no_jobs_are_put_before_others() -> None:
    queue = ReadyQueue(lambda major, job_id: True)
    for priority in range(MAX_LANES):
        assert queue.add_before(priority, [1000 + priority])
    assert not queue.add_before(MAX_LANES, [1])
    assert queue.count == MAX_LANES


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2 * MAX_LANES),
            st.integers(1, FEW + 1),
            st.sampled_from(["before", "all", "each"]),
        ),
        max_size=30,
    )
)
def test_many_jobs_enter_a_queue_as_they_would_one_by_one(
    groups: list[tuple[int, int, str]],
) -> None:
    owner = Owner(ReadyQueue)
    assert isinstance(owner.queue, ReadyQueue)
    for number, (priority, count, way) in enumerate(groups):
        # Some groups come before those that are known, some behind, some between.
        first = (number * 7919) % 31 * 100
        job_ids = [n for n in range(first, first + count) if n not in owner.majors]
        owner.majors |= dict.fromkeys(job_ids, priority)
        if way == "each":
            for job_id in job_ids:
                owner.queue.add(priority, job_id)
        elif job_ids and not (way == "before" and owner.queue.add_before(priority, job_ids)):
            owner.queue.add_all(priority, job_ids)
        assert owner.queue.count == len(owner.majors)
        assert owner.first() == owner.expected_first()
    expected = sorted((priority, job_id) for job_id, priority in owner.majors.items())
    assert list(owner.drain()) == expected
