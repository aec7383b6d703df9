"""Bodies that are sound while their records are not, or the header of their frame: each is saved,
and said to be doubtful.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.reading.survival import Why
from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import TubeDef
from binlog_tools.logs.stored import LOST_AND_FOUND
from binlog_tools.salvage.carving import GUESS_BYTES
from tests.binlog.scribe import T0, Files, Scribe, delete, edited, flipped, put
from tests.tools.salvage.damaging import (
    FILL,
    MAIL,
    batches_of,
    full_records,
    inverted,
    killed,
    overwritten,
)
from tests.tools.salvage.logs import ONE, TWO, Bytes
from tests.tools.salvage.salvaged import Salvaged, salvaged, see_that_it_loads
from tests.tools.salvage.test_sweeps import zeros

LONG = b"a long body " * 250


def found_bodies(found: Salvaged) -> dict[bytes, Why]:
    return {
        job.body: found.judgements[job.job_id].why
        for job in found.jobs.values()
        if job.tube == LOST_AND_FOUND
    }


def record_of(files: Files, body: bytes) -> Bytes:
    (full,) = [each for each in full_records(files) if each.body == body]
    return full.record


@pytest.mark.one_in(7)
@pytest.mark.parametrize("byte", range(80))
@pytest.mark.parametrize("bodies", [[LONG], [b"before", LONG, b"behind"]], ids=["one", "three"])
def test_a_body_is_saved_whichever_byte_is_damaged(bodies: list[bytes], byte: int) -> None:
    batch = [put(number, body) for number, body in enumerate(bodies, 1)]
    files = killed(batch, [put(9)])
    at = record_of(files, LONG).start + byte
    found = salvaged(overwritten(files, Bytes(ONE, at, at + 1), inverted))
    assert found_bodies(found) == dict.fromkeys(bodies, Why.RECORD)
    see_that_it_loads(found)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("byte", range(80))
def test_a_damaged_header_of_the_segment_does_not_change_that(byte: int) -> None:
    files = killed([put(1, FILL)], [put(2, LONG)], [put(9)])
    at = record_of(files, LONG).start + byte
    spoilt = overwritten(files, Bytes(TWO, at, at + 1), inverted)
    spoilt = overwritten(spoilt, Bytes(TWO, 1643, 1644), inverted)
    found = salvaged(spoilt)
    assert found_bodies(found) == {LONG: Why.RECORD}
    assert found.report.salvage.rebuilt == [TWO]


def test_the_first_frame_behind_a_damaged_header_may_have_damaged_records() -> None:
    files = killed([put(1, FILL)], [put(9)], opening=(MAIL, put(2, LONG)))
    at = record_of({TWO: files[TWO]}, LONG).start + 72
    spoilt = overwritten(files, Bytes(TWO, at, at + 1), inverted)
    spoilt = overwritten(spoilt, Bytes(TWO, 0, 4096), zeros)
    spoilt = overwritten(spoilt, Bytes(ONE, 4096, 4160), zeros)
    assert LONG in found_bodies(salvaged(spoilt))


def test_the_name_of_a_tube_is_no_body() -> None:
    files = killed([put(1)], [TubeDef(3, b"name of a tube", T0), put(2, b"a body")])
    at = files[ONE].index(b"name of a tube") - 160 + 72
    found = salvaged(edited(files, ONE, lambda raw: flipped(raw, at)))
    assert found_bodies(found) == {b"a body": Why.RECORD}


@pytest.mark.parametrize("byte", [0, 64, 68, 72])
def test_a_body_whose_record_is_damaged_stays_deleted_if_the_id_is_left(byte: int) -> None:
    for batches in ([put(1, LONG)], [delete(1)], [put(9)]), ([put(1, LONG), delete(1)], [put(9)]):
        files = killed(*batches)
        at = record_of(files, LONG).start + byte
        found = salvaged(overwritten(files, Bytes(ONE, at, at + 1), inverted))
        assert LONG not in found_bodies(found) or len(batches) == 2


def test_a_copy_beside_a_damaged_record_makes_up_for_a_damaged_body() -> None:
    """The newest record says what the checksum of the body is, an older frame has the body."""
    files = killed([put(1, b"first body")], [put(1, b"first body")._replace(kind=Kind.COPY)])
    first, second = full_records(files)
    at = first.record.start + 4
    spoilt = edited(files, ONE, lambda raw: flipped(flipped(raw, at), second.data.start))
    found = salvaged(spoilt)
    assert (found.jobs[1].body, found.judgements) == (b"first body", {})


@pytest.mark.parametrize("position", [1, 2, 3])
def test_records_behind_a_header_of_zeros_are_found_and_doubtful(position: int) -> None:
    files = killed([put(1, b"one"), put(2, LONG)], [MAIL, put(3, b"three")], [put(4, b"four")])
    frame = batches_of(files, ONE)[position]
    start = frame["offset"]
    found = salvaged(overwritten(files, Bytes(ONE, start, start + 64), zeros))
    bodies = [record["data"] for record in frame["records"] if record["type"] == Kind.PUT]
    assert found_bodies(found) == dict.fromkeys(bodies, Why.RECORD)
    assert {job.job_id: job.body for job in found.jobs.values()} == {
        1: b"one", 2: LONG, 3: b"three", 4: b"four",
    }  # fmt: skip
    (hole,) = found.report.salvage.holes
    assert hole.first_lsn == frame["base_lsn"]
    assert hole.last_lsn == frame["base_lsn"] + frame["n_rec"] - 1
    assert hole.offset <= start < hole.end
    assert hole.likely_puts == frame["n_rec"]
    see_that_it_loads(found)


def test_a_frame_without_a_header_may_have_damaged_records_too() -> None:
    files = killed([put(number, b"body %d" % number) for number in range(1, 6)], [put(9)])
    start = batches_of(files, ONE)[1]["offset"]
    middle = record_of(files, b"body 3")
    spoilt = overwritten(files, Bytes(ONE, start, start + 64), zeros)
    found = salvaged(overwritten(spoilt, middle, zeros))
    assert set(found_bodies(found)) == {b"body 1", b"body 2", b"body 4", b"body 5"}


def test_a_job_that_was_deleted_does_not_come_back_from_a_frame_without_a_header() -> None:
    for batches in (
        ([put(1, LONG)], [delete(1)], [put(9)]),
        ([put(1, LONG), put(2, FILL)], [delete(1)], [put(9)]),
    ):
        files = killed(*batches)
        start = batches_of(files, ONE)[1]["offset"]
        found = salvaged(overwritten(files, Bytes(ONE, start, start + 64), zeros))
        assert 1 not in found.jobs and LONG not in found_bodies(found)


def test_what_stands_in_the_body_of_a_sound_frame_is_no_record() -> None:
    other = Scribe(salt=77)
    other.write(put(7, b"an entry of another log"))
    piece = other.files()[ONE][4096:4296]
    # Behind the header and one record it stands at a multiple of 8, as records do.
    files = killed([put(1, piece)], [put(2)], [put(3)])
    found = salvaged(overwritten(files, Bytes(ONE, 4096, 4160), zeros))
    assert found.jobs.keys() == {1, 2, 3}
    start = batches_of(files, ONE)[1]["offset"]
    found = salvaged(overwritten(files, Bytes(ONE, start, start + 64), zeros))
    assert found_bodies(found) == {piece: Why.RECORD}


@pytest.mark.exhaustive
def test_a_place_full_of_records_without_bodies_is_given_up_in_time() -> None:
    """Each of them claims a long body that is not there."""
    files = killed([put(1, b"x" * 700_000)], [put(2)])
    (full, _) = full_records(files)
    name, start, _ = full.header
    record = files[name][full.record.start : full.record.end]
    record = record[:68] + (60_000).to_bytes(4, "little") + record[72:]
    count = 2000
    assert count * 60_000 < GUESS_BYTES < count * count * 60_000
    spoilt = overwritten(
        files, Bytes(name, start, start + 64 + 80 * count), lambda block: bytes(64) + record * count
    )
    found = salvaged(spoilt)
    assert found.jobs.keys() == {2}
