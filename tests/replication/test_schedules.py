"""Whatever befalls servers of a replicated queue, it keeps what docs/replication.md promises.

`exploring` goes through very many of them, in several processes.
"""

from __future__ import annotations

from typing import Final

import pytest
from twisted.internet.defer import TimeoutError
from twisted.python.failure import Failure

from tests.replication.schedules import Schedule, explore

QUICK: Final = range(15, 27)
"""Schedules in `make test`, others than those of `test_states`; each costs some 80 ms of processor.
"""

MANY: Final = 300
"""Schedules in `make test-all`."""


def test_some_schedules(clean_reactor: list[Failure]) -> None:
    for seed in QUICK:
        explore(seed)
    forgive_stops(clean_reactor)


def forgive_stops(failures: list[Failure]) -> None:
    """One that is stopped while the stream has no quorum says that it does not end in order."""
    failures[:] = [each for each in failures if not each.check(TimeoutError)]


@pytest.mark.exhaustive
def test_many_schedules(clean_reactor: list[Failure]) -> None:
    terms = commands = 0
    for seed in range(MANY):
        schedule = explore(seed)
        terms += schedule.log.terms
        commands += schedule.memory.counts["commands"]
    # Else little would be shown by them; there are some two terms in each.
    assert terms > 1.5 * MANY
    assert commands > 50 * MANY
    forgive_stops(clean_reactor)


def test_a_seed_gives_the_same_schedule_again() -> None:
    first, again = Schedule(3), Schedule(3)
    first.run()
    again.run()
    assert first.steps == again.steps
    assert first.memory.history == again.memory.history
