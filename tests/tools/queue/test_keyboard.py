"""Keys of a terminal, and signals beside them."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator

import pytest

from binlog_tools.queue.watching import Keys, keyboard


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Stdin is a terminal; give where its keys are pressed."""
    keys, stdin = pty.openpty()
    with os.fdopen(stdin) as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        yield keys
    os.close(keys)


def wakeup_fd() -> int:
    """Give where the process writes of signals now."""
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
def test_what_ends_the_process_leaves_the_terminal_first(
    terminal: int, number: signal.Signals
) -> None:
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
