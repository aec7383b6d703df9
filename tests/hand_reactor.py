"""Twisted's own connections, on sockets, with a reactor that does nothing by itself."""

from __future__ import annotations

import socket
from typing import Any, cast

from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.tcp import Connection
from zope.interface import implementer


@implementer(IReactorFDSet)
class HandReactor(Clock):
    """Notes what it is to look at, and calls what is due when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Any] = []
        self.writers: list[Any] = []

    def run_until_current(self) -> None:
        """Call what is due, once: what that adds comes in the next round, as in Twisted's
        reactors.
        """
        due = [call for call in self.calls if call.getTime() <= self.seconds()]
        for call in due:
            self.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)

    def addReader(self, reader: Any) -> None:
        if reader not in self.readers:
            self.readers.append(reader)

    def removeReader(self, reader: Any) -> None:
        if reader in self.readers:
            self.readers.remove(reader)

    def addWriter(self, writer: Any) -> None:
        if writer not in self.writers:
            self.writers.append(writer)

    def removeWriter(self, writer: Any) -> None:
        if writer in self.writers:
            self.writers.remove(writer)

    def removeAll(self) -> list[Any]:
        return []

    def getReaders(self) -> list[Any]:
        return list(self.readers)

    def getWriters(self) -> list[Any]:
        return list(self.writers)


class Wire:
    """A connection of Twisted's on a socket, and the socket at its other end."""

    def __init__(self, reactor: HandReactor) -> None:
        self.near, self.far = socket.socketpair()
        self.far.setblocking(False)
        self.reactor = reactor
        self.transport = Connection(self.near, Protocol(), cast(Any, reactor))
        self.transport.connected = True
        self.transport.startReading()

    def read(self) -> bytes:
        """Read all that is there."""
        found = bytearray()
        try:
            while data := self.far.recv(1 << 20):
                found += data
        except BlockingIOError:
            pass
        return bytes(found)

    def read_on(self) -> bytes:
        """Read while the transport writes, until it has no more."""
        found = self.read()
        while self.reactor.writers:
            is_over = self.transport.doWrite() is not None
            found += self.read()
            if is_over:
                break
        return found

    def close(self) -> None:
        """Close both ends."""
        self.far.close()
        self.near.close()
