"""
What ``--replicate`` and its companions say, checked (docs/replication.md, "Options").
"""

import os
import tempfile
from importlib.util import find_spec
from typing import Final, NamedTuple

from twisted.python import usage

DEFAULT_LEASE_S: Final = 3
"""
Seconds: a queue that stands still for three is seldom noticed.  An election among NATS servers
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

REPLICATION_NUMBERS: Final = ("lease-seconds", "replicate-timeout")

FENCED: Final = 75
"""
Exit code of a server in whose place another one has become active, under ``--on-fenced exit``:
EX_TEMPFAIL of sysexits.h, so that who started it starts it again.
"""


class Replication(NamedTuple):
    """
    How a log is replicated.

    :ivar url: of the stream.
    :ivar lease_s: seconds of silence after which a standby becomes active.
    :ivar timeout_s: seconds that a reply may wait for the stream before changes are refused.
    :ivar exits_when_fenced: whether the process ends then; else it goes on as a standby.
    :ivar is_temporary: whether the local log is to be removed at the end.
    """

    url: str
    lease_s: int
    timeout_s: int
    exits_when_fenced: bool
    is_temporary: bool


def check_url(url: str) -> None:
    """
    :raise usage.UsageError: it names no stream, or what reads it is not installed.
    """
    if not url:
        raise usage.UsageError("--replicate needs a URL, nats://HOST[:PORT],.../STREAM")
    if find_spec("nats") is None:
        raise usage.UsageError("--replicate needs another package: pip install '.[replicate]'")
    from beanstalk_twisted.replication.stream.addresses import parse
    from beanstalk_twisted.replication.stream.door import Refused

    try:
        parse(url)
    except Refused as problem:
        raise usage.UsageError(f"--replicate: {problem}") from None


def temporary_log() -> str:
    """
    :return: the path of a directory that is not there yet, for this process alone.
    """
    return os.path.join(tempfile.gettempdir(), f"beanstalk-{os.getpid()}-{os.urandom(4).hex()}")
