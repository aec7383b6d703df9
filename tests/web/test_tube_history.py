"""The history of the most active tubes."""

from __future__ import annotations

import sys
from typing import Any

from beanstalk_twisted.testing.memory_server import STARTED_S, MemoryServer
from beanstalk_twisted.web.tube_figures import (
    COUNTED,
    FIELDS,
    KEPT_TUBES,
    ROW_TICKS,
    ROWS,
    SLICE_TUBES,
    Ring,
    TubeHistory,
)
from tests.web.browsing import Browser, browse, site_of


def filled(*tubes: bytes) -> MemoryServer:
    server = MemoryServer()
    server.connect().ask(b"".join(b"use %s\r\nput 0 0 60 1\r\nx\r\n" % name for name in tubes))
    return server


def rings_of(server: MemoryServer, looks: int = 1, rows: int = 0) -> TubeHistory:
    rings = TubeHistory(server.service.queue.state, server.service.now_ns, server.clock)
    for _ in range(looks):
        rings.look()
    for row in range(rows):
        rings.note(1000 * row)
    return rings


def tube(server: MemoryServer, name: bytes = b"mail") -> Any:
    return server.service.queue.state.tubes.find(name)


def test_a_row_has_its_time_and_the_tubes_figures() -> None:
    server = filled(b"mail")
    client = server.connect()
    client.ask(b"watch mail\r\nreserve\r\ndelete 1\r\n")
    client.ask(b"use mail\r\nput 0 0 60 1\r\nx\r\nput 0 9 60 1\r\nx\r\n")
    (row,) = rings_of(server, rows=1).of(tube(server))
    figures = dict(zip(("at_ms", *FIELDS), row, strict=True))
    assert figures == {
        "at_ms": 0, "ready": 1, "reserved": 0, "delayed": 1, "buried": 0, "total_jobs": 3,
        "deletes": 1, "timeouts": 0,
    }  # fmt: skip
    assert set(COUNTED) < set(FIELDS)


def test_rows_beyond_the_ring_take_the_place_of_the_oldest() -> None:
    server = filled(b"mail")
    whole = rings_of(server, rows=ROWS).of(tube(server))
    assert [row[0] for row in whole] == [1000 * row for row in range(ROWS)]
    more = rings_of(server, rows=ROWS + 1).of(tube(server))
    assert [row[0] for row in more] == [1000 * row for row in range(1, ROWS + 1)]


def test_a_tube_has_no_rows_from_before_it_was_chosen() -> None:
    server = filled(b"mail")
    rings = rings_of(server, rows=3)
    server.connect().ask(b"use later\r\nput 0 0 60 1\r\nx\r\n")
    rings.look()
    rings.note(9000)
    assert [row[0] for row in rings.of(tube(server, b"later"))] == [9000]
    assert len(rings.of(tube(server))) == 4


def test_a_tube_that_is_made_anew_does_not_get_the_rows_of_the_one_before() -> None:
    server = filled(b"other")
    client = server.connect()
    client.ask(b"watch mail\r\n")
    rings = rings_of(server, rows=2)
    assert len(rings.of(tube(server))) == 2
    client.ask(b"ignore mail\r\nwatch mail\r\n")
    assert rings.of(tube(server)) == []


def test_only_the_most_active_tubes_are_kept_however_many_there_are() -> None:
    names = [b"t%d" % number for number in range(2 * SLICE_TUBES)]
    server = filled(*names)
    busy = names[1::10][:KEPT_TUBES]
    client = server.connect()
    for name in busy:
        client.ask(b"use %s\r\nput 0 0 60 1\r\nx\r\n" % name)
    looks = -(-(len(names) + 1) // SLICE_TUBES)
    assert not rings_of(server, looks - 1, 1).of(tube(server, busy[0]))
    rings = rings_of(server, looks, 1)
    assert [name for name in names if rings.of(tube(server, name))] == busy


def test_all_rings_take_no_more_than_they_say() -> None:
    server = filled(*[b"t%d" % number for number in range(KEPT_TUBES + 1)])
    rings = rings_of(server, rows=ROWS)
    assert rings.kept_bytes == 8 * ROWS * (len(FIELDS) * KEPT_TUBES + 1)
    assert rings.kept_bytes <= 1_010_000
    assert sys.getsizeof(Ring(0).numbers) <= 8 * len(FIELDS) * ROWS + 100


def test_a_tubes_history_is_there_before_anybody_has_looked() -> None:
    server = filled(b"mail")
    site = site_of(server)
    for part in site.parts:
        part.start()
    server.advance(3 * ROW_TICKS)
    shown = Browser(site, server.clock).ask("GET", "/api/v1/tubes/mail/history").json
    assert (shown["seconds"], shown["fields"], shown["counted"]) == (
        ROW_TICKS, ["at_ms", *FIELDS], list(COUNTED),
    )  # fmt: skip
    times = [(STARTED_S + ROW_TICKS * row) * 1000 for row in (1, 2, 3)]
    assert [row[:2] for row in shown["rows"]] == [[at_ms, 1] for at_ms in times]
    for part in site.parts:
        part.stop()


def test_a_tube_that_is_not_there_is_not_found() -> None:
    browser = browse(filled(b"mail"))
    assert browser.ask("GET", "/api/v1/tubes/mail/history").json["rows"] == []
    for name in ("none", "%E2%82%AC"):
        assert browser.ask("GET", f"/api/v1/tubes/{name}/history").status == 404


def test_no_timer_is_left_when_the_endpoint_is_closed() -> None:
    server = filled(b"mail")
    before = len(server.clock.getDelayedCalls())
    history = TubeHistory(server.service.queue.state, server.service.now_ns, server.clock)
    history.start()
    server.advance(ROW_TICKS)
    assert history.rows == 1
    history.stop()
    history.stop()
    assert len(server.clock.getDelayedCalls()) == before
