"""A server in memory that asks for rights, and connections of peers of whom something is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.address import IPv4Address

from beanstalk_twisted.access.rules import AccessRules, Grant, Granted, Identity, parse_access
from beanstalk_twisted.access.tokens import hash_of
from beanstalk_twisted.server.access_control import AccessControl, Hashing
from beanstalk_twisted.testing.memory_server import Client, MemoryServer, MemoryTransport

TOKEN = b"bst_aaaaaaaa_" + b"b" * 32
OTHER_TOKEN = b"bst_cccccccc_" + b"d" * 32
HASH = hash_of(TOKEN, lambda size: bytes(size), log2_n=1)
OTHER_HASH = hash_of(OTHER_TOKEN, lambda size: bytes(size), log2_n=1)


class InlineHashing:
    """`Hashing` at once."""

    def run(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        done(work())

    def stop(self) -> None:
        """Nothing runs."""


class HeldHashing:
    """A `Hashing` whose threads are ours: nothing is done before `work` is called."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], bool], Callable[[bool], None]]] = []

    def run(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        self.waiting.append((work, done))

    def work(self) -> None:
        work, done = self.waiting.pop(0)
        done(work())

    def stop(self) -> None:
        """See `Hashing.stop`."""


class PeerTransport(MemoryTransport):
    """A connection whose peer has an address, and perhaps a process or a certificate."""

    address = "127.0.0.1"
    port = 11300
    handle: Any = None
    certificate: Any = None

    def getPeer(self) -> Any:
        return IPv4Address("TCP", self.address, 1)

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", self.port)

    def getHandle(self) -> Any:
        return self.handle

    def getPeerCertificate(self) -> Any:
        return self.certificate


class PeerClient(Client):
    """A client on a `PeerTransport`."""

    def __init__(self, server: MemoryServer, **facts: Any) -> None:
        factory = server.service.factory
        self.protocol = cast(Any, factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)))
        self.transport = PeerTransport(server.clock, self.protocol)
        for name, value in facts.items():
            setattr(self.transport, name, value)
        self._server = server
        cast(Any, self.protocol).makeConnection(self.transport)


def rules(**grants: dict[str, str]) -> AccessRules:
    """Identities by name, each with patterns by right or role; ``it`` has `TOKEN`, ``other``
    `OTHER_TOKEN`.
    """
    made = {name: Grant([Granted(*each) for each in grants[name].items()]) for name in grants}
    anonymous = made.pop("anonymous", Grant())
    tokens = {"it": [HASH], "other": [OTHER_HASH]}
    identities = [Identity(name, grant, tokens[name]) for name, grant in made.items()]
    return AccessRules(identities, anonymous)


def access_of(server: MemoryServer) -> AccessControl:
    access = server.service.access
    assert access is not None
    return access


def guarded(held: AccessRules | str, hashing: Hashing | None = None, **how: Any) -> MemoryServer:
    """Start a server that asks for rights."""
    server = MemoryServer(**how)
    found = parse_access(held) if isinstance(held, str) else held
    server.service.require_access(found, hashing or InlineHashing())
    return server
