"""Requests that are too large or too slow."""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.channel import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_LENGTH_DIGITS,
    REQUEST_S,
)
from beanstalk_twisted.web.exchange import TEXT, Call, Document
from beanstalk_twisted.web.logins import WRITE_HEADER
from tests.web.browsing import Browser, browse, parsed

OK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def size_of(call: Call) -> Document:
    """Say how long the body was."""
    return Document(str(len(call.body)).encode(), TEXT)


def writer() -> Browser:
    return browse(MemoryServer(), may_write=True, size=size_of)


def test_a_request_line_of_the_most_bytes_is_read_and_a_longer_one_refused() -> None:
    frame = len("GET / HTTP/1.1") + len("Host: localhost")
    for extra, status in ((0, 404), (1, 400)):
        path = "/" + "x" * (MAX_HEAD_BYTES - frame + extra)
        browser = browse(MemoryServer())
        reply = parsed(browser.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))
        assert (reply.status, browser.is_closed) == (status, extra == 1)


def test_a_line_without_an_end_is_refused() -> None:
    browser = browse(MemoryServer())
    assert parsed(browser.send(b"x" * (MAX_HEAD_BYTES + 2))).status == 431
    assert browser.is_closed


@pytest.mark.parametrize(("count", "status"), [(MAX_HEADERS, 200), (MAX_HEADERS + 1, 400)])
def test_so_many_headers_and_no_more(count: int, status: int) -> None:
    headers = {f"x-{number}": "1" for number in range(count - 1)}
    assert browse(MemoryServer()).ask("GET", "/healthz", headers=headers).status == status


def test_a_body_of_the_most_bytes_is_taken_and_a_longer_one_refused() -> None:
    headers = {WRITE_HEADER: "1"}
    reply = writer().ask("POST", "/size", b"x" * MAX_BODY_BYTES, headers)
    assert (reply.status, reply.body) == (200, str(MAX_BODY_BYTES).encode())
    browser = writer()
    assert browser.ask("POST", "/size", b"x" * (MAX_BODY_BYTES + 1), headers).status == 413
    assert browser.is_closed


def test_a_long_body_is_refused_before_it_comes() -> None:
    browser = writer()
    head = f"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**12}\r\n\r\n"
    assert parsed(browser.send(head.encode())).status == 413


def test_a_body_in_chunks_has_the_same_limit() -> None:
    browser = writer()
    head = f"POST /size HTTP/1.1\r\nHost: localhost\r\n{WRITE_HEADER}: 1\r\n"
    browser.send(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    chunk = b"%x\r\n%s\r\n" % (MAX_BODY_BYTES, b"x" * MAX_BODY_BYTES)
    assert browser.send(chunk) == b""
    assert parsed(browser.send(b"1\r\nx\r\n0\r\n\r\n")).status == 413
    assert browser.is_closed
    assert browser.send(OK) == b""


@pytest.mark.parametrize(
    "request_",
    [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
     b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_http_ends_the_connection(request_: bytes) -> None:
    browser = browse(MemoryServer())
    assert parsed(browser.send(request_)).status == 400
    assert browser.is_closed


def test_a_client_that_sends_a_byte_a_second_is_not_waited_for() -> None:
    browser = browse(MemoryServer())
    for byte in OK[: REQUEST_S - 1]:
        assert not browser.is_closed
        browser.send(bytes([byte]))
        browser.clock.advance(1)
    assert not browser.is_closed
    browser.clock.advance(1)
    assert browser.is_closed


def test_a_connection_that_is_used_again_in_time_stays() -> None:
    browser = browse(MemoryServer())
    for _ in range(3):
        assert browser.ask("GET", "/healthz").status == 200
        browser.clock.advance(REQUEST_S - 1)
    assert not browser.is_closed
    browser.clock.advance(1)
    assert browser.is_closed


def test_requests_in_one_packet_are_all_answered_but_the_first_in_later_turns() -> None:
    browser = browse(MemoryServer())
    assert browser.send(3 * OK).count(b"200 OK") == 1
    browser.clock.advance(0)
    assert browser.transport.value.count(b"200 OK") == 3


def test_who_does_not_read_is_answered_no_further_and_read_no_more() -> None:
    browser = browse(MemoryServer())
    browser.channel.pauseProducing()
    assert browser.send(2 * OK + OK[:9]).count(b"200 OK") == 1
    browser.clock.advance(1)
    assert browser.transport.value.count(b"200 OK") == 1
    browser.channel.resumeProducing()
    browser.clock.advance(0)
    assert browser.transport.value.count(b"200 OK") == 2
    assert browser.send(OK[9:]).count(b"200 OK") == 1


def test_who_goes_before_all_is_answered_leaves_nothing() -> None:
    browser = browse(MemoryServer())
    browser.send(3 * OK)
    browser.transport.abortConnection()
    browser.clock.advance(0)
    assert browser.transport.value.count(b"200 OK") == 1


@pytest.mark.parametrize("digits", [MAX_LENGTH_DIGITS, MAX_LENGTH_DIGITS + 1, 5_000])
def test_a_length_of_any_number_of_digits_is_too_large(digits: int) -> None:
    head = b"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n"
    browser = writer()
    assert parsed(browser.send(head % (b"9" * digits))).status == 413
    assert browser.is_closed
