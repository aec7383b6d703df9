"""The manifest of an archive grows with it, at a small cost, and never loses what it can keep."""

from __future__ import annotations

import errno
import os
import zlib

import pytest

from beanstalk_twisted.binlog.archive import RECENT_ENTRIES, ManifestWriter
from beanstalk_twisted.binlog.archive_manifest import (
    MANIFEST,
    NAMES,
    RECENT,
    Manifest,
    _encode,
    decode_manifest,
    known_segments,
)
from beanstalk_twisted.binlog.errors import CannotArchive
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from tests.binlog.archived import archive_for
from tests.binlog.memory import MemoryArchive
from tests.binlog.scribe import T0, UUID, flipped


def entry(seq: int, size: int = 9000) -> bytes:
    header = SegmentHeader(seq, seq * 10, T0, 0, 1, 1, UUID, 7, 0, 1, "test")
    return _encode(0, size, size, seq * 10 + 10, (0, 0), header.encode()[:160], b"")


def note(writer: ManifestWriter, *seqs: int) -> None:
    for seq in seqs:
        writer.note(entry(seq))


def seqs_in(archive: MemoryArchive, *names: str) -> list[int]:
    spoken: set[int] = set()
    for name in names or NAMES:
        if archive.has(name):
            found = decode_manifest(archive.content(name))
            assert isinstance(found, Manifest)
            spoken |= found.entries.keys()
    return sorted(spoken)


def test_what_is_noted_is_written_once() -> None:
    archive = archive_for()
    operations: list[str] = []
    archive.fault = lambda operation, name: operations.append(operation)
    writer = ManifestWriter(archive, UUID)
    writer.write()
    note(writer, 1, 2)
    assert operations == []
    writer.write()
    assert seqs_in(archive, RECENT) == [1, 2]
    operations.clear()
    writer.write()
    assert operations == []


def test_the_large_file_is_written_when_the_small_one_is_full_and_not_before() -> None:
    archive = archive_for()
    writer = ManifestWriter(archive, UUID)
    for first in range(1, RECENT_ENTRIES, 5):
        note(writer, *range(first, first + 5))
        writer.write()
    assert RECENT_ENTRIES % 5 == 1
    assert not archive.has(MANIFEST)
    note(writer, RECENT_ENTRIES)
    writer.write()
    assert seqs_in(archive, MANIFEST) == list(range(1, RECENT_ENTRIES + 1))
    assert seqs_in(archive, RECENT) == []
    note(writer, 999)
    writer.write()
    assert seqs_in(archive, RECENT) == [999]


def test_a_start_notes_again_what_the_log_still_has_and_writes_nothing() -> None:
    archive = archive_for()
    archive.replace(MANIFEST, Manifest(UUID, {1: entry(1), 2: entry(2)}).encode())
    archive.replace(RECENT, Manifest(UUID, {3: entry(3)}).encode())
    before = archive.content(RECENT)
    writer = ManifestWriter(archive, UUID)
    note(writer, 2, 3)
    writer.write()
    assert archive.content(RECENT) == before
    note(writer, 4)
    writer.write()
    assert seqs_in(archive, RECENT) == [3, 4]


def test_an_entry_that_says_something_else_takes_the_place_of_the_one_before() -> None:
    archive = archive_for()
    archive.replace(MANIFEST, Manifest(UUID, {1: entry(1, 5000)}).encode())
    writer = ManifestWriter(archive, UUID)
    note(writer, 1)
    writer.write()
    name = "00000000000000000001-00000000000000000010.tql"
    assert name in known_segments(map(archive.content, NAMES), {name: 9000})


@pytest.mark.parametrize("nth", range(1, 14))
def test_after_any_fault_the_next_call_writes_all(nth: int) -> None:
    archive = archive_for()
    archive.replace(MANIFEST, Manifest(UUID, {1: entry(1)}).encode())
    archive.replace(RECENT, Manifest(UUID, {2: entry(2)}).encode())
    writer = ManifestWriter(archive, UUID)
    note(writer, *range(3, RECENT_ENTRIES + 3))
    seen = 0

    def fault(operation: str, name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    archive.fault = fault
    with pytest.raises(OSError, match="Input/output error"):
        writer.write()
    assert {1, 2} <= set(seqs_in(archive)), "the old files, or new ones that have all"
    writer.write()
    writer.write()
    assert seen > 13
    assert seqs_in(archive) == list(range(1, RECENT_ENTRIES + 3))


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        (lambda raw: flipped(raw, 40), "the checksum of its head is wrong"),
        (lambda raw: raw[:90], "it is cut off at 90 bytes"),
        (lambda raw: b"", "it is cut off at 0 bytes"),
        (lambda raw: Manifest(b"other store 0000", {1: entry(1)}).encode(),
         f"it is of store {b'other store 0000'.hex()}"),
    ],
    ids=["damaged", "torn", "empty", "other"],
)  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_cannot_be_used_is_begun_anew(name: str, spoilt: object, why: str) -> None:
    archive = archive_for()
    archive.replace(name, spoilt(Manifest(UUID, {1: entry(1)}).encode()))  # type: ignore[operator]
    writer = ManifestWriter(archive, UUID)
    note(writer, *range(2, RECENT_ENTRIES + 2))
    writer.write()
    assert seqs_in(archive) == list(range(2, RECENT_ENTRIES + 2))
    assert writer.spoilt == {name: why}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_a_newer_version_is_left_as_it_is(name: str) -> None:
    archive = archive_for()
    raw = Manifest(UUID, {1: entry(1)}).encode()
    head = raw[:8] + b"\x02" + raw[9:60]
    newer = head + zlib.crc32(head).to_bytes(4, "little") + raw[64:]
    archive.replace(name, newer)
    writer = ManifestWriter(archive, UUID)
    note(writer, 2)
    with pytest.raises(CannotArchive, match="by a newer version, and is left as it is"):
        writer.write()
    assert archive.names() == [name] and archive.content(name) == newer
