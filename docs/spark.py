"""Write the tables of docs/spark.md from the tables in the code::

python docs/spark.py
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from binlog_tools.spark.definitions.columns import COLUMNS, Column
from binlog_tools.spark.reading.options import OPTIONS, STREAM_OPTIONS
from binlog_tools.spark.writing.job_rows import COLUMNS as JOB_COLUMNS
from binlog_tools.spark.writing.job_rows import OPTIONS as SINK_OPTIONS

PAGE: Final = Path(__file__).with_name("spark.md")


def page(text: str) -> str:
    """Return the page with each table between its marks as it is now."""
    for name, table in TABLES.items():
        begin, end = f"<!-- spark: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}{table}{end}{after}"
    return text


def _columns(columns: Iterable[Column]) -> str:
    rows = "".join(f"| `{each.name}` | {each.ddl} | {each.meaning} |\n" for each in columns)
    return f"| column | type | meaning |\n| --- | --- | --- |\n{rows}"


def _pairs(head: str, meaning: str, table: Mapping[str, str]) -> str:
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in table.items())
    return f"| {head} | {meaning} |\n| --- | --- |\n{rows}"


TABLES: Final = {
    "columns": _columns(COLUMNS),
    "options": _pairs("option", "value", OPTIONS),
    "stream options": _pairs("option", "value", STREAM_OPTIONS),
    "jobs": _columns(JOB_COLUMNS),
    "sink options": _pairs("option", "value", SINK_OPTIONS),
}


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
