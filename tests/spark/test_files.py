"""The files of logs, local ones and objects."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.archive_manifest import MANIFEST
from beanstalk_twisted.object_storage.store import BadUrl, open_store
from binlog_tools.spark.files import (
    OPEN_STORES,
    PIECE_BYTES,
    TAIL_BYTES,
    WAITS_S,
    BadRange,
    LocalFile,
    LogFile,
    PatientStore,
    RemoteFile,
    Stores,
    expanded,
    open_file,
)
from tests.binlog.scribe import segment_files
from tests.object_storage.conftest import s3 as s3
from tests.object_storage.memory import MemoryStore
from tests.object_storage.s3_server import S3Server
from tests.spark.histories import any_log
from tests.spark.remote import Lent, Waits, as_archived, manifest_of
from tests.spark.without_spark import read, reader_of
from tests.tools.folders import archived

FILES = segment_files(any_log(3).directory)


@pytest.fixture
def server(s3: S3Server) -> Iterator[S3Server]:
    yield s3
    s3.refused, s3.latency_s = 0, 0.0


def delivered(server: S3Server) -> str:
    url = server.url(os.urandom(8).hex())
    store = open_store(url)
    for name, raw in as_archived(FILES).items():
        store.write(f"{raw[64:80].hex()}/{name}", [raw])
    return url


@pytest.mark.exhaustive
def test_an_archive_in_s3_gives_the_same_rows_as_its_files(
    server: S3Server, tmp_path: Path
) -> None:
    url = delivered(server)
    expected = read(archived(tmp_path / "archive", FILES), body=True)
    assert read(url, body=True) == expected
    assert read(f"{url.partition('?')[0]}/*?{url.partition('?')[2]}", body=True) == expected
    assert read(url.replace("s3://", "s3a://"), body=True) == expected


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_a_store_that_is_slow_and_refuses_at_times_gives_the_same_rows(
    server: S3Server, tmp_path: Path
) -> None:
    url = delivered(server)
    server.latency_s, server.refused = 0.01, 12
    rows = read(url)
    assert server.refused == 0
    assert rows == read(archived(tmp_path / "archive", FILES))


def test_patterns_in_urls_name_folders() -> None:
    lent = Lent()
    lent.folder("logs", {"mail/2/x": b"", "media/3": b"", "other/4": b"", "mx": b""})
    lent.folder("logs/mail", {"2/x": b"", "3/x": b""})
    lent.folder("logs/media", {"3/x": b""})
    assert expanded(f"{lent.bucket}/logs/m*") == [
        f"{lent.bucket}/logs/{name}" for name in ("mail", "media")
    ]
    assert expanded(f"{lent.bucket}/logs/m[ae]*/3") == [
        f"{lent.bucket}/logs/mail/3", f"{lent.bucket}/logs/media/3",
    ]  # fmt: skip
    assert expanded(f"{lent.bucket}/logs/none*") == []
    assert expanded(f"{lent.bucket}/nothing/") == [f"{lent.bucket}/nothing"]


def test_local_patterns_name_what_is_there(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a3").touch()
    assert expanded(f"file://{tmp_path}/a*") == [f"{tmp_path}/a1", f"{tmp_path}/a2"]
    assert expanded(f"{tmp_path}/a1") == [f"{tmp_path}/a1"]
    assert expanded(f"{tmp_path}/c") == []


Make = Callable[[bytes], LogFile]


@pytest.fixture(params=["local", "remote"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def local(content: bytes) -> LogFile:
        (tmp_path / "x").write_bytes(content)
        return LocalFile(str(tmp_path / "x"))

    def remote(content: bytes) -> LogFile:
        store = MemoryStore()
        store.objects["x"] = content
        return RemoteFile(PatientStore(store), "x", "s3://b/x")

    return local if request.param == "local" else remote


# The contract.


@pytest.mark.parametrize("size", [0, 1, TAIL_BYTES, TAIL_BYTES + 1, 100_000])
def test_ranges_are_read_to_the_end_at_most(make: Make, size: int) -> None:
    content = os.urandom(size)
    with make(content) as file:
        assert file.size == size
        for start, end in [(0, 9), (size - 9, size), (size - 9, size + 9), (size, size + 1),
                           (5, 5), (size // 2, size)]:  # fmt: skip
            if start >= 0:
                assert file.read(start, end) == content[start:end]


def test_a_view_has_the_bytes_at_their_places_and_outlives_the_file(make: Make) -> None:
    content = os.urandom(100_000)
    with make(content) as file:
        view = file.view(90_000, 20_000, 50_000)
    assert len(view) == 90_000 and view.readonly
    assert view[20_000:50_000] == content[20_000:50_000]


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_file_that_is_not_there_is_an_error_that_names_it(
    tmp_path: Path, is_remote: bool
) -> None:
    lent = Lent()
    lent.folder("log", {})
    address = f"{lent.bucket}/log/x" if is_remote else str(tmp_path / "x")
    with pytest.raises(FileNotFoundError) as caught:
        open_file(address)
    assert caught.value.filename == address


# An object.


def test_the_end_of_an_object_is_read_at_once_and_once() -> None:
    lent = Lent()
    lent.folder("log", {"x": bytes(TAIL_BYTES + 50)})
    with open_file(f"{lent.bucket}/log/x", TAIL_BYTES + 50) as file:
        file.read(TAIL_BYTES, TAIL_BYTES + 50)
        file.read(60, 70)
        assert lent.requests == [("read", "x")]
        file.read(49, 70)
        assert lent.requests == [("read", "x")] * 2


def test_what_was_fetched_is_not_asked_for_again() -> None:
    lent = Lent()
    lent.folder("log", {"x": bytes(range(200))})
    with open_file(f"{lent.bucket}/log/x") as file:
        file.view(200, 0, 100)
        assert file.read(20, 30) == bytes(range(20, 30))
    assert lent.requests == [("read", "x")]


def test_a_large_part_is_fetched_in_pieces() -> None:
    store = MemoryStore()
    store.objects["x"] = content = os.urandom(1 << 20) * 36
    read: list[str] = []
    store.fault = lambda operation, name: read.append(operation)
    view = RemoteFile(PatientStore(store), "x", "s3://b/x", len(content)).view(
        len(content), 9, len(content)
    )
    assert view[9:] == content[9:]
    assert read.count("read") == -(-len(content) // PIECE_BYTES)


def test_an_object_of_known_size_that_is_not_read_is_not_opened() -> None:
    lent = Lent()
    lent.folder("log", {"x": bytes(50)})
    with open_file(f"{lent.bucket}/log/x", 50) as file:
        assert (file.size, file.read(50, 60)) == (50, b"")
    assert lent.requests == []


@pytest.mark.parametrize(
    "ask", [lambda file: file.read(0, 9), lambda file: file.read(TAIL_BYTES, 2 * TAIL_BYTES),
            lambda file: file.view(2 * TAIL_BYTES, 0, 2 * TAIL_BYTES),
            lambda file: file.snapshot()],
)  # fmt: skip
def test_a_short_answer_is_no_damage(ask: Callable[[LogFile], object]) -> None:
    store = MemoryStore()
    store.objects["x"] = bytes(8)
    file = RemoteFile(PatientStore(store), "x", "s3://b/x", 2 * TAIL_BYTES)
    with pytest.raises(BadRange, match="bytes came from byte") as caught:
        ask(file)
    assert caught.value.filename == "s3://b/x"


class Failing:
    """Fails so many times."""

    def __init__(self, times: int, what: str = "AWS Error SLOW_DOWN during GetObject") -> None:
        self.times = times
        self._what = what

    def __call__(self, operation: str, name: str) -> None:
        if self.times:
            self.times -= 1
            raise OSError(errno.EIO, self._what, name)


READS: list[Callable[[PatientStore], object]] = [
    lambda store: store.check(),
    lambda store: store.listing(),
    lambda store: store.size("x"),
    lambda store: store.read("x", 0, 1),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("times", [0, 1, len(WAITS_S)])
def test_a_store_that_fails_for_a_moment_is_asked_again(
    read: Callable[[PatientStore], object], times: int
) -> None:
    store, waits = MemoryStore(), Waits()
    store.objects["x"] = b"abc"
    store.fault = Failing(times)
    read(PatientStore(store, waits))
    assert waits.seconds == list(WAITS_S[:times])


def test_a_store_that_goes_on_failing_is_told_after_some_seconds() -> None:
    store, waits = MemoryStore(), Waits()
    store.fault = Failing(len(WAITS_S) + 1)
    with pytest.raises(OSError, match="SLOW_DOWN"):
        PatientStore(store, waits).listing()
    assert waits.seconds == list(WAITS_S) and sum(waits.seconds) <= 3


@pytest.mark.parametrize("what", ["AWS Error ACCESS_DENIED during GetObject", "NO_SUCH_BUCKET"])
def test_what_does_not_pass_is_told_at_once(what: str) -> None:
    store, waits = MemoryStore(), Waits()
    store.fault = Failing(1, what)
    with pytest.raises(OSError, match=what):
        PatientStore(store, waits).check()
    with pytest.raises(FileNotFoundError):
        PatientStore(store, waits).read("x", 0, 1)
    assert waits.seconds == []


def test_a_process_opens_a_store_once_and_keeps_so_many() -> None:
    stores = Stores()
    assert stores.at("s3://x") is stores.at("s3://x")
    first = PatientStore(MemoryStore())
    stores.keep("s3://first", first)
    for number in range(OPEN_STORES - 1):
        stores.keep(f"s3://{number}", PatientStore(MemoryStore()))
    assert stores.at("s3://first") is first
    stores.keep("s3://one-more", PatientStore(MemoryStore()))
    assert stores.at("s3://first") is not first


def test_a_url_that_names_no_store_says_why() -> None:
    with pytest.raises(BadUrl, match="a bucket follows s3://"):
        Stores().at("s3:///x")
