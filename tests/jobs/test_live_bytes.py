"""
Which segments hold living jobs.
"""

from beanstalk_twisted.binlog.format import RECORD_BYTES
from beanstalk_twisted.jobs.live_bytes import EMPTY, Homes


def test_a_segment_counts_its_living_jobs_and_their_bytes() -> None:
    homes = Homes()
    homes.enter(3, 5)
    homes.enter(3, 0)
    homes.enter(4, 7)
    assert homes.of(3) == (2, 2 * RECORD_BYTES + 5)
    assert homes.live_bytes == 3 * RECORD_BYTES + 12


def test_a_segment_without_living_jobs_is_empty() -> None:
    homes = Homes()
    homes.enter(3, 5)
    homes.leave(3, 5)
    assert homes.of(3) == EMPTY
    assert homes.live_bytes == 0


def test_without_a_log_nothing_is_counted() -> None:
    homes = Homes()
    homes.enter(0, 5)
    assert homes.live_bytes == 0
    homes.leave(0, 5)


def test_many_jobs_enter_at_once_as_they_would_one_by_one() -> None:
    homes, alike = Homes(), Homes()
    for segment, sizes in [(3, [5, 0]), (3, [7]), (4, [1, 2, 3]), (0, [9])]:
        homes.enter(segment, sum(sizes), len(sizes))
        for size in sizes:
            alike.enter(segment, size)
    assert [homes.of(n) for n in range(5)] == [alike.of(n) for n in range(5)]
    assert homes.live_bytes == alike.live_bytes
