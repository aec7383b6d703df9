"""
Whatever befalls servers of a replicated queue, it keeps what docs/replication.md promises.

``SCHEDULES=100000`` in the environment goes through so many of them instead: some 12 a second on
one processor, so 100,000 take two to three hours.  ``FIRST_SCHEDULE`` is the seed of the first.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.replication.schedules import Schedule, explore

QUICK: Final = 30
"""Schedules in `make test`; each costs some 80 ms of processor."""

MANY: Final = int(os.environ.get("SCHEDULES", "500"))
"""Schedules in `make test-all`."""

FIRST: Final = int(os.environ.get("FIRST_SCHEDULE", "0"))
"""The seed of the first."""


def test_some_schedules() -> None:
    for seed in range(QUICK):
        explore(seed)


@pytest.mark.exhaustive
def test_many_schedules() -> None:
    terms = commands = 0
    for seed in range(FIRST, FIRST + MANY):
        schedule = explore(seed)
        terms += schedule.log.terms
        commands += schedule.memory.counts["commands"]
    # Else nothing would be shown by them.
    assert terms > 2 * MANY
    assert commands > 50 * MANY


def test_a_seed_gives_the_same_schedule_again() -> None:
    first, again = Schedule(3), Schedule(3)
    first.run()
    again.run()
    assert first.steps == again.steps
    assert first.memory.history == again.memory.history
