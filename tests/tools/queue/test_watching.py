"""What keys do to the screen of ``beanstalk top``, and what it shows in colours and charts."""

from __future__ import annotations

import pytest

from binlog_tools.queue.watching import (
    LOOKS,
    MAX_FILTER,
    SORTS,
    History,
    Row,
    View,
    chart,
    colour_of,
    coloured,
    filtered,
    ordered,
    pressed,
)


def row(tube: str, ready: int = 0, **more: int) -> Row:
    """A tube, idle but for what is named."""
    fields = {"reserved": 0, "delayed": 0, "buried": 0, "waiting": 0, "pause_s": 0, **more}
    return Row(tube, ready, puts_s=None, deletes_s=None, **fields)


@pytest.mark.parametrize(
    ("keys", "view"),
    [
        ("", View()),
        ("q", View(is_over=True)),
        ("?", View(shows_help=True)),
        ("??", View()),
        ("s", View(sort="reserved")),
        ("S", View(sort="tube")),
        ("SS", View(sort="deletes")),
        ("s" * len(SORTS), View()),
        ("/ma", View(filter="ma", is_typing=True)),
        ("/q?s\r", View(filter="q?s")),
        ("/ma\x7f\x7f\x7fx\n", View(filter="x")),
        ("/ma\x1b", View()),
        ("/ma\rs", View(filter="ma", sort="reserved")),
        ("/ma\r\x1b", View()),
        ("?\x1b", View()),
        ("?/", View(is_typing=True)),
        ("x\t", View()),
        ("/\x01\x02a", View(filter="a", is_typing=True)),
        ("/" + "x" * (MAX_FILTER + 1), View(filter="x" * MAX_FILTER, is_typing=True)),
    ],
)
def test_keys(keys: str, view: View) -> None:
    one_by_one = View()
    for key in keys:
        one_by_one = pressed(one_by_one, key)
    assert one_by_one == pressed(View(), keys) == view


def test_keys_of_more_characters_are_passed_over() -> None:
    assert pressed(View(), "\x1b[A") == View()
    typing = View(filter="ma", is_typing=True)
    assert pressed(typing, "\x1b[3~") == typing


def test_tubes_are_filtered_by_part_of_their_names() -> None:
    found = [row("mail"), row("image"), row("e-mail.de")]
    assert [each.tube for each in filtered(found, "mail")] == ["mail", "e-mail.de"]
    assert filtered(found, "") == found


def test_tubes_are_ordered_by_a_column_and_equal_ones_by_name() -> None:
    found = [row("b", 1), row("c", 2), row("a", 1)]
    assert [each.tube for each in ordered(found, "ready")] == ["c", "a", "b"]
    assert [each.tube for each in ordered(found, "tube")] == ["a", "b", "c"]
    assert [each.tube for each in ordered(found, "puts")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("numbers", "bars"),
    [
        ([], ""), ([0], " "), ([5], "█"), ([0, 1, 2, 3, 4, 5, 6, 7, 8], " ▁▂▃▄▅▆▇█"),
        ([1, 1000], "▁█"), ([8, 0], "█ "),
    ],
)  # fmt: skip
def test_a_chart_has_the_largest_as_a_full_bar(numbers: list[int], bars: str) -> None:
    assert chart(numbers) == bars


def test_the_last_looks_are_remembered_and_tubes_that_are_gone_forgotten() -> None:
    history = History()
    assert history.chart("mail") == " " * LOOKS
    for ready in range(LOOKS + 1):
        history.note([row("mail", ready and 8)])
    assert history.chart("mail") == "█" * LOOKS
    history.note([row("other", 1)])
    history.note([row("mail", 1)])
    assert history.chart("mail") == "█".rjust(LOOKS)


@pytest.mark.parametrize(
    ("found", "colour"),
    [
        (row("a"), ""),
        (row("a", 1), "cyan"),
        (row("a", 1, waiting=1), ""),
        (row("a", 1, reserved=1), ""),
        (row("a", 1, pause_s=1), "yellow"),
        (row("a", 1, pause_s=1, buried=1), "red"),
    ],
)
def test_what_somebody_should_look_at_has_a_colour(found: Row, colour: str) -> None:
    assert colour_of(found) == colour


def test_colours_are_those_of_a_terminal() -> None:
    assert coloured("mail", "red") == "\x1b[31mmail\x1b[0m"
    assert coloured("mail", "") == "mail"
