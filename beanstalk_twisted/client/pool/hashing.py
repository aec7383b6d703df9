"""Which server a tube is on (docs/client.md): rendezvous hashing, with a hash that any language can
copy.  Thaler and Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeVar

T = TypeVar("T")

SCHEME: Final = "rendezvous-sha256-1"
"""The name of all this.  A change of anything about it takes another number."""

MAX_WEIGHT: Final = 100
"""Of one server: a tube that is new costs a hash for each copy, about a microsecond."""

MAX_NAME: Final = 255
"""Bytes of a server's name: any host name, and most endpoints."""

REMEMBERED: Final = 10_000
"""Tubes whose server is remembered, about 2 MB; others are computed each time."""

A_TUBE: Final = '["mail"]'
"""What to write, in an error message."""


class Split:
    """Tubes, split over servers with weights."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        """:raise ValueError: there is no server, or one has a name or weight that cannot be."""
        if not weights:
            raise ValueError("there is no server to split tubes over")
        for name, weight in weights.items():
            if not name.isprintable() or not 1 <= len(name.encode()) <= MAX_NAME:
                what = f"the name of a server is 1 to {MAX_NAME} bytes to print"
                raise ValueError(f"{what}, not {name!r}")
            if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
                what = f"the weight of a server is 1 to {MAX_WEIGHT}, whole"
                raise ValueError(f"{what}, not {weight!r}")
        self.weights = dict(weights)
        self._copies = [
            (b"%b\n%d\n" % (name.encode(), copy), name)
            for name, weight in self.weights.items()
            for copy in range(1, weight + 1)
        ]
        self._server_of = lru_cache(REMEMBERED)(self._find)

    def server_of(self, tube: str | bytes) -> str:
        return self._server_of(tube.encode() if isinstance(tube, str) else tube)

    def _find(self, tube: bytes) -> str:
        return max((sha256(copy + tube).digest(), name) for copy, name in self._copies)[1]


def listed(name: str, given: Iterable[T], example: str) -> list[T]:
    """Give several things as a list.

    :param example: what to write, for the error.
    :raise TypeError: it is one thing; letters of a text would be taken for things.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name}: give a list, such as {example}, not {given!r}")
    return list(given)
