"""
Sockets that the service manager listens on for us: socket activation, sd_listen_fds(3).

They are there before the server starts and after it has ended, so clients that come meanwhile wait
in the kernel's queue and nobody is refused.  The server serves them when its log is read.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from twisted.internet import tcp, unix
from twisted.internet.defer import Deferred, execute
from twisted.internet.endpoints import AdoptedStreamServerEndpoint, serverFromString
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

NAME: Final = "beanstalk"
"""``FileDescriptorName=`` of the sockets that are served without being asked for."""

NOT_PASSED: Final = (
    "no such socket was passed to this process; a socket unit passes it, under the name of its "
    "FileDescriptorName="
)
"""What is wrong with an endpoint that names another one."""


class Inherited(NamedTuple):
    """A socket that was passed."""

    name: str
    fd: int


def inherited(reactor: Any, environment: Mapping[str, str]) -> list[Inherited]:
    """
    Twisted has read ``LISTEN_PID`` and ``LISTEN_FDS`` when it was imported, and forgets all but one
    of the sockets of one name, such as two ``ListenStream=`` of a unit make; so it is asked by
    numbers, and names are read here.

    :return: the sockets that were passed to this process, in the order of their descriptors.
    """
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    return [Inherited(name, fd) for name, fd in zip(names, _descriptors(reactor), strict=False)]


def _descriptors(reactor: Any) -> Iterator[int]:
    number = 0
    while True:
        try:
            endpoint = serverFromString(reactor, f"systemd:domain=INET:index={number}")
        except IndexError:
            return
        assert isinstance(endpoint, AdoptedStreamServerEndpoint)
        yield endpoint.fileno
        number += 1


def endpoints_named(
    reactor: Any, sockets: list[Inherited], name: str
) -> "list[IStreamServerEndpoint]":
    """:raise ValueError: one of them does not listen for connections."""
    return [InheritedSocket(reactor, each.fd) for each in sockets if each.name == name]


@implementer(IStreamServerEndpoint)
class InheritedSocket:
    """An endpoint on a TCP or UNIX socket that listens already."""

    def __init__(self, reactor: Any, fd: int) -> None:
        """:raise ValueError: it does not listen for connections."""
        self._reactor = reactor
        self._fd = fd
        self._family = _family(fd)

    def listen(self, protocolFactory: IProtocolFactory) -> "Deferred[IListeningPort]":
        """Serve it, once; clients that came before are the first."""
        return execute(self._adopt, protocolFactory)

    def _adopt(self, factory: IProtocolFactory) -> IListeningPort:
        # Unless told otherwise by NonBlocking=, systemd passes sockets that block.
        os.set_blocking(self._fd, False)
        port: Any
        if self._family == socket.AF_UNIX:
            make: Any = KeptPort._fromListeningDescriptor
            port = make(self._reactor, self._fd, factory)
            port.startListening()
        else:
            port = self._reactor.adoptStreamPort(self._fd, self._family, factory)
        # The port has its own descriptor of the same socket.
        os.close(self._fd)
        return cast(IListeningPort, port)


class KeptPort(unix.Port):
    """
    A UNIX socket that goes on listening when it is no longer served, and keeps its file: it is the
    service manager's.  Twisted has that for TCP only.
    """

    # A shutdown would end it for all who have it.
    _shouldShutdown = False

    def connectionLost(self, reason: Failure) -> None:
        """Twisted's own removes the file."""
        tcp.Port.connectionLost(self, reason)


def _family(fd: int) -> int:
    """
    :return: the address family of a socket.
    :raise ValueError: it does not listen for connections.
    """
    try:
        with socket.socket(fileno=os.dup(fd)) as copy:
            if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return copy.family
    except OSError as problem:
        raise ValueError(f"file descriptor {fd} is no socket: {problem.strerror}") from None
    raise ValueError(f"socket {fd} does not listen: name it by ListenStream= in the socket unit")
