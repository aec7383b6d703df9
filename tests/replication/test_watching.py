"""The judge of standbys finds those that say that they follow and do not."""

from __future__ import annotations

import pytest

from tests.replication.chaos.watching import ENOUGH, STUCK_S, TOLD_S, Look, look_of, stuck

LOOKS = int(STUCK_S + TOLD_S) + 2


def looks(lsn_step: int, changes: int, active: str = "a") -> list[Look]:
    """One each second: the standby's LSN grows by so much, and so many changes are acknowledged."""
    return [Look(at, active, at * changes, {"b": at * lsn_step}) for at in range(LOOKS)]


def test_who_follows_and_who_has_nothing_to_follow_is_not_stuck() -> None:
    assert stuck(looks(lsn_step=1, changes=10)) == []
    assert stuck(looks(lsn_step=0, changes=0)) == []


def test_who_gets_nothing_of_what_is_acknowledged_is_stuck() -> None:
    [said] = stuck(looks(lsn_step=0, changes=ENOUGH))
    assert said.startswith("b says that it follows a, and has had nothing behind record 0 for ")


@pytest.mark.parametrize("silent", [{}, {"c": 0}])
def test_who_does_not_say_so_meanwhile_is_not_stuck(silent: dict[str, int]) -> None:
    seen = looks(lsn_step=0, changes=ENOUGH)
    seen[LOOKS // 2] = seen[LOOKS // 2]._replace(following=silent)
    assert stuck(seen) == []


def test_what_is_acknowledged_just_now_may_not_have_come() -> None:
    seen = looks(lsn_step=0, changes=0)
    assert stuck([*seen[:-2], *(each._replace(changes=ENOUGH) for each in seen[-2:])]) == []


def test_what_servers_say() -> None:
    active = {"role": "active", "name": "a", "why_not_ready": "", "standbys": [
        {"name": "b", "lsn": 7}, {"name": "c", "lsn": 8}, {"name": "d", "lsn": 9},
    ]}  # fmt: skip
    b = {"role": "standby", "name": "b", "why_not_ready": "standby: follows the active server"}
    c = {"role": "standby", "name": "c", "why_not_ready": "standby: hears nothing"}
    assert look_of(1.0, 5, [active, b, c, {}]) == Look(1.0, "a", 5, {"b": 7})
    assert look_of(1.0, 5, [active, active, b]) == look_of(1.0, 5, [b]) == Look(1.0, "", 5, {})
