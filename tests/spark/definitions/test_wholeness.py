"""
Files that say whether tables are whole.
"""

from pathlib import Path

import pytest

from binlog_tools.spark.definitions.wholeness import (
    SUCCESS,
    TEMPORARY,
    is_whole,
    local,
)


def test_a_table_is_whole_when_all_is_there_and_nothing_is_being_added(tmp_path: Path) -> None:
    assert not is_whole(tmp_path / "none")
    assert not is_whole(tmp_path)
    (tmp_path / SUCCESS).touch()
    assert is_whole(tmp_path)
    (tmp_path / TEMPORARY).mkdir()
    assert not is_whole(tmp_path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("tables", "tables"), ("/a/tables", "/a/tables"), ("file:///a", "/a"), ("file:/a", "/a"),
        ("s3a://bucket/tables", None), ("hdfs://host/tables", None),
    ],
)  # fmt: skip
def test_only_paths_of_this_machine_are_looked_at(path: str, found: str | None) -> None:
    assert local(path) == (None if found is None else Path(found))
