"""Keys of a terminal, one by one, while something is drawn there."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

MAX_KEYS: Final = 1024
"""Bytes that are taken at once: what is pasted."""

ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
"""What would end the process and leave the terminal without echo."""


class Keys:
    """The keys that are pressed."""

    def __init__(self, fd: int, signals: int) -> None:
        """:param signals: a file descriptor with something to read when a signal has come."""
        self._fd = fd
        self._signals = signals

    def wait(self, seconds: float) -> str:
        """
        :return: what was pressed; nothing when the time is up, or a signal has come.
        :raise KeyboardInterrupt: nothing will ever be pressed again.
        """
        ready, _, _ = select.select([self._fd, self._signals], [], [], seconds)
        if self._signals in ready:
            os.read(self._signals, MAX_KEYS)
        if self._fd not in ready:
            return ""
        typed = os.read(self._fd, MAX_KEYS)
        if not typed:
            raise KeyboardInterrupt
        return typed.decode(errors="ignore")


@contextmanager
def keyboard() -> Iterator[Keys | None]:
    """
    Have keys come at once and unseen, for as long as the block lasts.  Ctrl-C is what it was.

    :return: None if stdin is no terminal.
    """
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    handlers = {number: signal.signal(number, _end) for number in ENDS}
    try:
        tty.setcbreak(fd)
        with _signals() as signals:
            yield Keys(fd, signals)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _signals() -> Iterator[int]:
    """
    Give what has something to read when a signal has come: one that comes just before `select`
    begins to wait does not interrupt it.
    """
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    try:
        yield reads
    finally:
        signal.set_wakeup_fd(before)
        os.close(reads)
        os.close(writes)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
