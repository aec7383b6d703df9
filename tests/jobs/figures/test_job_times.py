"""How long jobs wait and run, by tube and in all."""

from __future__ import annotations

from beanstalk_twisted.jobs.figures import BOUNDS_NS
from beanstalk_twisted.jobs.queues import JobTimes
from beanstalk_twisted.jobs.tube import Tube


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
