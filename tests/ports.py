"""Ports for servers under test that are told where to listen."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

PORTS: Final = range(12_000, 32_000)
"""Below those that the kernel gives to connections."""


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens; of those that no outgoing connection takes meanwhile."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            one, port = stack.enter_context(socket.socket()), random.choice(PORTS)
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
    return found
