"""docs/spark*.md say what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from binlog_tools.spark.cli.main import LIVE_METRICS, cli
from binlog_tools.spark.errors import CODES
from binlog_tools.spark.tables.increments import LAYOUTS
from tests.test_docs import ROOT, section, tables

DOCS: Path = ROOT / "docs"
MANUAL: Path = DOCS / "spark.md"
CODE = re.compile(r"`([A-Z_]+)`")


def test_the_tables_of_the_manual_are_those_of_the_code() -> None:
    """If this fails: make docs."""
    text = MANUAL.read_text()
    assert runpy.run_path(str(DOCS / "spark.py"))["page"](text) == text


def test_the_manual_has_all_of_live_tables() -> None:
    live = DOCS / "spark-live.md"
    _, options, rows = tables(section(live, "live"))
    told = {word.strip("`") for row in options for word in row[0].split(", ")}
    known = cli.commands["live"].params
    assert told == {word for each in known for word in each.opts if word.startswith("-")}
    assert rows == [[f"`{name}`", text] for name, (_, text) in LIVE_METRICS.items()]


def test_the_manual_has_every_table() -> None:
    rows = tables(section(DOCS / "spark-tables.md", "Tables"))[0]
    assert sorted(row[0] for row in rows) == sorted(f"`{name}`" for name in LAYOUTS)


def test_the_manual_has_every_error_and_its_exit_code() -> None:
    (rows,) = tables(section(MANUAL, "Errors"))
    told = [(code, int(number)) for number, _, codes in rows for code in CODE.findall(codes)]
    assert sorted(told) == sorted(CODES.items())
