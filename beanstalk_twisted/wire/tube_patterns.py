"""Patterns of tube names, as files have them: a star stands for any characters, or none."""

import re
from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME

_PATTERN: Final = re.compile(rb"[A-Za-z0-9+/;.$_()*][A-Za-z0-9\-+/;.$_()*]*")


class BadPattern(ValueError):
    """What is no pattern of tube names, or one too many."""


def check_pattern(pattern: str) -> None:
    """:raise BadPattern: no name of a tube can match it, or it is too long."""
    text = pattern.encode()
    if len(text) > MAX_TUBE_NAME or not _PATTERN.fullmatch(text):
        raise BadPattern(f"{pattern!r} is neither the name of a tube nor a pattern of such names")


def parts_match(name: bytes, parts: Sequence[bytes]) -> bool:
    """
    Whether a name is one of a pattern with a star.

    :param parts: of a pattern, between its stars: at least two.
    """
    first, *middle, last = parts
    if len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    if name[:at] != first or name[end:] != last:
        return False
    for part in middle:
        # The first place is as good as any further one.
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
