"""How many HTTP connections there are, and requests that are too large or too slow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.channel import (
    HEALTH_S,
    MAX_BODY_BYTES,
    MAX_CONNECTIONS,
    MAX_FOR_HEALTH,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_LENGTH_DIGITS,
    MAX_PER_ADDRESS,
    REPLY_S,
    REQUEST_S,
)
from beanstalk_twisted.web.exchange import TEXT, Call, Document
from beanstalk_twisted.web.logins import WRITE_HEADER
from beanstalk_twisted.web.site import MAX_QUERY_FIELDS
from tests.server.access.meeting import TOKEN, guarded, rules
from tests.web.browsing import NO_HEADERS, Browser, browse, parsed, site_of

OK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def size_of(call: Call) -> Document:
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


@pytest.mark.parametrize("digits", [12, MAX_LENGTH_DIGITS, MAX_LENGTH_DIGITS + 1, 5_000])
def test_a_long_body_is_refused_before_it_comes(digits: int) -> None:
    browser = writer()
    head = f"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: {'9' * digits}\r\n\r\n"
    assert parsed(browser.send(head.encode())).status == 413
    assert browser.is_closed


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


HEALTH = ("/healthz", "/readyz", "/metrics")
HALF = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
WRONG_TOKEN = (
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
    b"Authorization: Bearer bst_aaaaaaaa_%s\r\n\r\n" % (b"x" * 32)
)
OTHERS = MAX_CONNECTIONS - MAX_PER_ADDRESS


class Place:
    """An endpoint, and who connects to it; ``busy`` is a path that is never answered."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = MemoryServer() if server is None else server
        self.answers: list[Deferred[Document]] = []
        self.site = site_of(self.server, operations={"busy": self._be_busy})
        self.site.startFactory()

    def _be_busy(self, call: Call) -> Deferred[Document]:
        self.answers.append(Deferred())
        return self.answers[-1]

    def connect(self, host: str = "127.0.0.1", sends: bytes = b"") -> Browser:
        browser = Browser(self.site, self.server.clock, host)
        browser.send(sends)
        return browser

    def busy(self, count: int, host: str = "127.0.0.1") -> list[Browser]:
        asked = b"GET /busy HTTP/1.1\r\nHost: localhost\r\n\r\n"
        return [self.connect(host, asked) for _ in range(count)]

    def status(
        self, path: str, host: str = "127.0.0.1", headers: Mapping[str, str] = NO_HEADERS
    ) -> int:
        browser = Browser(self.site, self.server.clock, host)
        status = browser.ask("GET", path, headers=headers).status
        if not browser.is_closed:
            browser.transport.abortConnection()
        return status


