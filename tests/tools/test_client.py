"""Commands as bytes: their replies, and the names in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES, MAX_WHY_BYTES, CannotHandOver
from binlog_tools import client
from binlog_tools.client import Connection, Lost, Reply, connect, tube_request
from binlog_tools.tube_names import NoTube
from tests.script_server import Listener


@contextmanager
def saying(raw: bytes) -> Iterator[Connection]:
    """A connection to something that says these bytes and parts."""
    with (
        Listener(lambda peer: peer.sendall(raw)) as listener,
        connect(Address("127.0.0.1", listener.port), 10) as connection,
    ):
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


def test_the_jobs_of_a_batch_belong_to_its_reply() -> None:
    raw = b"INSERTED_BATCH 2\r\nINSERTED 7\r\nINSERTED 8\r\nINSERTED_BATCH 0\r\nNOT_FOUND\r\n"
    with saying(raw) as connection:
        replies = [connection.reply() for _ in range(3)]
    assert [reply.data for reply in replies] == [b"INSERTED 7\r\nINSERTED 8", b"", b""]
    assert [reply.name for reply in replies] == [b"INSERTED_BATCH"] * 2 + [b"NOT_FOUND"]


@pytest.mark.parametrize(
    "raw", [b"", b"INSERTED 7", b"FOUND 7 5\r\nab", b"OK x\r\n", b"OK 99999999999\r\n",
            b"x" * 2000 + b"\r\n", b"INSERTED_BATCH\r\n", b"INSERTED_BATCH -1\r\n",
            b"INSERTED_BATCH 1001\r\n" + b"INSERTED 1\r\n" * 1001,
            b"INSERTED_BATCH 2\r\nINSERTED 1\r\n"],
)  # fmt: skip
def test_a_server_that_breaks_off_or_is_none_is_lost(raw: bytes) -> None:
    with saying(raw) as connection, pytest.raises(Lost):
        connection.reply()


@pytest.mark.parametrize(("bytes_more", "is_read"), [(0, True), (1, False)])
def test_a_line_may_be_as_long_as_the_server_makes_it(bytes_more: int, is_read: bool) -> None:
    longest = CannotHandOver("y" * MAX_WHY_BYTES).encode()
    assert len(longest) == MAX_REPLY_LINE_BYTES
    with saying(b"x" * bytes_more + longest) as connection:
        if is_read:
            assert connection.reply().words == (b"CANNOT_HAND_OVER", b"y" * MAX_WHY_BYTES)
        else:
            with pytest.raises(Lost):
                connection.reply()


STRANGE = [b"", b"a b", b"-abc", b"a\n", b"x\r\ndelete 1\r\nuse y", b"caf\xe9", b"x" * 201]


@pytest.mark.parametrize("name", STRANGE)
def test_no_request_has_a_name_that_no_client_may_use(name: bytes) -> None:
    with pytest.raises(NoTube, match="is not the name of a tube: 1 to 200 of"):
        tube_request(b"use", name)
    assert tube_request(b"use", b"x" * 200) == b"use " + b"x" * 200 + b"\r\n"
    assert tube_request(b"pause-tube", b"a-b", 9) == b"pause-tube a-b 9\r\n"


def test_every_request_that_names_a_tube_is_made_in_one_place() -> None:
    """No module of the tools writes such a command itself."""
    written = re.compile(r"""b["'](use|watch|ignore|pause-tube|stats-tube) """)
    package = Path(client.__file__).parent
    sources = list(package.rglob("*.py"))
    assert len(sources) > 100
    assert [each for each in sources if written.search(each.read_text())] == []
