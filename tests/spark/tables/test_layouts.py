"""What the columns of stored tables say of themselves."""

from __future__ import annotations

import pytest

from binlog_tools.spark.storing.files import Layout
from binlog_tools.spark.tables.layouts import COMMENTS, LAYOUTS, SINGLE, SNAPSHOT


def comment_of(layout: Layout, column: str) -> str:
    comment: bytes = (layout.schema.field(column).metadata or {})[b"comment"]
    return comment.decode()


@pytest.mark.parametrize(
    ("layout", "column", "said"),
    [
        (LAYOUTS["tube_minutes"], "oldest_ns", "at the minute's end"),
        (LAYOUTS["sla"], "oldest_ns", "one of the hour's minutes"),
        (LAYOUTS["lifetimes"], "state", "at the server's last moment"),
        (SNAPSHOT, "state", "at the moment that is shown"),
        (LAYOUTS["failing"], "lsn", "newest record with its body"),
        (SNAPSHOT, "lsn", "newest record of the job"),
    ],
)
def test_a_comment_says_what_the_column_is_in_its_table(
    layout: Layout, column: str, said: str
) -> None:
    assert said in comment_of(layout, column)


def test_every_comment_is_of_a_column() -> None:
    columns = {
        name
        for layout in [*LAYOUTS.values(), *SINGLE.values()]
        for column in layout.schema.names
        for name in (column, f"{layout.name}.{column}")
    }
    assert {*COMMENTS} <= columns
