"""All that may differ between our replies and those of the real beanstalkd, and why.

What Debian's 1.12 does with lines that end in no agreed way is not asked at all: a bare CR stalls
it, and a line of 225, 449, ... bytes swallows the next one.
"""

from __future__ import annotations

import re
from typing import Final

VOLATILE: Final = {
    "pid": "each process has its own",
    "version": "each program has its own",
    "rusage-utime": "a matter of luck",
    "rusage-stime": "a matter of luck",
    "uptime": "a matter of luck",
    "age": "a matter of luck",
    "file": "our segments are not its files",
    "binlog-oldest-index": "our segments are not its files",
    "binlog-current-index": "our segments are not its files",
    "binlog-records-migrated": "our records are not its records",
    "binlog-records-written": "our records are not its records",
    "binlog-max-size": "our default is larger",
}
"""Statistics that are not compared."""

RUNNING: Final = {
    "time-left": ("state", ("reserved", "delayed")),
    "pause-time-left": ("pause", None),
}
"""What a clock changes while it runs: compared only when it does not, which another statistic
says.
"""

_IDENTITY: Final = re.compile(rb"[0-9a-f]{16}")

LOOSE_TIMEOUT: Final = re.compile(rb"reserve-with-timeout (?!\d{1,9}\r\n)")
"""After 1.12 beanstalkd became strict about this number; we are as strict as that."""


def may_differ(sent: bytes) -> bool:
    """Whether the reply to this is not compared at all."""
    return bool(LOOSE_TIMEOUT.match(sent))


def normalised(reply: bytes) -> bytes:
    """Leave out of a reply what may differ.

    Quotes: 1.12 writes some strings bare that later versions, and we, quote.
    """
    if not reply.startswith(b"OK "):
        return reply
    document = reply.partition(b"\r\n")[2]
    lines = [line.partition(b": ") for line in document.split(b"\n")]
    values = {key: value.strip(b'"') for key, _, value in lines}
    return b"\n".join(key + colon + _kept(key, values) for key, colon, _ in lines)


def _kept(key: bytes, values: dict[bytes, bytes]) -> bytes:
    """What is compared of a value."""
    name = key.decode()
    if name in VOLATILE or (name == "id" and _IDENTITY.fullmatch(values[key])):
        return b"..."
    if name in RUNNING and _is_running(name, values):
        return b"..."
    return values[key]


def _is_running(name: str, values: dict[bytes, bytes]) -> bool:
    other, told_by = RUNNING[name]
    value = values[other.encode()].decode()
    return value != "0" if told_by is None else value in told_by
