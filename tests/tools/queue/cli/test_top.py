"""What keys do to the screen of ``beanstalk top``, and what it shows in colours and charts."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator

import pytest

from beanstalk_twisted.client.stats import ServerStats, TubeStats
from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.asking import all_tubes
from binlog_tools.queue.cli.top import (
    LOOKS,
    MAX_FILTER,
    SORTS,
    History,
    Keys,
    Row,
    Snapshot,
    View,
    chart,
    colour_of,
    coloured,
    keyboard,
    pressed,
    rows,
    shown,
    total,
)
from tests.tools.queue.lines import queue_at


def test_rates_are_what_came_and_went_in_a_second() -> None:
    server = MemoryServer()
    queue = queue_at(server)
    queue.use(b"a")
    queue.put(b"", priority=0)
    first = Snapshot(10.0, queue.stats(), all_tubes(queue))
    (a, default) = rows(first, None)
    assert (a.tube, a.ready, a.puts_s, default.tube) == ("a", 1, None, "default")
    jobs = [queue.put(b"", priority=0) for _ in range(8)]
    queue.delete(jobs[0])
    queue.use(b"b")
    queue.put(b"", delay=60)
    queue.pause_tube(b"b", 9)
    (a, b, default) = rows(Snapshot(14.0, queue.stats(), all_tubes(queue)), first)
    assert (a.ready, a.puts_s, a.deletes_s) == (8, 2.0, 0.25)
    assert (b.delayed, b.puts_s, b.pause_s) == (1, 0.25, 9)
    assert (default.puts_s, default.deletes_s) == (0.0, 0.0)
    everything = total([a, b, default])
    assert (everything.ready, everything.delayed, everything.puts_s) == (8, 1, 2.25)


def test_a_tube_that_was_made_anew_counts_from_nothing() -> None:
    counts = {
        "name": "a", "current-jobs-ready": "0", "current-jobs-reserved": "0",
        "current-jobs-delayed": "0", "current-jobs-buried": "0", "current-waiting": "0",
        "pause-time-left": "0",
    }  # fmt: skip
    old = TubeStats.of((counts | {"total-jobs": "100", "cmd-delete": "100"}).items())
    new = TubeStats.of((counts | {"total-jobs": "6", "cmd-delete": "2"}).items())
    server = ServerStats.of(())
    (row,) = rows(Snapshot(2.0, server, [new]), Snapshot(0.0, server, [old]))
    assert (row.puts_s, row.deletes_s) == (3.0, 1.0)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Stdin is a terminal; give where its keys are pressed."""
    keys, stdin = pty.openpty()
    with os.fdopen(stdin) as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        yield keys
    os.close(keys)


def wakeup_fd() -> int:
    found = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(found)
    return found


def opened(keys: Keys | None) -> Keys:
    assert keys is not None
    return keys


def test_keys_come_without_a_line_and_then_nothing(terminal: int) -> None:
    with keyboard() as found:
        keys = opened(found)
        os.write(terminal, b"s")
        assert keys.wait(60) == "s"
        assert keys.wait(0) == ""


def test_a_signal_that_came_before_the_wait_ends_it(terminal: int) -> None:
    """As one that comes between the interpreter's last look for signals and the system call."""
    come: list[int] = []
    before = signal.signal(signal.SIGWINCH, lambda number, frame: come.append(number))
    try:
        with keyboard() as found:
            keys = opened(found)
            signal.raise_signal(signal.SIGWINCH)
            assert keys.wait(3600) == ""
            assert come == [signal.SIGWINCH]
            os.write(terminal, b"q")
            assert keys.wait(3600) == "q", "it is told once"
    finally:
        signal.signal(signal.SIGWINCH, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_first(terminal: int, number: signal.Signals) -> None:
    before, wakeup = signal.getsignal(number), wakeup_fd()
    with pytest.raises(SystemExit) as ended, keyboard():
        signal.raise_signal(number)
    assert ended.value.code == 128 + number
    assert (signal.getsignal(number), wakeup_fd()) == (before, wakeup)


def test_without_a_terminal_there_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with keyboard() as keys:
            assert keys is None


def row(tube: str, ready: int = 0, **more: int) -> Row:
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


def test_tubes_are_ordered_by_a_column_and_equal_ones_by_name() -> None:
    found = [row("b", 1), row("c", 2), row("a", 1)]
    for sort, order in (("ready", "cab"), ("tube", "abc"), ("puts", "abc")):
        assert "".join(each.tube for each in shown(found, View(sort))) == order
    assert shown(found, View(filter="b")) == [found[0]]


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
