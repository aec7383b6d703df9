"""Checks of arguments, made when an object is made and not when it is first used."""

from math import isfinite
from typing import Final

from beanstalk_twisted.wire.grammar import MAX_U32

MAX_SECONDS: Final = MAX_U32
"""Of any time that is waited for, 136 years: the longest delay of the protocol."""


def check_whole(what: str, value: object, least: int, most: int | None = None) -> None:
    """
    :param what: the argument's name, for errors.
    :raise TypeError: the value is not an int; a bool is none.
    :raise ValueError: it is out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is a whole number, not {value!r}")
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise ValueError(f"{what} is {wanted}, not {value}")


def check_seconds(
    what: str, value: object, most: float = MAX_SECONDS, *, is_zero_allowed: bool = True
) -> None:
    """
    :raise TypeError: the value is not a number; a bool is none.
    :raise ValueError: it is negative, infinite, not a number (NaN) or larger than ``most``.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{what} is a number of seconds, not {value!r}")
    is_large_enough = value >= 0 if is_zero_allowed else value > 0
    if not isfinite(value) or not is_large_enough or value > most:
        least = "0" if is_zero_allowed else "more than 0, up"
        raise ValueError(f"{what} is {least} to {most}, not {value}")
