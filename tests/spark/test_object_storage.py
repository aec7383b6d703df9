"""Logs in S3, by pyarrow's client and a real server: the simulated store of test_urls.py has the
many cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.archive_manifest import MANIFEST
from beanstalk_twisted.object_storage.store import open_store
from tests.binlog.scribe import segment_files
from tests.object_storage.conftest import s3 as s3
from tests.object_storage.s3_server import S3Server
from tests.spark.histories import any_log
from tests.spark.remote import as_archived, manifest_of
from tests.spark.without_spark import read, reader_of
from tests.tools.folders import archived

pytestmark = pytest.mark.exhaustive

FILES = segment_files(any_log(3).directory)


@pytest.fixture
def server(s3: S3Server) -> Iterator[S3Server]:
    yield s3
    s3.refused, s3.latency_s = 0, 0.0


def delivered(server: S3Server) -> str:
    """:return: the URL of an archive there, with options."""
    url = server.url(os.urandom(8).hex())
    store = open_store(url)
    for name, raw in as_archived(FILES).items():
        store.write(f"{raw[64:80].hex()}/{name}", [raw])
    return url


def test_an_archive_in_s3_gives_the_same_rows_as_its_files(
    server: S3Server, tmp_path: Path
) -> None:
    url = delivered(server)
    expected = read(archived(tmp_path / "archive", FILES), body=True)
    assert read(url, body=True) == expected
    assert read(f"{url.partition('?')[0]}/*?{url.partition('?')[2]}", body=True) == expected
    assert read(url.replace("s3://", "s3a://"), body=True) == expected


def test_a_plan_lists_a_store_once_and_reads_its_manifest_and_the_newest_segment(
    server: S3Server,
) -> None:
    objects = as_archived(FILES)
    (uuid,) = {raw[64:80].hex() for raw in objects.values()}
    where, _, options = delivered(server).partition("?")
    url = f"{where}/{uuid}?{options}"
    open_store(url).write(MANIFEST, [manifest_of(objects)])
    reader = reader_of(url)
    server.requests.clear()
    tasks = reader.partitions()
    folder = f"/{where.partition('://')[2]}/{uuid}"
    manifest, newest = f"{folder}/{MANIFEST}", f"{folder}/{max(objects)}"
    assert server.requests == [
        "HEAD /queue-archive", "GET /queue-archive", f"HEAD {manifest}", f"GET {manifest}",
        f"HEAD {newest}", f"GET {newest}",
    ]  # fmt: skip
    server.requests.clear()
    assert all(len(list(reader.read(task))) for task in tasks)
    for name in objects:
        assert server.requests.count(f"HEAD {folder}/{name}") == 1
    assert len(server.requests) <= 3 * len(objects)


def test_a_store_that_is_slow_and_refuses_at_times_gives_the_same_rows(
    server: S3Server, tmp_path: Path
) -> None:
    url = delivered(server)
    server.latency_s, server.refused = 0.01, 12
    rows = read(url)
    assert server.refused == 0
    assert rows == read(archived(tmp_path / "archive", FILES))
