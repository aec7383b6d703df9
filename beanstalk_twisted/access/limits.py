"""What one identity may take of a server, as a file says it."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

MAX_COUNT: Final = 1 << 53
"""The largest number: more than there can be of anything, and whole in JSON and in metrics."""

MAX_RATE: Final = 1_000_000
"""New jobs in a second: more than a server takes."""

UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
"""Of sizes."""

NO_LIMITS: Final[Mapping[str, int]] = MappingProxyType({})

_SIZE: Final = re.compile(r"([0-9]{1,16}) ?([A-Za-z]*)")


def _count(value: Any) -> int:
    return _number(value, MAX_COUNT)


def _rate(value: Any) -> int:
    return _number(value, MAX_RATE)


def _number(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"it is a number from 0 to {most}")
    return value


def _size(value: Any) -> int:
    if not isinstance(value, str):
        return _count(value)
    found = _SIZE.fullmatch(value)
    unit = None if found is None else UNITS.get(found[2])
    if found is None or unit is None or int(found[1]) * unit > MAX_COUNT:
        units = ", ".join([each for each in UNITS if each])
        raise ValueError(f"it is a number of bytes up to {MAX_COUNT}, or with a unit: {units}")
    return int(found[1]) * unit


LIMITS: Final[Mapping[str, Callable[[Any], int]]] = {
    "jobs": _count,
    "bytes": _size,
    "keys": _count,
    "put-rate": _rate,
    "tubes": _count,
    "watched": _count,
    "connections": _count,
    "reserved": _count,
}
"""By the keys of a file, what reads each value; that raises ValueError."""


def in_words(limits: Mapping[str, int]) -> str:
    """Say them in one line."""
    return ", ".join([f"{key} {value}" for key, value in limits.items()]) or "none"
