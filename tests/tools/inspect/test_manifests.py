"""A manifest that says what is not so is found, one that is stale is told, and both are written
anew.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.archive_manifest import (
    MANIFEST,
    NAMES,
    RECENT,
    Manifest,
    describe,
    known_segments,
)
from beanstalk_twisted.binlog.directory import Readable, RealDirectory
from binlog_tools.inspect import archives
from binlog_tools.inspect import archives as manifests
from binlog_tools.inspect.archives import Verdict
from binlog_tools.logs.opening import ObjectFolder
from tests.binlog.archiving.test_manifest import archived, entries_of
from tests.binlog.scribe import UUID, Files, flipped
from tests.object_storage.memory import MemoryStore
from tests.tools.cli.running import rows, run
from tests.tools.folders import contents, written

FOLDER = UUID.hex()


class Folder:
    """The folder of a store, in a directory or in object storage."""

    def __init__(self, path: Path | None) -> None:
        self.path = path and path / FOLDER
        self.objects = MemoryStore()
        self.segments = archived()
        self.entries = entries_of(self.segments)
        for name, content in self.segments.items():
            self.put(name, content)

    def put(self, name: str, content: bytes) -> None:
        if self.path is None:
            self.objects.objects[f"{FOLDER}/{name}"] = content
        else:
            written(self.path, {name: content})

    def remove(self, name: str) -> None:
        if self.path is None:
            del self.objects.objects[f"{FOLDER}/{name}"]
        else:
            (self.path / name).unlink()

    @property
    def store(self) -> Readable:
        if self.path is None:
            return ObjectFolder(self.objects, FOLDER)
        return RealDirectory(str(self.path))

    def verify(self) -> Verdict:
        return archives.verify(self.store)

    def files(self) -> Files:
        return {name: bytes(self.store.read(name)) for name in self.store.names()}

    def flaws(self) -> list[tuple[str, str]]:
        return [(flaw.kind, f"{flaw.file}: {flaw.what}") for flaw in self.verify().flaws]


@pytest.fixture(params=["directory", "objects"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(tmp_path if request.param == "directory" else None)


def test_an_archive_does_not_need_a_manifest(folder: Folder) -> None:
    verdict = folder.verify()
    assert verdict.is_whole and verdict.flaws == []
    assert verdict.manifest == folder.entries


def test_one_that_is_written_anew_speaks_of_every_segment(folder: Folder) -> None:
    assert manifests.write(folder.store, folder.verify().manifest) == [MANIFEST]
    files = folder.files()
    sizes = {name: len(content) for name, content in files.items()}
    assert known_segments([files[MANIFEST]], sizes).keys() == folder.segments.keys()
    assert {name: files[name] for name in folder.segments} == folder.segments
    assert folder.flaws() == []


def test_what_the_newest_ones_were_said_in_is_written_anew_too(folder: Folder) -> None:
    folder.put(RECENT, Manifest(UUID, {1: folder.entries[2]}).encode())
    assert manifests.write(folder.store, folder.verify().manifest) == NAMES
    assert folder.flaws() == []


def test_segments_that_it_lacks_or_that_are_gone_make_it_stale(folder: Folder) -> None:
    entries = dict(folder.entries)
    first = next(iter(sorted(folder.segments)))
    del entries[2]
    folder.put(MANIFEST, Manifest(UUID, entries).encode())
    folder.remove(first)
    assert folder.flaws() == [
        ("stale", f"{MANIFEST}: it speaks of 1 segment that cannot be read here, the first one is "
                  f"1"),
        ("stale", f"{MANIFEST}: it lacks 1 segment, the first one is 2"),
    ]  # fmt: skip
    assert folder.verify().is_whole, "this costs time only"


def until_a_kill(folder: Folder) -> dict[int, bytes]:
    """Leave what an archive has until the server that was started after a kill finishes a segment.

    :return: the entries of these, as that server has written them.
    """
    names = list(folder.segments)
    killed = next(
        at for at, name in enumerate(names, 1)
        if describe(partial(folder.store.read_part, name), len(folder.segments[name]), None) is None
    )  # fmt: skip
    for name in names[killed:]:
        folder.remove(name)
    return {seq: entry for seq, entry in folder.entries.items() if seq <= killed}


def test_the_segment_in_which_a_server_was_killed_is_spoken_of(folder: Folder) -> None:
    entries = until_a_kill(folder)
    folder.put(RECENT, Manifest(UUID, entries).encode())
    assert folder.flaws() == []
    assert folder.verify().manifest == entries


def test_the_end_of_the_segment_in_which_a_server_was_killed_is_compared(folder: Folder) -> None:
    entries = until_a_kill(folder)
    killed = max(entries)
    wrong = bytearray(entries[killed])
    wrong[24] ^= 1
    folder.put(RECENT, Manifest(UUID, {**entries, killed: bytes(wrong)}).encode())
    assert folder.flaws() == [("manifest", f"{RECENT}: what it says of segment {killed} is not so")]


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda raw: raw[:70], "it is cut off at 70 bytes"),
        (lambda raw: flipped(raw, 70), "the checksum of its entries is wrong; it is not used"),
    ],
)
def test_a_file_that_cannot_be_used_makes_it_stale(
    spoil: Callable[[bytes], bytes], what: str, folder: Folder
) -> None:
    folder.put(MANIFEST, spoil(Manifest(UUID, folder.entries).encode()))
    count = len(folder.segments)
    assert folder.flaws() == [
        ("stale", f"{MANIFEST}: {what}"),
        ("stale", f"{MANIFEST}: it lacks {count} segments, the first one is 1"),
    ]
    assert folder.verify().is_whole


@pytest.mark.parametrize("name", NAMES)
def test_one_that_cannot_be_opened_is_told(name: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.path is not None
    (folder.path / name / "something").mkdir(parents=True)
    count = len(folder.segments)
    lacking = ("stale", f"{name}: it lacks {count} segments, the first one is 1")
    assert folder.flaws() == [
        ("stale", f"{name}: it cannot be read: {os.strerror(errno.ENODEV)}; it is not used"),
        lacking,
    ]
    (folder.path / name / "something").rmdir()
    (folder.path / name).rmdir()
    (folder.path / name).symlink_to("nowhere")
    assert folder.flaws() == [
        ("stale", f"{name}: it cannot be read: {os.strerror(errno.ELOOP)}; it is not used"),
        lacking,
    ]
    assert folder.verify().is_whole


def test_one_that_says_what_is_not_so_is_a_flaw(folder: Folder) -> None:
    wrong = bytearray(folder.entries[1])
    wrong[24] ^= 1
    folder.put(MANIFEST, Manifest(UUID, {**folder.entries, 1: bytes(wrong)}).encode())
    assert folder.flaws() == [("manifest", f"{MANIFEST}: what it says of segment 1 is not so")]
    assert not folder.verify().is_whole


def test_a_damaged_segment_is_not_spoken_of(folder: Folder) -> None:
    first = next(iter(sorted(folder.segments)))
    folder.put(first, flipped(folder.segments[first], 5000))
    verdict = folder.verify()
    assert not verdict.is_whole and 1 not in verdict.manifest and 2 in verdict.manifest


def test_the_command_writes_it_and_nothing_else(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    before = contents(tmp_path)
    folder.put(MANIFEST, b"")
    result = run("archive-verify", tmp_path)
    assert result.exit_code == 0
    assert [row[:2] for row in rows(result)[1:]] == [["flaw", "stale"]] * 2
    assert run("archive-verify", tmp_path, "--write-manifest").exit_code == 0
    assert len(rows(run("archive-verify", tmp_path))) == 1
    after = contents(tmp_path)
    assert after.pop(f"{FOLDER}/{MANIFEST}") and after == before
