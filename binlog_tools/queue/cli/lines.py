"""
The lines of the input, as they come, and the server's answers between them.

Somebody who follows a file puts a line now and then.  While none comes he wants to see what became
of those that were sent; so whoever waits for the input waits for the server too.
"""

import select
import sys
from collections.abc import Callable, Iterator
from io import UnsupportedOperation
from typing import BinaryIO, Final, Protocol

READ_BYTES: Final = 1 << 16
"""Of the input at once: as much as a pipe holds."""

LOOK_S: Final = 0.25
"""Between two looks whether it is to end, seconds, while nothing comes."""


class Answering(Protocol):
    """A server that may have answered."""

    def fileno(self) -> int:
        """Give what to wait for."""

    def is_answered(self) -> bool:
        """Say whether an answer, or the connection's end, has come; this does not wait."""


def lines_of(
    source: BinaryIO, server: Answering, goes_on: Callable[[], bool]
) -> Iterator[list[bytes] | None]:
    """
    Give the lines that have come, without their line ends; None where the server's answer can be
    read.

    :param goes_on: asked now and then; without it the rest is left, and so is a line that is not
        there as a whole.
    """
    begun: list[bytes] = []
    for part in _parts(source, server, goes_on):
        if part is None:
            yield None
            continue
        first, *rest = part.split(b"\n")
        begun.append(first)
        if rest:
            whole = [b"".join(begun), *rest[:-1]]
            begun = [rest[-1]]
            yield [line.removesuffix(b"\r") for line in whole]
    if goes_on() and any(begun):
        yield [b"".join(begun).removesuffix(b"\r")]


def _parts(
    source: BinaryIO, server: Answering, goes_on: Callable[[], bool]
) -> Iterator[bytes | None]:
    number = _number(source)
    while goes_on():
        if server.is_answered():
            yield None
            continue
        if number is not None:
            sys.stdout.flush()  # Somebody may wait for what we know.
            if number not in select.select([number, server.fileno()], [], [], LOOK_S)[0]:
                continue
        # Nothing is left in its buffer, which a look at the file could not see: all is taken.
        part = source.read1(READ_BYTES)  # type: ignore[attr-defined]
        if not part:
            return
        yield part


def _number(source: BinaryIO) -> int | None:
    """The file's number; None of what is no file, and never has to be waited for."""
    try:
        return source.fileno()
    except UnsupportedOperation:
        return None
