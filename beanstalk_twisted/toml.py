"""TOML that may be hostile, or huge by mistake: read in bounded time, wrong in one line."""

import tomllib
from typing import Any, Final

MAX_DOTS: Final = 500
"""In a line: the time to read a key of many parts grows with their square, and names have 200."""


class BadToml(ValueError):
    """Text that is no TOML; says why, in one line."""


def parse_toml(text: str) -> dict[str, Any]:
    """:param text: of a file, whose size the caller bounds.
    :raise BadToml: it is none, or has a line with too many dots.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MAX_DOTS:
            raise BadToml(f"line {number}: it has more than {MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        # Of a number with thousands of digits Python complains by a plain ValueError.
        raise BadToml(f"it is no TOML: {problem}") from None
