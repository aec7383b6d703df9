"""The command that goes through very many schedules."""

from __future__ import annotations

import gc

import pytest

from tests.replication.exploring import explored, go_through
from tests.replication.flaws import NoFencing
from tests.replication.schedules import Schedule
from tests.replication.servers import Parts


@pytest.mark.exhaustive
def test_what_servers_have_seen_is_counted_and_a_flaw_is_told_with_its_seed() -> None:
    seen = explored(range(3))
    assert (seen.last, seen.counts["schedules"], seen.broken) == (2, 3, {})
    assert seen.counts["terms"] >= 3 and seen.counts["commands"] > 30
    broken = explored(range(26, 31), Parts(door=NoFencing)).broken
    assert broken
    for seed, what in broken.items():
        assert what.startswith(f"seed {seed}: ")


@pytest.mark.exhaustive
def test_processes_go_through_all() -> None:
    told: list[str] = []
    done: list[int] = []
    assert go_through(5, 2, 1, told.append, done.append)
    assert done == [2]
    [line] = told
    assert line.startswith("seeds 5 to 6: ") and "2 schedules" in line


def test_nothing_of_a_schedule_stays_frozen() -> None:
    before = gc.get_freeze_count()
    Schedule(0).run()
    assert gc.get_freeze_count() <= before
