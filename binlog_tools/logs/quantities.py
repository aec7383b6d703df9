"""Times, sizes, ids and LSNs as people write them."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

NS: Final = 1_000_000_000

MAX_NUMBER: Final = (1 << 64) - 1
"""The largest job id and LSN: both are u64 on disk."""

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO: Final = re.compile(r"-?((?:\d+(?:\.\d+)?[smhdw])+)")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

_NANOSECONDS: Final = re.compile(r"[.,]\d{6}(\d{1,3})")

NS_FROM: Final = 10**14
"""An epoch number from here on is in nanoseconds; as seconds it would be the year 3 million."""

EARLIEST_NS: Final = -(1 << 63)
LATEST_NS: Final = (1 << 63) - 1
"""The range of an i64 of nanoseconds: the years 1677 to 2262."""


def parse_time(text: str, now_ns: int) -> int:
    """A moment: ISO 8601 (without a zone: local time), ``-2h`` or ``-1d12h`` before now, ``now``,
    or seconds (or nanoseconds) since the epoch, with or without ``@``.

    :return: nanoseconds since the epoch.
    :raise ValueError: it is none of these.
    """
    text = text.strip()
    if text == "now":
        return now_ns
    if _AGO.fullmatch(text):
        return _within(now_ns - parse_duration(text.removeprefix("-")))
    if re.fullmatch(r"@?\d+(\.\d+)?", text):
        return _within(_epoch(text.removeprefix("@")))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write 2026-01-31T12:00:00Z, -2h, or seconds since the epoch"
        ) from None
    nanoseconds = _NANOSECONDS.search(text)
    local = moment if moment.tzinfo else moment.astimezone()
    since = local - datetime(1970, 1, 1, tzinfo=UTC)
    return _within(
        (since.days * 86_400 + since.seconds) * NS
        + since.microseconds * 1000
        + (int(nanoseconds[1].ljust(3, "0")) if nanoseconds else 0)
    )


def _epoch(text: str) -> int:
    whole, _, fraction = text.partition(".")
    if not fraction and int(whole) >= NS_FROM:
        return int(whole)
    return int(whole) * NS + int(fraction[:9].ljust(9, "0"))


def _within(moment_ns: int) -> int:
    if not EARLIEST_NS <= moment_ns <= LATEST_NS:
        raise ValueError("this time lies outside what a log can say, the years 1677 to 2262")
    return moment_ns


def parse_duration(text: str) -> int:
    """A length of time, in nanoseconds: ``90s``, ``2h``, ``1d12h``.

    :raise ValueError: it is none.
    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no length of time: write 90s, 15m, 2h, 1d12h or 1w")
    return sum(int(float(number) * _UNITS_S[unit] * NS) for number, unit in parts)


def format_time(moment_ns: int) -> str:
    """A moment in UTC, to the microsecond, e.g. ``2026-01-31T12:00:00.000000Z``."""
    seconds, rest = divmod(moment_ns, NS)
    return f"{_format_second(seconds)}.{rest // 1000:06d}Z"


def format_time_exactly(moment_ns: int) -> str:
    """A moment in UTC, to the nanosecond, for programs."""
    seconds, rest = divmod(moment_ns, NS)
    return f"{_format_second(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=64)
def _format_second(seconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def format_duration(length_ns: int) -> str:
    """By its two largest units: ``1d2h``, ``15m4s``, ``250ms``."""
    if length_ns < 0:
        return f"-{format_duration(-length_ns)}"
    if length_ns < NS:
        return f"{length_ns // 1_000_000}ms"
    seconds = length_ns // NS
    words = []
    for unit in ("w", "d", "h", "m", "s"):
        count, seconds = divmod(seconds, _UNITS_S[unit])
        if count:
            words.append(f"{count}{unit}")
        elif words:
            break
    return "".join(words[:2])


def parse_size(text: str) -> int:
    """A number of bytes: ``65536``, ``64k``, ``64KiB``, ``1M``, ``1g``; k is 1024.

    :raise ValueError: it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no size: write 65536, 64k, 16M or 1G")
    return int(found[1]) * _FACTORS[found[2].lower()]


def format_size(size: int) -> str:
    """A number of bytes for people: ``4.0 KiB``."""
    if size < 1024:
        return f"{size} B"
    number = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        number /= 1024
        if number < 1024 or unit == "TiB":
            break
    return f"{number:.1f} {unit}"


class Span(NamedTuple):
    """Numbers from ``first`` to ``last``, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def spans_of(numbers: Iterable[int]) -> list[Span]:
    spans: list[Span] = []
    for number in sorted(numbers):
        if spans and number <= spans[-1].last + 1:
            spans[-1] = Span(spans[-1].first, number)
        else:
            spans.append(Span(number, number))
    return spans


def id_range(span: Span) -> str:
    """Ids as ``--job`` takes them: ``7`` or ``20-29``."""
    return str(span.first) if span.first == span.last else f"{span.first}-{span.last}"


ALL_NUMBERS: Final = Span(0, MAX_NUMBER)


class Numbers:
    """A set of ids: ``7,9,20-29``."""

    def __init__(self, spans: "list[Span]") -> None:
        self._single = frozenset(span.first for span in spans if span.first == span.last)
        self._spans = tuple(span for span in spans if span.first != span.last)

    def __contains__(self, number: int) -> bool:
        return number in self._single or any(first <= number <= last for first, last in self._spans)


def parse_numbers(text: str) -> list[Span]:
    """Ids of jobs and numbers of segments, which begin with 1: ``7``, ``7,9``, ``20-29``, ``201-``.

    :raise ValueError: they are none.
    """
    spans = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        spans.append(_span(first, (last or str(MAX_NUMBER)) if dash else first, part))
        if not spans[-1].first:
            raise ValueError(f"{part.strip()!r}: numbers begin with 1")
    return spans


def parse_lsns(text: str) -> Span:
    """LSNs: ``100..200``, both included, ``100..``, ``..200`` or ``100``.

    :raise ValueError: they are none.
    """
    first, dots, last = text.strip().partition("..")
    if not dots:
        return _span(first, first, text)
    return _span(first or "0", last or str(MAX_NUMBER), text)


def _span(first: str, last: str, text: str) -> Span:
    digits = re.compile(r"[0-9]{1,20}")
    if not digits.fullmatch(first) or not digits.fullmatch(last):
        raise ValueError(f"{text!r} is no number and no range of numbers")
    span = Span(int(first), int(last))
    if span.first > span.last or span.last > MAX_NUMBER:
        raise ValueError(f"{text!r} is a range that holds nothing")
    return span
