"""
What is certain, doubtful and lost: each rule of docs/recovery.md on a log of its own.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.records import Counters, Kind, Pause, Seal, State, TubeDef
from beanstalk_twisted.binlog.seal import SegmentIndex
from binlog_tools.moments import Numbers, Span
from binlog_tools.salvage.claims import Consent, Refused
from binlog_tools.salvage.judging import LOST_AND_FOUND, Doubtful, Why
from binlog_tools.stored import StoredPause
from tests.binlog import independent_reader
from tests.binlog.forging import with_header_field, with_record_byte
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    NS,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    flipped,
    image,
    put,
)
from tests.tools.salvage.logs import ONE, THREE, TWO
from tests.tools.salvage.salvaged import EVERYTHING, salvaged, see_that_it_loads

MAIL = TubeDef(2, b"mail", T0)
FILL = b"x" * 4200
"""A body that fills a segment."""


def batches_of(files: Files, name: str) -> list[independent_reader.Fields]:
    """
    The frames of a segment that are not sync marks.
    """
    segment = independent_reader.read_segment(files[name])
    assert segment is not None
    return [frame for frame in segment["frames"] if frame["n_rec"]]


def with_bad_records(files: Files, name: str, batch: int) -> Files:
    """
    The last record of a batch is not as it was.
    """
    frame = batches_of(files, name)[batch]
    at = frame["offset"] + 80 * (frame["n_rec"] - 1)
    return edited(files, name, lambda raw: flipped(raw, at + 64 + 5))


def with_bad_heap(files: Files, name: str, body: bytes) -> Files:
    """
    One byte of a body is not as it was.
    """
    return edited(files, name, lambda raw: flipped(raw, raw.index(body)))


def killed(*batches: list, opening: tuple = (DEFAULT_TUBE,)) -> Files:  # type: ignore[type-arg]
    """
    A log; each batch was confirmed.  What it opens with is a batch of its own, number 0.
    """
    scribe = Scribe(opening=list(opening))
    scribe.write()
    for batch in batches:
        scribe.write(*batch)
        if not scribe.log.has_open:
            scribe.mark()
    return scribe.files()


# Certain.


def test_a_job_whose_newest_record_stands_behind_the_damage_is_certain() -> None:
    buried = image(Kind.BURY, 1, state=State.BURIED, deadline_ns=T0 + 7, buries=1, reserves=1)
    files = killed([put(1)], [image(Kind.RESERVE, 1, state=State.RESERVED)], [buried])
    found = salvaged(with_bad_records(files, ONE, 2))
    assert (found.verdict, found.judgements) == ("damaged", {})
    job = found.jobs[1]
    assert (job.state, job.deadline_ns, job.buries, job.body) == (
        State.BURIED, T0 + 7, 1, b"hello",
    )  # fmt: skip


def test_a_job_that_was_deleted_behind_the_damage_stays_deleted() -> None:
    files = killed([put(1), put(2)], [image(Kind.KICK, 1)], [delete(1)])
    assert salvaged(with_bad_records(files, ONE, 2)).jobs.keys() == {2}


def test_reserved_jobs_are_ready_and_keep_their_counters() -> None:
    files = killed([put(1)], [image(Kind.RESERVE, 1, state=State.RESERVED, reserves=3,
                                    deadline_ns=T0 + NS)])  # fmt: skip
    job = salvaged(files).jobs[1]
    assert (job.state, job.deadline_ns, job.reserves) == (State.READY, 0, 3)


def test_an_older_copy_of_a_body_is_as_good() -> None:
    files = killed([put(1, b"first body")], [put(1, b"first body")._replace(kind=Kind.COPY)])
    at = files[ONE].rindex(b"first body")
    found = salvaged(edited(files, ONE, lambda raw: flipped(raw, at)))
    assert (found.jobs[1].body, found.judgements) == (b"first body", {})


def test_a_body_in_a_trimmed_segment_serves_if_its_copy_is_lost() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"the body"), put(2, FILL))
    scribe.write(put(1, b"the body")._replace(kind=Kind.COPY))
    scribe.write(image(Kind.KICK, 1))
    files = with_header_field(scribe.files()[TWO], 48, "<Q", 2)
    found = salvaged(with_bad_records({**scribe.files(), TWO: files}, TWO, 0))
    assert found.jobs.keys() == {1}
    assert (found.jobs[1].body, found.judgements) == (b"the body", {})


def test_a_name_of_a_tube_is_taken_from_any_segment() -> None:
    files = killed(
        [MAIL, put(1, tube_id=2)], [put(2, FILL)], [put(3)], opening=(DEFAULT_TUBE, MAIL)
    )
    for index in range(len(batches_of(files, TWO))):
        found = salvaged(with_bad_records(files, TWO, index))
        assert found.jobs[1].tube == b"mail"


def test_a_name_of_a_tube_is_taken_from_a_seal() -> None:
    files = killed([MAIL], [put(1, tube_id=2)], [put(2, FILL)])
    found = salvaged(with_bad_records(files, ONE, 1))
    assert found.jobs[1].tube == b"mail"


def test_a_name_of_a_tube_is_taken_from_a_frame_with_a_damaged_body() -> None:
    files = killed([MAIL, put(1, b"first body", tube_id=2), put(2, tube_id=2)], [put(3)])
    found = salvaged(with_bad_heap(files, ONE, b"first body"))
    assert found.judgements.keys() == {1}
    assert found.jobs[2].tube == b"mail"


# Doubtful.


def test_a_job_whose_newest_record_stands_before_a_hole_may_have_been_deleted() -> None:
    files = killed([put(1)], [delete(1)], [put(2)])
    found = salvaged(with_bad_records(files, ONE, 2))
    doubt = found.judgements[1]
    assert (doubt.why, doubt.hole, doubt.lsn, doubt.new_tube) == (
        Why.DELETED, (3, 3), 2, b"default",
    )  # fmt: skip
    assert found.jobs[1].state is State.READY
    assert 2 not in found.judgements


def test_doubtful_jobs_can_be_buried_or_dropped() -> None:
    files = with_bad_records(killed([put(1)], [delete(1)], [put(2)]), ONE, 2)
    buried = salvaged(files, doubtful=Doubtful.BURY)
    assert (buried.jobs[1].state, buried.jobs[1].tube) == (State.BURIED, b"default")
    assert buried.jobs[2].state is State.READY
    dropped = salvaged(files, doubtful=Doubtful.DROP)
    assert dropped.jobs.keys() == {2}
    assert dropped.judgements[1].new_tube is None
    assert [each.job_id for each in dropped.report.doubtful] == [1]
    assert dropped.report.lost == []


def test_the_seal_tells_that_nothing_was_deleted_in_a_hole() -> None:
    files = killed([put(1)], [image(Kind.TOUCH, 1, state=State.RESERVED)], [put(2, FILL)])
    found = salvaged(with_bad_records(files, ONE, 2), doubtful=Doubtful.DROP)
    assert found.judgements[1].why is Why.CHANGED
    assert 1 in found.jobs


def test_the_seal_tells_that_only_puts_were_lost() -> None:
    files = killed([put(1)], [put(5)], [put(2, FILL)])
    found = salvaged(with_bad_records(files, ONE, 2))
    assert found.judgements.keys() == {5}
    (hole,) = found.report.salvage.holes
    assert hole.types == {Kind.PUT: 1}


def test_the_seal_bounds_how_many_doubtful_jobs_were_deleted() -> None:
    batches = [[put(1), put(2)], [delete(1)], [put(3)], [delete(3)], [put(4, FILL)], [put(5)]]
    files = killed(*batches)
    offsets = [batches_of(files, ONE)[at]["offset"] + 70 for at in (2, 4)]
    for at in offsets:
        files = edited(files, ONE, lambda raw, at=at: flipped(raw, at))  # type: ignore[misc]
    found = salvaged(files)
    assert len(found.report.salvage.holes) == 2
    assert set(found.judgements) == {1, 2, 3}
    assert found.report.most_deleted == 2
    assert (
        salvaged(with_bad_records(killed([put(1)], [put(2)]), ONE, 2)).report.most_deleted is None
    )


def test_without_its_seal_a_segment_does_not_say_what_was_lost() -> None:
    files = killed([put(1)], [put(2, FILL)], [put(3)])
    found = salvaged(with_bad_records(files, ONE, -1))
    assert found.judgements[1].why is Why.DELETED


def test_a_seal_that_was_re_homed_says_nothing_of_the_segment_it_is_in_now() -> None:
    other = SegmentIndex()
    other.add_records([put(number) for number in range(50)])
    files = killed([put(1)], [Seal(T0, other.encode())], [delete(1)], [put(2)])
    found = salvaged(with_bad_records(files, ONE, 3))
    assert found.judgements[1].why is Why.DELETED
    assert found.report.salvage.holes[0].types is None


def test_a_job_whose_tube_has_no_name_any_more_is_set_aside() -> None:
    files = killed([MAIL], [put(1, tube_id=2, priority=9)])
    found = salvaged(with_bad_records(files, ONE, 1))
    job, doubt = found.jobs[1], found.judgements[1]
    assert (job.tube, job.state, job.priority, job.body) == (
        LOST_AND_FOUND, State.BURIED, 9, b"hello",
    )  # fmt: skip
    assert (doubt.why, doubt.tube, doubt.tube_id, doubt.state) == (
        Why.TUBE, None, 2, State.READY,
    )  # fmt: skip


def test_a_job_whose_body_is_damaged_is_set_aside_with_what_is_left() -> None:
    files = killed([put(1, b"first body"), put(2, b"second body")], [put(3)])
    found = salvaged(with_bad_heap(files, ONE, b"first body"))
    assert found.judgements.keys() == {1}
    assert found.judgements[1].why is Why.BODY
    job = found.jobs[1]
    assert (job.tube, job.state, job.body) == (LOST_AND_FOUND, State.BURIED, b"girst body")
    assert found.jobs[2].body == b"second body"


def test_a_body_whose_record_is_damaged_is_set_aside() -> None:
    files = killed([put(1, b"first body"), put(2, b"second body")], [put(3)])
    found = salvaged(with_bad_records(files, ONE, 1))
    assert {each.why for each in found.judgements.values()} == {Why.RECORD}
    bodies = {job.job_id: job.body for job in found.jobs.values() if job.tube == LOST_AND_FOUND}
    assert bodies == {1: b"first body", 2: b"second body"}


def test_a_body_whose_record_is_damaged_is_not_set_aside_if_it_was_deleted() -> None:
    files = killed([put(1, b"first body"), put(2, b"second body")], [delete(1)])
    assert salvaged(with_bad_records(files, ONE, 1)).jobs.keys() == {2}


def test_a_body_whose_record_is_damaged_is_shown_with_the_state_that_is_known() -> None:
    files = killed([put(1, b"first body")], [image(Kind.BURY, 1, state=State.BURIED, priority=7,
                                                   deadline_ns=5)])  # fmt: skip
    found = salvaged(with_bad_records(files, ONE, 1))
    doubt = found.judgements[1]
    assert (doubt.why, doubt.state, doubt.tube) == (Why.RECORD, State.BURIED, b"default")
    assert (found.jobs[1].body, found.jobs[1].priority) == (b"first body", 7)
    assert found.jobs[1].tube == LOST_AND_FOUND


def test_two_bodies_that_claim_one_id_are_both_kept() -> None:
    files = killed([put(1, b"first body")], [put(2, b"second body")], [put(3)])
    at = batches_of(files, ONE)[2]["offset"] + 64 + 8
    spoilt = edited(files, ONE, lambda raw: raw[:at] + b"\1" + raw[at + 1 :])
    spoilt = with_bad_records(spoilt, ONE, 1)
    found = salvaged(spoilt)
    assert {job.body for job in found.jobs.values()} == {b"first body", b"second body", b"hello"}
    (moved,) = [each for each in found.judgements.values() if each.claimed_id]
    assert (moved.claimed_id, found.jobs[moved.job_id].body) == (1, b"second body")
    assert moved.job_id > 3


def test_jobs_that_are_set_aside_keep_their_order() -> None:
    bodies = [b"body %d" % number for number in range(5)]
    files = killed([put(n + 1, body) for n, body in enumerate(bodies)], [put(9)])
    found = salvaged(with_bad_records(files, ONE, 1))
    aside = [job for job in found.jobs.values() if job.tube == LOST_AND_FOUND]
    assert [job.body for job in sorted(aside, key=lambda job: job.deadline_ns)] == bodies


# Lost.


def test_a_job_whose_body_is_in_a_hole_is_lost_and_listed() -> None:
    files = killed([put(1, b"")], [image(Kind.BURY, 1, state=State.BURIED)], [put(2)])
    found = salvaged(with_bad_records(files, ONE, 1))
    (lost,) = found.report.lost
    assert (lost.job_id, lost.why, lost.state, lost.tube) == (
        1, Why.BODY, State.BURIED, b"default",
    )  # fmt: skip
    assert found.jobs.keys() == {2}


def test_a_state_without_a_body_in_a_sound_log_is_damage_all_the_same() -> None:
    """
    A server refuses it.
    """
    found = salvaged(killed([put(1)], [image(Kind.KICK, 9)]))
    assert (found.verdict, [each.job_id for each in found.report.lost]) == ("damaged", [9])


def test_ids_that_may_have_been_given_out_in_a_hole_are_not_given_again() -> None:
    files = killed([put(1)], [put(2), put(3), put(4)], [put(5)])
    found = salvaged(with_bad_records(files, ONE, 2))
    assert found.report.salvage.floors.next_job_id >= 6 + 3


# Torn.


def test_a_torn_tail_makes_nothing_doubtful() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(put(2, b"not confirmed"))
    files = scribe.files()
    at = files[ONE].index(b"not confirmed") + 5
    found = salvaged(edited(files, ONE, lambda raw: raw[:at]))
    assert (found.verdict, set(found.jobs)) == ("torn", {1})
    assert [(each.job_id, each.why) for each in found.report.lost] == [(2, Why.UNCONFIRMED)]


def test_what_stands_behind_a_torn_place_is_taken_as_unconfirmed() -> None:
    """
    With --fsync never rot in the newest segment looks like this.
    """
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    for job_id in (2, 3, 4):
        scribe.write(put(job_id), sync=False)
    found = salvaged(with_bad_records(scribe.files(), ONE, 1))
    assert found.verdict == "torn"
    assert found.judgements[1].why is Why.DELETED
    assert found.judgements[3].why is found.judgements[4].why is Why.UNCONFIRMED
    assert found.jobs.keys() == {1, 2, 3, 4}


def test_a_hole_at_the_end_that_was_confirmed_makes_all_doubtful() -> None:
    files = killed([put(1)], [delete(1)])
    found = salvaged(with_bad_records(files, ONE, 2))
    assert (found.verdict, found.judgements[1].why) == ("damaged", Why.DELETED)
    (hole,) = found.report.salvage.holes
    assert (hole.first_lsn, hole.is_open) == (3, True)


# Headers and whole segments.


def three_segments() -> Files:
    """
    A job in each; the first is deleted in the second.
    """
    return killed([put(1), put(9, FILL)], [put(2), delete(1), put(8, FILL)], [put(3)])


def test_a_damaged_header_is_not_passed_over_unasked() -> None:
    files = edited(three_segments(), TWO, lambda raw: flipped(raw, 90))
    with pytest.raises(Refused) as caught:
        salvaged(files, Consent())
    assert caught.value.problems == [f"{TWO}: the header's checksum is wrong"]
    assert caught.value.options == ["--rebuild-header"]


@pytest.mark.parametrize("name", [ONE, TWO, THREE])
def test_a_damaged_header_costs_no_job(name: str) -> None:
    files = edited(three_segments(), name, lambda raw: bytes(4096) + raw[4096:])
    found = salvaged(files, Consent(may_rebuild=True))
    assert (found.verdict, found.judgements) == ("damaged", {})
    assert found.jobs == salvaged(three_segments()).jobs
    assert found.report.salvage.rebuilt == [name]


def frames_of_another_log(first_lsn: int, count: int) -> bytes:
    """
    What somebody may put into the body of a job who queues pieces of logs.
    """
    fake = Scribe(opening=[DEFAULT_TUBE], salt=77, position=FIRST._replace(first_lsn=first_lsn))
    for number in range(count):
        fake.write(put(number + 1, b"fake"))
    raw = fake.files()[ONE]
    return raw[4096 : raw.rindex(b"fake") + 8]


def with_a_body_of_frames(piece: bytes, fill: bytes = FILL) -> Files:
    """
    A log whose second segment begins with such a body; that frame's records and the segment's
    header are damaged, so that nothing says which frames are the real ones.
    """
    # Behind the header, two records and the name of the tube they begin at a multiple of 8.
    files = killed([put(9, FILL)], [put(1, b"-" + piece)], [put(2, b"real")], [put(8, fill)],
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
    found = salvaged(with_a_body_of_frames(piece, fill=b"x" * 600))
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


def test_missing_segments_are_asked_for_as_ranges() -> None:
    files = three_segments()
    far = with_header_field(files[THREE], 16, "<Q", 9)
    left = {ONE: files[ONE], "00000000000000000009.tql": far}
    with pytest.raises(Refused) as caught:
        salvaged(left, Consent())
    assert caught.value.options == ["--accept-gap 2-8"]


def test_a_hole_between_segments_lists_what_had_its_body_there() -> None:
    files = killed([put(1), put(9, FILL)], [put(2), put(8, FILL)], [image(Kind.KICK, 2)])
    found = salvaged({name: raw for name, raw in files.items() if name != TWO})
    assert [each.job_id for each in found.report.lost] == [2]


def test_a_segment_of_which_nothing_is_left_is_one_hole() -> None:
    files = edited(three_segments(), TWO, lambda raw: b"")
    found = salvaged(files)
    assert found.jobs.keys() == {1, 9, 3}
    assert found.report.hidden > 3


# Files that contradict each other.


def test_a_copy_under_another_name_is_refused_and_named() -> None:
    files = three_segments()
    files["00000000000000000007.tql"] = files[TWO]
    with pytest.raises(Refused) as caught:
        salvaged(files)
    assert TWO in str(caught.value) and "00000000000000000007.tql" in str(caught.value)
    assert caught.value.options == []
    chosen = salvaged(files, EVERYTHING._replace(prefer=frozenset({TWO})))
    assert chosen.jobs == salvaged(three_segments()).jobs
    assert chosen.report.salvage.plan.left_out == ["00000000000000000007.tql"]


def test_the_copy_may_be_the_right_one() -> None:
    sound = three_segments()
    files = edited(sound, TWO, lambda raw: raw[:5000])
    files["00000000000000000007.tql"] = sound[TWO]
    consent = EVERYTHING._replace(prefer=frozenset({"00000000000000000007.tql"}))
    assert salvaged(files, consent).jobs == salvaged(sound).jobs


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
    with pytest.raises(Incompatible, match="C beanstalkd"):
        salvaged({"binlog.1": b""})


def test_records_of_a_newer_version_are_refused() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(Counters(0, T0, {}))
    with pytest.raises(Incompatible, match="record type 41"):
        salvaged(with_record_byte(scribe.directory, 0, 41))  # type: ignore[arg-type]


# Small state.


def test_pauses_in_force_are_kept_in_their_newest_form() -> None:
    files = killed(
        [MAIL, Pause(2, 100, T0 + 100 * NS, T0)], [Pause(2, 500, T0 + 500 * NS, T0)],
        [Pause(1, 7, T0 + 7 * NS, T0)], [Pause(1, 0, 0, T0)], [put(1)],
    )  # fmt: skip
    found = salvaged(with_bad_records(files, ONE, 3))
    pauses = list(found.report.salvage.pauses())
    assert pauses == [StoredPause(b"mail", 500, T0 + 500 * NS)]
    found = salvaged(with_bad_records(files, ONE, 2))
    pauses = list(found.report.salvage.pauses())
    assert pauses == [StoredPause(b"mail", 100, T0 + 100 * NS)]
    see_that_it_loads(found)


def test_the_new_log_says_what_it_was_made_from_and_begins_above_it() -> None:
    files = with_bad_records(three_segments(), ONE, 2)
    salvage = salvaged(files).report.salvage
    assert salvage.floors.last_lsn >= independent_reader.read_log(three_segments())["durable_lsn"]
    assert salvage.floors.next_job_id > 9
    assert salvage.origin.sources[0].store_uuid == bytes(range(16)).hex()
