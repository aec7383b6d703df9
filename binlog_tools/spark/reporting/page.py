"""The report as it is written: one page that fetches nothing, or JSON.  All that comes from a log
is one block of JSON, which the page's only script, allowed by its hash, writes as text.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from html import escape as escape_html
from importlib.resources import files
from typing import Any, Final, NamedTuple

from beanstalk_twisted.printable import escape

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


def count_text(count: float, one: str) -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{count:,.0f} {one if count == 1 else one + 's'}"


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
    """Return the narrowest width, in seconds, with which a time fits in so many steps."""
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

UPLOT: Final = ("beanstalk_twisted", "web/static/uPlot.iife.min.js", "web/static/uPlot.min.css")
"""The console's copy: there is one in the package, with its licence beside it."""


class Table(NamedTuple):
    """A table of numbers, texts or None; ``key`` is its id on the page."""

    key: str
    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Content(NamedTuple):
    """What is shown.

    :ivar findings: what to look at first: ``text``, ``figure`` (its key), ``tube``.
    :ivar period: what the figures are drawn of; None: there are none.
    """

    title: str
    text: str
    tiles: Sequence[Sequence[str]]
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    findings: Sequence[Mapping[str, Any]] = ()
    period: Mapping[str, Any] | None = None
    marks: Sequence[Mapping[str, Any]] = ()


STEPS: Final = "steps"
"""The table that the page has as figures."""


def as_json(content: Content) -> str:
    """``{"title", "text", "tiles": [[number, what]], "notes", "findings", "tables":
    [{"title", "text", "head", "rows"}]}``.
    """
    tables = [
        {name: value for name, value in table._asdict().items() if name != "key"}
        for table in content.tables
    ]
    about = {name: getattr(content, name) for name in ("title", "text", "tiles", "notes")}
    told = [found["text"] for found in content.findings]
    return json.dumps(_printable({**about, "findings": told, "tables": tables})) + "\n"


def as_page(content: Content) -> str:
    """As HTML."""
    whole = content._asdict()
    whole["tables"] = [table._asdict() for table in content.tables if table.key != STEPS]
    title = escape_html(escape(content.title))
    style, scripts = _style(), _scripts()
    allowed = " ".join(_hash(script) for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    return _asset("page.html").format(
        policy=policy, title=title, style=style, block=block_of(whole), uplot=scripts[0],
        script=scripts[1],
    )  # fmt: skip


def block_of(value: Any) -> str:
    """JSON that may stand in a script element: no character of it can end the element."""
    text = json.dumps(_printable(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {escape(name): _printable(each) for name, each in value.items()}
    if isinstance(value, Sequence):
        # Numbers are most of a page.
        return [each if type(each) in (int, float) else _printable(each) for each in value]
    return value


@cache
def _scripts() -> tuple[str, str]:
    package, script, _ = UPLOT
    return (files(package) / script).read_text("utf-8"), _asset("report.js")


@cache
def _style() -> str:
    package, _, style = UPLOT
    return (files(package) / style).read_text("utf-8") + _asset("report.css")


def _asset(name: str) -> str:
    return (files("binlog_tools.spark.reporting") / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
