"""A server that trims its log while a query reads it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.reading.opening import HELD_FILES, Held
from binlog_tools.spark.reading.planning import Share
from binlog_tools.spark.source import BinlogReader
from tests.binlog.scribe import UUID, Files, segment_files
from tests.spark.expected import Row
from tests.spark.histories import any_log
from tests.spark.remote import Lent, as_archived
from tests.spark.without_spark import read, reader_of
from tests.tools.folders import archived, written


@pytest.fixture(scope="module")
def files() -> Files:
    return segment_files(any_log(1, batches=60).directory)


@pytest.fixture
def log(tmp_path: Path, files: Files) -> Path:
    return written(tmp_path / "log", files)


def trim(log: Path, count: int) -> None:
    for path in sorted(log.glob("*.tql"))[:count]:
        path.unlink()


def rows_of(reader: BinlogReader, tasks: list[Any]) -> list[Row]:
    return [row for each in tasks for batch in reader.read(each) for row in batch.to_pylist()]


def test_a_task_holds_what_it_reads_from_when_it_began(log: Path) -> None:
    expected = read(log)
    reader = reader_of(log)
    (task,) = reader.partitions()
    batches = iter(reader.read(task))
    rows = next(batches).to_pylist()
    shutil.rmtree(log)
    rows += [row for batch in batches for row in batch.to_pylist()]
    assert rows == expected


def test_a_segment_that_went_to_an_archive_that_was_named_is_read_there(
    log: Path, tmp_path: Path, files: Files
) -> None:
    newest = max(files)
    archive = archived(tmp_path / "archive", {newest: files[newest]})
    expected = read(log)
    reader = reader_of(log, archive, partitionBytes="64K")
    tasks = reader.partitions()
    written(archive / UUID.hex(), as_archived(files))
    trim(log, 5)
    assert rows_of(reader, tasks) == expected


def test_a_segment_that_went_to_object_storage_is_read_there(log: Path, files: Files) -> None:
    remote = Lent()
    newest = max(files)
    store = remote.archive("archive", {newest: files[newest]})
    expected = read(log)
    reader = reader_of(log, f"{remote.bucket}/archive")
    tasks = reader.partitions()
    store.objects.update(as_archived(files))
    trim(log, 5)
    assert rows_of(reader, tasks) == expected


def test_what_another_task_has_read_of_must_not_be_missing(log: Path) -> None:
    reader = reader_of(log, partitionBytes="64K")
    tasks = reader.partitions()
    assert len(tasks) > 1
    first = rows_of(reader, tasks[:1])
    seqs = sorted({item.place.header.seq for task in tasks[1:] for item in task.value})
    assert first
    trim(log, seqs[0])
    with pytest.raises(SourceError) as caught:
        rows_of(reader, tasks[1:])
    said = str(caught.value)
    assert caught.value.code == "BINLOG_TRIMMED" and "\n" not in said
    assert f"segment {seqs[0]} " in said and "load([DIR, ARCHIVE])" in said


def test_with_damage_skip_it_is_a_row_of_damage(log: Path) -> None:
    reader = reader_of(log, partitionBytes="64K", damage="skip")
    tasks = reader.partitions()
    whole = rows_of(reader, tasks)
    first = len(rows_of(reader, tasks[:1]))
    (log / sorted(path.name for path in log.iterdir())[len(tasks[0].value)]).unlink()
    rows = rows_of(reader, tasks)
    (damage,) = [row for row in rows if row["event"] == "damage"]
    assert rows[:first] == whole[:first] and rows.index(damage) == first
    assert damage["lsn"] <= whole[first]["lsn"] and "trimmed" in damage["problem"]


def test_another_log_in_the_directory_is_no_trimming(log: Path) -> None:
    reader = reader_of(log)
    tasks = reader.partitions()
    for path in log.iterdir():
        content = path.read_bytes()
        header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])
        assert isinstance(header, SegmentHeader)
        other = header._replace(store_uuid=bytes(16))
        path.write_bytes(other.encode() + content[SEGMENT_HEADER_BYTES:])
    with pytest.raises(SourceError, match="BINLOG_CHANGED"):
        rows_of(reader, tasks)


@pytest.mark.parametrize("more", [0, 1])
def test_a_task_holds_so_many_files(tmp_path: Path, files: Files, more: int) -> None:
    log = written(tmp_path / "log", files)
    (task,) = (each.value for each in reader_of(log).partitions())
    share = next(item for item in task if isinstance(item, Share))
    paths = [str(tmp_path / f"{number}") for number in range(HELD_FILES + more)]
    for path in paths:
        Path(path).write_bytes(b"x")
    many = tuple(share._replace(place=share.place._replace(path=path)) for path in paths)
    with Held(many) as held:
        for path in paths:
            Path(path).unlink()
        for path in paths[:HELD_FILES]:
            with held.open(path) as file:
                assert file.read(0, 9) == b"x"
        for path in paths[HELD_FILES:]:
            with pytest.raises(FileNotFoundError):
                held.open(path)
