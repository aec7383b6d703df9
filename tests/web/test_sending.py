"""Replies in pieces, and those that go on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.server.connections.turns import TURN_S, SharedTurns
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.channel import REPLY_S
from beanstalk_twisted.web.exchange import TEXT, Call, Document, Outlet
from tests.web.browsing import Browser, browse, parsed


def asked(operation: Any) -> Browser:
    """Give a browser that has asked for an operation and has not read on."""
    browser = browse(MemoryServer(), it=operation)
    browser.send(b"GET /it HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return browser


class Pieces:
    """An operation whose reply has many pieces."""

    def __init__(self, fails_at: int = -1) -> None:
        self.made = 0
        self.is_over = False
        self._fails_at = fails_at

    def __call__(self, call: Call) -> Document:
        return Document(self._pieces(), TEXT)

    def _pieces(self) -> Iterator[bytes]:
        try:
            for number in range(5):
                if number == self._fails_at:
                    raise ValueError("no more")
                self.made += 1
                yield b"%d," % number
        finally:
            self.is_over = True


def test_a_turn_makes_one_piece() -> None:
    pieces = Pieces()
    browser = asked(pieces)
    made = []

    def turn() -> None:
        made.append(pieces.made)
        if pieces.made < 5:
            browser.clock.callLater(0, turn)

    turn()
    browser.clock.advance(0)
    assert made == [1, 2, 3, 4, 5]
    assert parsed(browser.transport.value).body == b"0,1,2,3,4,"
    assert pieces.is_over


def test_nothing_is_made_while_the_client_does_not_read() -> None:
    pieces = Pieces()
    browser = asked(pieces)
    browser.channel.pauseProducing()
    for _ in range(10):
        browser.clock.advance(0)
    assert pieces.made <= 2
    browser.channel.resumeProducing()
    for _ in range(10):
        browser.clock.advance(0)
    assert parsed(browser.transport.value).body == b"0,1,2,3,4,"


def test_a_client_that_never_reads_is_left() -> None:
    pieces = Pieces()
    browser = asked(pieces)
    browser.channel.pauseProducing()
    browser.clock.advance(REPLY_S - 0.1)
    assert not browser.is_closed
    browser.clock.advance(0.1)
    assert browser.is_closed
    assert pieces.is_over


def test_a_client_that_hangs_up_costs_no_more_pieces() -> None:
    pieces = Pieces()
    browser = asked(pieces)
    browser.transport.abortConnection()
    browser.clock.advance(REPLY_S)
    assert pieces.made == 1
    assert pieces.is_over


def test_a_reply_that_fails_halfway_is_cut_off(clean_reactor: list[Failure]) -> None:
    browser = asked(Pieces(fails_at=2))
    browser.clock.advance(0)
    browser.clock.advance(0)
    assert browser.is_closed
    assert not browser.transport.value.endswith(b"0\r\n\r\n")
    clean_reactor.clear()


class Ticker:
    """A stream, and an operation that answers with it."""

    content_type = "text/event-stream"

    def __init__(self) -> None:
        self.outlet: Outlet | None = None
        self.closings = 0

    def __call__(self, call: Call) -> Ticker:
        return self

    def opened(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def closed(self) -> None:
        self.closings += 1


def test_a_stream_goes_on_until_the_client_leaves() -> None:
    ticker = Ticker()
    browser = asked(ticker)
    assert ticker.outlet is not None
    browser.clock.advance(3 * REPLY_S)
    assert ticker.outlet.write(b"data: 1\n\n")
    reply = parsed(browser.transport.value + b"0\r\n\r\n")
    assert (reply.body, reply.headers["content-type"]) == (b"data: 1\n\n", "text/event-stream")
    browser.transport.abortConnection()
    assert ticker.closings == 1
    assert not ticker.outlet.write(b"data: 2\n\n")


@pytest.mark.parametrize("ending", ["end", "stop"])
def test_a_stream_ends_once(ending: str) -> None:
    ticker = Ticker()
    browser = asked(ticker)
    assert ticker.outlet is not None
    if ending == "end":
        ticker.outlet.end()
        ticker.outlet.end()
        assert browser.transport.value.endswith(b"0\r\n\r\n")
    else:
        browser.channel.factory.stopFactory()
        assert browser.is_closed
    assert ticker.closings == 1


def test_a_turn_that_has_taken_long_ends_and_others_go_on_in_the_next() -> None:
    clock = Clock()
    turns = SharedTurns(cast(Any, clock))
    made: list[int] = []

    def make(number: int) -> None:
        made.append(number)
        clock.rightNow += TURN_S * 0.6

    for number in range(3):
        turns.add(partial(make, number))
    others: list[int] = []
    clock.callLater(0, lambda: others.append(len(made)))
    clock.advance(0)
    assert made == [0, 1, 2]
    assert others == [2]


def test_nothing_is_made_after_the_end() -> None:
    clock = Clock()
    turns = SharedTurns(cast(Any, clock))
    made: list[int] = []
    turns.add(lambda: made.append(1))
    turns.stop()
    clock.advance(1)
    assert not made and not clock.getDelayedCalls()
