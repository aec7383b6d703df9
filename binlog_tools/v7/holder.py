"""
Who runs on a directory of beanstalkd, asked without disturbing anybody.
"""

import errno
import fcntl
import os
import struct
import sys
from typing import Final

_LINUX: Final = sys.platform.startswith("linux")
_FLOCK: Final = struct.Struct("@hhqqi" if _LINUX else "@qqihh")
"""fcntl's ``struct flock``: type, whence, start, length, pid on Linux; start, length, pid, type,
whence on BSD and macOS."""


def holder_of(path: str) -> int:
    """
    The process that holds the directory's ``lock``.  F_GETLK only asks: unlike trying to take the
    lock, it cannot get in the way of a server that starts just now.

    :return: its pid; 0 if nobody holds it; -1 if it cannot be named.
    :raise OSError: there is a ``lock`` that may not be looked at.
    """
    try:
        fd = os.open(os.path.join(path, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _pack(fcntl.F_WRLCK))
    finally:
        os.close(fd)
    kind, pid = _unpack(answer)
    return 0 if kind == fcntl.F_UNLCK else (pid or -1)


def refuse_running(path: str) -> None:
    """
    :raise OSError: a beanstalkd runs on this directory.
    """
    pid = holder_of(path)
    if pid:
        who = f"process {pid}" if pid > 0 else "a process that cannot be named"
        raise OSError(
            errno.EBUSY,
            f"a beanstalkd runs on it ({who}), so what is read now is soon not true; nothing was "
            f"touched. Stop that server, or look at a copy of the directory: cp -a {path} COPY",
            path,
        )


def _pack(kind: int) -> bytes:
    if _LINUX:
        return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)
    return _FLOCK.pack(0, 0, 0, kind, os.SEEK_SET)


def _unpack(answer: bytes) -> tuple[int, int]:
    fields = _FLOCK.unpack(answer[: _FLOCK.size])
    return (fields[0], fields[4]) if _LINUX else (fields[3], fields[2])
