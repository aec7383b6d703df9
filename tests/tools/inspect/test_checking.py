"""Is this log sound?  What `check` finds."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.records.jobs import Kind, State
from binlog_tools.inspect.checking import DAMAGED, NO_HARM, SOUND, TORN, Finding, Trouble, check
from binlog_tools.logs.opening import open_source
from binlog_tools.salvage.salvaging import Salvage
from tests.binlog.forging import rechecked
from tests.binlog.make_golden import read_golden
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    Files,
    Scribe,
    delete,
    edited,
    flipped,
    image,
    put,
    quiet,
)
from tests.tools.folders import archived, stats, written

ONE, TWO, THREE = (f"{n:020d}.tql" for n in (1, 2, 3))


def checked(files: Files, folder: Path) -> Finding:
    """Check, and see that nothing was changed by it."""
    path = written(folder / "log", files)
    before = stats(path)
    finding = check(open_source(str(path)))
    assert stats(path) == before
    return finding


def three_segments() -> Files:
    """A log of three segments, with many frames in each."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 17):
        scribe.write(put(n, b"%d" % n * 400))
    scribe.mark()
    assert list(scribe.files()) == [ONE, TWO, THREE]
    return scribe.files()


def test_a_torn_tail_is_said_to_cost_nothing_that_was_promised(tmp_path: Path) -> None:
    finding = checked(read_golden("v1-torn"), tmp_path)
    assert "of what it promised nothing is lost if a crash made it" in finding.verdict
    (trouble,) = finding.troubles
    assert trouble == Trouble(
        "torn", ONE, 4400, 4560, 3, 3, "the checksum of its records is wrong", NO_HARM, (), (2,)
    )


def test_every_damaged_place_is_on_the_map(tmp_path: Path) -> None:
    files = three_segments()
    places = [(ONE, 4096 + 40), (ONE, 7000), (TWO, 5000), (TWO, 7500), (THREE, 4200)]
    spoilt = files
    for name, offset in places:
        spoilt = edited(spoilt, name, lambda raw, at=offset: flipped(raw, at))  # type: ignore[misc]
    finding = checked(spoilt, tmp_path)
    assert finding.exit_code == DAMAGED
    found = [(t.file, t.kind) for t in finding.troubles]
    assert found == [(name, "corrupt") for name, _ in places]
    for (_, offset), trouble in zip(places, finding.troubles, strict=True):
        assert trouble.offset is not None and trouble.end is not None
        assert trouble.offset <= offset < trouble.end
        assert trouble.first_lsn is not None and trouble.last_lsn is not None
        assert trouble.first_lsn <= trouble.last_lsn < trouble.first_lsn + 4


def test_exchanged_names_are_told_and_no_segment_is_called_corrupt(tmp_path: Path) -> None:
    files = three_segments()
    finding = checked({**files, ONE: files[TWO], TWO: files[ONE]}, tmp_path)
    assert finding.exit_code == DAMAGED
    path = tmp_path / "log"
    mend = f"binlog-inspect salvage {path} -o NEW_DIRECTORY"
    assert [(t.kind, t.file, t.mend) for t in finding.troubles] == [
        ("misnamed", ONE, mend), ("misnamed", TWO, mend),
    ]  # fmt: skip
    assert [row.name for row in finding.segments] == [TWO, ONE, THREE]


def seen(finding: Finding) -> list[tuple[str, str | None, int | None]]:
    assert (finding.exit_code, finding.verdict[:6]) == (SOUND, "sound:")
    return [(trouble.kind, trouble.file, trouble.offset) for trouble in finding.troubles]


