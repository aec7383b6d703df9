"""Each flaw in what keeps servers apart is found by schedules: the proof that `test_schedules`
could fail.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from twisted.python.failure import Failure

from tests.replication.flaws import (
    CountsFromAnswer,
    IgnoresGaps,
    NoFencing,
    PurgesTooEarly,
    RepliesBeforeQuorum,
    ReservesAtOnce,
    RetriesAnywhere,
    RetriesBlindly,
    TakesOverWhileFilling,
    with_publisher,
    with_standby,
)
from tests.replication.schedules import Broken, Schedule
from tests.replication.servers import Parts

LIMIT: Final = 200
"""Schedules in which a flaw must be found."""

LIMIT_OF_HIDDEN: Final = 1000
"""The same of those that are well hidden: some 300 schedules find one."""

UNFENCED: Final = "stale|two servers have begun terms|was given twice"

FIRST: Final = {
    "purge-too-early": 6, "lease-from-answer": 66, "gaps-ignored": 116,
    "take-over-while-filling": 8,
}  # fmt: skip
"""The schedule that is gone through first: it has shown the flaw."""

FLAWS: Final = {
    "start-without-expected-position": (Parts(door=NoFencing), UNFENCED),
    "reply-before-quorum": (Parts(with_publisher(RepliesBeforeQuorum)), "not in the stream"),
    "retry-without-expected-position": (
        Parts(with_publisher(RetriesBlindly), door=RetriesAnywhere), UNFENCED
    ),
    "purge-too-early": (
        Parts(with_publisher(PurgesTooEarly)), "lacks the jobs|nobody becomes active"
    ),
    "lease-from-answer": (Parts(with_publisher(CountsFromAnswer)), "stale"),
    "reserve-not-waited-for": (Parts(queue=ReservesAtOnce), "not in the stream"),
}  # fmt: skip
"""And a pattern of what is said of some schedule that shows it."""

WELL_HIDDEN: Final = {
    "gaps-ignored": (Parts(with_standby(IgnoresGaps)), ""),
    "take-over-while-filling": (Parts(with_standby(TakesOverWhileFilling)), ""),
}
"""Those that take dozens or hundreds of schedules, and whose jobs are lost in many ways."""


@pytest.mark.parametrize("name", FLAWS)
def test_schedules_find(name: str, clean_reactor: list[Failure]) -> None:
    parts, found = FLAWS[name]
    assert shows(parts, found, LIMIT, FIRST.get(name, 0))
    # One that is stopped while the stream has no quorum says that it does not end in order.
    clean_reactor.clear()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WELL_HIDDEN)
def test_many_schedules_find(name: str, clean_reactor: list[Failure]) -> None:
    parts, found = WELL_HIDDEN[name]
    assert shows(parts, found, LIMIT_OF_HIDDEN, FIRST[name])
    clean_reactor.clear()


def shows(parts: Parts, pattern: str, limit: int, first: int = 0) -> bool:
    """Whether one of the schedules is broken by a flaw in the way that it is known for: some show
    only that servers end.
    """
    for seed in (first, *range(limit)):
        try:
            Schedule(seed, parts).run()
        except Broken as broken:
            if re.search(pattern, str(broken).splitlines()[0]):
                return True
    return False
