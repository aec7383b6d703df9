"""Streams of what is in object storage, and of a server whose archive is there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from binlog_tools.spark.errors import SourceError
from tests.binlog.scribe import DEFAULT_TUBE, UUID, Files, Scribe, put
from tests.spark.expected import Row
from tests.spark.following.living import Folders, Query, lsns, remove
from tests.spark.remote import CountingStore, Lent, as_archived


def grown(scribe: Scribe, first: int, count: int) -> Files:
    for number in range(first, first + count):
        scribe.write(put(number, b"x" * 300))
    scribe.mark()
    return scribe.files()


def finished(files: Files) -> Files:
    named = as_archived(files)
    del named[max(named)]
    return named


def jobs(rows: list[Row]) -> list[int]:
    return [row["job"] for row in rows]


@pytest.fixture
def scribe() -> Scribe:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write()
    return scribe


@pytest.fixture
def store(scribe: Scribe) -> tuple[Lent, CountingStore]:
    remote = Lent()
    files = grown(scribe, 1, 60)
    uuid = UUID.hex()
    remote.folder("archive", {f"{uuid}/{name}": raw for name, raw in finished(files).items()})
    return remote, remote.folder(f"archive/{uuid}", finished(files))


def test_an_archive_is_followed_as_segments_come(
    scribe: Scribe, store: tuple[Lent, CountingStore]
) -> None:
    remote, folder = store
    query = Query(f"{remote.bucket}/archive")
    first = jobs(query.run())
    folder.objects.update(finished(grown(scribe, 61, 60)))
    query.restart()
    second = jobs(query.run())
    assert first + second == list(range(1, 1 + len(first + second)))
    assert len(first) > 30 and len(second) > 30
    assert query.run() == []


def test_what_a_batch_takes_whole_is_not_fetched_to_plan_it() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=1 << 19)
    for number in range(1, 501):
        scribe.write(put(number, bytes(6000)))
    remote, files = Lent(), scribe.files()
    folder = remote.archive("archive", {name: files[name] for name in sorted(files)[:-1]})
    query = Query(f"{remote.bucket}/archive")
    folder.read_bytes = 0
    query.reader.latestOffset(query.reader.initialOffset(), ReadMaxBytes(1 << 40))
    assert len(folder.objects) > 3
    # The headers of segments, and the seal of the newest.
    assert folder.read_bytes < sum(map(len, folder.objects.values())) / 4


@pytest.mark.parametrize("limit", [1, 5_000, 20_000])
def test_batches_of_any_size_give_each_record_once(
    store: tuple[Lent, CountingStore], limit: int
) -> None:
    remote, _ = store
    whole = lsns(Query(f"{remote.bucket}/archive").run())
    small = Query(f"{remote.bucket}/archive")
    assert lsns(small.run(ReadMaxBytes(limit))) == whole
    assert len(small.batches) > 2 or limit > 5_000


def test_what_a_server_has_deleted_is_read_from_its_archive_in_object_storage(
    scribe: Scribe, tmp_path: Path, store: tuple[Lent, CountingStore]
) -> None:
    remote, folder = store
    folders = Folders(tmp_path / "server")
    folders.show(scribe.files())
    query = Query(folders.live, {"archive": f"{remote.bucket}/archive"})
    files = grown(scribe, 61, 60)
    folders.show(files)
    folder.objects.update(finished(files))
    start = query.offset
    end = query.reader.latestOffset(query.reader.initialOffset(), ReadMaxBytes(1 << 40))
    tasks = query.reader.partitions(query.reader.initialOffset(), end)
    remove(folders.live, 1)
    rows = [row for each in tasks for batch in query.reader.read(each) for row in batch.to_pylist()]
    assert query.offset == start
    assert jobs(rows) == list(range(1, 121))
    assert lsns(query.run()) == lsns(rows)


def test_a_store_that_cannot_be_listed_is_told_in_one_line(
    store: tuple[Lent, CountingStore],
) -> None:
    remote, _ = store
    query = Query(f"{remote.bucket}/archive")
    top = remote.folder("archive", {})

    def denied(operation: str, name: str) -> None:
        raise OSError(errno.EIO, "AWS Error ACCESS_DENIED", top.path)

    top.fault = denied
    with pytest.raises(SourceError, match=rf"BINLOG_UNREADABLE\] {top.path}: AWS Error ACCESS"):
        query.run()
    with pytest.raises(SourceError, match="option path: s3:///x: a bucket follows s3://"):
        Query("s3:///x")
