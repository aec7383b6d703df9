"""What is certain, doubtful and lost: each rule of docs/recovery.md on a log of its own."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from beanstalk_twisted.binlog.reading.survival import Why
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import Pause, Record, Seal
from binlog_tools.logs.stored import LOST_AND_FOUND, stored_pause
from binlog_tools.salvage.judging import Doubtful
from tests.binlog import independent_reader
from tests.binlog.forging import with_header_field
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    NS,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    flipped,
    image,
    index_of,
    put,
)
from tests.tools.salvage.damaging import (
    FILL,
    MAIL,
    batches_of,
    killed,
    three_segments,
    with_bad_heap,
    with_bad_records,
)
from tests.tools.salvage.logs import ONE, THREE, TWO
from tests.tools.salvage.salvaged import salvaged, see_that_it_loads


def update(job_id: int, body: bytes) -> JobImage:
    return put(job_id, body)._replace(kind=Kind.UPDATE, priority=7)


BURIED = image(Kind.BURY, 1, state=State.BURIED, deadline_ns=T0 + 7, buries=1)
KICKED = image(Kind.KICK, 1)
FIRST, OTHER = put(1, b"first body"), put(2, b"second body")
FULL = put(2, FILL)
SET_ASIDE = {"tube": LOST_AND_FOUND, "state": State.BURIED}


class Rule(NamedTuple):
    """A damaged log and what is made of it.

    :ivar whys: which jobs are not certain, and why; no others.
    :ivar jobs: of some jobs that come back, some fields; None of one that does not.
    :ivar judged: of some judgements, some fields.
    """

    files: Files
    whys: dict[int, Why]
    jobs: dict[int, dict[str, object] | None] = {}
    judged: dict[int, dict[str, object]] = {}


def hit(name: str, batch: int, *batches: list[Record]) -> Files:
    """A log in which the records of one batch are damaged."""
    return with_bad_records(killed(*batches), name, batch)


def spoilt(body: bytes, *batches: list[Record]) -> Files:
    """A log in which a body is damaged."""
    return with_bad_heap(killed(*batches), ONE, body)


RULES = {
    "a job whose newest record stands behind the damage is certain": Rule(
        hit(ONE, 2, [put(1)], [image(Kind.RESERVE, 1, state=State.RESERVED)], [BURIED, FULL]), {},
        {1: {"state": State.BURIED, "deadline_ns": T0 + 7, "buries": 1, "body": b"hello"}},
    ),
    "the name of a tube is taken from a seal": Rule(
        hit(ONE, 1, [MAIL], [put(1, tube_id=2)], [FULL]), {}, {1: {"tube": b"mail"}},
    ),
    "the name of a tube is taken from a frame with a damaged body": Rule(
        spoilt(b"first body", [MAIL, FIRST, put(2, tube_id=2)], [put(3)]), {1: Why.BODY},
        {2: {"tube": b"mail"}},
    ),
    "a job whose newest record stands before a hole may have been deleted": Rule(
        hit(ONE, 2, [put(1)], [delete(1)], [put(2)]), {1: Why.DELETED},
        {1: {"state": State.READY}}, {1: {"hole": (3, 3), "lsn": 2, "new_tube": b"default"}},
    ),
    "a seal tells that only puts were lost": Rule(
        hit(ONE, 2, [put(1)], [put(5)], [FULL]), {5: Why.RECORD},
    ),
    "without its seal a segment does not say what was lost": Rule(
        hit(ONE, -1, [put(1)], [FULL], [put(3)]), {1: Why.DELETED, 2: Why.DELETED},
    ),
    "a body is doubtful if a hole behind it may have another": Rule(
        hit(ONE, 2, [FIRST], [KICKED], [BURIED]), {1: Why.OUTDATED},
        {1: {"body": b"first body", "state": State.BURIED}},
        {1: {"is_outdated": True, "hole": (3, 3), "lsn": 4, "state": State.BURIED,
             "new_tube": b"default"}},
    ),
    **{
        f"a seal that counts a lost {kind.name} makes the body before it doubtful": Rule(
            hit(ONE, 2, [FIRST], [put(1, b"other body")._replace(kind=kind)], [BURIED, FULL],
                [put(3)]),
            {1: Why.OUTDATED, 5: Why.RECORD},
            {1: {"body": b"first body"}, 5: {"body": b"other body"}},
        )
        for kind in (Kind.UPDATE, Kind.MOVE)
    },
    "a seal that counts a lost KICK proves the body before": Rule(
        hit(ONE, 2, [FIRST], [KICKED], [BURIED, FULL], [put(3)]), {},
        {1: {"body": b"first body"}},
    ),
    "a seal that counts a lost PUT proves the body before": Rule(
        hit(ONE, 2, [FIRST], [put(9)], [BURIED, FULL], [put(3)]), {9: Why.RECORD},
        {1: {"body": b"first body"}},
    ),
    "a job whose tube has no name any more is set aside": Rule(
        hit(ONE, 1, [MAIL], [put(1, tube_id=2, priority=9)]), {1: Why.TUBE},
        {1: {**SET_ASIDE, "priority": 9, "body": b"hello"}},
        {1: {"tube": None, "tube_id": 2, "state": State.READY}},
    ),
    "a job whose body is damaged is set aside with what is left": Rule(
        spoilt(b"first body", [FIRST, OTHER], [put(3)]), {1: Why.BODY},
        {1: {**SET_ASIDE, "body": b"girst body"}, 2: {"body": b"second body"}},
    ),
    "a body whose record is damaged is set aside": Rule(
        hit(ONE, 1, [FIRST, OTHER], [put(3)]), {1: Why.RECORD, 2: Why.RECORD},
        {1: {**SET_ASIDE, "body": b"first body"}, 2: {**SET_ASIDE, "body": b"second body"}},
    ),
    "a body whose record is damaged is not set aside if it was deleted": Rule(
        hit(ONE, 1, [FIRST, OTHER], [delete(1)]), {2: Why.RECORD}, {1: None, 2: {}},
    ),
    "a body whose record is damaged is shown with the state that is known": Rule(
        hit(ONE, 1, [FIRST], [BURIED._replace(priority=7)]), {1: Why.RECORD},
        {1: {"body": b"first body", "priority": 7, "tube": LOST_AND_FOUND}},
        {1: {"state": State.BURIED, "tube": b"default"}},
    ),
    "a job whose body is in a hole is lost and listed": Rule(
        hit(ONE, 1, [put(1, b"")], [BURIED], [put(2)]), {1: Why.BODY}, {1: None, 2: {}},
        {1: {"state": State.BURIED, "tube": b"default", "new_tube": None}},
    ),
    "a state without a body in a sound log is damage all the same": Rule(
        killed([put(1)], [image(Kind.KICK, 9)]), {9: Why.BODY}, {1: {}, 9: None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_each_rule(rule: Rule) -> None:
    found = salvaged(rule.files)
    assert found.verdict == "damaged"
    assert {job_id: each.why for job_id, each in found.judgements.items()} == rule.whys
    for job_id, fields in rule.jobs.items():
        if fields is None:
            assert job_id not in found.jobs
        else:
            job = found.jobs[job_id]
            assert {name: getattr(job, name) for name in fields} == fields
    for job_id, fields in rule.judged.items():
        judged = found.judgements[job_id]
        assert {name: getattr(judged, name) for name in fields} == fields


@pytest.mark.parametrize("body", [b"first body", b"other body"])
def test_the_same_body_elsewhere_is_as_good(body: bytes) -> None:
    files = killed([put(1, body)], [put(1, body)._replace(kind=Kind.COPY)])
    found = salvaged(edited(files, ONE, lambda raw: flipped(raw, raw.rindex(body))))
    assert (found.jobs[1].body, found.judgements) == (body, {})
    # A copy that is lost in a hole changes nothing either.
    files = hit(ONE, 2, [put(1, body)], [put(1, body)._replace(kind=Kind.COPY)], [BURIED, FULL])
    found = salvaged(files)
    assert 1 not in found.judgements and found.jobs[1].body == body


def test_a_body_that_was_changed_back_is_the_one_that_counts() -> None:
    files = killed([put(1, b"first body")], [update(1, b"other body")], [update(1, b"first body")])
    at = files[ONE].rindex(b"first body")
    found = salvaged(edited(files, ONE, lambda raw: flipped(raw, files[ONE].index(b"other body"))))
    assert (found.jobs[1].body, found.judgements) == (b"first body", {})
    # The one before the damage is another.
    found = salvaged(edited(files, ONE, lambda raw: flipped(raw, at)))
    assert found.judgements[1].why is Why.BODY


def test_a_body_in_a_trimmed_segment_serves_if_its_copy_is_lost() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"the body"), put(2))
    scribe.end_segment()
    scribe.write(put(1, b"the body")._replace(kind=Kind.COPY))
    scribe.write(image(Kind.KICK, 1))
    scribe.end_segment()
    scribe.write(put(3))
    files = with_header_field(scribe.files()[TWO], 48, "<Q", 2)
    found = salvaged(with_bad_records({**scribe.files(), TWO: files}, TWO, 0))
    assert found.jobs.keys() == {1, 3}
    assert (found.jobs[1].body, found.judgements) == (b"the body", {})


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


def test_a_seal_that_was_re_homed_says_nothing_of_the_segment_it_is_in_now() -> None:
    other = index_of(*[put(number) for number in range(50)])
    files = killed([put(1)], [Seal(T0, other.encode())], [delete(1)], [put(2)])
    found = salvaged(with_bad_records(files, ONE, 3))
    assert found.judgements[1].why is Why.DELETED
    assert found.report.salvage.holes[0].types is None


def test_the_job_ids_in_a_seal_prove_that_a_body_is_not_in_its_segment() -> None:
    files = killed(
        [put(1, b"first body")], [put(2, FILL)],
        [put(3, b"a body")], [update(3, b"other body")], [put(4, FILL)], [BURIED, put(5)],
    )  # fmt: skip
    found = salvaged(with_bad_records(files, TWO, 2))
    assert found.report.salvage.holes[0].job_ids == (3, 4)
    assert 1 not in found.judgements


def test_a_re_homed_seal_proves_nothing_of_what_follows_it() -> None:
    """It counts all of its segment up to itself, but more records follow."""
    moved = index_of(DEFAULT_TUBE, put(1, b"first body"), put(2))
    files = killed(
        [put(1, b"first body"), put(2)], [Seal(T0, moved.encode())],
        [update(1, b"other body"), delete(2)], [BURIED],
    )  # fmt: skip
    found = salvaged(with_bad_records(files, ONE, 3))
    assert found.judgements[1].why is Why.OUTDATED
    assert found.judgements[2].why is Why.DELETED
    assert found.report.salvage.holes[0].types is None


def test_what_is_missing_behind_a_body_in_a_trimmed_segment_counts_too() -> None:
    """Its copy is in a hole that has no update; the update was in a segment that is dead."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"first body"), put(2))
    scribe.end_segment()
    scribe.write(update(1, b"other body"))
    scribe.end_segment()
    scribe.write(put(1, b"other body")._replace(kind=Kind.COPY))
    scribe.write(image(Kind.KICK, 1))
    scribe.end_segment()
    scribe.write(put(3))
    files = dict(scribe.files())
    files[THREE] = with_header_field(files[THREE], 48, "<Q", 3)
    del files[TWO]
    found = salvaged(with_bad_records(files, THREE, 0))
    assert found.judgements[1].why is Why.OUTDATED
    assert found.report.salvage.missing == []


