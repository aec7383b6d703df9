"""Rows become Parquet files by partition, within the bounds of a task."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.files import (
    GROUP_ROWS,
    HELD_BYTES,
    NULL,
    NUMBERS,
    OPEN_FILES,
    STATISTICS_CHARS,
    File,
    Layout,
    as_batch,
    dated,
    files_of,
    folder_of,
    stored_files,
    write_files,
)
from binlog_tools.spark.storing.locations import Location


def written(
    path: Path, batches: Iterable[pa.RecordBatch], *partition_by: str, **bounds: int
) -> list[File]:
    batches = list(batches)
    layout = Layout("some", batches[0].schema, partition_by)
    return list(write_files(Location.of(str(path)).files(), batches, layout, **bounds))


def one(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: [value] for name, value in columns.items()})


@pytest.mark.parametrize(("servers", "files"), [(OPEN_FILES, OPEN_FILES), (OPEN_FILES + 1, None)])
def test_a_task_has_so_many_files_open_and_no_more(
    tmp_path: Path, servers: int, files: int | None
) -> None:
    """Rows that come by turns: with one server more each has to close the file of another."""
    batches = [one(server=f"{number:03}", lsn=turn) for turn in (1, 2) for number in range(servers)]
    found = written(tmp_path, batches, "server")
    assert len(found) == (files or 2 * servers)
    assert sum(file.rows for file in found) == 2 * servers


@pytest.mark.parametrize(("rows", "groups"), [(GROUP_ROWS, 1), (GROUP_ROWS + 1, 2)])
def test_a_row_group_has_so_many_rows_at_most(tmp_path: Path, rows: int, groups: int) -> None:
    (file,) = written(tmp_path, [pa.record_batch({"lsn": pa.array(range(rows))})])
    footer = pq.read_metadata(tmp_path / file.path)
    assert footer.num_row_groups == groups
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert file.statistics["maxValues"] == {"lsn": rows - 1}


def test_whole_numbers_and_times_are_stored_as_differences(tmp_path: Path) -> None:
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"lsn": pa.array([7]), "at": at, "share": pa.array([0.5]),
                             "tube": pa.array(["a"])})  # fmt: skip
    (file,) = written(tmp_path, [batch])
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    encodings = {group.column(at).path_in_schema: set(group.column(at).encodings)
                 for at in range(group.num_columns)}  # fmt: skip
    assert {name for name in encodings if NUMBERS in encodings[name]} == {"lsn", "at"}
    assert pq.ParquetFile(tmp_path / file.path).read().to_batches() == [batch]


@pytest.mark.parametrize("runs", [OPEN_FILES, OPEN_FILES + 1])
def test_rows_of_a_partition_keep_their_order_in_few_runs_and_in_many(
    tmp_path: Path, runs: int
) -> None:
    servers = [("a", "b")[number % 2] for number in range(runs) for _ in range(2)]
    batch = pa.record_batch({"server": servers, "lsn": list(range(2 * runs))})
    for file in written(tmp_path, [batch], "server"):
        read = pq.ParquetFile(tmp_path / file.path).read()["lsn"].to_pylist()
        name = dict(file.partition)["server"]
        assert read == [lsn for lsn, server in enumerate(servers) if server == name]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("bytes_", "groups"), [(HELD_BYTES // 4, 1), (HELD_BYTES // 4 + 1, 2)])
def test_rows_that_wait_for_their_group_take_so_much_memory_at_most(
    tmp_path: Path, bytes_: int, groups: int
) -> None:
    body = pa.array([bytes(bytes_ - 8)], pa.large_binary())
    batch = pa.record_batch({"body": body})
    assert batch.nbytes == bytes_
    small = pa.record_batch({"body": pa.array([b"x"], pa.large_binary())})
    (file,) = written(tmp_path, [batch] * 4 + [small])
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == groups


@pytest.mark.exhaustive
def test_a_large_file_is_followed_by_another(tmp_path: Path) -> None:
    batch = pa.record_batch({"lsn": pa.array(range(GROUP_ROWS))})
    assert len(written(tmp_path / "a", [batch] * 3, file_bytes=1)) == 3
    size = written(tmp_path / "b", [batch])[0].size
    assert len(written(tmp_path / "c", [batch] * 3, file_bytes=size)) == 2


@pytest.mark.parametrize("length", [STATISTICS_CHARS, STATISTICS_CHARS + 1])
def test_long_texts_are_no_statistics(tmp_path: Path, length: int) -> None:
    (file,) = written(tmp_path, [one(tube="x" * length, lsn=1)])
    assert (file.spans("tube") is not None) == (length == STATISTICS_CHARS)
    assert file.nulls("tube") == 0 and file.spans("lsn") == (1, 1)


def test_statistics_of_times_are_never_too_narrow(tmp_path: Path) -> None:
    times = [datetime(1969, 12, 31, 23, 59, 59, 999_001, UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    batch = pa.record_batch({"at": pa.array([*times, None], pa.timestamp("us", "UTC"))})
    (file,) = written(tmp_path, [batch])
    assert file.spans("at") == ("1969-12-31T23:59:59.999Z", "2026-01-01T00:00:00.000Z")
    assert file.nulls("at") == 1
    (late,) = written(tmp_path, [batch.slice(0, 1)])
    assert late.spans("at") == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z")


def test_maps_and_columns_of_nulls_have_no_span(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.int64())
    batch = pa.record_batch({"m": pa.array([[("a", 1)]], kind), "n": pa.array([None], pa.int64())})
    (file,) = written(tmp_path, [batch])
    assert (file.spans("m"), file.spans("n"), file.nulls("n")) == (None, None, 1)


@pytest.mark.parametrize(
    ("value", "folder"),
    [(None, f"s={NULL}"), ("1e5", "s=1e5"), ("a/b %=", "s=a%2Fb%20%25%3D"), ("größe", "s=größe")],
)
def test_folders_are_named_as_hive_names_them(value: str | None, folder: str) -> None:
    assert folder_of("s", value) == folder


def test_partitions_keep_types_and_order_of_rows(tmp_path: Path) -> None:
    days = [date(2026, 1, 2), None, date(2026, 1, 2), date(2026, 1, 1)]
    batch = pa.record_batch({
        "settled": pa.array([True, False, True, True]), "day": pa.array(days, pa.date32()),
        "n": pa.array([4, 3, 2, 1]),
    })  # fmt: skip
    found = {file.partition: file for file in written(tmp_path, [batch], "settled", "day")}
    assert {key: file.rows for key, file in found.items()} == {
        (("settled", "false"), ("day", None)): 1,
        (("settled", "true"), ("day", "2026-01-01")): 1,
        (("settled", "true"), ("day", "2026-01-02")): 2,
    }
    file = found[("settled", "true"), ("day", "2026-01-02")]
    assert pq.ParquetFile(tmp_path / file.path).read().to_pydict() == {"n": [4, 2]}
    assert files_of(pa.Table.from_batches([as_batch(found.values())])) == list(found.values())


def test_no_rows_are_no_files_and_days_are_those_of_utc(tmp_path: Path) -> None:
    assert written(tmp_path, [one(lsn=1).slice(0, 0)]) == []
    late = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    batch = pa.record_batch({"at": pa.array([late, None], pa.timestamp("us", "UTC"))})
    assert dated(batch, "at").column("date").to_pylist() == [late.date(), None]


def test_files_that_cannot_be_written_are_an_error_of_the_table(tmp_path: Path) -> None:
    place = Location.of(str(tmp_path / "file" / "table"))
    batch = one(lsn=1)
    assert stored_files(place, [batch], Layout("some", batch.schema))
    (tmp_path / "other").touch()
    blocked = Location.of(str(tmp_path / "other" / "table"))
    with pytest.raises(TableError, match=r"^\[TABLE_UNWRITABLE\] .*as it was before"):
        stored_files(blocked, [batch], Layout("some", batch.schema))
