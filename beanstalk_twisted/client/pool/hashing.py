"""Which server a tube is on: rendezvous hashing, with a hash that any language can copy.

The scheme is called `SCHEME`; docs/client.md describes it, "Which server a tube is on".  Whoever
knows the same names and weights finds the same server, without asking anybody.  A server that is
added takes its share of the tubes, one that is removed leaves its tubes to the others, and no tube
moves between two others; the same holds for a change of weight.

Thaler and Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeVar

T = TypeVar("T")

SCHEME: Final = "rendezvous-sha256-1"
"""The name of all this.  Whoever changes anything about it gives it another number."""

MAX_WEIGHT: Final = 100
"""Of one server: a tube that is new costs a hash for each copy, about a microsecond."""

MAX_NAME: Final = 255
"""Bytes of a server's name: any host name, and most endpoints."""

REMEMBERED: Final = 10_000
"""Tubes whose server is remembered, about 2 MB; others are computed anew each time."""

A_TUBE: Final = '["mail"]'
"""What to write, in an error message."""


class Split:
    """Tubes, split over servers.

    :ivar weights: of the servers, by their names.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        """:raise ValueError: there is no server, or one has a name or weight that it cannot
        have.
        """
        if not weights:
            raise ValueError("there is no server to split tubes over")
        for name, weight in weights.items():
            _check(name, weight)
        self.weights = dict(weights)
        self._copies = [
            (b"%b\n%d\n" % (name.encode(), copy), name)
            for name, weight in self.weights.items()
            for copy in range(1, weight + 1)
        ]
        self._server_of = lru_cache(REMEMBERED)(self._find)

    def server_of(self, tube: str | bytes) -> str:
        """Name the server that a tube is on."""
        return self._server_of(tube.encode() if isinstance(tube, str) else tube)

    def _find(self, tube: bytes) -> str:
        return max((sha256(copy + tube).digest(), name) for copy, name in self._copies)[1]


def listed(name: str, given: Iterable[T], example: str) -> list[T]:
    """Give several things as a list.  One text is refused: its letters would be taken for them.

    :param name: the argument's.
    :param example: what to write instead.
    :raise TypeError: it is one thing.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name}: give a list, such as {example}, not {given!r}")
    return list(given)


def _check(name: str, weight: int) -> None:
    if not name.isprintable() or not 1 <= len(name.encode()) <= MAX_NAME:
        raise ValueError(f"the name of a server is 1 to {MAX_NAME} bytes to print, not {name!r}")
    if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
        raise ValueError(f"the weight of a server is 1 to {MAX_WEIGHT}, whole, not {weight!r}")
