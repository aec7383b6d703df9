"""Which segments hold living jobs."""

from beanstalk_twisted.binlog.segments.format import RECORD_BYTES
from beanstalk_twisted.jobs.figures import EMPTY, LiveBytes


def test_a_segment_counts_its_living_jobs_and_their_bytes() -> None:
    live = LiveBytes()
    live.enter(3, 5)
    live.enter(3, 0)
    live.enter(4, 7)
    assert live.of(3) == (2, 2 * RECORD_BYTES + 5)
    assert live.live_bytes == 3 * RECORD_BYTES + 12


def test_a_segment_without_living_jobs_is_empty() -> None:
    live = LiveBytes()
    live.enter(3, 5)
    live.leave(3, 5)
    assert live.of(3) == EMPTY
    assert live.live_bytes == 0


def test_without_a_log_nothing_is_counted() -> None:
    live = LiveBytes()
    live.enter(0, 5)
    assert live.live_bytes == 0
    live.leave(0, 5)


def test_many_jobs_enter_at_once_as_they_would_one_by_one() -> None:
    live, alike = LiveBytes(), LiveBytes()
    for segment, sizes in [(3, [5, 0]), (3, [7]), (4, [1, 2, 3]), (0, [9])]:
        live.enter(segment, sum(sizes), len(sizes))
        for size in sizes:
            alike.enter(segment, size)
    assert [live.of(n) for n in range(5)] == [alike.of(n) for n in range(5)]
    assert live.live_bytes == alike.live_bytes
