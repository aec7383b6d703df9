"""A whole server in memory: the real service on a clock that stands still, connections without
sockets, and a simulated disk.
"""

from __future__ import annotations

import copy
import errno
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Self, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.archive import Archive
from beanstalk_twisted.binlog.directory import (
    DELETED,
    IN_PLACE,
    QUARANTINE,
    Directory,
    DiskSpace,
    File,
)
from beanstalk_twisted.binlog.files import TO_END
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.server.connections.protocol import BeanstalkProtocol
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.archiver import Archiver
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.storage.fsync import ALWAYS, FsyncPolicy
from beanstalk_twisted.storage.io_thread import InlineIo, WatchableIo
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.dialects import MODERN

OUTPUT_LIMIT_BYTES = 1 << 16
"""Unread replies above which Twisted asks for a pause (`FileDescriptor.bufferSize`)."""

READ_BYTES = 1 << 16
"""Most bytes that one read of Twisted's brings."""

HOST = IPv4Address("TCP", "127.0.0.1", 11300)
"""Where connections go to."""

PEER = IPv4Address("TCP", "127.0.0.1", 1)
"""Where connections come from."""

STARTED_S = 1_700_000_000
"""The wall clock when a `MemoryServer` is made."""


def overwrite(content: bytearray, offset: int, written: bytes | None) -> None:
    """Write, or for None set the size to ``offset``."""
    if written is None:
        del content[offset:]
    content.extend(bytes(max(0, offset - len(content))))
    if written:
        content[offset : offset + len(written)] = written


class Inode:
    """The bytes of a file: as written, and as they survive a power loss."""

    def __init__(self, content: bytes = b"") -> None:
        self.written = bytearray(content)
        self.synced = bytes(content)

    def change(self, offset: int, written: bytes | None) -> None:
        """Write, or for None set the size to ``offset``."""
        overwrite(self.written, offset, written)

    def sync(self) -> None:
        self.synced = bytes(self.written)


class SimulatedFile(File):
    """A `File` of a `SimulatedDirectory`."""

    def __init__(self, inode: Inode) -> None:
        self.inode = inode

    def write_at(self, offset: int, chunks: Sequence[bytes]) -> None:
        self.inode.change(offset, b"".join(chunks))

    def allocate(self, size: int) -> None:
        if size > len(self.inode.written):
            self.inode.change(size, None)

    def truncate(self, size: int) -> None:
        self.inode.change(size, None)

    def sync(self) -> None:
        self.inode.sync()

    def close(self) -> None:
        pass


class SimulatedDirectory(Directory):
    """A `Directory` in memory, of which nothing fails.

    :ivar inodes: the files by name; ``synced_inodes`` those that a power loss leaves.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.path = "(memory)"
        self.inodes = {name: self.make(content) for name, content in (files or {}).items()}
        self.synced_inodes = dict(self.inodes)
        self.quarantined: dict[str, bytes] = {}

    def make(self, content: bytes = b"") -> Inode:
        return Inode(content)

    def inode(self, name: str) -> Inode:
        try:
            return self.inodes[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def lock(self, text: str) -> None:
        """Nobody else can reach it."""

    def lost_lock(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is held."""

    def forget_cached(self, name: str) -> None:
        """Nothing is cached."""

    def expect_gaps(self, names: Collection[str]) -> None:
        """Nothing is read ahead."""

    def names(self) -> list[str]:
        return sorted(self.inodes)

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        return bytes(memoryview(self.inode(name).written)[start:end])

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        return bytes(self.read(name, start, end))

    def size(self, name: str) -> int:
        return len(self.inode(name).written)

    def create(self, name: str) -> File:
        if name in self.inodes:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.inodes[name] = self.make()
        return self.open(name)

    def open(self, name: str) -> File:
        return SimulatedFile(self.inode(name))

    def rename(self, old: str, new: str) -> None:
        inode = self.inode(old)
        del self.inodes[old]
        self.inodes[new] = inode

    def remove(self, name: str) -> None:
        self.inode(name)
        del self.inodes[name]

    def displaced(self, name: str, file: File) -> str:
        assert isinstance(file, SimulatedFile)
        if self.inodes.get(name) is file.inode:
            return IN_PLACE
        now = [each for each, inode in self.inodes.items() if inode is file.inode]
        return f"is now {self.path}/{now[0]}" if now else DELETED

    def disk_space(self) -> DiskSpace:
        """More than any disk has."""
        return DiskSpace(1 << 62, 1 << 62)

    def cut(self, name: str, size: int) -> None:
        self.inode(name).change(size, None)
        self.inode(name).sync()

    def sync(self) -> None:
        self.synced_inodes = dict(self.inodes)

    def quarantine(self, name: str, content: Buffer) -> str:
        self.quarantined.setdefault(name, bytes(content))
        return f"{self.path}/{QUARANTINE}/{name}"

    def replace(self, name: str, content: bytes) -> None:
        """Give a file other content behind everybody's back, as a rotten disk does."""
        self.inodes[name] = self.make(content)

    def after_kill(self) -> Self:
        """Return what the next process finds: all that was written, synced or not."""
        return copy.deepcopy(self)

    def after_power_loss(self) -> Self:
        """Return what the next process finds: all that was synced."""
        return type(self)({name: inode.synced for name, inode in self.synced_inodes.items()})


