"""Children that a handler makes with ``os.fork``."""

import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from twisted.internet.tcp import Connection

T = TypeVar("T")

FORKED: Final = 70
"""The exit code of a child that returns from its handler (EX_SOFTWARE of sysexits.h)."""


def in_this_process(call: Callable[[], T]) -> T:
    """
    Call a function, and end each child that returns from it.

    Such a child would act as a second worker on the parent's connections.
    """
    pid = os.getpid()
    try:
        return call()
    finally:
        if os.getpid() != pid:
            end_child()


def end_child() -> NoReturn:
    """End this process, which is a child."""
    try:
        if sys.__stderr__ is not None:
            os.write(sys.__stderr__.fileno(), _SAID)
    finally:
        os._exit(FORKED)


_SAID: Final = (
    b"a function has forked and not ended its child: exiting; call os._exit in the child\n"
)


def close_in_children(reactor: Any) -> None:
    """
    Close the reactor's connections in each child that is forked from now on.

    A server would otherwise not notice the end of the worker while a child runs.  A child that
    returns to the reactor, by an ``await`` too, ends.  ``subprocess`` is not affected.
    """

    def forked() -> None:
        for each in {*reactor.getReaders(), *reactor.getWriters()}:
            if isinstance(each, Connection):
                each.socket.close()
        reactor.callFromThread(end_child)

    os.register_at_fork(after_in_child=forked)
