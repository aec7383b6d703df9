"""
Whatever befalls servers of a replicated queue, it keeps what docs/replication.md promises.

`exploring` goes through very many of them, in several processes.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.replication.schedules import Schedule, explore

QUICK: Final = 30
"""Schedules in `make test`; each costs some 80 ms of processor."""

MANY: Final = 500
"""Schedules in `make test-all`."""


def test_some_schedules() -> None:
    for seed in range(QUICK):
        explore(seed)


@pytest.mark.exhaustive
def test_many_schedules() -> None:
    terms = commands = 0
    for seed in range(MANY):
        schedule = explore(seed)
        terms += schedule.log.terms
        commands += schedule.memory.counts["commands"]
    # Else nothing would be shown by them.
    assert terms >= 2 * MANY
    assert commands > 50 * MANY


def test_a_seed_gives_the_same_schedule_again() -> None:
    first, again = Schedule(3), Schedule(3)
    first.run()
    again.run()
    assert first.steps == again.steps
    assert first.memory.history == again.memory.history
