"""Whether standbys do what they say: who says that it follows the active server gets what that
server acknowledges.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tests.replication.chaos.clients import Journal
from tests.replication.chaos.field import LEASE_S, Field

LOOK_S: Final = 1.0
"""Between two looks; servers tell each other as often where they are."""

STUCK_S: Final = LEASE_S + 5.0
"""How long a standby may say that it follows and get nothing: the lease, a request without an
answer, and what its words are older than its deeds.
"""

TOLD_S: Final = 3.0
"""Acknowledged changes are in what a standby tells that much later, at most."""

ENOUGH: Final = 5
"""Acknowledged changes that show that there was something to get."""


class Look(NamedTuple):
    """What was seen at one moment.

    :ivar at_s: when, of one clock.
    :ivar active: the name of the one active server; empty if there is none, or several.
    :ivar changes: acknowledged to clients so far.
    :ivar following: LSN that each standby has told, of those that say that they follow, by name.
    """

    at_s: float
    active: str
    changes: int
    following: dict[str, int]


def look_of(at_s: float, changes: int, situations: Iterable[dict[str, Any]]) -> Look:
    """:param situations: what ``/api/v1/replication`` of each server says; empty if it says
    nothing.
    """
    found = [each for each in situations if each]
    active = [each for each in found if each["role"] == "active"]
    says = {each["name"] for each in found if "follows" in each["why_not_ready"]}
    if len(active) != 1:
        return Look(at_s, "", changes, {})
    told = {each["name"]: int(each["lsn"]) for each in active[0]["standbys"]}
    following = {name: lsn for name, lsn in told.items() if name in says}
    return Look(at_s, active[0]["name"], changes, following)


def stuck(looks: Iterable[Look]) -> list[str]:
    """Find standbys that said for `STUCK_S` that they follow, and got nothing of what was there.

    :param looks: of one run, in order.
    :return: a sentence for each.
    """
    since: dict[str, Look] = {}
    recent: deque[Look] = deque()
    found = []
    for look in looks:
        recent.append(look)
        while recent[0].at_s < look.at_s - TOLD_S:
            recent.popleft()
        for name in since.keys() - look.following.keys():
            del since[name]
        for name, lsn in look.following.items():
            first = since.setdefault(name, look)
            if (first.active, first.following[name]) != (look.active, lsn):
                since[name] = look
            elif look.at_s - first.at_s > STUCK_S and recent[0].changes - first.changes >= ENOUGH:
                found.append(
                    f"{name} says that it follows {look.active}, and has had nothing behind record "
                    f"{lsn} for {look.at_s - first.at_s:.0f} s"
                )
                since[name] = look
    return found


class Watcher:
    """Looks in a thread of its own."""

    def __init__(self, field: Field, journal: Journal) -> None:
        self._field = field
        self._journal = journal
        self._looks: list[Look] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            changes = self._journal.told["put"] + self._journal.told["delete"]
            situations = self._field.situations()
            self._looks.append(look_of(time.monotonic(), changes, situations))

    def stop(self) -> list[str]:
        """:return: what was wrong, a sentence each."""
        self._over.set()
        self._thread.join()
        return stuck(self._looks)
