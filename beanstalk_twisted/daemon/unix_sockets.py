"""
Listening on a UNIX socket whose file may have been left behind.

The file of a UNIX socket outlives its server: beanstalkd leaves it at each SIGTERM, everybody after
kill -9.  The kernel knows whether somebody listens, so the file is connected to.  A file with the
server's pid, as Twisted makes it, knows less: in a container the next server has the same pid.

Differs from beanstalkd: it removes the file, and so takes it away from a server that is listening.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorUNIX
from zope.interface import implementer

TRIES: Final = 100
"""How often the folder's lock is asked for: whoever starts a server holds it for less than 1 ms."""

TRY_S: Final = 0.01
"""Seconds between two tries: both make a second, after which nobody is starting there."""

LEFT_BEHIND: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT})
"""What the kernel says of a socket that nobody listens on."""


@implementer(IReactorUNIX)
class UnixListener:
    """
    An `IReactorUNIX` that replaces a socket nobody listens on, and leaves alone what is in use.
    """

    def __init__(self, reactor: IReactorUNIX) -> None:
        self._reactor = reactor

    def listenUNIX(
        self, address: Any, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0
    ) -> Any:
        """
        Listen on a UNIX socket; replace a file that nobody listens on.

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
    """
    Lock the folder against other servers that start: two would find no listener, and the second
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
    """
    Remove a socket that nobody listens on.

    :raise CannotListenError: there is something else.
    """
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
    answer = _ask(path)
    if answer not in LEFT_BEHIND:
        why = os.strerror(answer) if answer else "a server answers"
        _refuse(
            path, errno.EADDRINUSE, f"in use ({why}). Stop the server there, or name another path"
        )
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    _remove_pid(f"{path}.lock")


def _ask(path: str) -> int:
    """
    :return: the error code of an attempt to connect, 0 if it succeeds.  EAGAIN says that a server
        is there, and busy.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path)


def _remove_pid(path: str) -> None:
    """Twisted's ports, and this server up to 0.1, leave a link to a pid beside the socket."""
    with contextlib.suppress(OSError):
        if os.readlink(path).isdigit():
            os.unlink(path)


def _refuse(path: str, number: int, why: str) -> NoReturn:
    raise CannotListenError(None, path, OSError(number, why))
