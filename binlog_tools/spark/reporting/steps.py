"""How wide a step of the time axis is: the narrowest that the page has room for."""

from typing import Final

WIDTHS: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 2_592_000, 7_776_000,
)  # fmt: skip
"""Seconds; those of which whole ones make a minute, an hour, a day, as far as there are any."""

MINUTE_S: Final = 60
"""What `tube_minutes` tells apart."""

WHOLE_STEPS: Final = 1500
"""Steps of all tubes together: more than a screen has points across, so that zooming in shows more
(100 KB)."""

TUBE_CELLS: Final = 10_000
"""Steps of the tubes, times tubes: at most 65 bytes each, so 650 KB of the page's megabyte."""

MAX_PAGE_BYTES: Final = 1_000_000
"""Of a report: it goes through any mail."""


def width_for(seconds: float, steps: int, least: int = MINUTE_S) -> int:
    """The narrowest width with which a time fits in so many steps.

    :param seconds: the time; ``steps`` is 1 or more.
    :param least: no narrower than that.
    :return: seconds, one of `WIDTHS`, or a multiple of the last.
    """
    for width in WIDTHS:
        if width >= least and seconds <= width * (steps - 1):
            return width
    last = WIDTHS[-1]
    return last * max(1, -(-int(seconds) // (last * max(1, steps - 1))))


def width_text(seconds: int) -> str:
    """``30-second``, ``1-day``."""
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return f"{seconds // size}-{name}"
    return f"{seconds}-second"


COARSEST: Final = 16
"""Times fewer steps than planned, at most: what is too large then is so by its tables."""
