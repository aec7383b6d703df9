"""The report as it is written: one page that fetches nothing, or JSON, the numbers only, which the
server's console shows.

All that comes from a log is in one block of JSON, with what cannot be printed escaped; the page's
script writes it as text.  The page's policy lets run that script only, by its hash.  Figures are
drawn by uPlot: it is 51 KB, where Vega-Lite is 800 KB and needs ``eval``, which a policy forbids.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape as escape_html
from importlib.resources import files
from typing import Any, Final, NamedTuple

from beanstalk_twisted.printable import escape

UPLOT: Final = ("beanstalk_twisted", "web/static/uPlot.iife.min.js", "web/static/uPlot.min.css")
"""The console's copy: there is one in the package, with its licence beside it."""


class Table(NamedTuple):
    """:ivar key: its id on the page.
    :ivar rows: numbers, texts or None.
    """

    key: str
    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Content(NamedTuple):
    """:ivar tiles: a number, what it is, and what it was in the other period.
    :ivar notes: what is not known, in sentences.
    :ivar findings: what to look at first: ``text``, ``figure`` (a table's key, or `depth`, `flow`,
        `wait`, `run`), ``tube``.
    :ivar periods: what the figures are drawn of, the period and the one it is compared with.
    :ivar marks: ``at``, ``kind``, ``text``.
    """

    title: str
    text: str
    tiles: Sequence[Sequence[str]]
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    findings: Sequence[Mapping[str, Any]] = ()
    periods: Sequence[Mapping[str, Any]] = ()
    marks: Sequence[Mapping[str, Any]] = ()


STEPS: Final = "steps"
"""The table that the page has as figures."""


def as_json(content: Content) -> str:
    """``{"title", "text", "tiles": [[number, what, before]], "notes", "findings", "tables":
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
