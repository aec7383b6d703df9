"""Signals that come while the server is still being imported: nothing of Twisted is imported here.

SIGHUP, SIGUSR1 and SIGUSR2 would end a process that has no handlers yet.  They are held back, which
the kernel does, so what has come is delivered when `signals` has set its handlers.
"""

import _signal as signal  # type: ignore[import-not-found]  # ``signal`` itself takes its time.
import os

HELD = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def hold_back() -> None:
    """Have the kernel keep signals of `HELD`, once each; called before threads and children are
    made, which would have it so, too.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def let_through() -> None:
    """Deliver what was held back, and all that comes."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
