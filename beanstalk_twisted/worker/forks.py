"""Children of a process that works, which a function has made with ``os.fork``."""

import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from twisted.internet.tcp import Connection

T = TypeVar("T")

FORKED: Final = 70
"""The exit code of a child that comes back out of its function (EX_SOFTWARE of sysexits.h)."""


def in_this_process(call: Callable[[], T]) -> T:
    """
    Call a function, and return in the process that has called it only.

    A child that returned too would do what its parent does: with the parent's connections, but
    without its threads.
    """
    pid = os.getpid()
    try:
        return call()
    finally:
        if os.getpid() != pid:
            end_child()


def end_child() -> NoReturn:
    """End this process, which is a copy."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, _SAID)
    os._exit(FORKED)


_SAID: Final = (
    b"a function has forked and not ended its child, which ends now: call os._exit in the child\n"
)


def close_in_children(reactor: Any) -> None:
    """
    From now on close the reactor's connections in each child, at its beginning: else a server does
    not see that its worker is gone as long as the child lives.

    A child whose function comes back to the reactor, at the next ``await``, ends.  What
    ``subprocess`` starts is not concerned.
    """

    def forked() -> None:
        for each in {*reactor.getReaders(), *reactor.getWriters()}:
            if isinstance(each, Connection):
                each.socket.close()
        reactor.callFromThread(end_child)

    os.register_at_fork(after_in_child=forked)
