"""Holds back signals that would end the process while it imports the server; without Twisted."""

import _signal as signal  # type: ignore[import-not-found]  # ``signal`` itself takes its time.
import os

HELD = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def hold_back() -> None:
    """Called before threads and children are made, which inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def has_terminal() -> bool:
    try:
        os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
