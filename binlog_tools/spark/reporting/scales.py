"""Numbers, lengths of time and moments as people write them; and the width of a step in time."""

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))


def seconds_text(seconds: float) -> str:
    """A length of time in the unit that suits it: ``2 ms``, ``30 s``, ``5 min``, ``3 h``."""
    for size, unit in _UNITS:
        if seconds >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0"


def length_text(length_ns: float | None) -> str | None:
    """Of nanoseconds; None of none, and of NaN."""
    if length_ns is None or length_ns != length_ns:
        return None
    return seconds_text(length_ns / 1e9)


def share_text(part: float, whole: float) -> str | None:
    """So many of a hundred; None of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else None


def count_text(count: float, one: str, many: str = "") -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{count:,.0f} {one if count == 1 else many or one + 's'}"


def time_text(at: float) -> str:
    """Of seconds since the epoch, to the minute."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def moment_text(at: float | None) -> str | None:
    """The same to the second; None of None."""
    return None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


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
