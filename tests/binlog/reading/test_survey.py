"""What is wrong with a log, each thing with its own words and exit code, and nothing changed."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.errors import BinlogError, Damaged, Incompatible
from beanstalk_twisted.binlog.reading.survey import PROGRESS_FRAMES, Survey
from beanstalk_twisted.binlog.records.jobs import NO_DATA, Kind
from beanstalk_twisted.binlog.records.others import CleanStop, Pause, Record, Trim, TubeDef
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES, segment_name
from beanstalk_twisted.binlog.writer import spare_name
from tests.binlog import independent_reader
from tests.binlog.forging import with_header_field
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    MS,
    SALT,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    files_of,
    flipped,
    image,
    put,
    quiet,
)

ONE, TWO, THREE = (segment_name(n) for n in (1, 2, 3))


def three_segments() -> Scribe:
    """Two sealed segments and one in use, of which all but the last batch is known durable."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    for job_id in (1, 2):
        scribe.write(put(job_id, b"x" * 9000))
    scribe.write(put(3, b"three" * 200))
    scribe.write(put(4, b"four"))
    return scribe


def survey(files: Files) -> Survey:
    directory = MemoryDirectory(files)
    found = Survey(directory, quiet)
    assert directory.operations == 0
    assert files_of(directory) == files
    return found


def refusal(files: Files) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        survey(files).refuse_if_unsound()
    return caught.value


def test_a_sound_log_is_not_refused() -> None:
    found = survey(three_segments().files())
    found.refuse_if_unsound()
    assert [segment.name for segment in found.segments] == [ONE, TWO, THREE]
    assert found.torn is None
    assert found.small.records == 9
    assert found.durable_lsn == 8, "of the last batch nobody said so yet"


# Refusals.

Change = Callable[[Files], Files]


def without(*names: str) -> Change:
    return lambda files: {name: raw for name, raw in files.items() if name not in names}


def with_field(name: str, offset: int, pattern: str, value: int | bytes) -> Change:
    return lambda files: edited(
        files, name, lambda raw: with_header_field(raw, offset, pattern, value)
    )


def in_place_of(name: str, other: str) -> Change:
    return lambda files: {**files, name: files[other]}


def also(name: str) -> Change:
    return lambda files: {**files, name: b"\7\0\0\0"}


def bit(name: str, offset: int) -> Change:
    return lambda files: edited(files, name, lambda raw: flipped(raw, offset))


def cut(name: str, size: int) -> Change:
    return lambda files: edited(files, name, lambda raw: raw[:size])


FIRST_FRAME = SEGMENT_HEADER_BYTES

