"""What is counted of jobs, by tube, by segment and in all."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.segments.format import RECORD_BYTES
from beanstalk_twisted.jobs.figures import (
    BOUNDS_NS,
    EMPTY,
    MAX_NS,
    MIN_NS,
    MIN_SAMPLES,
    USUAL_NS,
    Histogram,
    LiveBytes,
    ProcessingTime,
)
from beanstalk_twisted.jobs.queues import JobTimes
from beanstalk_twisted.jobs.tube import Tube


@pytest.mark.parametrize(("value", "place"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2)])
def test_a_bound_is_of_the_values_below_it(value: int, place: int) -> None:
    values = Histogram((10, 20))
    values.note(value)
    assert [at for at, count in enumerate(values.counts) if count] == [place]
    assert values.total == value


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


def test_what_is_noted_of_a_tube_is_noted_of_all() -> None:
    times = JobTimes()
    first, second = Tube(1, b"a"), Tube(2, b"b")
    times.note_wait(first, 5)
    times.note_wait(second, 7)
    times.note_run(second, BOUNDS_NS[-1] + 1)
    assert first.times is not None and second.times is not None
    assert (first.times.waits.total, second.times.waits.total, times.total.waits.total) == (
        5,
        7,
        12,
    )
    assert sum(times.total.waits.counts) == 2
    assert second.times.runs.counts[-1] == times.total.runs.counts[-1] == 1


def test_a_clock_that_was_set_back_counts_as_no_time() -> None:
    times = JobTimes()
    times.note_wait(Tube(1, b"a"), -5)
    assert (times.total.waits.total, times.total.waits.counts[0]) == (0, 1)


def test_what_happens_is_counted_for_a_tube_that_nothing_else_is_known_of() -> None:
    tube, times = Tube(1, b"a"), JobTimes()
    times.of(tube).timeouts += 1
    times.of(tube).kicks += 2
    assert tube.times is not None and (tube.times.timeouts, tube.times.kicks) == (1, 2)


def measured(*elapsed_ns: int) -> int:
    """Give what the next job is expected to take behind these."""
    times = ProcessingTime()
    for each in elapsed_ns:
        times.note(each)
    return times.expected_ns()


def test_a_few_jobs_say_nothing_and_one_more_does() -> None:
    assert measured() == USUAL_NS
    assert measured(*[5 * USUAL_NS] * (MIN_SAMPLES - 1)) == USUAL_NS
    assert measured(*[5 * USUAL_NS] * MIN_SAMPLES) == 5 * USUAL_NS


def test_the_newest_job_counts_for_a_tenth() -> None:
    assert measured(*[10 * USUAL_NS] * MIN_SAMPLES, 0) == 9 * USUAL_NS + MIN_NS // 10
    assert measured(*[USUAL_NS] * MIN_SAMPLES, 11 * USUAL_NS) == 2 * USUAL_NS


@pytest.mark.parametrize(
    ("elapsed_ns", "counts"),
    [(-1, MIN_NS), (MIN_NS - 1, MIN_NS), (MIN_NS + 1, MIN_NS + 1), (MAX_NS + 1, MAX_NS)],
)
def test_no_job_counts_for_less_or_more_than_the_limits(elapsed_ns: int, counts: int) -> None:
    assert measured(*[elapsed_ns] * MIN_SAMPLES) == counts
