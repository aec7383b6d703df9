"""Segments that are missing, dead, foreign or without a header."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.reading.survival import Why
from beanstalk_twisted.binlog.records.others import Counters
from beanstalk_twisted.binlog.writer import spare_name
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.salvage.claims import Consent, Refused
from tests.binlog.forging import with_header_field, with_record_byte
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    files_of,
    flipped,
    put,
)
from tests.storage.test_opening import Started
from tests.tools.salvage.damaging import FILL, batches_of, killed, three_segments, with_bad_records
from tests.tools.salvage.logs import ONE, THREE, TWO
from tests.tools.salvage.salvaged import EVERYTHING, salvaged


def test_a_damaged_header_is_not_passed_over_unasked() -> None:
    files = edited(three_segments(), TWO, lambda raw: flipped(raw, 90))
    with pytest.raises(Refused) as caught:
        salvaged(files, Consent())
    assert caught.value.problems == [f"{TWO}: the header's checksum is wrong"]
    assert caught.value.options == ["--rebuild-header"]


def frames_of_another_log(first_lsn: int, count: int) -> bytes:
    """What somebody may put into the body of a job who queues pieces of logs."""
    fake = Scribe(opening=[DEFAULT_TUBE], salt=77, position=FIRST._replace(first_lsn=first_lsn))
    for number in range(count):
        fake.write(put(number + 1, b"fake"))
    raw = fake.files()[ONE]
    return raw[4096 : raw.rindex(b"fake") + 8]


def with_a_body_of_frames(piece: bytes) -> Files:
    """A log whose second segment begins with such a body; that frame's records and the segment's
    header are damaged, so that nothing says which frames are the real ones.
    """
    # Behind the header, two records and the name of the tube they begin at a multiple of 8.
    files = killed([put(9, FILL)], [put(1, b"-" + piece)], [put(2, b"real")], [put(8, FILL)],
                   [put(3)])  # fmt: skip
    assert b"real" in files[TWO] and THREE in files
    at = files[TWO].index(piece)
    assert at % 8 == 0
    files = with_bad_records(files, TWO, 0)
    return edited(files, TWO, lambda raw: bytes(4096) + raw[4096:])


def test_a_body_full_of_frames_cannot_pass_for_the_segment() -> None:
    found = salvaged(with_a_body_of_frames(frames_of_another_log(1, 2)))
    assert found.jobs[2].body == b"real"
    assert not any(job.body == b"fake" for job in found.jobs.values())


def test_frames_whose_lsns_do_not_fit_between_the_neighbours_are_not_of_the_segment() -> None:
    piece = frames_of_another_log(1000, 20)
    assert len(piece) > 3000
    found = salvaged(with_a_body_of_frames(piece))
    assert found.jobs[2].body == b"real"
    assert not any(job.body == b"fake" for job in found.jobs.values())


def test_a_missing_segment_is_not_passed_over_unasked() -> None:
    files = {name: raw for name, raw in three_segments().items() if name != TWO}
    with pytest.raises(Refused) as caught:
        salvaged(files, Consent(may_rebuild=True))
    assert caught.value.options == ["--accept-gap 2"]
    found = salvaged(files, Consent(Numbers([Span(2, 2)])))
    assert found.jobs.keys() == {1, 9, 3}
    assert {found.judgements[1].why, found.judgements[9].why} == {Why.DELETED}
    assert 3 not in found.judgements


def test_the_seal_of_a_segment_says_nothing_of_a_missing_one_behind_it() -> None:
    files = killed([put(1)], [put(7)], [put(9, FILL)], [delete(1), put(8, FILL)], [put(3)])
    left = {name: raw for name, raw in files.items() if name != TWO}
    found = salvaged(with_bad_records(left, ONE, 2))
    assert found.judgements[1].why is Why.DELETED


def test_missing_segments_are_asked_for_as_ranges() -> None:
    files = three_segments()
    far = with_header_field(files[THREE], 16, "<Q", 9)
    left = {ONE: files[ONE], "00000000000000000009.tql": far}
    with pytest.raises(Refused) as caught:
        salvaged(left, Consent())
    assert caught.value.options == ["--accept-gap 2-8"]


def test_a_copy_under_another_name_is_refused_and_named() -> None:
    files = three_segments()
    files["00000000000000000007.tql"] = flipped(files[TWO], 5000)
    with pytest.raises(Refused) as caught:
        salvaged(files)
    assert TWO in str(caught.value) and "00000000000000000007.tql" in str(caught.value)
    assert caught.value.options == []
    chosen = salvaged(files, EVERYTHING._replace(prefer=frozenset({TWO})))
    assert chosen.jobs == salvaged(three_segments()).jobs
    assert chosen.report.salvage.plan.left_out == ["00000000000000000007.tql"]


@pytest.mark.parametrize("name", ["00000000000000000007.tql", "00000000000000000000.tql"])
def test_of_files_that_are_the_same_byte_for_byte_one_is_taken(name: str) -> None:
    files = three_segments()
    found = salvaged({**files, name: files[TWO]}, Consent())
    assert found.jobs == salvaged(files).jobs
    assert (found.verdict, found.report.salvage.plan.left_out) == ("damaged", [name])


def test_exchanged_names_need_no_option() -> None:
    files = three_segments()
    found = salvaged({**files, ONE: files[TWO], TWO: files[ONE]}, Consent())
    assert found.jobs == salvaged(files).jobs
    assert (found.verdict, found.judgements) == ("damaged", {})


def test_a_segment_of_another_store_is_refused_and_can_be_left_out() -> None:
    files = three_segments()
    files[THREE] = with_header_field(files[THREE], 64, "16s", b"another store!!!")
    with pytest.raises(Refused, match="of store"):
        salvaged(files)
    found = salvaged(files, EVERYTHING._replace(prefer=frozenset({ONE})))
    assert found.jobs.keys() == {9, 2, 8}


def test_a_segment_that_was_renamed_is_what_its_header_says() -> None:
    files = three_segments()
    files["00000000000000000004.tql"] = files.pop(THREE)
    found = salvaged(files, Consent())
    assert (found.jobs, found.verdict) == (salvaged(three_segments()).jobs, "damaged")


def test_a_log_of_another_version_is_refused() -> None:
    files = edited(three_segments(), ONE, lambda raw: with_header_field(raw, 8, "<H", 2))
    with pytest.raises(Incompatible, match="format version"):
        salvaged(files)


def test_records_of_a_newer_version_are_refused() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(Counters(0, T0, {}))
    with pytest.raises(Incompatible, match="record type 41"):
        salvaged(with_record_byte(scribe.directory, 0, 41))  # type: ignore[arg-type]


def test_nothing_comes_back_from_a_trimmed_segment() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"dead"), put(2))
    scribe.end_segment()
    scribe.write(put(3))
    files = edited(scribe.files(), TWO, lambda raw: with_header_field(raw, 48, "<Q", 2))
    assert salvaged(files).jobs.keys() == {3}
    assert salvaged(with_bad_records(files, ONE, 0)).jobs.keys() == {3}


def test_a_segment_that_has_no_name_yet_is_no_part_of_the_log() -> None:
    """A server was killed just before it gave it one: nothing in it was promised, and all of it is
    written again.
    """
    files = three_segments()
    unnamed = files.pop(THREE)
    found = salvaged({**files, spare_name(1): unnamed, spare_name(2): bytes(8192)})
    assert (found.verdict, found.jobs) == ("sound", salvaged(files).jobs)


def test_nothing_comes_back_from_behind_the_place_where_a_start_has_cut_a_segment() -> None:
    """The start dropped a torn place and the end of job 1 behind it, and was killed before the old
    segment was cut; now the header that says so is damaged as well.
    """
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(put(2), sync=False)
    scribe.write(delete(1), sync=False)
    torn = with_bad_records(scribe.files(), ONE, 1)
    started = Started(MemoryDirectory(torn), now_ns=T0)
    assert started.jobs().keys() == {1}
    files = {**files_of(started.directory), ONE: torn[ONE]}
    assert salvaged(files).jobs.keys() == {1}
    spoilt = edited(files, TWO, lambda raw: bytes(4096) + raw[4096:])
    assert salvaged(spoilt).jobs.keys() == {1}


def test_of_a_frame_that_stands_twice_the_better_one_is_taken() -> None:
    """A write that went astray has put the beginning of one frame over another one."""
    files = killed([put(1, b"first body" * 20)], [put(2, b"y" * 400)], [put(3)])
    first, second = (batches_of(files, ONE)[at]["offset"] for at in (1, 2))
    stray = files[ONE][first : first + 200]
    found = salvaged(
        edited(files, ONE, lambda raw: raw[:second] + stray + raw[second + len(stray) :])
    )
    assert found.jobs[1].body == b"first body" * 20
    assert found.jobs[1].tube == b"default"


@pytest.mark.parametrize("gone", [(THREE,), (TWO, THREE)], ids=["one", "two"])
def test_unreadable_newest_segments_may_have_deleted_any_job(gone: tuple[str, ...]) -> None:
    files = {k: bytes(len(raw)) if k in gone else raw for k, raw in three_segments().items()}
    found = salvaged(files, EVERYTHING)
    assert found.verdict == "damaged"
    assert found.jobs.keys() == ({2, 8, 9} if gone == (THREE,) else {1, 9})
    assert {judged.why for judged in found.judgements.values()} == {Why.DELETED}
    assert found.judgements.keys() == found.jobs.keys()
    (hole,) = found.report.salvage.holes
    assert hole.is_open and hole.is_confirmed
    assert {place.expected_lsn for place in found.report.salvage.places} == {hole.first_lsn}
