"""Numbers, lengths of time and moments, as people write them."""

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
