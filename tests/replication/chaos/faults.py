"""Faults, drawn from a seed: what, to whom, for how long."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from tests.replication.chaos.field import LEASE_S, STREAM, Field, Host, promote
from tests.replication.cluster import Server

WEIGHTS: Final = {
    "kill -9 of ours": 5, "SIGSTOP of ours": 4, "ordered stop": 2, "promote": 3,
    "kill -9 of NATS": 3, "SIGSTOP of NATS": 3, "ours cut from NATS": 6, "NATS cut off": 3,
    "SIGSTOP of NATS's leader": 2, "quorum away": 1, "all of ours killed": 1, "all killed": 1,
    "all lose power": 1, "full disk": 2, "full disk of NATS": 2, "clock set": 3,
}  # fmt: skip
"""How often each is drawn, in proportion."""

NEED_NAMESPACES: Final = ("ours cut from NATS", "NATS cut off", "full disk", "full disk of NATS")

OF_NATS: Final = (
    "kill -9 of NATS", "SIGSTOP of NATS", "SIGSTOP of NATS's leader", "NATS cut off",
    "quorum away", "all killed", "full disk of NATS",
)  # fmt: skip
"""One of these at a time, and only when all NATS servers are well: two of three stay together."""


class CannotBe(Exception):
    """None of the faults that were asked for can be had on this machine."""


class Faults:
    """Injects faults for as long as it is let.

    :ivar injected: how many of each kind.
    """

    def __init__(
        self, field: Field, random: Random, tell: Callable[[str], None], only: Sequence[str] = ()
    ) -> None:  # fmt: skip
        """:param only: kinds to draw; all if it is empty.
        :raise CannotBe: none of them can be had here.
        """
        self._kinds = [
            kind for kind in only or WEIGHTS
            if field.has_partitions or kind not in NEED_NAMESPACES
            if field.has_clocks or kind != "clock set"
            if field.has_power or kind != "all lose power"
        ]  # fmt: skip
        if not self._kinds:
            raise CannotBe(f"these faults cannot be had here: {', '.join(only)}")
        self._field = field
        self._random = random
        self._tell = tell
        self._ends: list[tuple[float, Callable[[], None]]] = []
        self._busy: set[str] = set()
        self.injected: Counter[str] = Counter()
        self.over = threading.Event()

    def run(self, seconds: float) -> None:
        """Do so for so long, and undo all."""
        until_s = time.monotonic() + seconds
        next_s = time.monotonic() + 1
        while time.monotonic() < until_s and not self.over.is_set():
            self._undo(time.monotonic())
            self._supervise()
            if time.monotonic() >= next_s:
                self._draw()
                next_s = time.monotonic() + self._random.uniform(0.5, 5)
            self.over.wait(0.1)
        self._undo(float("inf"))

    def _supervise(self) -> None:
        """Start again what has ended by itself, as a service manager does."""
        for host in self._field.hosts:
            host.look()
            if host.server is None and host.name not in self._busy:
                host.start(self._field.url)

    def _undo(self, now_s: float) -> None:
        for entry in sorted(self._ends, key=lambda each: each[0]):
            if entry[0] <= now_s:
                self._ends.remove(entry)
                entry[1]()

    def _draw(self) -> None:
        weights = [WEIGHTS[each] for each in self._kinds]
        kind = self._random.choices(self._kinds, weights)[0]
        if kind in OF_NATS and not self._may_take_nats():
            return
        if self._inject(kind):
            self.injected[kind] += 1

    def _may_take_nats(self) -> bool:
        if "nats" in self._busy:
            return False
        try:
            self._field.wait_for_nats()
        except AssertionError as problem:
            self._tell(str(problem))
            return False
        return True

    def _inject(self, kind: str) -> bool:
        if kind in OF_NATS:
            return self._inject_in_nats(kind)
        if kind == "all of ours killed":
            return self._kill_ours()
        if kind == "all lose power":
            return self._lose_power()
        host = self._draw_host()
        if host is None:
            return False
        role = "active" if host.is_active else "standby"
        self._tell(f"{kind}: {host.name}, {role}")
        if kind == "promote":
            promote(host)
            return role == "active"
        self._inject_in_ours(kind, host)
        return True

    def _draw_host(self) -> Host | None:
        """The active one half of the time."""
        free = [host for host in self._field.hosts if host.name not in self._busy and host.server]
        active = self._field.active()
        if active in free and self._random.random() < 0.5:
            return active
        return self._random.choice(free) if free else None

    def _later(self, seconds: float, name: str, undo: Callable[[], None]) -> None:
        self._busy.add(name)

        def do() -> None:
            undo()
            self._busy.discard(name)

        self._ends.append((time.monotonic() + seconds, do))

    def _inject_in_ours(self, kind: str, host: Host) -> None:
        seconds = self._random.uniform(0.1, 8)
        if kind in ("kill -9 of ours", "ordered stop"):
            host.end(signal.SIGKILL if kind == "kill -9 of ours" else signal.SIGTERM)
            self._later(seconds, host.name, lambda: host.start(self._field.url))
        elif kind == "SIGSTOP of ours":
            host.signal(signal.SIGSTOP)
            seconds = self._random.uniform(0.5 * LEASE_S, 3 * LEASE_S)
            self._later(seconds, host.name, lambda: host.signal(signal.SIGCONT))
        elif kind == "ours cut from NATS":
            direction = self._random.choice(("to", "from", "both"))
            self._later(seconds, host.name, self._field.part(host, direction))
        elif kind == "full disk":
            host.may_end = True
            host.disk.fill()
            self._later(seconds, host.name, lambda: self._give_back(host))
        else:
            host.set_clock(self._random.choice((-86400, -60, -1, 1, 60, 86400)))
            self._later(seconds, host.name, lambda: host.set_clock(0))

    def _give_back(self, host: Host) -> None:
        host.disk.empty()
        host.look()
        host.may_end = False

    def _give_back_to_nats(self, number: int) -> None:
        """NATS switches JetStream off when a disk is full, until it is started again."""
        self._field.nats_disks[number].empty()
        self._field.nats.servers[number].kill()
        self._field.nats.servers[number].start()

    def _inject_in_nats(self, kind: str) -> bool:
        servers = self._field.nats.servers
        number = self._random.randrange(len(servers))
        if kind == "SIGSTOP of NATS's leader":
            number = servers.index(self._field.nats.leader(STREAM))
        server, seconds = servers[number], self._random.uniform(1, 10)
        self._tell(f"{kind}: {server.name}")
        if kind == "kill -9 of NATS":
            server.kill()
            self._later(seconds, "nats", server.start)
        elif kind in ("SIGSTOP of NATS", "SIGSTOP of NATS's leader"):
            server.pause()
            self._later(seconds, "nats", server.resume)
        elif kind == "NATS cut off":
            self._later(seconds, "nats", self._field.part_nats(number))
        elif kind == "full disk of NATS":
            self._field.nats_disks[number].fill()
            self._later(seconds, "nats", lambda: self._give_back_to_nats(number))
        elif kind == "quorum away":
            self._pause_two(number)
        else:
            self._kill_all()
        return True

    def _pause_two(self, number: int) -> None:
        servers = self._field.nats.servers
        two = [server for server in servers if server is not servers[number]]
        for server in two:
            server.pause()
        seconds = self._random.uniform(1, 8)
        self._later(seconds, "nats", lambda: _for_each(Server.resume, two))

    def _kill_ours(self) -> bool:
        if not self._busy.isdisjoint(host.name for host in self._field.hosts):
            return False
        self._tell("all of ours killed")
        for host in self._field.hosts:
            host.end()
        return True

    def _lose_power(self) -> bool:
        """All that is under way ends first.  Our servers are started by `_supervise`."""
        self._undo(float("inf"))
        self._tell("all lose power")
        self._field.lose_power()
        return True

    def _kill_all(self) -> None:
        """Our servers are started by `_supervise`."""
        for server in self._field.nats.servers:
            server.kill()
        for host in self._field.hosts:
            if host.name not in self._busy:
                host.end()
        self._later(1, "nats", lambda: _for_each(Server.start, self._field.nats.servers))


def _for_each(do: Callable[[Server], None], servers: Iterable[Server]) -> None:
    for server in servers:
        do(server)
