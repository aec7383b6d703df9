"""The benchmark of the tables compares like with like, and runs."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.spark.rows import as_datetime, rows
from benchmarks.spark.source import COLUMNS, decoded, tree_seconds, write_log


@pytest.mark.parametrize("label", COLUMNS)
@pytest.mark.parametrize("per_frame", [1, 64])
def test_both_readers_give_the_same_rows(tmp_path: Path, label: str, per_frame: int) -> None:
    columns = COLUMNS[label]
    folder = write_log(tmp_path / "log", per_frame, 640, 1)
    (segment,) = folder.glob("*.tql")
    table = pa.Table.from_batches(list(decoded(folder, columns)))
    ours = [tuple(row[name] for name in columns) for row in table.to_pylist()]
    assert ours == list(rows(segment.read_bytes(), columns, as_datetime))
    assert len(ours) == 640


def test_the_time_of_a_process_is_counted() -> None:
    assert tree_seconds(os.getpid()) > 0