REFUSED: dict[str, tuple[Change, type[BinlogError], str]] = {
    "the first segment is missing": (
        without(ONE), Damaged, f"{ONE}: missing; {TWO} builds on what was there",
    ),
    "a segment in the middle is missing": (
        without(TWO), Damaged, f"{TWO}: missing; {THREE} builds on what was there",
    ),
    "several segments are missing": (
        without(ONE, TWO), Damaged, f"{ONE} to {TWO}: missing; {THREE} builds on what was there",
    ),
    "a file is empty": (
        cut(TWO, 0), Damaged, f"{TWO}: the file is 0 bytes long, shorter than its header",
    ),
    "a file ends in its header": (
        cut(TWO, 4095), Damaged, f"{TWO}: the file is 4095 bytes long, shorter than its header",
    ),
    "a file that is something else": (
        bit(TWO, 0), Damaged, f"{TWO}: it does not begin as a segment does",
    ),
    "a damaged header": (
        bit(TWO, 17), Damaged, f"{TWO}: the header's checksum is wrong",
    ),
    "a renamed file": (
        in_place_of(TWO, THREE), Damaged, f"{TWO}: its header says that it is segment 3",
    ),
    "a segment of another store": (
        with_field(TWO, 64, "16s", b"another store!!!"), Incompatible,
        f"{TWO}: it belongs to another store ({b'another store!!!'.hex()})",
    ),
    "an unknown major version": (
        with_field(THREE, 8, "<H", 2), Incompatible,
        f"{THREE}: its format version is 2; this server knows 1",
    ),
    "an unknown feature": (
        with_field(THREE, 104, "<I", 8), Incompatible,
        f"{THREE}: it uses features this server does not know (bits 0x8)",
    ),
    "a feature that forbids appending": (
        with_field(THREE, 100, "<I", 8), Incompatible,
        f"{THREE}: it uses features this server does not know (bits 0x8)",
    ),
    "a log of beanstalkd": (
        also("binlog.12"), Incompatible,
        "it holds binlog.12, a log of the C beanstalkd. Convert it: binlog-inspect import-v7 "
        "'(memory)' -o '(memory).tql', then start with --binlog '(memory).tql'",
    ),
    "damage in a segment with a successor": (
        bit(TWO, FIRST_FRAME + 70), Damaged,
        f"{TWO}: offset 4096: LSN 4 to 6 cannot all be read: the checksum of its records is wrong",
    ),
    "a segment that ends too early": (
        cut(ONE, FIRST_FRAME), Damaged,
        f"{ONE}: offset 4096: LSN 1 to 3 cannot all be read: the segment ends here",
    ),
    "a segment cut inside a frame": (
        cut(ONE, FIRST_FRAME + 100), Damaged,
        f"{ONE}: offset 4096: LSN 1 to 3 cannot all be read: a frame begins but is not complete",
    ),
    "a successor that begins elsewhere": (
        with_field(THREE, 24, "<Q", 9), Damaged,
        f"{TWO}: ends with LSN 6, its successor begins with LSN 9",
    ),
    "durable records in the newest segment": (
        bit(THREE, FIRST_FRAME + 70), Damaged,
        f"{THREE}: offset 4096: LSN 7 to 8 were durable and cannot all be read: the checksum of "
        f"its records is wrong",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "error", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_each_thing_that_is_wrong_has_words_of_its_own(
    change: Change, error: type[BinlogError], said: str
) -> None:
    found = refusal(change(three_segments().files()))
    assert type(found) is error
    assert found.exit_code == {Damaged: 65, Incompatible: 78}[error]
    assert said in str(found)
    assert "nothing was changed" in str(found).replace("nothing\n", "nothing ")
    assert "(memory)" in str(found)
    if error is Damaged:
        assert "Run 'binlog-inspect check (memory)'" in str(found)


def test_all_that_is_wrong_is_said_at_once() -> None:
    files = bit(ONE, FIRST_FRAME)(bit(TWO, FIRST_FRAME)(three_segments().files()))
    assert len(survey(files).problems) == 2
    assert all(f"{name}: offset 4096" in str(refusal(files)) for name in (ONE, TWO))


@pytest.mark.parametrize(
    "name", ["binlog.", "binlog.1a", "binlog.1.gz", "xbinlog.1", "binlog", "LOCK", "notes.txt"]
)
def test_files_of_other_names_do_not_matter(name: str) -> None:
    assert survey(also(name)(three_segments().files())).refusal() is None


def test_exchanged_names_are_told_and_nothing_else() -> None:
    files = three_segments().files()
    found = survey({**files, ONE: files[TWO], TWO: files[ONE]})
    assert [problem.what for problem in found.problems] == [
        f"{ONE}: its header says that it is segment 2",
        f"{TWO}: its header says that it is segment 1",
    ]
    assert found.salvage_command == "binlog-inspect salvage '(memory)' -o NEW_DIRECTORY"
    assert [segment.name for segment in found.segments] == [TWO, ONE, THREE]


def test_a_renamed_segment_is_missed_under_no_name() -> None:
    files = three_segments().files()
    files[segment_name(9)] = files.pop(TWO)
    (problem,) = survey(files).problems
    assert problem.what == f"{segment_name(9)}: its header says that it is segment 2"


def test_a_living_segment_under_a_dead_name_is_not_taken_for_dead() -> None:
    scribe = three_segments()
    scribe.write(delete(1), delete(2), Trim(3, T0))
    files = scribe.files()
    files[ONE] = files.pop(THREE)
    assert f"{ONE}: its header says that it is segment 3" in str(refusal(files))


def test_an_enormous_gap_is_found_without_counting_it() -> None:
    far = segment_name(1 << 62)
    files = three_segments().files()
    moved = {**files, far: with_header_field(files[THREE], 16, "<Q", 1 << 62)}
    assert f"{far} builds on what was there" in str(refusal(moved))


# The end of the newest segment.


def end_of(raw: bytes) -> int:
    segment = independent_reader.segment_of(raw)
    return int(segment["end"])


def last_frame(raw: bytes) -> int:
    segment = independent_reader.segment_of(raw)
    return int(segment["frames"][-1]["offset"])


@pytest.mark.parametrize("zeros", [0, 8, 4096, 100_000])
def test_garbage_behind_the_last_frame_is_a_torn_tail(zeros: int) -> None:
    files = three_segments().files()
    end = end_of(files[THREE])
    found = survey({**files, THREE: files[THREE][:end] + bytes(zeros) + b"garbage" + bytes(50)})
    assert found.refusal() is None
    assert found.torn is not None
    assert found.torn[:4] == (THREE, end, end + zeros + 7, 10)
    assert f"{zeros + 7} bytes from offset {end} on are torn" in str(found.torn)
    assert "(LSN 10 and later, not known to be durable)" in str(found.torn)


def test_a_whole_frame_behind_a_torn_one_is_no_proof_of_damage_but_may_bear_witness() -> None:
    """While one sync runs, later frames are written; the disk may keep a later and not an
    earlier one.
    """
    found = survey(intact_behind_damage(durable_lsn=1))
    assert (found.refusal(), found.torn and found.torn.first_lsn) == (None, 2)
    found = survey(intact_behind_damage(durable_lsn=2))
    assert "LSN 2 to 2 were durable" in str(found.refusal())


def test_the_last_frame_may_be_torn_until_a_sync_mark_confirms_it() -> None:
    scribe = three_segments()
    damaged = bit(THREE, last_frame(scribe.files()[THREE]) + 70)
    found = survey(damaged(scribe.files()))
    assert (found.refusal(), found.torn and found.torn.first_lsn, found.durable_lsn) == (None, 9, 8)
    scribe.mark()
    found = survey(damaged(scribe.files()))
    assert found.durable_lsn == 9
    assert "LSN 9 to 9 were durable and cannot all be read" in str(found.refusal())


def test_a_clean_stop_confirms_all_before_it() -> None:
    scribe = three_segments()
    scribe.finish()
    found = survey(scribe.files())
    assert found.small.is_clean
    assert found.durable_lsn == 11
    # The CLEAN_STOP's own frame says that what came before it was durable.
    at = independent_reader.segment_of(scribe.files()[THREE])
    offset = at["frames"][1]["offset"]
    assert "LSN 9 to 9 were durable" in str(refusal(bit(THREE, offset + 70)(scribe.files())))


@pytest.mark.parametrize("more", [[put(9)], [image(Kind.RESERVE)], [Pause(1, 1, T0, T0)]])
def test_a_clean_stop_with_anything_behind_it_confirms_nothing(more: list[Record]) -> None:
    scribe = Scribe()
    scribe.write(put(1))
    scribe.write(CleanStop(T0), sync=False)
    scribe.write(*more, sync=False)
    found = survey(scribe.files())
    assert not found.small.is_clean
    assert found.durable_lsn == 1


def intact_behind_damage(durable_lsn: int) -> Files:
    """A frame with LSN 2 that is torn, and behind it one with LSN 3 that is whole."""
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    raw = scribe.files()[ONE]
    torn = bytearray(
        frames.encode([put(1)], base_lsn=2, durable_lsn=1, time_ns=T0, salt=SALT)
    )  # fmt: skip
    torn[70] ^= 1
    whole = frames.encode([put(2)], base_lsn=3, durable_lsn=durable_lsn, time_ns=T0, salt=SALT)
    return {ONE: raw[: end_of(raw)] + torn + whole}


# The newest segment got its name when its first frame was durable.


@pytest.mark.parametrize("zeros", [0, 100, 4096, 60_000])
def test_a_newest_segment_without_a_frame_is_damaged(zeros: int) -> None:
    files = edited(three_segments().files(), THREE, lambda raw: raw[:4096] + bytes(zeros))
    assert f"{THREE}: offset 4096: LSN 7 to 7 were durable and cannot all be read: no frame" in (
        str(refusal(files))
    )


@pytest.mark.parametrize("count", range(1, 16))
def test_bytes_that_were_put_in_or_taken_out_are_damage(count: int) -> None:
    """Where a watermark, or a frame that stands where none is written, says so."""
    scribe = three_segments()
    scribe.mark()
    files = scribe.files()
    at = last_frame(files[THREE]) - 200
    more = edited(files, THREE, lambda raw: raw[:at] + b"\xaa" * count + raw[at:])
    less = edited(files, THREE, lambda raw: raw[:at] + raw[at + count :])
    for changed in (more, less):
        assert isinstance(refusal(changed), Damaged)
        assert independent_reader.read_log(changed)["verdict"] == "damaged"


def test_an_archived_segment_may_have_no_frame() -> None:
    """It was re-homed too, and the segment cut behind its header."""
    files = edited(three_segments().files(), THREE, lambda raw: raw[:4096])
    found = Survey(MemoryDirectory(files), quiet, is_whole=False)
    assert (found.refusal(), found.torn) == (None, None)


@given(st.binary(max_size=200), st.integers(0, 8000), st.sampled_from([ONE, TWO, THREE]))
def test_any_bytes_anywhere_are_judged_and_raise_nothing(
    noise: bytes, offset: int, name: str
) -> None:
    files = three_segments().files()
    raw = files[name][:offset] + noise + files[name][offset + len(noise) :]
    found = Survey(MemoryDirectory({**files, name: raw}), quiet)
    assert found.refusal() is None or isinstance(found.refusal(), Damaged)


# Small state.


def test_small_state_is_that_of_the_newest_records() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], next_job_id=50)
    scribe.write(TubeDef(7, b"mail"), Pause(7, 5, T0, T0), Pause(1, 9, T0, T0))
    scribe.write(Pause(7, 0, 0, T0), put(60, tube_id=7))
    small = survey(scribe.files()).small
    assert small.tubes == {1: b"default", 7: b"mail"}
    found = {about: each.record for about, each in small.newest[Pause].items()}
    assert found == {7: Pause(7, 0, 0, T0), 1: Pause(1, 9, T0, T0)}
    assert (small.next_job_id, small.next_tube_id) == (61, 8)
    assert small.time_ns == T0 + 2 * MS
    assert not small.is_clean


