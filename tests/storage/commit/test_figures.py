"""What is not durable yet, and since when."""

from __future__ import annotations

import pytest

from beanstalk_twisted.storage.environment import LEAST_NS, MARKS, CommitFigures

S = 1_000_000_000


def test_the_oldest_change_that_is_not_durable_counts() -> None:
    figures = CommitFigures(0, 0)
    assert figures.unsynced_ns(5) == 0
    figures.began(3, 10)
    figures.began(5, 10 + LEAST_NS)
    assert figures.unsynced_ns(50 + LEAST_NS) == 40 + LEAST_NS
    figures.synced(3, 0)
    assert figures.unsynced_ns(50 + LEAST_NS) == 40
    figures.synced(5, 0)
    assert figures.unsynced_ns(99) == 0


def test_batches_are_counted_by_their_records() -> None:
    figures = CommitFigures(10, 0)
    figures.began(11, 1)
    figures.began(15, 2)
    assert figures.batches.total == 5
    assert figures.batches.counts[:3] == [1, 0, 1]


@pytest.mark.parametrize(("interval_s", "most"), [(None, 1), (1, MARKS + 1)])
def test_few_marks_are_kept_however_many_batches_wait(interval_s: float | None, most: int) -> None:
    figures = CommitFigures(0, interval_s)
    for lsn in range(1, 1001):
        figures.began(lsn, lsn * S // 1000)
    assert len(figures._unsynced) <= most
    assert figures.unsynced_ns(S) == S - S // 1000
    figures.synced(1000, 0)
    assert figures.unsynced_ns(S) == 0
