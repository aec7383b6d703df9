"""Streams of what is in object storage, and of a server whose archive is there."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from tests.binlog.scribe import DEFAULT_TUBE, UUID, Files, Scribe, put
from tests.spark.expected import Row
from tests.spark.following.living import Query
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