def test_the_next_job_id_is_kept_by_headers_alone() -> None:
    scribe = Scribe(next_job_id=50)
    scribe.write(DEFAULT_TUBE)
    assert survey(scribe.files()).small.next_job_id == 50


# What is dead.


def test_segments_that_a_trim_freed_and_spares_are_dead() -> None:
    scribe = three_segments()
    scribe.write(delete(1), delete(2), Trim(3, T0))
    files = {**scribe.files(), spare_name(4): b"half", "spare.txt": b"mine"}
    found = survey(files)
    assert sorted(found.dead) == [ONE, TWO, spare_name(4)]
    assert [segment.name for segment in found.segments] == [THREE]
    assert found.refusal() is None


@pytest.mark.parametrize("change", [without(ONE), without(TWO), without(ONE, TWO), cut(TWO, 9),
                                    bit(ONE, 5000), bit(ONE, 3)])  # fmt: skip
def test_what_is_dead_may_be_missing_or_damaged(change: Change) -> None:
    scribe = three_segments()
    scribe.write(delete(1), delete(2), Trim(3, T0))
    assert survey(change(scribe.files())).refusal() is None


def test_a_trim_frees_nothing_above_itself() -> None:
    scribe = three_segments()
    scribe.write(delete(1), Trim(2, T0))
    files = scribe.files()
    assert survey(without(ONE)(files)).refusal() is None
    assert f"{TWO}: missing" in str(refusal(without(TWO)(files)))
    assert f"{TWO}: missing" in str(refusal(without(ONE, TWO)(files)))


