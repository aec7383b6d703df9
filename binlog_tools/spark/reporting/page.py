"""
The report as it is written: as one page, without a script or anything that is fetched, with the
numbers below each figure; or as JSON, the numbers only, which the server's console shows.
"""

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

STYLE: Final = """
:root { color-scheme: light; --ink: #22272b; --soft: #68717a; --line: #e3e7ea; --paper: #fff; }
* { box-sizing: border-box; }
body { margin: 0; background: #f5f6f7; color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 0; }
p { margin: .3rem 0 0; color: var(--soft); max-width: 46rem; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.25rem 1.4rem; margin-top: 1.25rem; break-inside: avoid; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0 0; padding: 0; list-style: none; }
.tiles li { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: .8rem 1rem; }
.tiles b { display: block; font-size: 1.45rem; font-weight: 600; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: .85rem; }
svg { display: block; width: 100%; height: auto; margin: .6rem 0 .2rem; }
svg text { font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif !important; }
details { margin-top: .5rem; font-size: .85rem; }
summary { color: var(--soft); cursor: pointer; }
.scroll { overflow: auto; max-height: 26rem; margin-top: .5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; position: sticky; top: 0; background: var(--paper); }
th:first-child, td:first-child { text-align: left; }
footer { color: var(--soft); font-size: .85rem; margin-top: 1.5rem; }
@media print { body { background: #fff; } section, .tiles li { border-color: #ccc; }
  .scroll { max-height: none; } }
"""


class Table(NamedTuple):
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Part(NamedTuple):
    title: str
    text: str
    svg: str
    table: Table


class Content(NamedTuple):
    """
    :ivar tiles: a number and what it is.
    """

    title: str
    text: str
    tiles: Sequence[tuple[str, str]]
    parts: Sequence[Part]


def as_json(content: Content) -> str:
    """
    ``{"title", "text", "tiles": [[number, what]], "tables": [{"title", "text", "head", "rows"}]}``.
    """
    tables = [
        {"title": part.title, "text": part.text, "head": part.table.head, "rows": part.table.rows}
        for part in content.parts
    ]
    about = {"title": content.title, "text": content.text, "tiles": content.tiles}
    return json.dumps({**about, "tables": tables}) + "\n"


def as_page(content: Content) -> str:
    """
    As HTML.
    """
    title, text, tiles, parts = content
    head = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    shown = "".join(
        f"<li><b>{escape(number)}</b><span>{escape(what)}</span></li>\n" for number, what in tiles
    )
    return (
        f"{head}<header>\n<h1>{escape(title)}</h1>\n<p>{escape(text)}</p>\n</header>\n"
        f'<ul class="tiles">\n{shown}</ul>\n'
        f"{''.join(_section(part) for part in parts)}"
        "<footer>All times are UTC. What each number means: docs/spark-tables.md.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def _section(part: Part) -> str:
    is_open = "" if part.svg else ' open="open"'
    return (
        f"<section>\n<h2>{escape(part.title)}</h2>\n<p>{escape(part.text)}</p>\n{part.svg}\n"
        f"<details{is_open}>\n<summary>The numbers</summary>\n"
        f'<div class="scroll">{_table(part.table)}</div>\n</details>\n</section>\n'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(_text(cell))}</td>' for cell in row)}</tr>\n"
        for row in table.rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>"


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
