"""Who wants to be called when."""

from __future__ import annotations

from beanstalk_twisted.jobs.queues import DueTimes
from tests.rules.memory import growth_bytes


def due(agenda: DueTimes[str], now_ns: int) -> list[str]:
    """Take all whose time has come."""
    owners = []
    while (owner := agenda.pop_due(now_ns)) is not None:
        owners.append(owner)
    return owners


def test_owners_are_due_in_the_order_of_their_times_and_not_before() -> None:
    agenda: DueTimes[str] = DueTimes()
    for owner, when_ns in [("late", 30), ("early", 10), ("middle", 20)]:
        agenda.arm(owner, when_ns)
    assert agenda.first_ns() == 10
    assert due(agenda, 9) == []
    assert due(agenda, 20) == ["early", "middle"]
    assert agenda.first_ns() == 30


def test_owners_of_one_instant_are_due_in_the_order_they_were_armed() -> None:
    agenda: DueTimes[str] = DueTimes()
    for owner in ("b", "a", "c"):
        agenda.arm(owner, 5)
    assert due(agenda, 5) == ["b", "a", "c"]


def test_who_was_forgotten_can_be_armed_anew() -> None:
    agenda: DueTimes[str] = DueTimes()
    agenda.arm("a", 10)
    agenda.forget("a")
    agenda.arm("a", 10)
    agenda.arm("b", 10)
    assert due(agenda, 10) == ["a", "b"]
    agenda.arm("a", 50)
    assert due(agenda, 49) == []
    assert due(agenda, 50) == ["a"]


def test_owners_that_come_and_go_leave_no_memory_behind() -> None:
    agenda: DueTimes[int] = DueTimes()

    def come_and_go() -> None:
        for owner in range(20_000):
            agenda.arm(owner, 10**15 + owner)
            agenda.forget(owner)

    assert growth_bytes(come_and_go) < 500_000


def test_an_owner_with_a_plan_far_off_and_many_at_once_takes_no_more_memory() -> None:
    agenda: DueTimes[str] = DueTimes()

    def plan_again_and_again() -> None:
        for now_ns in range(20_000):
            agenda.arm("a", 10**15)
            agenda.arm("a", now_ns)
            assert agenda.pop_due(now_ns) == "a"

    assert growth_bytes(plan_again_and_again) < 500_000