@pytest.mark.parametrize("doubtful", [Doubtful.BURY, Doubtful.DROP])
def test_jobs_that_may_be_outdated_can_be_buried_and_are_never_dropped(doubtful: Doubtful) -> None:
    kicked = image(Kind.KICK, 1)
    files = killed([put(1, b"first body")], [update(1, b"other body")], [kicked])
    found = salvaged(with_bad_records(files, ONE, 2), doubtful=doubtful)
    job = found.jobs[1]
    assert (job.state, job.tube, job.body) == (State.BURIED, b"default", b"first body")
    assert found.judgements[1].new_tube == b"default"


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


def test_a_body_that_claims_the_id_of_a_deleted_job_is_kept_under_another_one() -> None:
    """Ids are not given twice, so that one bit of its id is not as it was."""
    files = killed([put(1, b"gone")], [delete(1)], [put(3, b"third body")], [put(4)])
    at = batches_of(files, ONE)[3]["offset"] + 64 + 8
    found = salvaged(edited(files, ONE, lambda raw: flipped(raw, at, 1)))
    (moved,) = found.judgements.values()
    assert (moved.why, moved.claimed_id) == (Why.RECORD, 1)
    assert moved.job_id > 4
    assert found.jobs[moved.job_id].body == b"third body"
    assert found.jobs.keys() == {4, moved.job_id}


