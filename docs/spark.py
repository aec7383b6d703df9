"""Write the lists of docs/spark.md from the tables in the code::

python docs/spark.py
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from binlog_tools.spark.definitions.columns import COLUMNS, Column
from binlog_tools.spark.reading.options import OPTIONS, STREAM_OPTIONS
from binlog_tools.spark.writing.job_rows import COLUMNS as JOB_COLUMNS
from binlog_tools.spark.writing.job_rows import OPTIONS as SINK_OPTIONS

PAGE: Final = Path(__file__).with_name("spark.md")


def page(text: str) -> str:
    """Return the page with each list between its marks as it is now."""
    for name, table in TABLES.items():
        begin, end = f"<!-- spark: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}{table}{end}{after}"
    return text


def _columns(columns: Sequence[Column]) -> str:
    """Return a list; columns of one type and meaning, or of one moment, are one item of it."""
    moments = {each.name for each in columns if each.ddl == "timestamp"}
    shown = [each for each in columns if each.name.removesuffix("_ns") not in moments - {each.name}]
    lines = []
    for (_, meaning), same in groupby(shown, key=lambda each: each[1:]):
        names = [name for each in same for name in (each.name, f"{each.name}_ns")
                 if name == each.name or each.name in moments]  # fmt: skip
        lines.append(f"- {', '.join(f'`{name}`' for name in names)}: {meaning}\n")
    return "".join(lines)


def _pairs(table: Mapping[str, str]) -> str:
    return "".join(f"- `{name}`: {text}\n" for name, text in table.items())


TABLES: Final = {
    "columns": _columns(COLUMNS),
    "options": _pairs(OPTIONS),
    "stream options": _pairs(STREAM_OPTIONS),
    "jobs": _columns(JOB_COLUMNS),
    "sink options": _pairs(SINK_OPTIONS),
}


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