class MemoryTransport:
    """One end of a connection, an `ITransport`: pauses, half-closes and closes as Twisted's sockets
    do, and as they do it never calls a protocol that has not come back from the last call.

    :ivar unread: what the protocol has written and the other end has not taken.
    :ivar unsent: what the other end has sent and the protocol does not read yet.
    """

    def __init__(
        self, clock: Clock, protocol: Any, stirred: Callable[[], object] = lambda: None,
        peer: IAddress = PEER,
    ) -> None:  # fmt: skip
        """:param stirred: called when the protocol has done what the other end may notice."""
        self.stirred = stirred
        self._peer = peer
        self.is_delivering = False
        self._reason: Exception | None = None
        self.unread = bytearray()
        self.unsent = bytearray()
        self.has_ended = False
        self.sends_no_more = False
        self.is_reading = True
        self.is_closed = False
        self.disconnecting = False
        self._clock = clock
        self._protocol = protocol
        self._producer: Any = None
        self._is_producer_paused = False

    # What the protocol calls.

    def write(self, output: bytes) -> None:
        if self.is_closed:
            return
        self.stirred()
        self.unread += output
        if self._producer is not None and len(self.unread) > OUTPUT_LIMIT_BYTES:
            self._is_producer_paused = True
            self._producer.pauseProducing()

    def writeSequence(self, output: Iterable[bytes]) -> None:
        self.write(b"".join(output))

    def loseConnection(self) -> None:
        self.stirred()
        self.disconnecting = True
        self._clock.callLater(0, self.part_if_read)

    def loseWriteConnection(self) -> None:
        self.stirred()
        self.sends_no_more = True

    def abortConnection(self) -> None:
        self.unread.clear()
        self.loseConnection()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert self._producer is None, "there is a producer already"
        assert streaming, "only producers that push"
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def pauseProducing(self) -> None:
        self.is_reading = False

    def resumeProducing(self) -> None:
        if not self.disconnecting:
            self.is_reading = True
            self._clock.callLater(0, self.read)

    def getPeer(self) -> IAddress:
        return self._peer

    def getHost(self) -> IPv4Address:
        return HOST

    # What the reactor does.

    def read(self) -> None:
        """Deliver what the other end has sent, then that it will send no more."""
        if self.is_delivering:
            return
        self.is_delivering = True
        try:
            self._deliver()
        finally:
            self.is_delivering = False
            reason, self._reason = self._reason, None
            if reason is not None:
                self._protocol.connectionLost(Failure(reason))

    def _deliver(self) -> None:
        while self.unsent and self._can_read:
            packet = bytes(self.unsent[:READ_BYTES])
            del self.unsent[:READ_BYTES]
            self._protocol.dataReceived(packet)
        if self.has_ended and not self.unsent and self._can_read:
            self.is_reading = False
            self._protocol.readConnectionLost()

    @property
    def _can_read(self) -> bool:
        return self.is_reading and not self.is_closed and not self.disconnecting

    def drain(self) -> bytes:
        """Take all that was written, and what is written when there is room."""
        output = bytearray()
        while self.unread:
            output += self.unread
            self.unread.clear()
            if self._is_producer_paused and self._producer is not None:
                self._is_producer_paused = False
                self._producer.resumeProducing()
        self.part_if_read()
        return bytes(output)

    def part_if_read(self) -> None:
        if self.disconnecting and not self.unread:
            self.end(ConnectionDone())

    def end(self, reason: Exception) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.is_delivering:
            self._reason = reason
        else:
            self._protocol.connectionLost(Failure(reason))


