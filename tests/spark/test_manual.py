"""docs/spark*.md say what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from binlog_tools.spark.cli import cli
from binlog_tools.spark.errors import CODES
from binlog_tools.spark.tables.increments import LAYOUTS
from tests.test_docs import ROOT, section

DOCS: Path = ROOT / "docs"
MANUAL: Path = DOCS / "spark.md"
CODE = re.compile(r"`([A-Z_]+)`")


def test_the_tables_of_the_manual_are_those_of_the_code() -> None:
    text = MANUAL.read_text()
    assert runpy.run_path(str(DOCS / "spark.py"))["page"](text) == text


def items(page: Path, heading: str) -> list[str]:
    return re.split(r"^- ", section(page, heading), flags=re.MULTILINE)[1:]


def test_the_manual_has_all_options_of_live() -> None:
    said = [each.partition(":")[0] for each in items(DOCS / "spark-live.md", "live")]
    told = {word.strip("`") for names in said for word in names.split(", ")}
    known = cli.commands["live"].params
    assert told == {word for each in known for word in each.opts if word.startswith("-")}


def test_the_manual_has_every_table() -> None:
    text = "".join(items(DOCS / "spark-tables.md", "Tables"))
    assert sorted(re.findall(r"`(\w+)`: (?:a|for) ", text)) == sorted(LAYOUTS)


def test_the_manual_has_every_error_and_its_exit_code() -> None:
    rows = items(MANUAL, "Errors")
    told = [(code, int(each[:2])) for each in rows for code in CODE.findall(each)]
    assert sorted(told) == sorted(CODES.items())