# Progress.


def test_progress_is_told_up_to_the_end() -> None:
    scribe = Scribe(segment_bytes=1 << 20)
    scribe.write()
    for _ in range(PROGRESS_FRAMES + 1):
        scribe.mark()
    told: list[tuple[int, int]] = []
    files = scribe.files()
    Survey(MemoryDirectory(files), lambda done, total: told.append((done, total)))
    size = len(files[ONE])
    assert len(told) == 2
    assert told[-1] == (size, size)
    assert 0 < told[0][0] < size


def test_a_record_of_another_version_is_named_with_its_place() -> None:
    class Foreign(Trim):
        """A type that nobody knows."""

        kind = 99

    scribe = Scribe()
    scribe.write(put(1), Foreign(0, T0))
    found = refusal(scribe.files())
    assert isinstance(found, Incompatible)
    assert f"{ONE}: offset 4096, LSN 1: record type 99 is unknown" in str(found)


def test_a_record_size_of_a_newer_version_is_followed() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    raw = scribe.files()[ONE]
    array = put(1).encode(NO_DATA) + b"\xee" * 8
    frame = frames.assemble(
        array, (b"",), n_rec=1, base_lsn=2, durable_lsn=1, time_ns=T0, salt=SALT, rec_size=88
    )
    found = survey({ONE: raw[: end_of(raw)] + frame})
    assert (found.refusal(), found.torn, found.small.next_job_id) == (None, None, 2)


# Bodies that are left to somebody else.


def left(files: Files) -> Survey:
    return Survey(MemoryDirectory(files), quiet, leaves_bodies=True)


def test_bodies_of_finished_segments_are_left_and_said_to_be() -> None:
    files = three_segments().files()
    found = left(edited(files, ONE, lambda raw: flipped(raw, raw.index(b"xxxx"))))
    assert found.refusal() is None
    assert [segment.name for segment in found.unchecked] == [ONE, TWO]
    assert [segment.name for segment in found.segments] == [ONE, TWO, THREE]
    assert survey(files).unchecked == []


def test_all_else_is_looked_at_and_so_is_the_newest_segment() -> None:
    files = three_segments().files()
    assert left(edited(files, ONE, lambda raw: flipped(raw, raw.index(b"default")))).problems
    assert left(edited(files, TWO, lambda raw: flipped(raw, 4096 + 70))).problems
    newest = left(edited(files, THREE, lambda raw: flipped(raw, raw.index(b"three"))))
    assert newest.problems or newest.torn is not None
    assert left(edited(files, THREE, lambda raw: flipped(raw, raw.index(b"four")))).torn
