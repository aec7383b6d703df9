"""An HTTP request at a port of the queue: nothing of it is carried out, and its connection ends."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES
from beanstalk_twisted.wire.v1 import NAME as V1
from tests.binlog.memory import MemoryDirectory
from tests.server.access.meeting import guarded, rules

EVIL = b"put 0 0 60 1\r\nx\r\nflush-tube default\r\nput 0 1\r\nx\r\n"
METHODS = (
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH",
)  # fmt: skip
FIRST_LINES = (
    *[method + b" / HTTP/1.1\r\n" for method in METHODS],
    b"POST / HTTP/1.0\r\n", b"POST / HTTP/2\r\n", b"PRI * HTTP/2.0\r\n",
    b"GET http://a/b c HTTP/1.1\r\n", b"POST  HTTP/1.1\r\n", b"POST /\0 HTTP/1.1\r\n",
    b"Host: localhost:11300\r\n", b"host:\r\n", b"HOST:x\r\n",
    b"POST /%s HTTP/1.1\r\n" % (b"x" * 400), b"Host: %s\r\n" % (b"x" * 400),
    *[b"POST /%s HTTP/1.1\r\n" % (b"x" * (MAX_LINE_BYTES - less)) for less in range(20)],
    *[b"Host: %s\r\n" % (b"x" * (MAX_LINE_BYTES - less)) for less in range(12)],
)  # fmt: skip
NONE = (
    b"POST / HTTP\r\n", b"POST /\r\n", b"POST\r\n", b"POST / HTTP/1.1 \r\n",
    b"POST / HTTP/1.1x\r\n", b"post / HTTP/1.1\r\n", b"POSTS / HTTP/1.1\r\n",
    b" POST / HTTP/1.1\r\n", b"x Host: a\r\n",
    b"Hosts: a\r\n", b"Content-Length: 5\r\n", b"HTTP/1.1 200 OK\r\n",
    b"x" * 400 + b" HTTP/1.1\r\n",
)  # fmt: skip


@pytest.mark.parametrize("dialect", ["modern", V1])
@pytest.mark.parametrize("line", FIRST_LINES, ids=lambda line: repr(line[:20]) + str(len(line)))
def test_nothing_of_a_request_is_carried_out(line: bytes, dialect: str, told: Any) -> None:
    server = MemoryServer()
    client, other = server.connect(dialect), server.connect()
    assert client.ask(line + b"Content-Length: 50\r\n\r\n" + EVIL) == b""
    assert client.is_closed
    assert b"\ntotal-jobs: 0\n" in other.ask(b"stats\r\n")
    assert len(told("http-at-queue")) == 1


@pytest.mark.parametrize("line", NONE, ids=repr)
def test_what_only_looks_like_a_request_is_a_wrong_line_as_before(line: bytes, told: Any) -> None:
    server = MemoryServer()
    client = server.connect()
    wrong = b"UNKNOWN_COMMAND\r\n" if len(line) <= MAX_LINE_BYTES else b"BAD_FORMAT\r\n"
    assert client.ask(line + b"put 0 0 60 1\r\nx\r\n") == wrong + b"INSERTED 1\r\n"
    assert told("http-at-queue") == []


REQUEST = b"put 0 0 60 1\r\na\r\nreserve\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\nput 0 0 60 1\r\nb\r\n"


@pytest.mark.parametrize("is_logged", [False, True])
def test_it_ends_the_connection_wherever_it_comes_and_in_whatever_pieces(is_logged: bool) -> None:
    for place in range(1, len(REQUEST)):
        server = MemoryServer(directory=MemoryDirectory() if is_logged else None)
        client, other = server.connect(), server.connect()
        client.send(REQUEST[:place])
        client.send(REQUEST[place:])
        server.advance()
        server.advance()
        assert client.take() == b"INSERTED 1\r\nRESERVED 1 1\r\na\r\n", place
        assert client.is_closed
        # Its job is ready again, and the one after the request is not there.
        other.send(b"reserve-with-timeout 0\r\npeek 2\r\n")
        server.advance()
        assert other.take() == b"RESERVED 1 1\r\na\r\nNOT_FOUND\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"put 0 0 60 %d\r\n%s\r\n",
        b"put-at 0 0 60 %d\r\n%s\r\n",
        b"put-batch 1\r\n0 0 60 %d\r\n%s\r\n",
        b"put 0 0 60 %d grp:a\r\n%s\r\n",
    ],
)
def test_a_body_may_be_a_request(sent: bytes, told: Any) -> None:
    body = b"POST / HTTP/1.1\r\nHost: a\r\n\r\nkick 1\r\n"
    for piece in (1, len(body), 1000):
        client = MemoryServer().connect()
        whole = sent % (len(body), body)
        for at in range(0, len(whole), piece):
            client.send(whole[at : at + piece])
        assert client.take().endswith(b"INSERTED 1\r\n")
        assert client.ask(b"peek 1\r\n") == b"FOUND 1 %d\r\n%s\r\n" % (len(body), body)
    assert told("http-at-queue") == []


def test_a_body_that_is_too_large_is_dropped_and_not_looked_at(told: Any) -> None:
    client = MemoryServer(max_job_bytes=5).connect()
    body = b"POST / HTTP/1.1\r\nHost: a\r\n\r\nkick 1\r\n"
    assert client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)) == b"JOB_TOO_BIG\r\n"
    assert client.ask(b"kick 1\r\n") == b"KICKED 0\r\n"
    assert told("http-at-queue") == []


def test_where_rights_are_asked_for_it_is_the_same(told: Any) -> None:
    client = guarded(rules()).connect()
    assert client.ask(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nput 0 0 60 1\r\nx\r\n") == b""
    assert client.is_closed
    assert len(told("http-at-queue")) == 1


def test_many_requests_are_told_once_a_minute(told: Any) -> None:
    server = MemoryServer()
    for _ in range(100):
        server.connect().ask(b"POST / HTTP/1.1\r\n\r\n")
    (first,) = told("http-at-queue")
    assert first == (
        "127.0.0.1:1 was closed: it has sent an HTTP request to a port of the queue, maybe a "
        "browser that a web page has misused; nothing of it was carried out"
    )
    server.advance(TELL_S)
    assert told("http-at-queue")[1:] == [f"{first}; the newest of 99 since the last such line"]
