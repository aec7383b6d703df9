"""What can befall servers of a replicated queue: the steps of schedules."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.binlog.memory import MemoryDirectory
from tests.crash.disks import SECTORS, pieces
from tests.replication.servers import LEASE_S, Host, ReplicatedLog
from tests.replication.stream.memory import Fate
from tests.replication.world import Process, World

FOREIGN: Final = b"of somebody else"
"""A message that is of no server of a queue."""

LATE_S: Final = 0.8
"""For how long replies do not reach clients, seconds: less than the margin of the history."""

QUICK: Final = Fate(0.002, 0.002)
LATE: Final = Fate(0.002, 2.5, 4.0)


def quick(kind: str) -> Fate:
    return QUICK


def late(kind: str) -> Fate:
    return LATE


class Mishaps(ABC):
    """Lets them happen.

    :ivar draw: decides which.
    :ivar steps: what was done, in words.
    :ivar counts: how often what has happened.
    """

    draw: random.Random
    world: World
    log: ReplicatedLog
    hosts: list[Host]
    steps: list[str]
    counts: Counter[str]
    _stopping: set[Process]

    @abstractmethod
    def go(self, seconds: float) -> None:
        """Pass time; clients do this and that."""

    def _step(self) -> None:
        draw = self.draw
        steps: list[tuple[int, Callable[[Host], str]]] = [
            (6, self._pass), (3, self._kill), (2, self._lose_power), (6, self._start),
            (3, self._pause), (3, self._stall), (3, self._cut), (4, self._mend), (3, self._weather),
            (2, self._quorum), (2, self._stop), (2, self._promote), (1, self._fill_disk),
            (3, self._hang_up), (2, self._cut_clients), (1, self._fall_behind), (2, self._die),
            (1, self._write_foreign),
        ]  # fmt: skip
        (step,) = draw.choices([step for _, step in steps], [weight for weight, _ in steps])
        # What befalls the active server tells more.
        listening = [host for host in self.hosts if host.listens]
        host = draw.choice(listening if listening and draw.random() < 0.5 else self.hosts)
        words = step(host)
        if words:
            self.counts[step.__name__] += 1
            self.steps.append(f"{self.world.now_s:.3f}: {words}")
        self.go(draw.choice((0.02, 0.1, 0.5, 1.5)))

    def _pass(self, host: Host) -> str:
        seconds = self.draw.choice((0.2, 1.0, LEASE_S * 0.9, LEASE_S * 1.1))
        self.go(seconds)
        return f"{seconds} s pass"

    def _kill(self, host: Host) -> str:
        if not host.runs:
            return ""
        host.kill()
        return f"{host.name} is killed"

    def _lose_power(self, host: Host) -> str:
        if not host.runs:
            return ""
        host.kill(self._power_lost)
        return f"{host.name} loses its power"

    def _power_lost(self, directory: MemoryDirectory) -> MemoryDirectory:
        draw, share, sector = (
            self.draw,
            self.draw.choice((0.0, 0.5, 1.0)),
            self.draw.choice(SECTORS),
        )
        return directory.after_power_loss(
            lambda: draw.random() < share,
            lambda size: [piece for piece in pieces(size, sector) if draw.random() < share],
        )

    def _start(self, host: Host) -> str:
        down = [each for each in self.hosts if not each.runs]
        if not down:
            return ""
        host = self.draw.choice(down)
        host.start()
        return f"{host.name} starts"

    def _pause(self, host: Host) -> str:
        process = host.process
        if process is None:
            return ""
        seconds = self.draw.choice((0.5, LEASE_S, 2 * LEASE_S))
        process.hold()
        self.go(seconds)
        process.go_on()
        return f"{host.name} stood still for {seconds} s"

    def _stall(self, host: Host) -> str:
        """A pause in the middle of a turn."""
        seconds = self.draw.choice((0.5, LEASE_S, 2 * LEASE_S))
        looks = self.draw.randrange(1, 60)

        def stalls() -> None:
            nonlocal looks
            looks -= 1
            process = host.process
            if not looks and process is not None:
                host.stalls = host.goes_on
                self.counts["stalled"] += 1
                process.hold()
                self.go(seconds)
                process.go_on()

        host.stalls = stalls
        return f"{host.name} will stand still for {seconds} s at its {looks}th look"

    def _cut(self, host: Host) -> str:
        sending, receiving = self.draw.choice(((True, True), (True, False), (False, True)))
        host.cut(sending, receiving)
        return f"{host.name} is cut off (sending: {sending}, receiving: {receiving})"

    def _mend(self, host: Host) -> str:
        host.mend()
        return f"{host.name} is connected"

    def _weather(self, host: Host) -> str:
        name, fate = self.draw.choice((
            ("quick", quick), ("slow", self._slow), ("lossy", self._lossy), ("wild", self._wild),
            ("late", late),
        ))  # fmt: skip
        host.fate = fate
        return f"the network of {host.name} is {name}"

    def _slow(self, kind: str) -> Fate:
        draw = self.draw
        return Fate(draw.choice((0.1, 0.4, 1.0)), draw.choice((0.1, 0.4, 1.0)), 2.0)

    def _lossy(self, kind: str) -> Fate:
        draw = self.draw
        there = None if draw.random() < 0.15 else 0.01
        return Fate(there, None if draw.random() < 0.15 else 0.01, 0.5)

    def _wild(self, kind: str) -> Fate:
        draw = self.draw
        there, back = draw.choice((0.001, 0.2, 1.0, 6.0)), draw.choice((0.001, 0.2, 1.0, None))
        return Fate(there, back, 1.0, kind != "append", kind == "deliver" and draw.random() < 0.3)

    def _quorum(self, host: Host) -> str:
        if self.log.has_quorum:
            self.log.lose_quorum()
            return "the stream has no quorum"
        keeps = self.draw.random() < 0.5
        self.log.restore_quorum(keeps)
        return f"the stream has a quorum again (keeps: {keeps})"

    def _stop(self, host: Host) -> str:
        process = host.process
        if process is None:
            return ""
        process.callLater(0, self._begin_stop, host, process)
        return f"{host.name} is stopped"

    def _begin_stop(self, host: Host, process: Process) -> None:
        def stopped(ignored: Any) -> None:
            if host.process is process:
                self._stopping.discard(process)
                host.kill()

        self._stopping.add(process)
        host.service.stopService().addBoth(stopped)

    def _promote(self, host: Host) -> str:
        active = [each for each in self.hosts if each.listens]
        if not active:
            return ""
        host, to = self.draw.choice(active), self.draw.choice(("", *(h.name for h in self.hosts)))
        assert host.process is not None
        host.process.callLater(0, host.service.promote, to)
        return f"{host.name} hands over to {to!r}"

    def _fill_disk(self, host: Host) -> str:
        directory = host.directory
        if directory.space is not None:
            directory.space = None
            return f"{host.name} has space again"
        directory.space = sum(len(directory.read(name)) for name in directory.names())
        directory.space += self.draw.choice((0, 3_000, 10_000))
        host.was_full = True
        return f"the disk of {host.name} is full"

    def _hang_up(self, host: Host) -> str:
        lines = list(host.connections)
        for line in lines:
            if self.draw.random() < 0.6:
                line.hang_up()
        return f"clients of {host.name} hang up" if lines else ""

    def _cut_clients(self, host: Host) -> str:
        """For longer in the one direction: what a client reads too late, it knows too late."""
        deaf = self.draw.random() < 0.5
        seconds = self.draw.choice((0.5, LEASE_S * 1.1)) if deaf else LATE_S
        host.cut_clients(deaf, not deaf)
        # The network's own time: a server that stands still meanwhile makes it no longer.
        self.world.network.callLater(seconds, host.cut_clients, False, False)
        self.go(seconds)
        return f"clients do not {'reach' if deaf else 'hear'} {host.name} for {seconds} s"

    def _fall_behind(self, host: Host) -> str:
        """It asks a server of the stream that does not know yet that it leads no longer."""
        if not host.runs:
            return ""
        stream, behind = host.stream, self.draw.choice((1, 3, 20))
        stream.behind = behind
        self.go(self.draw.choice((0.1, 1.0, 3.0)))
        stream.behind = 0
        return f"the stream showed {host.name} {behind} messages less"

    def _write_foreign(self, host: Host) -> str:
        """Somebody who is no server of a queue writes to the stream."""
        log, count = self.log, self.draw.choice((1, 3, 40, 150, 400))
        if not log.terms:
            # A stream that has nothing else is no log of a queue.
            return ""
        for number in range(count):
            if log.has_quorum:
                log.append(FOREIGN, log.last)
            if number % 40 == 39:
                self.go(0.01)
        return f"{count} foreign messages are written"

    def _die(self, host: Host) -> str:
        """An end in the middle of a turn, or of a write."""
        looks = self.draw.randrange(1, 60)

        def dies() -> None:
            nonlocal looks
            looks -= 1
            if not looks:
                host.stalls = host.goes_on
                self.counts["died"] += 1
                host.kill()

        host.stalls = dies
        return f"{host.name} will be killed at its {looks}th look"
