"""The states of a replicated server's parts: every trigger in every state, and their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.python.failure import Failure

from beanstalk_twisted.replication import states
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.standby import Standby
from beanstalk_twisted.states import NotAllowed, Transitions
from beanstalk_twisted.storage.fail_stop import EXIT_CODE
from tests.daemon.test_replicated import Host
from tests.replication.flaws import with_standby
from tests.replication.schedules import Schedule
from tests.replication.servers import LEASE_S, Parts
from tests.replication.stream.memory import MemoryLog
from tests.replication.world import World

TABLES: dict[str, Transitions] = {
    "standby": states.STANDBY,
    "catch up": states.CATCH_UP,
    "promotion": states.PROMOTION,
    "publisher": states.PUBLISHER,
}
CASES = [
    (name, state, trigger)
    for name, table in TABLES.items()
    for trigger in sorted({each for triggers in table.values() for each in triggers})
    for state in table
]

MOST_COMBINATIONS = 24
"""Of a state and the flags beside it, in each part."""

SCHEDULES = 15

RARE = {
    ("catch up", "comparing", "discard"), ("catch up", "loading", "discard"),
    ("standby", "checking", "end"), ("standby", "checking", "probe"),
    ("standby", "probing", "end"), ("standby", "probing", "follow"),
}  # fmt: skip
"""What so few schedules may leave out: expired messages, and a log here that cannot be read, have
tests of their own.
"""


@pytest.mark.parametrize(("name", "state", "trigger"), CASES)
def test_a_trigger_is_in_the_table_or_an_error(name: str, state: str, trigger: str) -> None:
    table = TABLES[name]
    if trigger in table[state]:
        assert table[state][trigger] in table
    else:
        with pytest.raises(NotAllowed, match=f"'{trigger}' is not one of"):
            table[state][trigger]


@pytest.mark.parametrize("name", TABLES)
def test_all_states_can_be_reached(name: str) -> None:
    table = TABLES[name]
    reached, new = set[str](), {next(iter(table))}
    while new:
        reached |= new
        new = {after for state in new for after in table[state].values()} - reached
    assert reached == set(table)


Seen = set[tuple[str, ...]]


def noting(arrows: Seen, combinations: Seen) -> type[Standby]:
    """A standby that notes what it and its parts do."""

    def note(part: Any, name: str, flags: Callable[[], tuple[bool, ...]]) -> None:
        on = part._on

        def noted(trigger: str) -> None:
            arrows.add((name, part.state, trigger))
            combinations.add((name, part.state, *map(str, flags())))
            on(trigger)
            combinations.add((name, part.state, *map(str, flags())))

        part._on = noted

    class NotingPublisher(Publisher):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            note(self, "publisher", self._flags)

        def _flags(self) -> tuple[bool, ...]:
            return self.refuses, self._looking is not None

        def _settle(self) -> None:
            super()._settle()
            combinations.add(("publisher", self.state, *map(str, self._flags())))

    class NotingStandby(Standby):
        publisher = NotingPublisher

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            note(self, "standby", lambda: (self._is_unheard,))
            note(self._catch_up, "catch up", tuple)
            note(self._promotion, "promotion", tuple)

        def _not_answered(self) -> None:
            super()._not_answered()
            combinations.add(("standby", self.state, str(self._is_unheard)))

    return NotingStandby


def test_schedules_go_along_the_arrows(clean_reactor: list[Failure]) -> None:
    arrows, combinations = Seen(), Seen()
    parts = Parts(with_standby(noting(arrows, combinations)))
    for seed in range(SCHEDULES):
        Schedule(seed, parts).run()
    clean_reactor.clear()
    in_tables = {
        (name, state, trigger)
        for name, table in TABLES.items()
        for state, triggers in table.items() for trigger in triggers
    }  # fmt: skip
    assert arrows <= in_tables
    assert in_tables - arrows <= RARE
    for name in TABLES:
        count = len([each for each in combinations if each[0] == name])
        print(f"{name}: {count} combinations of state and flags")
        assert count <= MOST_COMBINATIONS


class Confused(Standby):
    """Goes on to follow though it does."""

    async def _try(self) -> None:
        self._on("follow")


def test_a_trigger_that_is_not_allowed_ends_the_server(clean_reactor: list[Failure]) -> None:
    world = World()
    host = Host(world, MemoryLog(), "a", standby=Confused)
    world.pass_s(LEASE_S + 1)
    assert host.codes == [EXIT_CODE]
    assert "'follow' is not one of" in host.whys[0]
    host.stop()
    clean_reactor.clear()
