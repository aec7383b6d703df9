"""Write the tables of keys of statistics into the pages, from `beanstalk_twisted/wire/stats.py`::

python docs/stats.py

Each is the first table under its heading.  A row of the Chinese page keeps its sentence, and has to
be translated if it is new.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from beanstalk_twisted.wire.layouts import Row, rows_of
from beanstalk_twisted.wire.stats import (
    CarriedStats,
    ConnectionStats,
    GroupStats,
    JobStats,
    ListedJob,
    ReplicationStats,
    ServerStats,
    Stats,
    TubeStats,
)

PROTOCOL: Final[dict[str, type[Stats]]] = {
    "stats": ServerStats, "stats-tube": TubeStats, "stats-job": JobStats,
}  # fmt: skip
EXTENSIONS: Final[dict[str, type[Stats]]] = {
    "Groups": GroupStats, "Listing jobs": ListedJob, "What a job carries": CarriedStats,
    "Listing connections": ConnectionStats, "Replication": ReplicationStats,
}  # fmt: skip
PAGES: Final = {
    "protocol.md": PROTOCOL, "protocol.zh.md": PROTOCOL, "extensions.md": EXTENSIONS,
}  # fmt: skip
"""The tables of each page, by heading."""

CHINESE: Final = {
    "key": "键", "value": "值", "meaning": "含义", "metric": "指标",
    "number": "数", "seconds": "秒", "bytes": "字节", "text": "文本", "word": "单词",
}  # fmt: skip


def page(name: str) -> str:
    """Return a page with its tables as they are to be."""
    text = Path(__file__).with_name(name).read_text()
    for heading, kind in PAGES[name].items():
        found = re.search(rf"^#+ {heading}\n(?:[^|\n][^\n]*\n|\n)*((?:\|[^\n]*\n)+)", text, re.M)
        assert found is not None, heading
        rows = cells(kind)
        if name.endswith(".zh.md"):
            rows = translated(rows, found[1])
        text = text[: found.start(1)] + "".join(written(rows)) + text[found.end(1) :]
    return text


def translated(rows: Iterable[list[str]], old: str) -> Iterator[list[str]]:
    """Yield rows with the sentences of a Chinese table."""
    lines = [[each.strip() for each in line.split("|")[1:-1]] for line in old.splitlines()]
    sentences = {keys.split("、")[0]: sentence for keys, _, sentence, *_ in lines}
    for row in rows:
        keys, value, meaning, *metric = [
            CHINESE.get(each, each.replace("`, `", "`、`")) for each in row
        ]
        yield [keys, value, sentences.get(keys.split("、")[0], meaning), *metric]


def cells(kind: type[Stats]) -> Iterator[list[str]]:
    """Yield the head and the rows; neighbours of one meaning share a row, and metrics have a column
    if most keys have one.
    """
    carried = {row.key for row in rows_of(CarriedStats)} if kind is not CarriedStats else set()
    rows = [row for row in rows_of(kind) if row.key not in carried]
    has_metrics = sum(bool(row.metric) for row in rows) > len(rows) // 2
    yield ["key", "value", "meaning", "metric"][: 3 + has_metrics]
    for about, group in groupby(rows, key=lambda row: row.about):
        same = list(group)
        row = [", ".join(f"`{each.key}`" for each in same), value_of(same[0]), about.meaning]
        metric = f"`{same[0].metric}`" if same[0].metric else ""
        if has_metrics:
            yield [*row, metric]
        else:
            yield [*row[:2], "; ".join(filter(None, (about.meaning, metric)))]


def value_of(row: Row) -> str:
    """Say what kind of value a key has."""
    if row.kind is bool:
        return "`true`, `false`"
    if row.kind is str:
        return "word" if row.about.is_word or row.about.is_name else "text"
    return row.about.unit or "number"


def written(rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines of a table, the first row being its head."""
    for at, row in enumerate(rows):
        yield f"| {' | '.join(row)} |\n".replace("|  |", "| |")
        if at == 0:
            yield "| --- " * len(row) + "|\n"


if __name__ == "__main__":
    for each in PAGES:
        Path(__file__).with_name(each).write_text(page(each))
