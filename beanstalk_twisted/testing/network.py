"""
Time and motion: bytes move, and seconds pass, when the test says so.

There are two clocks that go at the same pace: the server's, and one for the code under test.  When
the server is killed its timers go with it, those of its clients stay.
"""

import math
from typing import Any, Final, Protocol

from twisted.internet.task import Clock

from beanstalk_twisted.testing.memory_server import MemoryServer

MAX_ROUNDS: Final = 100_000
"""Round trips without time passing that are taken for an endless loop of some client."""


class Carrier(Protocol):
    """Whoever carries bytes between a client and a `Wire`."""

    def carry(self) -> bool:
        """
        Move what each end has sent to the other one, and tell one end of the end of the other.

        :return: whether there was anything.
        """


class Network:
    """
    A server, its connections, and the clocks.

    :ivar clock: for the code under test.
    :ivar links: all connections made, in order.
    :ivar max_rounds: see `MAX_ROUNDS`.
    """

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.max_rounds = MAX_ROUNDS
        self.clock = Clock()
        self.links: list[Any] = []

    def step(self) -> bool:
        """
        Let happen what is next, without time passing.

        :return: whether anything is left that needs no time.
        """
        self.server.advance()
        self.clock.advance(0)
        moved = [link.carry() for link in list(self.links)]
        return any(moved) or self.next_s() <= 0

    def settle(self) -> None:
        """
        Let all happen that needs no time.

        :raise RuntimeError: it does not come to an end.
        """
        for _ in range(self.max_rounds):
            if not self.step():
                return
        raise RuntimeError(
            f"after {self.max_rounds} round trips there is still something to do, and no time has "
            "passed: some client asks again and again without waiting"
        )

    def next_s(self) -> float:
        """Say in how many seconds something is to happen."""
        ours = [call.getTime() for call in self.clock.getDelayedCalls()]
        theirs = self.server.next_call_at()
        mine = min(ours, default=float("inf")) - self.clock.seconds()
        its = (float("inf") if theirs is None else theirs) - self.server.clock.seconds()
        return min(mine, its)

    def advance(self, seconds: float) -> None:
        """
        Let time pass, from one thing that is due to the next.

        :raise ValueError: it is no time that can pass.
        """
        check_span(seconds)
        self.settle()
        left = seconds
        while left > 0:
            # Sums of seconds are not exact: a microsecond more is always enough.
            step = min(left, self.next_s() + 1e-6)
            left -= step
            # The server first: whoever asks for its time in a call of theirs hears the time it is.
            self.server.advance(step)
            self.clock.advance(step)
            self.settle()


def check_span(seconds: float) -> None:
    """:raise ValueError: it is below 0, endless, or no number."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"time goes on, and ends somewhere: {seconds!r} seconds cannot pass")
