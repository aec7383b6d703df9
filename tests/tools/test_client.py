"""
The plain client of the protocol.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from binlog_tools.client import Connection, Lost, Reply, parse_address, parse_stats


@contextmanager
def saying(raw: bytes) -> Iterator[Connection]:
    """
    A connection to something that says these bytes and parts.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def say() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(raw)

        thread = Thread(target=say)
        thread.start()
        with Connection("127.0.0.1", listener.getsockname()[1], limit_s=10) as connection:
            thread.join()
            yield connection


def test_replies_come_one_by_one_with_what_belongs_to_them() -> None:
    raw = b"INSERTED 7\r\nFOUND 7 5\r\na\r\nb\r\r\nOK 0\r\n\r\nRESERVED 1 2\r\nhi\r\nNOT_FOUND\r\n"
    with saying(raw) as connection:
        replies = [connection.reply() for _ in range(5)]
    assert replies == [
        Reply((b"INSERTED", b"7")), Reply((b"FOUND", b"7", b"5"), b"a\r\nb\r"),
        Reply((b"OK", b"0"), b""), Reply((b"RESERVED", b"1", b"2"), b"hi"),
        Reply((b"NOT_FOUND",)),
    ]  # fmt: skip
    assert [reply.name for reply in replies[:2]] == [b"INSERTED", b"FOUND"]
    assert str(replies[0]) == "INSERTED 7"


@pytest.mark.parametrize(
    "raw", [b"", b"INSERTED 7", b"FOUND 7 5\r\nab", b"OK x\r\n", b"OK 99999999999\r\n",
            b"x" * 2000 + b"\r\n"],
)  # fmt: skip
def test_a_server_that_breaks_off_or_is_none_is_lost(raw: bytes) -> None:
    with saying(raw) as connection, pytest.raises(Lost):
        connection.reply()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:11300", ("127.0.0.1", 11300)), ("queue", ("queue", 11300)),
        ("queue.example:1", ("queue.example", 1)), ("[::1]:65535", ("::1", 65535)),
        ("::1", ("::1", 11300)), ("[::1]", ("::1", 11300)),
    ],
)  # fmt: skip
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:0", "a:65536", "a:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST:PORT"):
        parse_address(text)


def test_the_servers_small_yaml_is_read() -> None:
    assert parse_stats(b'---\nid: 7\ntube: "mail"\nstate: ready\n') == {
        b"id": b"7", b"tube": b"mail", b"state": b"ready",
    }  # fmt: skip
