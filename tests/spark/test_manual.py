"""docs/spark*.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from binlog_tools.spark.cli.main import LIVE_METRICS, cli
from binlog_tools.spark.definitions.columns import COLUMNS, SEGMENT_COLUMNS
from binlog_tools.spark.definitions.errors import CODES
from binlog_tools.spark.reading.options import OPTIONS, STREAM_OPTIONS
from binlog_tools.spark.stream_metrics import METRICS as STREAM_METRICS
from binlog_tools.spark.tables.layouts import LAYOUTS
from binlog_tools.spark.writing.job_rows import TYPES
from binlog_tools.spark.writing.options import OPTIONS as SINK_OPTIONS
from tests.test_docs import ROOT, section, tables

DOCS: Path = ROOT / "docs"
MANUAL: Path = DOCS / "spark.md"
CODE = re.compile(r"`([A-Z_]+)`")


def test_the_manual_has_every_column_and_no_other() -> None:
    (rows,) = (table for table in tables(section(MANUAL, "Columns")) if len(table[0]) == 3)
    assert rows == [[f"`{each.name}`", each.ddl, each.meaning] for each in COLUMNS]


def test_the_manual_has_every_column_of_the_view_of_segments() -> None:
    (rows,) = tables(section(MANUAL, "The view of segments"))
    assert rows == [[f"`{each.name}`", each.ddl, each.meaning] for each in SEGMENT_COLUMNS]


def test_the_manual_has_every_option() -> None:
    (rows,) = tables(section(MANUAL, "Options"))
    assert rows == [[f"`{name}`", meaning] for name, meaning in OPTIONS.items()]


def test_the_manual_has_every_option_of_a_stream() -> None:
    rows, *_ = tables(section(DOCS / "spark-streaming.md", "Spark: following logs"))
    assert rows == [[f"`{name}`", meaning] for name, meaning in STREAM_OPTIONS.items()]


def test_the_manual_has_every_metric_of_a_stream() -> None:
    (rows,) = tables(section(DOCS / "spark-streaming.md", "Lag"))
    assert rows == [[f"`{name}`", text] for name, (_, text) in STREAM_METRICS.items()]


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


def test_the_manual_has_every_column_and_option_of_a_write() -> None:
    columns, options, *_ = tables(section(DOCS / "spark-writing.md", "Spark: writing jobs"))
    assert [row[0] for row in columns] == [f"`{name}`" for name in TYPES]
    assert options == [[f"`{name}`", meaning] for name, meaning in SINK_OPTIONS.items()]


def test_the_manual_has_every_error_and_its_exit_code() -> None:
    (rows,) = tables(section(MANUAL, "Errors"))
    told = [(code, int(number)) for number, _, codes in rows for code in CODE.findall(codes)]
    assert sorted(told) == sorted(CODES.items())
