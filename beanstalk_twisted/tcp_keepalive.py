"""TCP keepalive: a peer that is gone without a word is found out in two minutes."""

import socket
from contextlib import suppress
from typing import Any, Final

IDLE_S: Final = 60
"""Seconds of silence before the kernel asks the peer whether it is there: two packets a minute for
each idle connection, and less than NATs and firewalls forget a connection in.  Linux waits for two
hours, during which a worker that is gone keeps its place among those that wait.
"""

INTERVAL_S: Final = 15
"""Seconds until it asks again."""

PROBES: Final = 4
"""Questions without an answer after which the connection ends: with `IDLE_S` 120 seconds."""

_OPTIONS: Final = (("TCP_KEEPIDLE", IDLE_S), ("TCP_KEEPINTVL", INTERVAL_S), ("TCP_KEEPCNT", PROBES))


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel find out whether the peer is gone.

    `TCP_USER_TIMEOUT`, which would bound the wait for acknowledged output too, is not set: it also
    ends the connection of a live peer that does not read for so long.
    """
    # Some systems refuse options of a connection that was reset.
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS:
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def socket_below(transport: Any) -> socket.socket:
    """Return the socket of a TCP connection of Twisted's, below TLS too."""
    while hasattr(transport, "transport"):
        transport = transport.transport
    found: socket.socket = transport.getHandle()
    return found
