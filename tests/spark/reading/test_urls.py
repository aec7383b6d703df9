"""Logs behind URLs: the same rows as of local files, with few requests, and errors of one line."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.archive_manifest import MANIFEST, RECENT, Manifest, decode_manifest
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.files import TAIL_BYTES
from tests.binlog.scribe import UUID, flipped, segment_files
from tests.spark.histories import any_log
from tests.spark.remote import Lent, as_archived, manifest_of
from tests.spark.without_spark import read, reader_of, tasks_of
from tests.tools.folders import archived, written

Files = dict[str, bytes]


OPTIONS = "?region=eu-central-1&endpoint_override=127.0.0.1:9000"


@pytest.fixture(scope="module")
def files() -> Files:
    return segment_files(any_log(1).directory)


@pytest.fixture
def remote() -> Lent:
    return Lent()


def test_a_copied_directory_an_archive_and_a_store_in_it_give_the_same_rows(
    tmp_path: Path, files: Files, remote: Lent
) -> None:
    expected = read(written(tmp_path / "log", files))
    remote.archive("archive", files)
    remote.folder("log", files)
    for path in ("archive", f"archive/{UUID.hex()}", "log"):
        assert read(f"{remote.bucket}/{path}") == expected, path


def test_the_options_of_a_url_reach_the_tasks(files: Files, remote: Lent) -> None:
    remote.archive("archive", files, OPTIONS)
    path = f"{remote.bucket}/archive{OPTIONS}"
    tasks = pickle.loads(pickle.dumps(tasks_of(path)))
    assert all(share.place.path.endswith(f".tql{OPTIONS}") for task in tasks for share in task)
    assert len(read(path)) > 100


def test_a_plan_takes_no_more_than_the_head_and_the_end_of_a_segment(
    files: Files, remote: Lent
) -> None:
    remote.archive("archive", files)
    reader_of(f"{remote.bucket}/archive").partitions()
    reads = [name for operation, name in remote.requests if operation == "read"]
    assert len(reads) <= 2 * len(files)


def test_a_task_fetches_a_whole_segment_in_one_request(files: Files, remote: Lent) -> None:
    remote.archive("archive", files)
    reader = reader_of(f"{remote.bucket}/archive")
    tasks = reader.partitions()
    remote.requests.clear()
    for task in tasks:
        assert list(reader.read(task))
    shares = sum(len(task.value) for task in tasks)
    reads = [each for each in remote.requests if each[0] == "read"]
    # The header and the frames; the seal.
    assert len(reads) <= 2 * shares
    assert remote.requests == reads


def test_a_large_segment_is_split_and_its_parts_are_fetched_alone(remote: Lent) -> None:
    files = segment_files(any_log(4, batches=150, segment_bytes=1 << 21).directory)
    assert sum(map(len, files.values())) > 5 * TAIL_BYTES
    store = remote.archive("archive", files)
    path = f"{remote.bucket}/archive"
    whole = read(path, records="all", copies="keep", body=True)
    reader = reader_of(path, records="all", copies="keep", body=True, partitionBytes="64K")
    tasks = reader.partitions()
    assert len(tasks) > 3
    store.read_bytes = 0
    parts = [row for each in tasks for batch in reader.read(each) for row in batch.to_pylist()]
    assert parts == whole
    extra = len(tasks) * (SEGMENT_HEADER_BYTES + TAIL_BYTES)
    assert store.read_bytes <= sum(map(len, files.values())) + extra


# Copies.


@pytest.mark.parametrize("spoilt", ["local", "remote", "neither"])
def test_of_a_local_and_a_remote_copy_the_sound_one_is_read(
    tmp_path: Path, files: Files, remote: Lent, spoilt: str
) -> None:
    local = written(tmp_path / "log", files)
    store = remote.archive("archive", files)
    expected = read(local, body=True)
    at = SEGMENT_HEADER_BYTES + 100
    if spoilt == "local":
        name = sorted(files)[1]
        (local / name).write_bytes(flipped(files[name], at))
    elif spoilt == "remote":
        name = sorted(store.objects)[1]
        store.objects[name] = flipped(store.objects[name], at)
    assert read(local, f"{remote.bucket}/archive", body=True) == expected


def test_the_same_place_twice_is_read_once(files: Files, remote: Lent) -> None:
    remote.archive("archive", files)
    once = read(f"{remote.bucket}/archive")
    assert read(f"{remote.bucket}/archive", f"{remote.bucket.upper()[:2].lower()}a"
                f"{remote.bucket[2:]}/archive/") == once  # fmt: skip


# The manifest.


def planned(remote: Lent, **options: str) -> tuple[list[Any], list[tuple[str, str]]]:
    remote.requests.clear()
    return tasks_of(f"{remote.bucket}/archive/{UUID.hex()}", **options), list(remote.requests)


@pytest.mark.parametrize(
    "options", [{}, {"since": "2020-01-01T00:00Z"}, {"job": "7"}, {"partitionBytes": "64K"}]
)
def test_with_a_manifest_a_plan_reads_only_the_end_of_the_newest_segment(
    files: Files, remote: Lent, options: dict[str, str]
) -> None:
    store = remote.archive("archive", files)
    without, _ = planned(remote, **options)
    newest = max(store.objects)
    store.objects[MANIFEST] = manifest_of(store.objects)
    tasks, requests = planned(remote, **options)
    assert tasks == without
    # The listing tells whether the manifest is stale.
    reads = [("read", MANIFEST), ("read", newest)]
    assert requests == [("check", ""), ("listing", ""), *reads]


def test_a_stale_manifest_is_made_up_for_by_the_segments(files: Files, remote: Lent) -> None:
    store = remote.archive("archive", files)
    without, _ = planned(remote)
    names = sorted(store.objects)
    some = {name: store.objects[name] for name in names[:-2]}
    store.objects[MANIFEST] = manifest_of(some)
    tasks, requests = planned(remote)
    assert tasks == without
    assert {name for operation, name in requests if operation == "read"} == {
        MANIFEST, *names[-2:],
    }  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"something else", b"\x89TQM\r\n\x1a\n" + bytes(99)])
def test_a_manifest_that_cannot_be_used_costs_only_time(
    files: Files, remote: Lent, content: bytes
) -> None:
    store = remote.archive("archive", files)
    without, _ = planned(remote)
    store.objects[MANIFEST] = content
    assert planned(remote)[0] == without


def entries_in(content: bytes) -> dict[int, bytes]:
    found = decode_manifest(content)
    assert isinstance(found, Manifest)
    return dict(found.entries)


@pytest.mark.parametrize(("at", "number"), [(16, 0), (16, 4096), (24, None)], ids=str)
def test_a_manifest_that_lies_about_the_newest_segment_loses_no_row(
    files: Files, remote: Lent, at: int, number: int | None
) -> None:
    store = remote.archive("archive", files)
    expected, (tasks, _) = read(f"{remote.bucket}/archive"), planned(remote)
    entries = entries_in(manifest_of(store.objects))
    last = entries[max(entries)]
    said = int.from_bytes(last[at : at + 8], "little") + 100 if number is None else number
    entries[max(entries)] = last[:at] + said.to_bytes(8, "little") + last[at + 8 :]
    store.objects[MANIFEST] = Manifest(UUID, entries).encode()
    assert planned(remote)[0] == tasks
    assert read(f"{remote.bucket}/archive") == expected


def test_a_manifest_of_another_store_is_passed_over(files: Files, remote: Lent) -> None:
    store = remote.archive("archive", files)
    expected = read(f"{remote.bucket}/archive")
    other = {seq: raw[:112] + bytes(16) + raw[128:]
             for seq, raw in entries_in(manifest_of(store.objects)).items()}  # fmt: skip
    for uuid in (bytes(16), UUID):
        store.objects[MANIFEST] = Manifest(uuid, other).encode()
        assert read(f"{remote.bucket}/archive") == expected


def local_archive(path: Path, files: Files) -> tuple[Path, Path]:
    archive = archived(path / "archive", files)
    (store,) = archive.iterdir()
    for name, raw in as_archived(files).items():
        (store / name).write_bytes(raw)
    for each in store.iterdir():
        if each.name not in as_archived(files):
            each.unlink()
    return archive, store


def test_what_cannot_be_opened_in_an_archive_and_is_no_segment_stops_no_reader(
    tmp_path: Path, files: Files
) -> None:
    archive, store = local_archive(tmp_path, files)
    expected = read(archive)
    (store / RECENT).mkdir()
    (store / MANIFEST).symlink_to("nowhere")
    (store / "notes").symlink_to("nowhere")
    assert read(archive) == expected


def test_the_manifest_of_a_local_archive_is_used(tmp_path: Path, files: Files) -> None:
    archive, store = local_archive(tmp_path, files)
    expected, tasks = read(archive), tasks_of(archive)
    (store / MANIFEST).write_bytes(manifest_of(as_archived(files)))
    assert (read(archive), tasks_of(archive)) == (expected, tasks)


@pytest.mark.parametrize("damage", ["fail", "skip"])
def test_a_header_that_is_damaged_since_the_manifest_is_told(
    files: Files, remote: Lent, damage: str
) -> None:
    store = remote.archive("archive", files)
    name = sorted(store.objects)[1]
    manifest = manifest_of(store.objects)
    store.objects[name] = flipped(store.objects[name], 100)
    store.objects[MANIFEST] = manifest
    if damage == "fail":
        with pytest.raises(SourceError, match=r"BINLOG_DAMAGED.*the header's checksum is wrong"):
            read(f"{remote.bucket}/archive")
        return
    rows = read(f"{remote.bucket}/archive", damage="skip")
    (row,) = [row for row in rows if row["event"] == "damage"]
    assert row["segment"] == int(name[:20]) and "checksum" in row["problem"]


# Errors.


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("s3:///x", "BINLOG_OPTION", "option path: s3:///x: a bucket follows s3://"),
        ("s3://key:secret@b/x", "BINLOG_OPTION", "credentials belong in the environment"),
        (
            "gs://b/x?region=eu",
            "BINLOG_OPTION",
            "region is none of the options",
        ),
    ],
)
def test_a_url_that_names_nothing_is_refused(path: str, code: str, said: str) -> None:
    with pytest.raises(SourceError) as caught:
        read(path)
    assert caught.value.code == code and said in str(caught.value)


def test_what_is_not_there_is_told_with_its_url(files: Files, remote: Lent) -> None:
    remote.folder("empty", {})
    store = remote.archive("archive", files)
    with pytest.raises(SourceError, match=r"BINLOG_NO_LOG.*/empty: there are no segments here"):
        read(f"{remote.bucket}/empty")
    name = f"{remote.bucket}/archive/{UUID.hex()}/{min(store.objects)}"
    with pytest.raises(SourceError, match=rf"BINLOG_NO_LOG\] {name}: it is a file; name the direc"):
        read(name)


def test_a_store_that_cannot_be_read_is_told_with_its_url(files: Files, remote: Lent) -> None:
    store = remote.archive("archive", files)
    reader = reader_of(f"{remote.bucket}/archive")
    tasks = reader.partitions()

    def denied(operation: str, name: str) -> None:
        raise OSError(errno.EIO, "AWS Error ACCESS_DENIED", f"{store.path}/{name}")

    store.fault = denied
    with pytest.raises(SourceError, match=rf"BINLOG_UNREADABLE\] {store.path}.*ACCESS_DENIED"):
        list(reader.read(tasks[0]))
    with pytest.raises(SourceError, match=rf"BINLOG_UNREADABLE\] {store.path}.*ACCESS_DENIED"):
        reader.partitions()


@pytest.mark.parametrize("how", ["short", "failing"])
@pytest.mark.parametrize("above", [0, SEGMENT_HEADER_BYTES])
@pytest.mark.parametrize("which", [1, -1])
def test_an_object_whose_ranges_cannot_be_had_is_damage_of_that_segment(
    files: Files, remote: Lent, how: str, above: int, which: int
) -> None:
    store = remote.archive("archive", files)
    name = sorted(store.objects)[which]
    seq = int(name[:20])
    others = [row for row in read(f"{remote.bucket}/archive") if row["segment"] != seq]
    store.objects = {each: raw + bytes(2 * TAIL_BYTES) for each, raw in store.objects.items()}
    getattr(store, how)[name] = above
    with pytest.raises(SourceError, match=rf"BINLOG_(UNREADABLE|DAMAGED)\] .*{name[:20]}.*byte"):
        read(f"{remote.bucket}/archive")
    rows = read(f"{remote.bucket}/archive", damage="skip")
    damage = [row for row in rows if row["event"] == "damage"]
    assert any(name in row["problem"] and "byte" in row["problem"] for row in damage)
    assert [row for row in rows if row["event"] != "damage"] == others


@pytest.mark.parametrize("how", ["short", "failing"])
def test_another_copy_is_read_where_the_ranges_of_one_cannot_be_had(
    tmp_path: Path, files: Files, remote: Lent, how: str
) -> None:
    local = written(tmp_path / "log", files)
    store = remote.archive("archive", files)
    getattr(store, how)[sorted(store.objects)[1]] = 0
    assert read(local, f"{remote.bucket}/archive", body=True) == read(local, body=True)


def test_damage_names_the_url_and_a_command_that_takes_it(files: Files, remote: Lent) -> None:
    name = sorted(files)[1]
    remote.archive("archive", {**files, name: flipped(files[name], SEGMENT_HEADER_BYTES + 100)})
    with pytest.raises(SourceError) as caught:
        read(f"{remote.bucket}/archive", body=True)
    said = str(caught.value)
    assert said.startswith(f"[BINLOG_DAMAGED] {remote.bucket}/archive/{UUID.hex()}/")
    assert f"run: binlog-inspect check {remote.bucket}/archive/{UUID.hex()};" in said
