"""Fail-stop policy: which exceptions between a command and its acknowledgement end the server, and
with which last words; docs/durability.md, "Internal errors".
"""

import errno
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import MORE_DESCRIPTORS, BinlogError

P = ParamSpec("P")
T = TypeVar("T")

BALLAST_BYTES: Final = 4 << 20
"""What the last words may take: some 100 KB, and Python asks for its memory in pieces of 1 MB."""

EXIT_CODE: Final = 74
"""Of a server that ends because of an error; see docs/durability.md, "Exit codes"."""

PACKAGE: Final = Path(__file__).parent.parent


class Ballast:
    """Memory held to be given up, so that a process that has run out of it can say so.  It is never
    touched: it takes room in the address space only.
    """

    def __init__(self) -> None:
        self._held: mmap.mmap | None = None

    def hold(self) -> None:
        if self._held is None:
            with suppress(OSError, MemoryError):
                self._held = mmap.mmap(-1, BALLAST_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()


BALLAST: Final = Ballast()
"""The process's."""


class FailStop:
    """Ends the server, once.

    :ivar end: called once, in whatever thread.
    :ivar is_armed: whether it does: whether there is a log that memory must agree with.  A queue
        without one has promised nothing beyond the end of its process: there exceptions go their
        usual way, and the command is answered with INTERNAL_ERROR.
    """

    def __init__(self, end: Callable[[Failure], None], *, is_armed: bool = True) -> None:
        self.end = end
        self.is_armed = is_armed
        self.has_failed = False

    def __call__(self, failure: Failure) -> None:
        """This has failed, in whatever thread."""
        if self.is_armed and not self.has_failed:
            self.has_failed = True
            try:
                self.end(failure)
            except BaseException:
                # Whoever has called would go on.
                os._exit(EXIT_CODE)

    def caught(self) -> None:
        """The exception that is being handled ends the server."""
        if self.is_armed and not self.has_failed:
            BALLAST.release()
            try:
                failure = Failure()
            except BaseException:
                # Not even with that: whoever has called would go on.
                os._exit(EXIT_CODE)
            self(failure)


class Stoppable(Protocol):
    fail_stop: FailStop


S = TypeVar("S", bound=Stoppable)


def fail_stop(step: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Mark a method that is done whole or ends the server.

    From the first change that a command makes until its record is handed to the disk, memory and
    log agree only if every step is done whole.  Going on after an exception would acknowledge what
    a restart may not find, or find and refuse.  Marked are the steps that Twisted calls, which logs
    and forgets what a timer, a socket or a Deferred has raised, and those whose callers go on.

    Where there is no memory at all, CPython cannot leave a function whose `try` lies beyond 256 of
    its instructions: it asks for an integer to remember the place, fails, and tries again for ever.
    So functions on the way have none there (tests/storage/test_fail_stop.py).
    """

    @wraps(step)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return step(self, *args, **kwargs)
        except BaseException:
            self.fail_stop.caught()
            raise

    return run


def reason(failure: Failure, acknowledgeable_lsn: int) -> str:
    """Why the server ends, never empty: what, where, what was lost, what to do next."""
    error = failure.value
    if isinstance(error, BinlogError):
        return str(error)
    said = f" ({error})" if str(error) else ""
    what = f"{type(error).__name__}{said}{_place(failure)}"
    if isinstance(error, MemoryError):
        advice = "Give it more memory (ulimit -v, the limit of a container), then start it again."
    elif is_out_of_descriptors(error):
        advice = f"{MORE_DESCRIPTORS}, then start it again."
    else:
        advice = "Start it again, and please report this."
    return f"{what}; no reply was given for what came after LSN {acknowledgeable_lsn}. {advice}"


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether the process, or the machine, has as many files open as it may have."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _place(failure: Failure) -> str:
    for name, path, line, *_ in reversed(failure.frames):
        if Path(path).is_relative_to(PACKAGE):
            return f" in {Path(path).relative_to(PACKAGE)}, line {line} ({name})"
    return ""


def end_process(code: int, last_words: Callable[[], None]) -> None:
    """End this very moment, after ``last_words``, whatever may still go wrong, in whatever
    thread.
    """
    try:
        BALLAST.release()
        last_words()
    finally:
        os._exit(code)
