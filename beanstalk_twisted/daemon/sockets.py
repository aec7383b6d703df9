"""Addresses in words, sockets that a service manager passes, and UNIX sockets."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn, cast

from twisted.internet import tcp, unix
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, execute
from twisted.internet.endpoints import AdoptedStreamServerEndpoint, serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocolFactory,
    IReactorUNIX,
    IStreamServerEndpoint,
)
from twisted.python.failure import Failure
from zope.interface import implementer

MAX_PORT: Final = 65_535
"""TCP's."""

LOWEST_FREE_PORT: Final = 1024
"""Ports below it are for root, as a rule."""


def in_words(address: object) -> str:
    """Return ``HOST:PORT``, ``[HOST]:PORT``, ``unix:PATH``, or the words of another kind."""
    if isinstance(address, UNIXAddress):
        return _unix(address.name)
    if isinstance(address, IPv4Address | IPv6Address):
        return _tcp(address.host, address.port)
    return str(address)


def why_not(error: BaseException, option: str) -> str:
    """Say of what listening has raised where, why, and what to do, in one line."""
    if not isinstance(error, CannotListenError):
        return f"cannot listen: {error}"
    problem = error.socketError
    number = problem.errno if isinstance(problem, OSError) else None
    system_says = problem.strerror if isinstance(problem, OSError) else None
    # In the middle of a sentence.
    why = system_says[:1].lower() + system_says[1:] if system_says else str(problem)
    if isinstance(error.port, int):
        where = _tcp(error.interface or "*", error.port)
        advice = _advice(problem, error.port, option)
        return f"cannot listen on {where}: {why}. {advice}"
    advice = f" Name a path where user {os.geteuid()} may write." if number == errno.EACCES else ""
    return f"cannot listen on {_unix(error.port)}: {why}.{advice}"


def _tcp(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unix(name: bytes | str | None) -> str:
    path = os.fsdecode(name or b"")
    shown = f"@{path[1:]}" if path.startswith("\0") else path
    return f"unix:{shown}"


def _advice(problem: object, port: int, option: str) -> str:
    if isinstance(problem, socket.gaierror):
        return "Name an address of this machine: --address 127.0.0.1."
    number = problem.errno if isinstance(problem, OSError) else None
    if number == errno.EADDRINUSE:
        return f"Is another beanstalkd running? Try {_other_port(port, option)}."
    if number == errno.EADDRNOTAVAIL:
        return "This machine has no such address; 'ip address' shows those that it has."
    if number == errno.EACCES:
        return f"Try {_other_port(max(port, LOWEST_FREE_PORT), option)}."
    return f"Try {_other_port(port, option)}."


def _other_port(port: int, option: str) -> str:
    other = port + 1 if port < MAX_PORT else port - 1
    return f"{option} {other}" if option == "--port" else f"another port in {option}"


NAME: Final = "beanstalk"
"""``FileDescriptorName=`` of the sockets that are served without being asked for."""

NOT_PASSED: Final = (
    "no such socket was passed to this process; a socket unit passes it, under the name of its "
    "FileDescriptorName="
)
"""What is wrong with an endpoint that names another one."""


class Inherited(NamedTuple):
    name: str
    fd: int


def inherited(reactor: Any, environment: Mapping[str, str]) -> list[Inherited]:
    """Twisted has read ``LISTEN_PID`` and ``LISTEN_FDS`` when it was imported, and forgets all but
    one of the sockets of one name, such as two ``ListenStream=`` of a unit make; so it is asked by
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
    """The service manager's UNIX socket: open, with its file, also when it is no longer served."""

    # A shutdown would end it for all who have it.
    _shouldShutdown = False

    def connectionLost(self, reason: Failure) -> None:
        """Twisted's own removes the file."""
        tcp.Port.connectionLost(self, reason)


def _family(fd: int) -> int:
    """:raise ValueError: it does not listen for connections."""
    try:
        with socket.socket(fileno=os.dup(fd)) as copy:
            if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return copy.family
    except OSError as problem:
        raise ValueError(f"file descriptor {fd} is no socket: {problem.strerror}") from None
    raise ValueError(f"socket {fd} does not listen: name it by ListenStream= in the socket unit")


TRIES: Final = 100
"""How often the folder's lock is asked for: whoever starts a server holds it for less than 1 ms."""

TRY_S: Final = 0.01
"""Seconds between two tries: both make a second, after which nobody is starting there."""

LEFT_BEHIND: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT})
"""What the kernel says of a socket that nobody listens on."""


@implementer(IReactorUNIX)
class UnixListener:
    """An `IReactorUNIX` that replaces a socket nobody listens on, and leaves alone what is in use.

    The file of a UNIX socket outlives its server: beanstalkd leaves it at each SIGTERM, everybody
    after kill -9.  The kernel knows whether somebody listens, so the file is connected to.  A file
    with the server's pid, as Twisted makes it, knows less: in a container the next server has the
    same pid.

    Differs from beanstalkd: it removes the file, and so takes it away from a server that is
    listening.
    """

    def __init__(self, reactor: IReactorUNIX) -> None:
        self._reactor = reactor

    def listenUNIX(
        self, address: Any, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0
    ) -> Any:
        """Listen on a UNIX socket; replace a file that nobody listens on.

        :param wantPID: has no effect; there is no file with a pid.
        :raise CannotListenError: a server answers there, or it is no socket.
        """
        path = os.fsdecode(address)
        if path.startswith("\0"):
            # Linux's abstract names are in no folder, and end with their server.
            return self._reactor.listenUNIX(address, factory, backlog, mode)
        with _starting_alone(os.path.dirname(path) or "."):
            _make_way(path)
            return self._reactor.listenUNIX(address, factory, backlog, mode)

    def connectUNIX(
        self, address: Any, factory: Any, timeout: float = 30, checkPID: bool = False
    ) -> Any:
        return self._reactor.connectUNIX(address, factory, timeout, checkPID)


@contextlib.contextmanager
def _starting_alone(folder: str) -> Iterator[None]:
    """Lock the folder against other servers that start: two would find no listener, and the second
    would take the first one's socket away.

    No file is left.  Where locking fails, servers that start in the same millisecond are not told
    apart.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        _lock(fd)
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    for _ in range(TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(TRY_S)
        except OSError:
            return
        else:
            return


def _make_way(path: str) -> None:
    """:raise CannotListenError: there is something other than a socket that nobody listens on."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            why = f"there is no directory {folder}. Run: mkdir -p {folder}"
            _refuse(path, errno.ENOENT, why)
        return
    except OSError as problem:
        raise CannotListenError(None, path, problem) from None
    if not stat.S_ISSOCK(kind):
        _refuse(path, errno.EEXIST, "it is no socket, and is left alone. Name another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        # EAGAIN says that a server is there, and busy.
        answer = probe.connect_ex(path)
    if answer not in LEFT_BEHIND:
        why = os.strerror(answer) if answer else "a server answers"
        _refuse(
            path, errno.EADDRINUSE, f"in use ({why}). Stop the server there, or name another path"
        )
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    # Twisted's ports, and this server up to 0.1, leave a link to a pid beside the socket.
    lock = f"{path}.lock"
    with contextlib.suppress(OSError):
        if os.readlink(lock).isdigit():
            os.unlink(lock)


def _refuse(path: str, number: int, why: str) -> NoReturn:
    raise CannotListenError(None, path, OSError(number, why))
