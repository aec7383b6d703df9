"""The figures of the whole server, their history, and how late the reactor is."""

from __future__ import annotations

import json
from typing import Any, cast

from twisted.internet.task import Clock

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.overview import (
    LONG_ROWS,
    LONG_TICKS,
    LOOK_TUBES,
    MAX_ROW_BYTES,
    PERIOD_S,
    RECENT_ROWS,
    Figures,
    History,
    OldestReady,
    Overview,
    ReactorLag,
)
from tests.binlog.memory import MemoryDirectory


def test_jobs_are_told_by_state_and_what_has_ended() -> None:
    server = MemoryServer(directory=MemoryDirectory())
    overview = Overview(server.service)
    client = server.connect()
    for delay in (b"0", b"0", b"0", b"0", b"9"):
        client.ask(b"put 0 %s 60 1\r\na\r\n" % delay)
    for command in (b"reserve", b"delete 1", b"reserve", b"bury 2 0", b"reserve"):
        client.ask(command + b"\r\n")
    server.advance(2)
    figures = overview.figures()
    assert (figures.ready, figures.reserved, figures.delayed, figures.buried) == (1, 1, 1, 1)
    assert (figures.puts, figures.ended, figures.connections) == (5, 1, 1)
    assert figures.oldest_ms == 2000
    assert 0 < figures.live_bytes < figures.log_bytes


def oldest_after(looks: int, server: MemoryServer) -> int:
    oldest = OldestReady(server.service.queue.state)
    return [oldest.look(server.service.now_ns()) for _ in range(looks)][-1]


def test_the_oldest_of_very_many_tubes_is_found_after_some_looks() -> None:
    server = MemoryServer()
    client = server.connect()
    lines = b"".join(
        b"use tube-%d\r\nput 0 %d 60 1\r\na\r\n" % (number, 0 if number > LOOK_TUBES else 9)
        for number in range(LOOK_TUBES + 2)
    )
    client.ask(lines)
    server.advance(3)
    assert oldest_after(1, server) == 0
    assert oldest_after(2, server) == 3_000_000_000


def test_an_oldest_job_that_is_gone_is_forgotten() -> None:
    server = MemoryServer()
    oldest = OldestReady(server.service.queue.state)
    client = server.connect()
    client.ask(b"put 0 0 60 1\r\na\r\n")
    server.advance(5)
    assert oldest.look(server.service.now_ns()) == 5_000_000_000
    client.ask(b"delete 1\r\n")
    assert oldest.look(server.service.now_ns()) == 0


def filled(ticks: int) -> History:
    history = History()
    for tick in range(1, ticks + 1):
        history.note(Figures(1000 * tick, ready=tick % 7, puts=10 * tick))
    return history


def rows(text: bytes) -> list[Figures]:
    decoded: Any = json.loads(text)
    return [Figures(*row) for row in decoded]


def test_each_second_is_kept_for_minutes() -> None:
    kept = rows(filled(RECENT_ROWS + 1).recent())
    assert [row.at_ms for row in kept] == [1000 * tick for tick in range(2, RECENT_ROWS + 2)]


def test_of_a_half_minute_the_peaks_and_the_last_counts_are_kept() -> None:
    assert not rows(filled(LONG_TICKS - 1).long())
    history = filled(2 * LONG_TICKS)
    first, second = rows(history.long())
    assert first == Figures(1000 * LONG_TICKS, ready=6, puts=10 * LONG_TICKS)
    assert second.puts - first.puts == 10 * LONG_TICKS


def test_peaks_of_one_half_minute_are_not_those_of_the_next() -> None:
    history = History()
    for tick in range(2 * LONG_TICKS):
        history.note(Figures(tick, buried=5 if tick == 3 else 0))
    assert [row.buried for row in rows(history.long())] == [5, 0]


def test_nothing_is_older_than_some_hours() -> None:
    history = filled(LONG_TICKS * (LONG_ROWS + 1))
    kept = rows(history.long())
    assert len(kept) == LONG_ROWS
    assert kept[0].at_ms == 2 * 1000 * LONG_TICKS


def test_it_takes_no_more_than_it_says() -> None:
    history, most = History(), (1 << 63) - 1
    for _ in range(RECENT_ROWS + 1):
        assert len(history.note(Figures(*[most] * len(Figures._fields)))) <= MAX_ROW_BYTES
    assert len(history.recent()) <= RECENT_ROWS * (MAX_ROW_BYTES + len(b",")) + 1


def test_only_what_is_new_can_be_asked_for() -> None:
    history = filled(RECENT_ROWS + 10)
    assert [row.at_ms for row in rows(history.recent(RECENT_ROWS + 8))] == [
        1000 * (RECENT_ROWS + 9),
        1000 * (RECENT_ROWS + 10),
    ]
    assert not rows(history.recent(RECENT_ROWS + 10))
    assert history.has_all_behind(10) and history.has_all_behind(RECENT_ROWS + 10)
    assert not history.has_all_behind(9)
    assert not history.has_all_behind(RECENT_ROWS + 11)


def test_a_timer_that_is_late_is_noted_and_one_in_time_too() -> None:
    clock = Clock()
    lag = ReactorLag(cast(Any, clock))
    lag.start()
    clock.advance(PERIOD_S)
    clock.advance(PERIOD_S + 0.03)
    assert sum(lag.lags.counts) == 2
    assert abs(lag.lags.total - 30_000_000) < 1000
    lag.stop()
    assert not clock.getDelayedCalls()