def test_jobs_that_are_set_aside_keep_their_order() -> None:
    bodies = [b"body %d" % number for number in range(5)]
    files = killed([put(n + 1, body) for n, body in enumerate(bodies)], [put(9)])
    found = salvaged(with_bad_records(files, ONE, 1))
    aside = [job for job in found.jobs.values() if job.tube == LOST_AND_FOUND]
    assert [job.body for job in sorted(aside, key=lambda job: job.deadline_ns)] == bodies


def test_ids_that_may_have_been_given_out_in_a_hole_are_not_given_again() -> None:
    files = killed([put(1)], [put(2), put(3), put(4)], [put(5)])
    found = salvaged(with_bad_records(files, ONE, 2))
    assert found.report.salvage.floors.next_job_id >= 6 + 3


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
    """With --fsync never rot in the newest segment looks like this."""
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


def test_pauses_in_force_are_kept_in_their_newest_form() -> None:
    files = killed(
        [MAIL, Pause(2, 100, T0 + 100 * NS, T0)], [Pause(2, 500, T0 + 500 * NS, T0)],
        [Pause(1, 7, T0 + 7 * NS, T0)], [Pause(1, 0, 0, T0)], [put(1)],
    )  # fmt: skip
    found = salvaged(with_bad_records(files, ONE, 3))
    records = found.report.salvage.judge.tube_records()
    assert records == [stored_pause(b"mail", 500, T0 + 500 * NS)]
    found = salvaged(with_bad_records(files, ONE, 2))
    records = found.report.salvage.judge.tube_records()
    assert records == [stored_pause(b"mail", 100, T0 + 100 * NS)]
    see_that_it_loads(found)


