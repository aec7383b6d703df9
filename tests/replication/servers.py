"""Servers of a replicated queue in memory: the whole `ReplicatedService` on a simulated stream,
disk and time, with a port that clients in memory connect to.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory

from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES
from beanstalk_twisted.daemon.listening import ListeningService
from beanstalk_twisted.daemon.process import Launcher
from beanstalk_twisted.daemon.replicated import ReplicatedService
from beanstalk_twisted.daemon.replicated_ending import Term
from beanstalk_twisted.daemon.replication_options import Replication
from beanstalk_twisted.replication.membership import Identity
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.standby import Standby
from beanstalk_twisted.replication.stream.messages import (
    NO_TERM,
    Kind,
    Note,
    Part,
    decode,
    is_stale,
    term_of,
)
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fsync import ALWAYS
from beanstalk_twisted.storage.io_thread import InlineIo, WatchableIo
from tests.binlog.memory import MemoryDirectory
from tests.replication.stream.memory import Fate, MemoryLog, MemoryStream
from tests.replication.world import Machine, Process, SlowIo, World
from tests.uncollected import Uncollected

LEASE_S: Final = 3
TIMEOUT_S: Final = 5
SETTINGS: Final = Settings(65_535, MIN_SEGMENT_BYTES, ALWAYS)


class ReplicatedLog(MemoryLog):
    """A `MemoryLog` that knows whose messages it has.  What is stale says nothing of who is active.

    :ivar active: the process whose term it is, by what is in the stream; None when it has been
        handed over, or none has begun.
    :ivar since_s: since when.
    :ivar terms: how many have begun, and ``term`` the newest.
    :ivar unread: messages that were accepted and are not stale, for whoever takes them off.
    :ivar changed: called when a term begins; ``blame`` with what must never be in a stream.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.active: Process | None = None
        self.since_s = 0.0
        self.terms = 0
        self.term = NO_TERM
        self.unread: deque[Note | Part] = deque()
        self.changed: Callable[[], None] = lambda: None
        self.blame: Callable[[str], None] = lambda fault: None
        self._begun_by: Process | None = None
        self._world = world

    def accept(self, sender: Process, payload: bytes, expected: int) -> int:
        position = self.append(payload, expected)
        found = decode(payload)
        if isinstance(found, Part | Note) and not is_stale(found, self.term):
            self.unread.append(found)
            if isinstance(found, Part):
                self._written(sender, found)
            elif found.kind is Kind.FILL_BEGINS:
                self.term = NO_TERM
            elif found.kind is Kind.HANDED_OVER and self.active is sender:
                self.active = None
        return position

    def _written(self, sender: Process, part: Part) -> None:
        begins = part.write.begins and not part.continues
        term = term_of(part.write) if begins else None
        if term is None:
            return
        before, self.term = self.term, self.term.after(term)
        if term.incarnation > before.incarnation:
            self._begun_by = sender
        elif self._begun_by is not sender:
            self.blame(f"two servers have begun terms of the incarnation {term.incarnation}")
        if self.active is not sender:
            self.active, self.since_s = sender, self._world.now_s
            self.terms += 1
            self.changed()


class Door(MemoryStream):
    """A process's door to the stream."""

    def __init__(
        self, log: ReplicatedLog, network: Process, process: Process, fate: Callable[[str], Fate]
    ) -> None:
        super().__init__(log, network, fate)
        self.log = log
        self.process = process

    def _accept(self, payload: bytes, expected: int, expires: bool) -> int:
        position = self.log.accept(self.process, payload, expected)
        if expires:
            self._reactor.callLater(self.log.expire_s, self.log.expire, position)
        return position


class Port:
    """An endpoint, and its port once it listens.

    :ivar factory: of what listens now; None if nothing does.
    """

    def __init__(self) -> None:
        self.factory: Any = None

    def listen(self, factory: Factory) -> Deferred[Port]:
        self.factory = factory
        return succeed(self)

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 11300)

    def stopListening(self) -> None:
        self.factory = None


class Defers(Publisher):
    """Has batches wait however few records are under way: schedules have few clients."""

    deferred_records = 1


class DeferringStandby(Standby):
    publisher = Defers


class DeferringService(ReplicatedService):
    standby = DeferringStandby


class Parts(NamedTuple):
    """What a server is built of; each flaw that must be found replaces one."""

    service: type[ReplicatedService] = DeferringService
    queue: type[BeanstalkService] = BeanstalkService
    door: type[Door] = Door


SOUND: Final = Parts()


AHEAD_S: Final = {"b": 3600, "c": -3600}
"""Wall clocks that are wrong, by server, seconds."""


