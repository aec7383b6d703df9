"""What each command with a body is held to on a connection, whatever it is: it may come in pieces,
a wrong one is never taken for commands, and half of one does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire.dialects import MODERN
from tests.binlog.memory import MemoryDirectory

LOGGED = pytest.mark.parametrize("is_logged", [False, True], ids=["in memory", "logged"])
CUT = pytest.mark.parametrize("is_cut", [False, True], ids=["one packet", "byte by byte"])

MOST_PIECES = 10_000
"""Bytes of the longest conversation that is also held byte by byte."""


def connect(
    most: int, *, is_logged: bool = False, dialect: str = MODERN.name
) -> tuple[MemoryServer, Client]:
    """Start a server and make a connection."""
    directory = MemoryDirectory() if is_logged else None
    server = MemoryServer(directory=directory, max_job_bytes=most)
    return server, server.connect(dialect)


def in_pieces(client: Client, sent: bytes) -> bytes:
    """Send each byte alone, as long as the connection is open, and give all that is heard."""
    heard = b""
    for at in range(len(sent)):
        if not client.is_closed:
            heard += client.ask(sent[at : at + 1])
    return heard


def check_conversation(
    sent: bytes, replies: bytes, most: int, *, is_logged: bool, dialect: str = MODERN.name
) -> None:
    """Expect these replies to what is sent in one packet, and byte by byte."""
    first, second = (connect(most, is_logged=is_logged, dialect=dialect)[1] for _ in range(2))
    assert first.ask(sent) == replies
    if len(sent) <= MOST_PIECES:
        assert in_pieces(second, sent) == replies


def check_lost(sent: bytes, most: int, *, is_cut: bool, reply: bytes = b"BAD_FORMAT\r\n") -> None:
    """Expect this one reply and the end of the connection: nothing behind it is carried out."""
    server, client = connect(most)
    other = server.connect()
    other.ask(b"put 0 5 60 1\r\nx\r\n")
    sent += b"kick 1\r\n" * 3
    assert (in_pieces(client, sent) if is_cut else client.ask(sent)) == reply
    assert client.is_closed
    stats = other.ask(b"stats-tube default\r\n")
    assert b"current-jobs-delayed: 1\n" in stats and b"total-jobs: 1\n" in stats


def broken_off(sent: bytes, most: int, *, before: bytes = b"") -> Iterator[MemoryServer]:
    """Send the beginning of something and hang up, or half-close.

    :param before: what is carried out before.
    :return: the server, after each of both.
    """
    for end in (Client.hang_up, Client.half_close):
        server, client = connect(most, is_logged=True)
        client.ask(before)
        client.send(sent)
        end(client)
        server.advance()
        assert client.is_closed
        yield server
