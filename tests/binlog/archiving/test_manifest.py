"""The manifest of a store: written as docs/binlog-format.md says, and never believed when it is
wrong.
"""

from __future__ import annotations

import zlib
from functools import partial

import pytest

from beanstalk_twisted.binlog import archive_manifest as manifest
from beanstalk_twisted.binlog.archive import deliver_rest
from beanstalk_twisted.binlog.archive_manifest import (
    MAX_ENTRIES,
    MAX_INDEXED,
    MAX_TUBE_BYTES,
    Entry,
    Incomplete,
    Manifest,
    Unusable,
    decode_entry,
    decode_manifest,
    describe,
    known_segments,
)
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    archive_name,
    decode_segment_header,
)
from beanstalk_twisted.binlog.segments.seals import IndexedFrame, SealIndex, decode_seal
from tests.binlog import independent_reader
from tests.binlog.archived import archive_for
from tests.binlog.scribe import DEFAULT_TUBE, T0, UUID, Files, Scribe, flipped, index_of, put
from tests.storage.test_opening import Started

LARGE = b"x" * 5000


def archived() -> Files:
    """The segments of an archive: all are sealed but the one in which the server was killed."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, LARGE))
    scribe.write(put(2, LARGE))
    scribe.write(put(3, b"and then it is killed"))
    started = Started(scribe.memory)
    for _ in range(3):
        started.put(started.connect(), LARGE)
        started.commit()
    started.stop()
    archive = archive_for()
    deliver_rest(archive, started.directory, 1)
    return {name: bytes(archive.files.read(name)) for name in archive.names()}


def header_of(content: bytes) -> SegmentHeader:
    header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])
    assert isinstance(header, SegmentHeader)
    return header


def part(content: bytes, start: int, end: int) -> bytes:
    return content[start:end]


def entries_of(files: Files) -> dict[int, bytes]:
    """The entries of segments that follow each other, by sequence number."""
    contents = [files[name] for name in sorted(files)]
    following = [header_of(content) for content in contents[1:]]
    described = {}
    for content, after in zip(contents, [*following, None], strict=True):
        entry = describe(partial(part, content), len(content), after)
        assert entry is not None
        described[header_of(content).seq] = entry
    return described


def sizes(files: Files) -> dict[str, int]:
    return {name: len(content) for name, content in files.items()}


def seal(frames: int = 1, tubes: dict[int, bytes] | None = None) -> SealIndex:
    indexed = tuple(IndexedFrame(4096 + at * 65_536, 1 + at, T0 + at) for at in range(frames))
    return SealIndex(frames, (1, 9), (T0, T0 + 9), indexed, {1: frames}, tubes or {})


def test_an_entry_says_what_header_and_seal_of_its_segment_say() -> None:
    files = archived()
    whole = Manifest(UUID, entries_of(files)).encode()
    assert len(files) >= 4
    found = independent_reader.read_manifest(whole)
    names = sorted(files)
    for name, following, entry in zip(names, [*names[1:], ""], found, strict=True):
        segment = independent_reader.segment_of(files[name])
        told = {field: entry["header"][field] for field in ("seq", "first_lsn", "incarnation")}
        assert told.items() <= segment["header"].items()
        assert entry["size"] == len(files[name]) and entry["end"] == segment["end"]
        frames = segment["frames"]
        if following:
            assert entry["next_lsn"] == header_of(files[following]).first_lsn
        if entry["seal"]:
            assert entry["next_lsn"] == frames[-1]["base_lsn"] + frames[-1]["n_rec"]
            logged = frames[0]["time_ns"], frames[-1]["time_ns"]
            assert (entry["first_ns"], entry["last_ns"]) == logged
        else:
            assert segment["trailer"] is None
    assert [bool(entry["seal"]) for entry in found].count(False) == 1


def test_what_is_decoded_is_what_the_header_says_and_the_seal() -> None:
    files = archived()
    known = known_segments([Manifest(UUID, entries_of(files)).encode()], sizes(files))
    assert sorted(known) == sorted(files)
    for name, entry in known.items():
        assert entry.header == header_of(files[name]) and entry.name == name
        assert (entry.seal is None) == (entry.logged_ns is None)
        if entry.seal is not None:
            assert entry.seal.tubes == {1: b"default"} and entry.names_tubes
            assert entry.seal.indexed[0].base_lsn == entry.header.first_lsn


def test_a_segment_that_nothing_says_the_end_of_has_no_entry() -> None:
    name, content = next((n, c) for n, c in archived().items() if not c.endswith(b"TQLEND\r\n"))
    assert describe(partial(part, content), len(content), None) is None, name
    assert describe(partial(part, content), 100, None) is None, "its header is cut off"


def test_a_seal_is_read_as_it_is_written() -> None:
    data = index_of(TubeDef(7, b"mail", T0), put(4), put(2)).encode()
    found = decode_seal(data)
    assert found is not None and found.encode() == data
    assert found.jobs == (2, 4) and found.tubes == {7: b"mail"}
    assert all(decode_seal(data[:end]) is None for end in range(len(data)))


def test_segments_that_are_missing_new_or_of_another_size_are_to_be_opened() -> None:
    files = archived()
    first, second, third, *rest = sorted(files)
    raw = Manifest(UUID, entries_of(files)).encode()
    listing = sizes(files)
    del listing[first]
    listing[second] += 1
    listing[archive_name(99, 4711)] = 5000
    assert sorted(known_segments([raw], listing)) == [third, *rest]


def test_of_two_entries_that_of_the_later_file_counts() -> None:
    entries = entries_of(archived())
    entry = decode_entry(entries[1])
    assert entry is not None
    other = describe_like(entry, size=entry.size + 8)
    files = [Manifest(UUID, entries).encode(), Manifest(UUID, {1: other}).encode()]
    assert known_segments(files, {entry.name: entry.size + 8})[entry.name].size == entry.size + 8


def describe_like(entry: Entry, size: int) -> bytes:
    raw = manifest._encode(
        0, size, entry.end, entry.next_lsn, (0, 0), entry.header.encode()[:160], b""
    )
    assert decode_entry(raw) == Entry(entry.header, size, entry.end, entry.next_lsn)
    return raw


def test_a_manifest_that_cannot_be_used_speaks_of_nothing() -> None:
    files = archived()
    raw = Manifest(UUID, entries_of(files)).encode()
    assert known_segments([b"", raw[:-1], flipped(raw, 70), b"{}"], sizes(files)) == {}
    assert len(known_segments([b"", raw], sizes(files))) == len(files)


def changed(raw: bytes, at: int, by: int) -> bytes:
    number = int.from_bytes(raw[at : at + 8], "little") + by
    return raw[:at] + number.to_bytes(8, "little") + raw[at + 8 :]


def known_with(entries: dict[int, bytes], files: Files, store: bytes | None = UUID) -> list[int]:
    known = known_segments([Manifest(UUID, entries).encode()], sizes(files), store)
    return sorted(entry.header.seq for entry in known.values())


END, NEXT_LSN, PREV_END, STORE = 16, 24, 48 + 40, 48 + 64
"""Where they stand in an entry."""


def test_an_entry_of_the_newest_segment_ends_within_it_and_not_before_it_begins() -> None:
    files = archived()
    entries = entries_of(files)
    last = max(entries)
    entry = decode_entry(entries[last])
    assert entry is not None and entry.header.store_uuid == UUID and entry.seal is not None
    at_end = entry.seal.indexed[-1]
    # The lowest and the highest that may be so, and one past them.
    for at, number, low, high in (
        (END, entry.end, at_end.offset, entry.size),
        (NEXT_LSN, entry.next_lsn, at_end.base_lsn, None),
    ):
        for wanted, is_known in ((0, False), (low - 1, False), (low, True), (high, True),
                                 (high and high + 1, False)):  # fmt: skip
            if wanted is not None:
                lying = {**entries, last: changed(entries[last], at, wanted - number)}
                assert (last in known_with(lying, files)) == is_known, (at, wanted)
    unsealed = Entry(entry.header, 9000, SEGMENT_HEADER_BYTES, entry.header.first_lsn)
    assert manifest._is_possible(unsealed)
    assert not manifest._is_possible(unsealed._replace(end=SEGMENT_HEADER_BYTES - 1))
    assert not manifest._is_possible(unsealed._replace(next_lsn=entry.header.first_lsn - 1))


def test_the_frames_of_an_entry_begin_with_the_segment_and_ascend() -> None:
    header = header_of(archived()[min(archived())])
    entry = Entry(header, 99_999, 90_000, 100, (T0, T0), seal(2))
    assert entry.seal is not None and manifest._is_possible(entry)
    one, other = entry.seal.indexed
    for frames in (
        (other,), (one._replace(base_lsn=2), other), (one, other._replace(base_lsn=0)),
        (one, other._replace(offset=90_001)),
    ):  # fmt: skip
        lying = entry._replace(seal=entry.seal._replace(indexed=frames))
        assert not manifest._is_possible(lying), frames


@pytest.mark.parametrize("at", [END, NEXT_LSN, PREV_END])
def test_of_entries_that_contradict_each_other_neither_is_believed(at: int) -> None:
    files = archived()
    entries = entries_of(files)
    first, second, *rest = sorted(entries)
    assert known_with(entries, files) == [first, second, *rest]
    lying = second if at == PREV_END else first
    found = known_with({**entries, lying: changed(entries[lying], at, 8)}, files)
    assert found == rest


def test_entries_of_another_store_are_passed_over() -> None:
    files = archived()
    entries = entries_of(files)
    first, *rest = sorted(entries)
    assert known_with(entries, files, None) == [first, *rest]
    assert known_with(entries, files, b"another store 00") == []
    for store in (UUID, None):
        lying = {**entries, first: changed(entries[first], STORE, 1)}
        assert known_with(lying, files, store) == rest


def test_a_manifest_that_is_cut_is_not_there_yet() -> None:
    raw = Manifest(UUID, entries_of(archived())).encode()
    for end in range(len(raw)):
        assert decode_manifest(raw[:end]) == Incomplete(end)


def test_a_manifest_with_another_bit_is_never_believed() -> None:
    raw = Manifest(UUID, entries_of(archived())).encode()
    for at in range(len(raw)):
        assert isinstance(decode_manifest(flipped(raw, at, at % 8)), Unusable | Incomplete)
    assert isinstance(decode_manifest(raw + b"\0"), Unusable)


@pytest.mark.parametrize(
    "at,content", [(8, b"\x02\0"), (56, b"\x01\0\0\0")], ids=["major", "incompat"]
)
def test_a_newer_version_is_told_from_damage(at: int, content: bytes) -> None:
    raw = Manifest(UUID, {}).encode()
    head = raw[:at] + content + raw[at + len(content) : 60]
    found = decode_manifest(head + zlib.crc32(head).to_bytes(4, "little") + raw[64:])
    assert isinstance(found, Unusable) and found.is_foreign


def test_a_newer_writer_may_append_to_an_entry() -> None:
    entries = entries_of(archived())
    longer = {
        seq: (len(raw) + 8).to_bytes(4, "little") + raw[4:] + b"whatever"
        for seq, raw in entries.items()
    }
    found = decode_manifest(Manifest(UUID, longer).encode())
    assert isinstance(found, Manifest)
    assert list(map(decode_entry, found.entries.values())) == list(
        map(decode_entry, entries.values())
    )


@pytest.mark.parametrize(
    "frames,kept", [(1, 1), (MAX_INDEXED, 16), (MAX_INDEXED + 1, 9), (1024, 16)]
)
def test_an_entry_indexes_sixteen_frames_at_most_the_first_among_them(
    frames: int, kept: int
) -> None:
    flags, thinned = manifest._thinned(seal(frames))
    assert flags == 0 and len(thinned.indexed) == kept
    assert thinned.indexed[0] == seal().indexed[0]


def test_tubes_are_left_out_of_an_entry_where_they_take_too_much() -> None:
    name = b"t" * (MAX_TUBE_BYTES // 16 - 6)
    tubes = dict.fromkeys(range(16), name)
    assert manifest._thinned(seal(tubes=tubes)) == (0, seal(tubes=tubes))
    assert manifest._thinned(seal(tubes={**tubes, 0: name + b"t"})) == (2, seal())


def test_a_manifest_keeps_the_newest_entries_of_those_that_are_too_many() -> None:
    raw = next(iter(entries_of(archived()).values()))
    entries = {seq: raw for seq in range(MAX_ENTRIES + 1)}
    kept = manifest._newest(entries)
    assert len(kept) == MAX_ENTRIES
    assert len(manifest._newest({seq: raw for seq in range(MAX_ENTRIES)})) == MAX_ENTRIES


def test_a_manifest_is_no_longer_than_a_reader_takes() -> None:
    entries = {seq: b"%02d" % seq for seq in range(5)}
    assert manifest._newest(entries, 8) == [b"01", b"02", b"03", b"04"]
    assert manifest._newest(entries, 7) == [b"02", b"03", b"04"]
