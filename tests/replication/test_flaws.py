"""
Each flaw in what keeps servers apart is found by schedules: the proof that `test_schedules` could
fail.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

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
    with_appender,
    with_publisher,
    with_standby,
)
from tests.replication.schedules import Broken, Schedule
from tests.replication.servers import Parts

LIMIT: Final = 500
"""Schedules in which a flaw must be found."""


class Flaw(NamedTuple):
    """
    A server with a flaw.

    :ivar found: parts of what is said of it when it is found.
    """

    parts: Parts
    found: tuple[str, ...]


FLAWS: Final = {
    "start-without-expected-position": Flaw(Parts(door=NoFencing), ("",)),
    "reply-before-quorum": Flaw(Parts(with_publisher(RepliesBeforeQuorum)), ("",)),
    "retry-without-expected-position": Flaw(
        Parts(with_appender(RetriesBlindly), door=RetriesAnywhere), ("",)
    ),
    "purge-too-early": Flaw(Parts(with_publisher(PurgesTooEarly)), ("",)),
    "gaps-ignored": Flaw(Parts(with_standby(IgnoresGaps)), ("",)),
    "lease-from-answer": Flaw(Parts(with_appender(CountsFromAnswer)), ("stale",)),
    "reserve-not-waited-for": Flaw(Parts(queue=ReservesAtOnce), ("not in the stream",)),
    "take-over-while-filling": Flaw(Parts(with_standby(TakesOverWhileFilling)), ("",)),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAWS)
def test_schedules_find(name: str) -> None:
    flaw = FLAWS[name]
    for seed in range(LIMIT):
        try:
            Schedule(seed, flaw.parts).run()
        except Broken as broken:
            text = str(broken).splitlines()[0]
            assert any(part in text for part in flaw.found), broken
            return
    raise AssertionError("not found")
