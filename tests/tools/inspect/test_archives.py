"""Is an archive whole, and is what its manifest says so?"""

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
from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.records.others import Seal
from binlog_tools.inspect import archives
from binlog_tools.inspect.archives import Flaw, Verdict
from binlog_tools.logs.sources import NoLog
from tests.binlog import independent_reader
from tests.binlog.archiving.test_manifest import archived as archived_segments
from tests.binlog.archiving.test_manifest import entries_of
from tests.binlog.scribe import DEFAULT_TUBE, FIRST, T0, UUID, Files, Scribe, flipped, put
from tests.object_storage.memory import MemoryStore
from tests.tools.cli.running import rows, run
from tests.tools.conversation import Conversation
from tests.tools.folders import archived, contents, written


def verify(path: str) -> Verdict:
    return archives.verify(RealDirectory(path))


def stores_of(path: Path) -> list[str]:
    """The paths of the stores of an archive in a directory."""
    return [store.path for store in archives.stores_of(str(path))]


def five_segments() -> Files:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 11):
        scribe.write(put(n, b"x" * 1400))
    scribe.end_segment()
    assert len(scribe.files()) == 5
    return scribe.files()


def store(path: Path, files: Files) -> Path:
    """An archive of one store, each segment up to its end; the folder of the store."""
    (folder,) = archived(path, {name: _cut(raw) for name, raw in files.items()}).iterdir()
    return folder


def _cut(raw: bytes) -> bytes:
    """A segment without the zeros behind its end, which are never archived."""
    segment = independent_reader.read_segment(raw)
    if segment is None:
        return raw
    # Behind damage there are more frames, the last of which may be padded.
    written = len(raw.rstrip(b"\0"))
    return raw[: max(segment["end"], written + -written % 8)]


def names_in(path: Path) -> list[str]:
    return sorted((each.name for each in path.iterdir()), key=lambda n: int(n.split("-")[0]))


def kinds(verdict: Verdict) -> list[tuple[str, str]]:
    return [(flaw.kind, flaw.file) for flaw in verdict.flaws]


@pytest.mark.parametrize("seed", [1, 2])
def test_all_that_a_server_ever_wrote_is_whole(seed: int, tmp_path: Path) -> None:
    """Its segments as they were before compaction deleted them, crashes and all."""
    spoken = Conversation(seed, with_compaction=True).say(60)
    verdict = verify(str(store(tmp_path, spoken.archive)))
    assert verdict.flaws == []
    assert verdict.is_whole
    assert len(verdict.spans) == 1
    assert verdict.spans[0].first == 1
    assert verdict.records == verdict.spans[0].last
    assert verdict.segments == len(spoken.archive)


