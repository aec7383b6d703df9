"""
Queues that anything can leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.jobs.heap import FEW, ID_MASK, MAX_LANES, LazyHeap, ReadyQueue
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
    queue.add_all(5, [9, 1, 4, 3, 2])
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
            owner.queue.add_all(priority, job_ids[::-1])
        assert owner.queue.count == len(owner.majors)
        assert owner.first() == owner.expected_first()
    expected = sorted((priority, job_id) for job_id, priority in owner.majors.items())
    assert list(owner.drain()) == expected