class Server(Machine):
    """A machine with the whole service of a replicated queue.

    :ivar port: where it listens.
    """

    url = "nats://a/jobs"
    exits_when_fenced = False
    parts = SOUND

    def __init__(self, *args: Any, lease_s: int = LEASE_S, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lease_s = lease_s
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        process = self.begin()
        self.port = Port()
        self.service = self.parts.service(
            lambda: self._build(process), lambda: self.stream,
            Replication(self.url, self.lease_s, TIMEOUT_S, self.exits_when_fenced, False),
            Identity(self.name, f"{self.name}{self._starts}"), process, process.now_ns,
            lambda: self.disk(process), lambda signalled, reload: None, Launcher({}),
            end=self.ended, collector=Uncollected(),
        )  # fmt: skip
        self.service.startService()

    def _build(self, process: Process) -> Term:
        clock = LogClock(process.wall_ns, process.now_ns)
        queue = self.parts.queue(
            SETTINGS, process, clock, self.directory, lambda: self.disk(process)
        )
        self.watch(queue)
        endpoints: Sequence[Any] = [self.port]
        listening = ListeningService(queue, endpoints, process)  # type: ignore[arg-type]
        return Term(queue, self.directory, listening, lambda: None, lambda: None, None)

    def watch(self, queue: BeanstalkService) -> None: ...

    def disk(self, process: Process) -> WatchableIo:
        """What does the work of the disk."""
        return InlineIo()

    def ended(self, code: int, last_words: Callable[[], None]) -> None:
        raise NotImplementedError


class Host(Server):
    """One whose disk takes time, and clients come to.

    :ivar connections: those to its port.
    :ivar is_deaf: whether nothing arrives from clients; ``is_silent`` whether nothing reaches them.
    :ivar was_full: whether its disk has been.
    :ivar notes: why its processes have ended by themselves.
    """

    def __init__(
        self, name: str, world: World, log: ReplicatedLog, draw: random.Random, parts: Parts
    ) -> None:  # fmt: skip
        super().__init__(world, log, name, ahead_s=AHEAD_S.get(name, 0))
        self.fate = lambda kind: Fate(0.001, 0.001)
        self.is_deaf = self.is_silent = False
        self.connections: list[Any] = []
        self.stalls: Callable[[], None] = lambda: None
        self.was_full = False
        self.rate = draw.uniform(0.96, 1.04)
        self.notes: list[str] = []
        self.parts = parts
        self._log = log
        self._draw = draw

    @property
    def runs(self) -> bool:
        return self.process is not None

    @property
    def listens(self) -> bool:
        return self.process is not None and self.port.factory is not None

    @property
    def is_settled(self) -> bool:
        """Whether it has answered everybody, and has all of the stream.  Who has not heard yet that
        another one is active has not.
        """
        standby = self.service.state.standby
        if standby is None:
            is_busy = any(line.is_busy for line in self.connections)
            is_active = self.listens and self.process is self._log.active
            return is_active and not is_busy and self._has_written_all
        figures = standby.figures()
        follows = figures.doing == "follows the active server" and not figures.lag_s
        return follows and figures.position == self._log.last and not figures.lag_bytes

    @property
    def _has_written_all(self) -> bool:
        """Whether all that is in memory is in the stream and on the disk."""
        return not self.service.situation().lag_bytes and all(disk.is_free for disk in self._disks)

    @property
    def queue(self) -> Any:
        return self.service.term.queue.queue

    def goes_on(self) -> None:
        """It does not stand still."""

    # Starting and ending.

    def begin(self) -> Process:
        self._disks: list[SlowIo] = []
        process = super().begin()
        process.stalls = lambda: self.stalls()
        self.directory.fault = lambda operation, name: self.stalls()
        return process

    def connected(self, process: Process) -> MemoryStream:
        return self.parts.door(self._log, self.world.network, process, lambda kind: self.fate(kind))

    def watch(self, queue: BeanstalkService) -> None:
        queue.fail_stop.end = lambda failure: self._end(f"fails: {failure.getErrorMessage()}")

    def disk(self, process: Process) -> SlowIo:
        disk = SlowIo(process, self._draw)
        self._disks.append(disk)
        return disk

    def ended(self, code: int, last_words: Callable[[], None]) -> None:
        why = last_words.args if isinstance(last_words, partial) else ()
        self._end(f"ends with {code}: {why}")

    def _end(self, how: str) -> None:
        self.notes.append(f"{self.name} {how}")
        self.kill()

    def kill(
        self, power: Callable[[MemoryDirectory], MemoryDirectory] | None = None
    ) -> MemoryDirectory:  # fmt: skip
        left = super().kill(power)
        for each in list(self.connections):
            each.lose()
        self.connections.clear()
        return left

    # The network.

    def cut_clients(self, deaf: bool, silent: bool) -> None:
        """Cut the ways from and to clients, or free them."""
        self.is_deaf, self.is_silent = deaf, silent
        for line in list(self.connections):
            if not silent:
                line.hear_late()
            if not deaf and self.process is not None:
                self.process.callLater(0, line.bring)