def test_an_archive_may_begin_anywhere(tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    first, second = names_in(path)[:2]
    (path / first).unlink()
    verdict = verify(str(path))
    assert verdict.flaws == []
    assert verdict.spans[0].first == int(second.split("-")[1].split(".")[0])


@pytest.mark.parametrize(("gone", "words"), [([2], "segment 3 is missing"),
                                             ([1, 2], "segments 2 to 3 are missing")])  # fmt: skip
def test_a_hole_is_named_with_its_lsns(gone: list[int], words: str, tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    names = names_in(path)
    lsns = [int(name.split("-")[1].split(".")[0]) for name in names]
    for at in gone:
        (path / names[at]).unlink()
    (flaw,) = verify(str(path)).flaws
    assert flaw == Flaw("hole", names[3], lsns[gone[0]], lsns[3] - 1, words)
    spans = verify(str(path)).spans
    assert spans[0].last + 1 == lsns[gone[0]]
    assert spans[1].first == lsns[3]


def test_a_segment_that_is_there_twice_is_named(tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    name = names_in(path)[2]
    raw = (path / name).read_bytes()
    (path / "3-999.tql").write_bytes(raw)
    (path / "0003-1000.tql").write_bytes(raw[:-1] + b"x")
    (path / "9-900.tql").write_bytes(raw)
    verdict = verify(str(path))
    copies = ["3-999.tql", "0003-1000.tql", "9-900.tql"]
    assert kinds(verdict) == [("duplicate", copy) for copy in copies]
    first, behind = (int(n.split("-")[1][:-4]) for n in (name, names_in(path)[5]))
    assert {(f.first_lsn, f.last_lsn) for f in verdict.flaws} == {(first, behind - 1)}
    assert verdict.flaws[0].what.endswith(f"also as {name}, with the same bytes")
    assert verdict.flaws[1].what.endswith("with other bytes")


def test_damage_is_named_with_offset_and_lsns(tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    name = names_in(path)[1]
    (path / name).write_bytes(flipped((path / name).read_bytes(), 5000))
    verdict = verify(str(path))
    (flaw,) = verdict.flaws
    assert (flaw.kind, flaw.file) == ("damaged", name)
    assert flaw.first_lsn is not None and flaw.last_lsn is not None
    assert verdict.spans[0].last == flaw.first_lsn - 1
    assert verdict.spans[1].first == flaw.last_lsn + 1


def test_a_header_that_is_spoilt_is_damage_and_a_hole(tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    name = names_in(path)[1]
    (path / name).write_bytes(flipped((path / name).read_bytes(), 50))
    assert [kind for kind, _ in kinds(verify(str(path)))] == ["damaged", "hole"]


def test_a_name_that_lies_is_told(tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    last = names_in(path)[-1]
    (path / last).rename(path / "5-4711.tql")
    assert kinds(verify(str(path))) == [("misnamed", "5-4711.tql")]


def test_a_segment_of_another_store_is_told(tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    other = path.rename(path.parent / ("ab" * 16))
    assert {kind for kind, _ in kinds(verify(str(other)))} == {"foreign"}


def test_lsns_that_are_there_twice_are_told(tmp_path: Path) -> None:
    files = five_segments()
    lsn = int.from_bytes(files["%020d.tql" % 3][24:32], "little")  # noqa: UP031
    end = int.from_bytes(files["%020d.tql" % 3][40:48], "little")  # noqa: UP031
    position = FIRST._replace(seq=3, first_lsn=lsn - 2, prev_end=end)
    scribe = Scribe(position=position, opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"x" * 4100))
    wrong = {n: raw for n, raw in files.items() if int(n[:20]) < 3}
    path = store(tmp_path, {**wrong, **scribe.files()})
    flaws = verify(str(path)).flaws
    overlap = [flaw for flaw in flaws if flaw.kind == "overlap"]
    assert [(flaw.first_lsn, flaw.last_lsn) for flaw in overlap] == [(lsn - 2, lsn - 1)]


def test_what_lies_about_is_named_but_does_not_count(tmp_path: Path) -> None:
    path = store(tmp_path, five_segments())
    for name in ("6-99.tql.part", "notes.txt", "00000000000000000001.tql"):
        (path / name).write_bytes(b"")
    verdict = verify(str(path))
    assert {kind for kind, _ in kinds(verdict)} == {"stray"}
    assert len(verdict.flaws) == 3
    assert verdict.is_whole


def test_the_stores_of_an_archive_are_found(tmp_path: Path) -> None:
    root = archived(tmp_path / "archive", five_segments())
    (root / "notes").mkdir()
    assert stores_of(root) == [str(root / UUID.hex())]
    assert stores_of(root / UUID.hex()) == [str(root / UUID.hex())]
    with pytest.raises(NoLog, match="there is no archive here"):
        stores_of(root / "notes")
    for name, raw in five_segments().items():
        (root / "notes" / name).write_bytes(raw)
    with pytest.raises(NoLog, match=r"this is a server's log, no archive; .* binlog-inspect check"):
        stores_of(root / "notes")


def test_a_single_lsn_that_is_missing_between_two_segments_is_a_hole(tmp_path: Path) -> None:
    files = five_segments()
    third = f"{3:020d}.tql"
    lsn = int.from_bytes(files[third][24:32], "little")
    end = int.from_bytes(files[third][40:48], "little")
    scribe = Scribe(position=FIRST._replace(seq=3, first_lsn=lsn + 1, prev_end=end))
    scribe.write(put(1))
    before = {name: raw for name, raw in files.items() if name < third}
    (flaw,) = verify(str(store(tmp_path, {**before, **scribe.files()}))).flaws
    assert (flaw.kind, flaw.first_lsn, flaw.last_lsn) == ("hole", lsn, lsn)


JUNK = b"a piece of another file"


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda raw: raw + JUNK, "23 bytes stand behind the end of the segment"),
        (lambda raw: raw + bytes(4096), "4096 bytes stand behind the end of the segment"),
        (lambda raw: raw[:-40], "the trailer is missing, or cut short"),
        (lambda raw: raw[:-1], "the trailer is missing, or cut short"),
        (lambda raw: flipped(raw, len(raw) - 30), "the trailer is not that of the segment's seal"),
        (lambda raw: flipped(raw, len(raw) - 10), "the trailer is not that of the segment's seal"),
        (lambda raw: flipped(raw, len(raw) - 1), "the trailer is not that of the segment's seal"),
    ],
)
def test_a_file_that_is_not_byte_for_byte_its_segment_is_not_whole(
    at: int, change: Callable[[bytes], bytes], why: str, tmp_path: Path
) -> None:
    path = store(tmp_path, five_segments())
    whole = verify(str(path))
    name = names_in(path)[at]
    raw = (path / name).read_bytes()
    (path / name).write_bytes(change(raw))
    verdict = verify(str(path))
    (flaw,) = verdict.flaws
    assert (flaw.kind, flaw.file, flaw.first_lsn) == ("damaged", name, None)
    assert why in flaw.what
    assert "no record is missing" in flaw.what
    assert not verdict.is_whole
    assert (verdict.spans, verdict.records) == (whole.spans, whole.records)


def test_a_seal_that_says_nothing_is_named(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1), Seal(T0, b""))
    (flaw,) = verify(str(store(tmp_path, scribe.files()))).flaws
    what = "the seal before it says nothing; no record is missing"
    assert (flaw.kind, flaw.what.split(": ")[1]) == ("damaged", what)


FOLDER = UUID.hex()


class Folder:
    """The folder of a store, in a directory or in object storage."""

    def __init__(self, path: Path | None) -> None:
        self.path = path and path / FOLDER
        self.objects = MemoryStore()
        self.segments = archived_segments()
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
    def store(self) -> archives.Folder:
        if self.path is None:
            return self.objects.at(FOLDER)
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
    assert archives.write(folder.store, folder.verify().manifest) == [MANIFEST]
    files = folder.files()
    sizes = {name: len(content) for name, content in files.items()}
    assert known_segments([files[MANIFEST]], sizes).keys() == folder.segments.keys()
    assert {name: files[name] for name in folder.segments} == folder.segments
    assert folder.flaws() == []


def test_what_the_newest_ones_were_said_in_is_written_anew_too(folder: Folder) -> None:
    folder.put(RECENT, Manifest(UUID, {1: folder.entries[2]}).encode())
    assert archives.write(folder.store, folder.verify().manifest) == NAMES
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
        if describe(partial(folder.store.read, name), len(folder.segments[name]), None) is None
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
