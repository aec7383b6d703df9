"""Changes are refused while nothing could be kept of them; looking goes on, and all does
afterwards.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire.extensions import BY_OPERATION
from tests.binlog.memory import MemoryDirectory
from tests.server.conversing import CUT, in_pieces

NO = b"OUT_OF_MEMORY\r\n"

REFUSED = {
    "put": b"put 0 0 60 3\r\nabc\r\n",
    "put-tagged": b"put 0 0 60 3 grp:a\r\nabc\r\n",
    "put-at": b"put-at 0 0 60 3\r\nabc\r\n",
    "put-batch": b"put-batch 2\r\n0 0 60 3\r\nabc\r\n0 0 60 3\r\nabc\r\n",
    "reserve": b"reserve\r\n",
    "reserve-with-timeout": b"reserve-with-timeout 0\r\n",
    "reserve-job": b"reserve-job 1\r\n",
    "reserve-batch": b"reserve-batch 2\r\n",
    "delete": b"delete 1\r\n",
    "delete-batch": b"delete-batch 1\r\n",
    "release": b"release 2 0 0\r\n",
    "bury": b"bury 2 0\r\n",
    "kick": b"kick 1\r\n",
    "kick-job": b"kick-job 1\r\n",
    "pause-tube": b"pause-tube default 5\r\n",
    "flush-tube": b"flush-tube default ready\r\n",
    "flush-buried": b"flush-buried default\r\n",
    "forget-key": b"forget-key default k\r\n",
    "cancel-job": b"cancel-job 2\r\n",
    "return-job": b"return-job 2\r\n",
    "move-job": b"move-job 1 other\r\n",
    "update-job": b"update-job 1 0 0 60 3\r\nxyz\r\n",
    "kick-dead": b"kick-dead default 1\r\n",
    "tube-policy": b"tube-policy default max-jobs=9\r\n",
}


def prepared() -> tuple[MemoryServer, Client]:
    """Make a server that refuses changes: job 1 is ready, and 2 reserved by its client."""
    server = MemoryServer(directory=MemoryDirectory())
    client = server.connect()
    client.ask(b"put 5 0 60 1\r\nx\r\nput 1 0 60 1\r\ny\r\nreserve\r\n")
    server.service.refuse_changes(True)
    return server, client


@CUT
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_each_change_is_refused_and_what_follows_is_understood(name: str, is_cut: bool) -> None:
    server, client = prepared()
    sent = REFUSED[name] + b"list-tube-used\r\n"
    heard = in_pieces(client, sent) if is_cut else client.ask(sent)
    assert heard == NO + b"USING default\r\n"
    assert server.service.changes_refused == 1
    before = client.ask(b"stats-job 1\r\nstats-job 2\r\n")
    assert b"state: ready" in before and b"state: reserved" in before
    server.service.refuse_changes(False)
    assert client.ask(b"delete 2\r\nput 0 0 60 3\r\nabc\r\n").startswith(b"DELETED\r\nINSERTED ")


def test_all_operations_that_change_something_are_tried_here() -> None:
    assert {row.operation for row in BY_OPERATION.values() if row.changes} <= REFUSED.keys()


def test_looking_and_what_is_a_connections_own_goes_on() -> None:
    server, client = prepared()
    heard = client.ask(
        b"peek 1\r\nuse a\r\nwatch a\r\nignore a\r\ntouch 2\r\nreserve-mode fifo\r\n"
        b"stats-tube default\r\n"
    )
    assert heard.startswith(b"FOUND 1 1\r\nx\r\nUSING a\r\nWATCHING 2\r\nWATCHING 1\r\nTOUCHED\r\n")
    assert NO not in heard
    assert server.service.changes_refused == 0


def test_the_largest_body_is_read_and_dropped() -> None:
    server, client = prepared()
    client.send(b"put 0 0 60 65535\r\n" + bytes(40_000))
    assert client.take() == b""
    assert server.service.memory.incoming_bytes == 0
    assert client.ask(bytes(25_535) + b"\r\nlist-tube-used\r\n") == NO + b"USING default\r\n"
    assert client.ask(b"put 0 0 60 65536\r\n" + bytes(65_536) + b"\r\n") == b"JOB_TOO_BIG\r\n"


def test_a_body_that_was_coming_already_is_refused() -> None:
    server = MemoryServer(directory=MemoryDirectory())
    client = server.connect()
    client.send(b"put 0 0 60 5\r\nab")
    server.service.refuse_changes(True)
    assert client.ask(b"cde\r\n") == NO


def test_connections_that_wait_for_a_job_go_on_waiting() -> None:
    server = MemoryServer(directory=MemoryDirectory())
    client, other = server.connect(), server.connect()
    client.send(b"reserve\r\n")
    server.service.refuse_changes(True)
    other.ask(b"put 0 0 60 1\r\nx\r\n")
    server.advance()
    assert client.take() == b""
    server.service.refuse_changes(False)
    other.ask(b"put 0 0 60 1\r\nx\r\n")
    server.advance()
    assert client.take().endswith(b" 1\r\nx\r\n")


def test_the_server_is_not_ready_meanwhile() -> None:
    server, _ = prepared()
    assert "changes are refused" in server.service.why_not_ready()
    server.service.refuse_changes(False)
    assert server.service.why_not_ready() == ""


def test_what_nobody_waits_for_is_not_logged_meanwhile() -> None:
    server, client = prepared()
    written = server.service.process.log.written()
    client.ask(b"touch 2\r\n" * 10)
    client.hang_up()
    server.advance()
    assert server.service.process.log.written() == written
