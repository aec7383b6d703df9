"""The three servers that the conversations are held with."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.conformance.conversations import (
    Block,
    Conversation,
    Drain,
    End,
    Restart,
    Say,
    Step,
)
from tests.server_process import (
    Connection,
    ServerProcess,
    ours_at_once,
    reply_bytes,
    theirs,
)


class Peer(Protocol):
    """A connection to a server."""

    def send(self, request: bytes) -> None:
        """Send bytes."""

    def reply(self) -> bytes:
        """Wait for one reply; nothing when the server has parted."""

    def half_close(self) -> None:
        """Say that nothing more will be sent."""

    def close(self) -> None:
        """Part."""


class Server(Protocol):
    """A server that a conversation is held with."""

    def connect(self) -> Peer:
        """Make a connection."""

    def restart(self) -> None:
        """Kill it, and start another one on its directory."""

    def drain(self) -> None:
        """Send SIGUSR1, and return when that has come through."""

    def end(self) -> None:
        """End it."""


class MemoryPeer:
    """A connection to ours in memory."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._connection = server.connect()
        self._heard = b""

    def send(self, request: bytes) -> None:
        """See `Peer.send`."""
        self._connection.send(request)

    def reply(self) -> bytes:
        """See `Peer.reply`; lets time pass until there is one."""
        self._server.advance()
        self._heard += self._connection.take()
        while (end := reply_bytes(self._heard)) is None:
            self._server.advance()
            if self._connection.is_closed:
                return b""
            due = self._server.next_call_at()
            assert due is not None, "no reply will ever come"
            self._server.advance(due - self._server.clock.seconds())
            self._heard += self._connection.take()
        reply, self._heard = self._heard[:end], self._heard[end:]
        return reply

    def half_close(self) -> None:
        """See `Peer.half_close`."""
        self._connection.half_close()

    def close(self) -> None:
        """See `Peer.close`."""
        self._connection.hang_up()


class OursInMemory:
    """Our server, without a process."""

    body_cache: int | None = None

    def __init__(self, talk: Conversation, folder: Path) -> None:
        is_logged = talk.is_logged or self.body_cache is not None
        self._server = MemoryServer(
            directory=MemoryDirectory() if is_logged else None, max_job_bytes=talk.max_job_bytes,
            body_cache=self.body_cache,
        )  # fmt: skip

    def connect(self) -> MemoryPeer:
        """See `Server.connect`."""
        return MemoryPeer(self._server)

    def restart(self) -> None:
        """See `Server.restart`."""
        self._server.kill_and_restart()

    def drain(self) -> None:
        """See `Server.drain`."""
        self._server.service.drain()

    def end(self) -> None:
        """See `Server.end`."""
        self._server.kill()


class OursWithoutBodies(OursInMemory):
    """The same; bodies that may be are in the log only."""

    body_cache = 0


class OursWithAByte(OursInMemory):
    """The same with the smallest cache that there is."""

    body_cache = 1


class OursWithFewBodies(OursInMemory):
    """The same with a cache that few jobs fill."""

    body_cache = 64 << 10


class OnASocket:
    """A process."""

    command: Callable[..., list[str]]
    options: Sequence[object] = ()
    is_logged = False

    def __init__(self, talk: Conversation, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        options: list[object] = ["-p0", "-z", talk.max_job_bytes, *self.options]
        if talk.is_logged or self.is_logged:
            (folder / "log").mkdir()
            options += ["-b", folder / "log"]
        self._command = type(self).command(*options)
        self._folder = folder
        self._process = ServerProcess(self._command, folder)

    def connect(self) -> Connection:
        """See `Server.connect`."""
        return Connection(self._process.port())

    def restart(self) -> None:
        """See `Server.restart`."""
        self._process.kill()
        self._process = ServerProcess(self._command, self._folder)

    def drain(self) -> None:
        """See `Server.drain`."""
        self._process.process.send_signal(signal.SIGUSR1)
        asking = self.connect()
        while b"draining: true\n" not in asking.ask(b"stats\r\n"):
            assert self._process.process.poll() is None
        asking.close()

    def end(self) -> None:
        """See `Server.end`."""
        self._process.kill()


class OursOnASocket(OnASocket):
    """Our server, as its users run it."""

    command = staticmethod(ours_at_once)


class OursOnASocketWithoutBodies(OursOnASocket):
    """The same with a log; bodies that may be are in there only."""

    options = ("--body-cache", 0)
    is_logged = True


class TheirsOnASocket(OnASocket):
    """The real beanstalkd."""

    command = staticmethod(theirs)


class Heard(NamedTuple):
    """One reply.

    :ivar expected: see `Say.heard`.
    """

    who: str
    sent: bytes
    expected: str
    reply: bytes


def hold(
    talk: Conversation, kind: Callable[[Conversation, Path], Server], folder: Path
) -> list[Heard]:
    """Hold a conversation with a new server."""
    server = kind(talk, folder)
    peers: dict[str, Peer] = {}
    heard: list[Heard] = []
    try:
        for step in talk.steps:
            heard += take_step(step, server, peers)
    finally:
        for peer in peers.values():
            peer.close()
        server.end()
    return heard


def take_step(step: Step, server: Server, peers: dict[str, Peer]) -> list[Heard]:
    """Take one step of a conversation."""
    match step:
        case Say(who, sent, expected):
            peer = known(who, server, peers)
            if sent:
                peer.send(sent)
            return [Heard(who, sent, each, peer.reply()) for each in expected]
        case Block(who, sent):
            # A server takes the commands of a packet together: once this is answered, it waits.
            known(who, server, peers).send(b"list-tube-used\r\n" + sent)
            return [Heard(who, sent, "USING", peers[who].reply())]
        case End(who, is_half):
            peers[who].half_close() if is_half else peers.pop(who).close()
        case Restart():
            server.restart()
        case Drain():
            server.drain()
    return []


def known(who: str, server: Server, peers: dict[str, Peer]) -> Peer:
    """Give a connection by its name."""
    if who not in peers:
        peers[who] = server.connect()
    return peers[who]