@pytest.mark.parametrize(
    "change",
    [lambda raw: flipped(raw, len(raw) - 30), lambda raw: raw[:-3], lambda raw: raw[:-40],
     lambda raw: raw[:-40] + bytes(40)],
)  # fmt: skip
def test_a_changed_trailer_is_noted(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    files = three_segments()
    noted = [("note", ONE, len(files[ONE]) - 40)]
    assert seen(checked(edited(files, ONE, change), tmp_path)) == noted


@pytest.mark.parametrize("name", [ONE, THREE])
def test_what_stands_behind_the_end_of_a_segment_is_noted(name: str, tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for n in range(1, 17):
        scribe.write(put(n, b"%d" % n * 400))
    scribe.finish()
    files = scribe.files()
    more = edited(files, name, lambda raw: raw + b"garbage")
    finding = checked(more, tmp_path)
    assert seen(finding) == [("note", name, len(files[name]))]
    assert "7 bytes stand behind the end of the segment" in finding.troubles[0].what


def test_all_of_an_archive_is_durable_also_where_a_server_was_killed(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(put(2))
    last_lsn = 3
    assert checked(scribe.files(), tmp_path).durable_lsn < last_lsn
    archive = archived(tmp_path / "archive", scribe.files())
    assert check(open_source(str(archive))).verdict == "sound: 3 records, durable to LSN 3"


def test_space_that_was_not_used_is_not_noted(tmp_path: Path) -> None:
    """A server was killed before it cut the segment to its length."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.finish()
    files = edited(scribe.files(), ONE, lambda raw: raw + bytes(5000))
    assert seen(checked(files, tmp_path)) == []


def test_what_a_start_has_cut_off_and_left_is_noted(tmp_path: Path) -> None:
    files = read_golden("v1-rehomed")
    end = len(files[ONE])
    assert seen(checked(edited(files, ONE, lambda raw: raw + bytes(8) + b"x"), tmp_path)) == [
        ("note", ONE, end)
    ]


def test_what_may_be_a_trace_of_a_loss_is_a_warning(tmp_path: Path) -> None:
    files = three_segments()
    end = len(files[THREE].rstrip(b"\0")) + 7 & ~7
    del files[THREE]
    finding = checked(files, tmp_path / "a")
    assert seen(finding) == [("warning", TWO, None)]
    assert "look for" in finding.troubles[0].mend and THREE in finding.troubles[0].mend
    cut = edited(three_segments(), THREE, lambda raw: raw[:end])
    assert seen(checked(cut, tmp_path / "b")) == [("warning", THREE, None)]


def test_a_log_that_a_server_refuses_is_not_called_sound(tmp_path: Path) -> None:
    """A server's refusal names this very command."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(image(Kind.KICK, 9), image(Kind.KICK, 8))
    finding = checked(scribe.files(), tmp_path / "a")
    (trouble,) = finding.troubles
    assert (finding.exit_code, trouble.jobs) == (DAMAGED, (8, 9))
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, tube_id=5))
    assert checked(scribe.files(), tmp_path / "b").exit_code == DAMAGED


def test_state_from_before_the_body_was_stated_again_is_no_trouble(tmp_path: Path) -> None:
    """The segment with the PUT is gone, the COPY comes later."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(image(Kind.KICK, 9), image(Kind.COPY, 9, body=b"x"))
    scribe.write(image(Kind.KICK, 8, tube_id=7), delete(8, tube_id=7))
    assert checked(scribe.files(), tmp_path).exit_code == SOUND


def forged(files: Files, at: int, value: bytes) -> Files:
    """Bytes in the first frame changed, and the checksums of the frame made right again."""
    raw = bytearray(files[ONE])
    raw[at : at + len(value)] = value
    n_rec, heap_len = struct.unpack_from("<I", raw, 4116)[0], struct.unpack_from("<I", raw, 4148)[0]
    heap_at = 4160 + n_rec * 80
    struct.pack_into("<I", raw, 4152, zlib.crc32(raw[heap_at : heap_at + heap_len]))
    return {**files, ONE: rechecked(raw, 4096)}


def test_each_body_is_held_against_its_own_checksum(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"promised"), put(2, b"too"))
    scribe.mark()
    at = scribe.files()[ONE].index(b"promised")
    finding = checked(forged(scribe.files(), at, b"P"), tmp_path)
    assert finding.exit_code == DAMAGED
    (trouble,) = finding.troubles
    assert (trouble.kind, trouble.jobs, trouble.first_lsn) == ("content", (1,), 2)


def test_a_state_that_does_not_exist_is_told(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.mark()
    finding = checked(forged(scribe.files(), 4160 + 80 + 1, b"\x09"), tmp_path)
    assert (finding.exit_code, finding.troubles[0].what) == (DAMAGED, "job state 9 is unknown")


def test_every_single_flipped_byte_of_a_log_is_found_or_is_the_padding(tmp_path: Path) -> None:
    """Torn or damaged, as the server has it; and the place on the map is the right one."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"one"), put(2, b"two"))
    scribe.write(image(Kind.BURY, 2, state=State.BURIED), delete(1))
    scribe.mark()
    files = scribe.files()
    end = len(files[ONE].rstrip(b"\0"))
    for offset in range(4096, end, 3):
        spoilt = edited(files, ONE, lambda raw, at=offset: flipped(raw, at, 5))  # type: ignore[misc]
        refused = Survey(MemoryDirectory(spoilt), quiet).refusal()
        finding = checked(spoilt, tmp_path)
        assert (finding.exit_code == DAMAGED) == (refused is not None)
        for trouble in finding.troubles:
            assert trouble.offset is not None and trouble.end is not None
            assert trouble.offset <= offset < trouble.end


def test_nothing_is_torn_in_an_archive(tmp_path: Path) -> None:
    """What has its name there is complete."""
    files = read_golden("v1-torn")
    assert check(open_source(str(written(tmp_path / "log", files)))).exit_code == TORN
    source = open_source(str(archived(tmp_path / "archive", files)))
    finding = check(source)
    assert (finding.exit_code, [t.kind for t in finding.troubles]) == (DAMAGED, ["corrupt"])
    found = Salvage(source, is_whole=False, is_archive=source.is_archive)
    assert found.verdict == "damaged"


def test_the_last_record_that_was_durable_is_damage_and_no_torn_tail(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(put(2, b"the last"))
    scribe.mark()
    files = scribe.files()
    at = files[ONE].index(b"the last")
    finding = checked(edited(files, ONE, lambda raw: flipped(raw, at)), tmp_path)
    (trouble,) = finding.troubles
    assert (trouble.kind, trouble.first_lsn, finding.durable_lsn) == ("corrupt", 3, 3)
