"""The ids that a selection has met, and what of a log it keeps in memory."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.reading.selection import JobIds

IDS = st.integers(0, 700) | st.integers((1 << 64) - 300, (1 << 64) - 1)
RUNS = st.tuples(st.integers(0, 1100), st.integers(1, 600))
STEPS = st.one_of(IDS, RUNS, st.lists(IDS, min_size=1, max_size=40, unique=True))


@given(st.lists(STEPS, max_size=30), st.lists(IDS, max_size=20))
def test_ids_are_kept_as_in_a_set(
    steps: list[int | tuple[int, int] | list[int]], others: list[int]
) -> None:
    ids, known = JobIds(), set[int]()
    for step in steps:
        if isinstance(step, int):
            ids.add(step)
            known.add(step)
        elif isinstance(step, list):
            assert ids.add_all(step) == [at for at, n in enumerate(step) if n not in known]
            known.update(step)
        else:
            run = set(range(step[0], sum(step)))
            assert ids.add_run(*step) == known.isdisjoint(run)
            if known.isdisjoint(run):
                known |= run
    for job_id in {*known, *others, *(n + 1 for n in known)}:
        assert (job_id in ids) == (job_id in known)


def test_a_million_ids_take_less_than_a_byte_each() -> None:
    ids = JobIds()
    for first in range(1, 1_000_001, 1000):
        assert ids.add_run(first, 1000)
    pages = ids._pages
    assert sys.getsizeof(pages) + sum(map(sys.getsizeof, pages.values())) < 1_000_000
