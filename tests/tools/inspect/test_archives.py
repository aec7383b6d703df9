"""Is an archive whole?"""

from collections.abc import Callable
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.records.others import Seal
from binlog_tools.inspect import archives
from binlog_tools.inspect.archives import Flaw, Verdict
from binlog_tools.logs.sources import NoLog
from tests.binlog import independent_reader
from tests.binlog.scribe import DEFAULT_TUBE, FIRST, T0, UUID, Files, Scribe, flipped, put
from tests.tools.conversation import Conversation
from tests.tools.folders import archived


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
