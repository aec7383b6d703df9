"""
Keys of a terminal, one by one, while something is drawn there.
"""

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
    """
    The keys that are pressed.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def wait(self, seconds: float) -> str:
        """
        :return: what was pressed; nothing when the time is up.
        :raise KeyboardInterrupt: nothing will ever be pressed again.
        """
        if not select.select([self._fd], [], [], seconds)[0]:
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
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
