"""The console's stream, on a clock that stands still."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.replication.membership import ACTIVE, STANDBY, Identity, Presence, Situation
from beanstalk_twisted.replication.stream.interface import Copies
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.channel import REQUEST_S
from beanstalk_twisted.web.live import MAX_DROPPED, MAX_STREAMS, RETRY_MS
from beanstalk_twisted.web.overview import (
    LONG_ROWS,
    LONG_TICKS,
    MAX_ROW_BYTES,
    RECENT_ROWS,
    Figures,
)
from beanstalk_twisted.web.site import TICK_S, Site
from tests.web.browsing import Browser, joined, site_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "console.md"

REQUEST = "GET /live{query} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"


class Open:
    """A server whose endpoint is open, and streams of it."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.site: Site = site_of(self.server)
        self.site.startFactory()

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.server.advance(TICK_S)

    def watch(self, query: str = "", headers: str = "") -> Browser:
        browser = Browser(self.site, self.server.clock)
        browser.send(REQUEST.format(query=query, headers=headers).encode())
        return browser


def events(browser: Browser) -> list[tuple[str, str, Any]]:
    head, _, body = browser.transport.value.partition(b"\r\n\r\n")
    assert b"text/event-stream" in head
    found = re.findall(r"event: (\w+)\nid: (\S+)\ndata: (.*)\n\n", joined(body).decode())
    return [(name, event_id, json.loads(text)) for name, event_id, text in found]


def test_a_stream_begins_with_the_history_and_goes_on_by_seconds() -> None:
    opened = Open()
    opened.tick(LONG_TICKS)
    browser = opened.watch()
    opened.server.connect().ask(b"put 0 0 60 1\r\na\r\n")
    opened.tick()
    (hello, _, past), (tick, _, now) = events(browser)
    assert (hello, tick) == ("hello", "tick")
    assert (len(past["recent"]), len(past["long"])) == (LONG_TICKS, 1)
    assert past["fields"] == list(Figures._fields)
    row = Figures(*now["row"])
    assert (row.ready, row.puts, row.connections) == (1, 1, 1)
    assert joined(browser.transport.value.partition(b"\r\n\r\n")[2]).startswith(
        b"retry: %d\n" % RETRY_MS
    )


def test_who_comes_back_gets_what_was_missed() -> None:
    opened = Open()
    first = opened.watch()
    opened.tick(2)
    last_id = events(first)[-1][1]
    first.transport.abortConnection()
    opened.tick(3)
    for again in (
        opened.watch(headers=f"Last-Event-ID: {last_id}\r\n"),
        opened.watch(query=f"?after={last_id}"),
    ):
        ((_, _, past),) = events(again)
        assert past["resumed"] and len(past["recent"]) == 3
        assert "long" not in past
    opened.tick(RECENT_ROWS - 3)
    assert events(opened.watch(query=f"?after={last_id}"))[0][2]["resumed"]
    opened.tick()
    assert not events(opened.watch(query=f"?after={last_id}"))[0][2]["resumed"]


@pytest.mark.parametrize("event_id", ["", "0123456789abcdef-1", "x", "%s-999999", "-1"])
def test_who_saw_another_process_or_nonsense_gets_all(event_id: str) -> None:
    opened = Open()
    opened.tick()
    run = events(opened.watch())[0][1].partition("-")[0]
    ((_, _, past),) = events(opened.watch(query=f"?after={event_id.replace('%s', run)}"))
    assert not past["resumed"] and len(past["recent"]) == 1


def test_what_is_not_read_is_dropped_and_counts_are_right_after_it() -> None:
    opened = Open()
    browser = opened.watch()
    browser.channel.pauseProducing()
    length = len(browser.transport.value)
    opened.tick(MAX_DROPPED - 1)
    assert len(browser.transport.value) == length
    opened.server.connect().ask(b"put 0 0 60 1\r\na\r\n")
    browser.channel.resumeProducing()
    opened.tick()
    assert Figures(*events(browser)[-1][2]["row"]).puts == 1


def test_who_does_not_read_for_a_minute_is_left() -> None:
    opened = Open()
    browsers = [opened.watch() for _ in range(MAX_STREAMS)]
    browsers[0].channel.pauseProducing()
    opened.tick(MAX_DROPPED - 1)
    assert b" 503 " in opened.watch().transport.value
    opened.tick()
    assert events(opened.watch())
    opened.server.advance(REQUEST_S)
    assert browsers[0].is_closed and not browsers[1].is_closed


def test_head_opens_no_stream() -> None:
    opened = Open()
    reply = Browser(opened.site, opened.server.clock).ask("HEAD", "/live")
    assert (reply.status, reply.body) == (200, b"")


def test_history_ends_with_the_endpoint() -> None:
    opened = Open()
    opened.watch()
    opened.site.stopFactory()
    opened.tick()
    assert not [
        call for call in opened.server.clock.getDelayedCalls() if "LoopingCall" in str(call)
    ]
    opened.site.startFactory()
    opened.tick()
    opened.site.stopFactory()


def test_it_is_told_how_replication_is() -> None:
    opened = Open()
    browser = opened.watch()
    assert events(browser)[-1][2]["replication"] == ""
    standby = Presence("b:1", "02", STANDBY, 9, 9)
    us = Identity("a:1", "01")
    leads = Situation(ACTIVE, "", us, "a:1", 3, 300, 0.9, (standby,), 1, 0, lease_s=2.5)
    for situation, words in (
        (leads, "active, 1 standby"),
        (leads._replace(standbys=()), "active, 0 standbys"),
        (leads._replace(copies=Copies(3, "n1", ("n1", "n3"), ("n2",))),
         "active, 1 standby, the stream lacks n2"),
        (leads._replace(lag_s=1.0, lease_s=0.0),
         "active, its lease is over, 1 standby, 3 records wait for the stream since 1 s"),
    ):  # fmt: skip
        opened.server.service.situation = partial(Situation._make, situation)
        opened.tick()
        assert events(browser)[-1][2]["replication"] == words


def test_why_the_server_is_not_ready_is_told() -> None:
    opened = Open()
    browser = opened.watch()
    opened.server.service.drain()
    opened.tick()
    assert "drains" in events(browser)[-1][2]["why_not_ready"]


def test_the_page_says_what_the_limits_are() -> None:
    page = PAGE.read_text()
    assert f"{MAX_DROPPED} in a row end the stream" in page
    assert f"| streams | {MAX_STREAMS} | 503 |" in page
    assert f"kept for {RECENT_ROWS * TICK_S / 60:g} minutes" in page
    assert f"for {LONG_ROWS * LONG_TICKS * TICK_S / 3600:g} hours" in page
    most = (RECENT_ROWS + LONG_ROWS) * MAX_ROW_BYTES
    assert most <= 310_000 and "at most 310 KB" in page
