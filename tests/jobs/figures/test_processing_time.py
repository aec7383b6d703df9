"""How long a tube's jobs take."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.figures import (
    MAX_NS,
    MIN_NS,
    MIN_SAMPLES,
    USUAL_NS,
    ProcessingTime,
)


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
