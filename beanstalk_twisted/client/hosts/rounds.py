"""
In which order the hosts of a queue are tried, when the next one is, and what counts as an answer.

A host serves the queue if it *answers*: a server that is stopped, suspended or fenced may still
accept connections, since the kernel does, and one that drains may close them at once.
"""

import re
from typing import Final, Generic, TypeVar

E = TypeVar("E", bound=Exception)

NEXT_S: Final = 0.25
"""
How long a host is waited for before the next one is tried too, seconds: the delay of RFC 8305, more
than the way around the world and back.
"""

FIRST_LIMIT_S: Final = 1.0
"""
How long a host may take for its connection and its answer in the first round, seconds: while one
is silent because its machine is dead, another one may become active, and is to be asked again.
"""

LIMIT_S: Final = 4.0
"""
The same at most, seconds: a packet that asks for a connection is sent again after 1 and 3 s, so two
may be lost.
"""

ASK: Final = b"list-tube-used\r\n"
"""What a host is asked first: it needs no right and no disk, and its reply is one line."""

MAX_ANSWER_BYTES: Final = 1024
"""Of the answer's line: no reply of the protocol has a longer one."""

_ANSWER: Final = re.compile(rb"[A-Z][A-Z_]{1,39}( [!-~]{1,200})?\r\n")


def is_answer(received: bytes) -> bool:
    """
    Whether a host has answered: ``USING default``, or a refusal.

    :param received: all that has come from it.
    :return: False if more has to come.
    :raise ValueError: it is no server of the protocol.
    """
    if _ANSWER.fullmatch(received):
        return True
    if b"\n" in received or len(received) >= MAX_ANSWER_BYTES:
        raise ValueError(f"no server of this protocol: it says {received[:40]!r}")
    return False


def limit_s(lost: int) -> float:
    """
    Give the seconds that a host may take.

    :param lost: how many rounds were lost since the last answer; each doubles the time, so that a
        slow server is found too.
    """
    return min(FIRST_LIMIT_S * 2.0 ** min(lost, 10), LIMIT_S)


class Round(Generic[E]):
    """
    One try of all hosts, which are numbers from 0: from the one that has served last, each once.

    :ivar reasons: why hosts have failed, in that order.
    """

    def __init__(self, count: int, first: int = 0) -> None:
        """
        :param count: of the hosts.
        :param first: the one that has served last.
        """
        self.reasons: dict[int, E] = {}
        self._count = count
        self._left = [(first + turn) % count for turn in range(count)]

    @property
    def has_more(self) -> bool:
        """Whether a host was not tried yet."""
        return bool(self._left)

    @property
    def is_lost(self) -> bool:
        """Whether all have failed."""
        return len(self.reasons) == self._count

    def begin(self) -> int:
        """Give the host that is to be tried now."""
        return self._left.pop(0)

    def failed(self, host: int, why: E) -> None:
        """Note that a host that was begun is not there."""
        self.reasons[host] = why