class Client:
    """One connection, as its client sees it.  What is sent is parsed at once; all that is sent
    between two calls of `MemoryServer.advance` belongs to one turn.
    """

    def __init__(
        self, server: MemoryServer, protocol: BeanstalkProtocol, peer: IAddress = PEER
    ) -> None:
        self.protocol = protocol
        self.transport = MemoryTransport(server.clock, protocol, peer=peer)
        self._server = server
        cast(Any, protocol).makeConnection(self.transport)

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closed

    def send(self, request: bytes) -> None:
        self.transport.unsent += request
        self.transport.read()

    def take(self) -> bytes:
        return self.transport.drain()

    def ask(self, request: bytes) -> bytes:
        """Send, let the turn end, and read the replies."""
        self.send(request)
        self._server.advance()
        return self.take()

    def half_close(self) -> None:
        self.transport.has_ended = True
        self.transport.read()

    def hang_up(self) -> None:
        self.transport.end(ConnectionLost())


class MemoryServer:
    """A running server.  What it leaves for later, the end of its turn included, happens in
    `advance`; without a log replies are there at once.

    :ivar directory: its disk; None without a log.
    :ivar chance: gives random bytes; a seeded one makes logs the same each time.
    :ivar io: makes what runs the log's work in the next process, and the archive's.
    :ivar settings: of the next process.
    :ivar failures: why the log was lost, where a real process would have ended.
    """

    def __init__(
        self, *, directory: SimulatedDirectory | None = None,
        io: Callable[[], WatchableIo] = InlineIo, fsync: FsyncPolicy = ALWAYS,
        max_job_bytes: int = 65_535, segment_bytes: int = 1 << 16, is_started: bool = True,
        archive: Archive | None = None, archive_age_s: int = 0,
        chance: Callable[[int], bytes] = os.urandom, body_cache: int | None = None,
    ) -> None:  # fmt: skip
        self.clock = Clock()
        self.directory = directory
        self.archive = archive
        self.archive_age_s = archive_age_s
        self.failures: list[Failure] = []
        self.io = io
        self.chance = chance
        self.settings = Settings(max_job_bytes, segment_bytes, fsync, body_cache=body_cache)
        self._clients: list[Client] = []
        if is_started:
            self.start()

    def start(self) -> None:
        log_clock = LogClock(lambda: self._now_ns() + STARTED_S * NS, self._now_ns)
        self.service = self.make_service(log_clock)
        self.service.fail_stop.end = self.failures.append
        interval_s = sys.getswitchinterval()
        try:
            self.service.startService()
        finally:
            # A log sets it for the thread of its own that a real process has.
            sys.setswitchinterval(interval_s)
        self.advance()

    def make_service(self, log_clock: LogClock) -> BeanstalkService:
        archiver = None
        if self.archive is not None:
            archiver = partial(Archiver, self.archive, self.archive_age_s, self.io)
        return BeanstalkService(
            self.settings, self.clock, log_clock, self.directory, self.io, archiver, self.chance
        )

    def _now_ns(self) -> int:
        return round(self.clock.seconds() * NS)

    def connect(self, dialect: str = MODERN.name, peer: IAddress = PEER) -> Client:
        factory = self.service.factory_v1 if dialect == v1.NAME else self.service.factory
        protocol = factory.buildProtocol(peer)
        assert isinstance(protocol, BeanstalkProtocol)
        client = Client(self, protocol, peer)
        self._clients.append(client)
        return client

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass, from one call that is due to the next; with 0, only end the turn."""
        end = self.clock.seconds() + seconds
        # Sums of seconds are not exact: what is due within this nanosecond is due.
        while (due := self.next_call_at()) is not None and due <= end + 1 / NS:
            self.clock.advance(max(0.0, due - self.clock.seconds()))
        self.clock.advance(max(0.0, end - self.clock.seconds()))

    def next_call_at(self) -> float | None:
        return min((call.getTime() for call in self.clock.getDelayedCalls()), default=None)

    def stop(self) -> Deferred[None]:
        return self.service.stopService()

    def kill(self) -> None:
        """End the process as ``kill -9`` does: its connections break, what it wrote stays."""
        for call in list(self.clock.getDelayedCalls()):
            call.cancel()
        for client in self._clients:
            client.transport.is_closed = True
        self._clients.clear()
        if self.directory is not None:
            self.directory = self.directory.after_kill()

    def kill_and_restart(self) -> None:
        self.kill()
        self.start()
