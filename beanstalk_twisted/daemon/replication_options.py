"""What ``--replicate`` and its companions say, checked (docs/replication.md, "Start")."""

import fcntl
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, NamedTuple

import click

from beanstalk_twisted.binlog.directory import LOCKS

DEFAULT_LEASE_S: Final = 3
"""Seconds: a queue that stands still for three is seldom noticed.  An election among NATS servers
takes 4 to 9: no server can append meanwhile, so a lease that ends then makes none active.
"""

MIN_LEASE_S: Final = 1
"""Heartbeats are then 250 ms apart; a shorter one would end with every longer collection."""

MAX_LEASE_S: Final = 300
"""Five minutes: whoever would wait longer can start a server by hand."""

DEFAULT_TIMEOUT_S: Final = 5
"""Seconds: shorter than most clients wait; an election among NATS servers may take longer."""

MIN_TIMEOUT_S: Final = 1
"""A quorum may well take some 100 ms on busy disks."""

MAX_TIMEOUT_S: Final = 3600
"""An hour; no client waits so long."""

FENCED: Final = 75
"""Exit code of a server in whose place another one has become active, under ``--on-fenced exit``:
EX_TEMPFAIL of sysexits.h, so that who started it starts it again.
"""

TEMPORARY: Final = "([1-9][0-9]{0,9})-[0-9a-f]{8}"
"""What the name of a temporary log ends with: the process that has made it, and chance."""


class Replication(NamedTuple):
    """How a log is replicated.

    :ivar lease_s: seconds of silence after which a standby becomes active.
    :ivar timeout_s: seconds that a reply may wait for the stream before changes are refused.
    :ivar exits_when_fenced: whether the process ends then; else it goes on as a standby.
    :ivar is_temporary: whether the local log is to be removed at the end.
    """

    url: str
    lease_s: int = DEFAULT_LEASE_S
    timeout_s: int = DEFAULT_TIMEOUT_S
    exits_when_fenced: bool = False
    is_temporary: bool = False

    @property
    def stream(self) -> str:
        return self.url.partition("?")[0].rpartition("/")[2]


def replicate_url(option: str, url: str) -> str:
    """:raise click.UsageError: it names no stream, or what reads it is not installed."""
    if not url:
        raise click.UsageError(f"{option} needs a URL, nats://HOST[:PORT],.../STREAM")
    from beanstalk_twisted.replication.stream.addresses import PACKAGES, parse
    from beanstalk_twisted.replication.stream.interface import Refused

    if find_spec("nats") is None:
        raise click.UsageError(f"{option} needs {PACKAGES}")
    try:
        parse(url)
    except Refused as problem:
        raise click.UsageError(f"{option}: {problem}") from None
    return url


def temporary_log() -> str:
    """:return: the path of a directory that is not there yet, for this process alone."""
    mine = f"{_of_this_machine()}{os.getpid()}-{os.urandom(4).hex()}"
    return os.path.join(tempfile.gettempdir(), mine)


def remove_left(folder: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """Remove the temporary logs in a folder whose processes were killed: all that they had is in
    the stream.  One is left alone that is another user's, whose process lives, or holds its lock.

    :param is_wanted: asked of a path whether all the same it has what the stream lacks.
    :return: the paths of those that were removed.
    """
    left = re.compile(re.escape(_of_this_machine()) + TEMPORARY)
    found = [(name, left.fullmatch(name)) for name in sorted(os.listdir(folder))]
    paths = [(os.path.join(folder, name), int(match[1])) for name, match in found if match]
    left_paths = [path for path, pid in paths if _is_left(path, pid) and not is_wanted(path)]
    return [path for path in left_paths if _remove_unless_locked(path)]


def _of_this_machine() -> str:
    """What names of temporary logs begin with here: numbers of processes are a machine's."""
    return f"beanstalk-{re.sub('[^A-Za-z0-9.]', '.', socket.gethostname())}-"


def _is_left(path: str, pid: int) -> bool:
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _remove_unless_locked(path: str) -> bool:
    """Take the lock of `RealDirectory.lock`: a daemon holds it under another process number."""
    try:
        lock = os.open(os.path.join(path, LOCKS[0]), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(lock)
    return not os.path.exists(path)