def test_the_new_log_says_what_it_was_made_from_and_begins_above_it() -> None:
    files = with_bad_records(three_segments(), ONE, 2)
    salvage = salvaged(files).report.salvage
    assert salvage.floors.last_lsn >= independent_reader.read_log(three_segments())["durable_lsn"]
    assert salvage.floors.next_job_id > 9
    assert salvage.origin.sources[0].store_uuid == bytes(range(16)).hex()


# A newest body that is damaged, and an older one that is not.


@pytest.mark.parametrize("later", [[], [image(Kind.BURY, 1, state=State.BURIED, deadline_ns=T0)]])
def test_an_older_body_never_takes_the_place_of_a_damaged_one(later: list[JobImage]) -> None:
    files = killed([put(1, b"first body")], [update(1, b"other body"), *later], [put(2)])
    found = salvaged(with_bad_heap(files, ONE, b"other body"))
    assert (found.verdict, found.report.certain) == ("damaged", 1)
    new_id = max(found.jobs)
    whys = {n: (each.why, each.claimed_id) for n, each in found.judgements.items()}
    assert whys == {1: (Why.BODY, 0), new_id: (Why.OLDER, 1)}
    assert found.jobs[1].body.endswith(b"ther body")
    assert found.jobs[new_id].body == b"first body"
    assert {found.jobs[n].tube for n in whys} == {LOST_AND_FOUND}
    see_that_it_loads(found)


def test_if_the_newest_body_is_not_all_there_the_older_one_has_its_id() -> None:
    files = killed([put(1, b"first body")], [update(1, b"y" * 99), put(2, FILL)], [put(3)])
    found = salvaged({**files, ONE: files[ONE][: files[ONE].index(b"y" * 99) + 50]})
    doubt = found.judgements[1]
    assert (doubt.why, doubt.new_tube, doubt.claimed_id) == (Why.OLDER, LOST_AND_FOUND, 0)
    assert (found.jobs[1].body, found.jobs[1].priority) == (b"first body", 7)
    see_that_it_loads(found)


def test_an_update_that_nobody_was_promised_leaves_the_body_before() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"first body"))
    scribe.write(update(1, b"other body"), sync=False)
    found = salvaged(with_bad_heap(scribe.files(), ONE, b"other body"))
    assert (found.verdict, found.jobs[1].body) == ("torn", b"first body")
    assert found.judgements[1].why is Why.UNCONFIRMED
