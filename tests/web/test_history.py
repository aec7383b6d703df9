"""The history in memory."""

from __future__ import annotations

import json
from typing import Any

from beanstalk_twisted.web.overview import (
    COUNTED,
    LONG_ROWS,
    LONG_TICKS,
    MAX_ROW_BYTES,
    RECENT_ROWS,
    Figures,
    History,
)


def filled(ticks: int) -> History:
    history = History()
    for tick in range(1, ticks + 1):
        history.note(Figures(1000 * tick, ready=tick % 7, puts=10 * tick))
    return history


def rows(text: bytes) -> list[Figures]:
    decoded: Any = json.loads(text)
    return [Figures(*row) for row in decoded]


def test_a_row_is_given_back_as_it_is_sent() -> None:
    row = History().note(Figures(5, ready=3, puts=9))
    assert rows(b"[" + row + b"]") == [Figures(5, ready=3, puts=9)]


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


def test_what_is_counted_stands_behind_all_else() -> None:
    assert COUNTED == ("puts", "ended", "timeouts", "commands")
