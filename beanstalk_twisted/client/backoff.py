"""
How long to wait before the next try to connect.
"""

from collections.abc import Callable
from typing import Final

FIRST_S: Final = 0.1
"""Before the first try again, seconds: a server that is restarted is often back at once."""

MOST_S: Final = 30.0
"""At most, seconds: a server that is back is found within half a minute."""

FACTOR: Final = 2.0
"""Each wait is so much longer than the one before."""


class Backoff:
    """
    A retry policy for Twisted's `ClientService`.

    That counts failed tries, and begins anew with each connection made.  Here a connection counts
    as made only when the server has answered on it (`succeeded`): one that accepts and hangs up
    is not tried faster and faster.
    """

    def __init__(
        self, random: Callable[[], float], first_s: float = FIRST_S, most_s: float = MOST_S
    ) -> None:
        """
        :param random: gives a number from 0 up to 1 for each call.
        """
        self._random = random
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = self._before_s = first_s

    def __call__(self, attempt: int = 0) -> float:
        """
        Give the seconds to wait: between half and all of what is due, so that a thousand clients
        of a server that was restarted do not come back as one.

        :param attempt: as `ClientService` counts; not looked at.
        """
        due_s, self._next_s = self._next_s, min(self._next_s * FACTOR, self._most_s)
        return due_s * (1 + self._random()) / 2

    def succeeded(self) -> None:
        """
        The server is there: begin anew.
        """
        self._next_s, self._before_s = self._first_s, self._next_s

    def disappointed(self) -> None:
        """
        What was there was no server of our protocol: go on where `succeeded` came too early.
        """
        self._next_s = max(self._next_s, self._before_s)