@pytest.fixture
def told() -> Iterator[Any]:
    with capturedLogs() as events:
        yield lambda: [formatEvent(e) for e in events if e["event"] == "http-connections-full"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1"])
@pytest.mark.parametrize("sends", [b"", b"GET /hea", HALF, HALF + b"\r\n"])
def test_beside_connections_that_ask_for_nothing_all_is_answered(sends: bytes, host: str) -> None:
    place = Place()
    for _ in range(2 * MAX_CONNECTIONS):
        place.connect(sends=sends)
        place.server.advance(0)
    for path in (*HEALTH, "/", "/api/v1/server"):
        for _ in range(20):
            assert place.status(path, host) == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1"])
def test_beside_connections_whose_tokens_wait_health_checks_are_answered(host: str) -> None:
    place = Place(guarded(rules(it={"look": "*"})))
    right = {"authorization": f"Bearer {TOKEN.decode()}"}
    assert place.status("/metrics", host, right) == 200
    waiting = [place.connect(sends=WRONG_TOKEN) for _ in range(2 * MAX_CONNECTIONS)]
    for path in HEALTH:
        for _ in range(20):
            assert place.status(path, host, right) == 200
    assert sum(not each.is_closed for each in waiting) > 0
    place.site.stopFactory()


def test_an_address_has_a_share_and_others_have_the_rest() -> None:
    place = Place()
    greedy = place.busy(MAX_PER_ADDRESS)
    assert len(place.site.connections) == MAX_PER_ADDRESS
    assert place.status("/", "127.0.0.1") == 503
    others = [place.connect(f"10.0.0.{number}", HALF) for number in range(OTHERS)]
    assert not any(each.is_closed for each in (*greedy, *others))
    assert len(place.site.connections) == MAX_CONNECTIONS
    # What is carried out is not closed: one of the others makes room for the next.
    assert place.status("/", "10.0.0.99") == 200
    assert [each.is_closed for each in others] == [True] + [False] * (OTHERS - 1)
    assert not any(each.is_closed for each in greedy)


def test_an_address_of_ipv6_is_its_network() -> None:
    place = Place()
    for number in range(MAX_PER_ADDRESS + 1):
        place.connect(f"2001:db8:0:1::{number:x}", HALF)
    assert len(place.site.connections) == MAX_PER_ADDRESS
    place.connect("2001:db8:0:2::1", HALF)
    assert len(place.site.connections) == MAX_PER_ADDRESS + 1


def test_the_one_is_closed_that_has_rested_longest_of_who_has_most() -> None:
    place = Place()
    few = [place.connect("10.0.0.1", HALF) for _ in range(OTHERS)]
    many = [place.connect(sends=HALF) for _ in range(MAX_PER_ADDRESS)]
    many[0].send(b"\r\n")
    place.server.advance(0)
    place.connect("10.0.0.2", HALF)
    assert [place for place, each in enumerate(many) if each.is_closed] == [1]
    place.connect("10.0.0.2", HALF)
    assert [place for place, each in enumerate(many) if each.is_closed] == [1, 2]
    assert not any(each.is_closed for each in few)


def test_when_all_are_carried_out_health_checks_are_answered_and_nothing_else() -> None:
    place = Place()
    busy = place.busy(MAX_PER_ADDRESS) + place.busy(OTHERS, "10.0.0.1")
    for _ in range(3 * MAX_FOR_HEALTH):
        for path in HEALTH:
            assert place.status(path) == 200
    assert place.status("/") == place.status("/api/v1/server", "10.0.0.2") == 503
    assert not any(each.is_closed for each in busy)
    for answer in place.answers:
        answer.callback(Document(b""))
    place.server.advance(0)
    assert place.status("/") == 200


def test_a_connection_for_health_checks_answers_one_and_closes() -> None:
    place = Place()
    place.busy(MAX_PER_ADDRESS)
    browser = place.connect()
    reply = browser.ask("GET", "/healthz")
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert browser.is_closed


def test_connections_for_health_checks_are_so_many_and_make_room_for_one_another() -> None:
    place = Place()
    place.busy(MAX_PER_ADDRESS)
    halves = [place.connect(sends=HALF) for _ in range(MAX_FOR_HEALTH)]
    assert not any(each.is_closed for each in halves)
    assert place.status("/healthz") == 200
    assert [each.is_closed for each in halves] == [True] + [False] * (MAX_FOR_HEALTH - 1)
    place.server.advance(HEALTH_S)
    assert all(each.is_closed for each in halves)
    assert len(place.site.connections) == MAX_PER_ADDRESS


def test_it_is_told_once_a_minute_and_counted(told: Any) -> None:
    place = Place()
    for _ in range(MAX_PER_ADDRESS + 3):
        place.connect(sends=HALF)
    assert told() == [
        "1 HTTP connection came when there were 64, or 48 of one address; the newest from "
        "127.0.0.1. For each, one without a whole request is closed, or it may ask for health "
        "checks alone"
    ]
    assert place.site.connections.closed == 3
    place.server.advance(TELL_S)
    assert [each.partition(" of one")[0] for each in told()[1:]] == [
        "2 HTTP connections came when there were 64, or 48"
    ]
    place.site.stopFactory()
    assert len(place.site.connections) == 0


PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "monitoring.md"


def test_the_limits_are_those_of_the_code() -> None:
    section = PAGE.read_text().partition("## HTTP limits")[2]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][2:]
    written = [int(re.sub(r"\D", "", cell)) for cell in rows]
    assert written == [
        MAX_HEAD_BYTES, MAX_HEADERS, MAX_BODY_BYTES, MAX_QUERY_FIELDS, REQUEST_S, REPLY_S,
        MAX_CONNECTIONS, MAX_PER_ADDRESS, MAX_FOR_HEALTH, HEALTH_S,
    ]  # fmt: skip
