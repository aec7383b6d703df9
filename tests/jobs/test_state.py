"""The one function that changes a job."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import FULL, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.segments.format import RECORD_BYTES
from beanstalk_twisted.binlog.space_budget import KEY_ENDS
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import ALIVE, LEGAL_MOVES, Job
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import REMAKES, QueueState
from beanstalk_twisted.jobs.tube import Tube

TUBE_ID = 2

# Each row: a record that leads from nothing into the state, and the job's deadline then.
READY = JobImage(
    Kind.PUT, State.READY, Reason.CLIENT, priority=7, job_id=1, ts_ns=100, deadline_ns=0,
    delay_s=0, ttr_s=60, tube_id=TUBE_ID, connection=1, body=b"hello",
)  # fmt: skip
INTO = {
    State.READY: READY,
    State.DELAYED: READY._replace(state=State.DELAYED, deadline_ns=500, delay_s=1),
    State.RESERVED: READY._replace(kind=Kind.COPY, state=State.RESERVED, deadline_ns=600),
    State.BURIED: READY._replace(kind=Kind.COPY, state=State.BURIED, deadline_ns=700, buries=1),
}
OUT = READY._replace(kind=Kind.DELETE, state=State.GONE, body=b"")


def make_state() -> QueueState:
    """Make a state with one tube beside `default` and one session."""
    state = QueueState()
    default = state.default()
    state.define(TUBE_ID, b"work")
    state.sessions[1] = Session(1, default)
    return state


def work(state: QueueState) -> Tube:
    return state.tubes.by_id(TUBE_ID)


def job_of(state: QueueState) -> Job:
    """Look at the one job."""
    job = state.jobs.look(1)
    assert job is not None
    return job


def places(state: QueueState) -> dict[State, int]:
    """Count the jobs that stand in each place, by the place's own count."""
    tube = work(state)
    held = sum(len(session.reserved) for session in state.sessions.values())
    assert tube.reserved == held
    found = {
        State.READY: tube.ready.count,
        State.DELAYED: tube.delayed.count,
        State.BURIED: tube.buried.count,
        State.RESERVED: held,
    }
    assert found == {known: state.counts[known] for known in found}
    return {known: count for known, count in found.items() if count}


ILLEGAL = [
    (kind, before) for kind, (befores, _) in LEGAL_MOVES.items() for before in INTO.keys() - befores
]


REMADE = [
    (kind, before, after)
    for kind in sorted(REMAKES)
    for before in sorted(ALIVE)
    for after in sorted(LEGAL_MOVES[kind][1])
]  # fmt: skip


@pytest.mark.parametrize(("kind", "before", "after"), REMADE)
def test_an_image_gives_a_job_another_tube_body_and_tags(
    kind: Kind, before: State, after: State
) -> None:
    state = make_state()
    state.define(8, b"other")
    state.apply(INTO[before], segment=3)
    tags = Tags(unique_key=b"k", unique_s=9, group=b"g")
    image = INTO[after]._replace(kind=kind, tube_id=8, body=b"longer than before", tags=tags)
    state.apply(image, segment=4)
    job = job_of(state)
    assert (job.tube_id, job.body, job.tags, job.state) == (8, b"longer than before", tags, after)
    assert work(state).job_count == 0
    assert state.tubes.by_id(8).job_count == 1
    assert sum(state.counts.values()) == 1
    assert state.live.of(3) == (0, 0)
    assert state.live.of(4) == (1, RECORD_BYTES + len(image.data))
    assert state.unique.holder(8, b"k", 0) == job.job_id
    assert state.ends() == 1 + KEY_ENDS
    state.apply(OUT._replace(tube_id=8))
    assert (state.live.live_bytes, state.tagged, state.ends()) == (0, 0, 0)
    assert state.unique.holder(8, b"k", 0) is None


@pytest.mark.parametrize(("kind", "before"), ILLEGAL)
def test_a_move_that_is_not_legal_is_refused(kind: Kind, before: State) -> None:
    state = make_state()
    state.apply(INTO[before])
    with pytest.raises(AssertionError):
        state.apply(READY._replace(kind=kind, reserves=1))


MOVED = [
    (kind, reason, before, after)
    for kind in sorted(LEGAL_MOVES.keys() - FULL)
    for reason in (Reason.CLIENT, Reason.RETURNED)
    for before in sorted(LEGAL_MOVES[kind][0])
    for after in sorted(LEGAL_MOVES[kind][1])
]  # fmt: skip


@pytest.mark.parametrize("tags", [None, Tags(group=b"g", concurrency_key=b"k")])
@pytest.mark.parametrize(("kind", "reason", "before", "after"), MOVED)
def test_a_move_without_an_image_does_what_the_image_does(
    kind: Kind, reason: Reason, before: State, after: State, tags: Tags | None
) -> None:
    by_image, by_move = make_state(), make_state()
    for state in (by_image, by_move):
        state.apply(INTO[before]._replace(tags=tags, reserves=3))
    is_held, new = after is State.RESERVED, None if kind is Kind.TOUCH else 4
    by_image.apply(job_of(by_image).image(
        kind, after, reason, 100, deadline_ns=900, connection=1, priority=new, delay_s=new
    ))  # fmt: skip
    by_move.move(job_of(by_move), kind, after, reason, 900, int(is_held), new, new)
    assert places(by_move) == places(by_image)
    assert by_move.memory_bytes == by_image.memory_bytes
    assert by_move.groups.members(b"g") == by_image.groups.members(b"g")
    assert by_move.concurrency.reserved(b"k") == by_image.concurrency.reserved(b"k")
    assert by_move.sessions[1].reserved == by_image.sessions[1].reserved
    if kind is not Kind.DELETE:
        assert job_of(by_move).copy() == job_of(by_image).copy()


@pytest.mark.parametrize(("kind", "before"), [each for each in ILLEGAL if each[0] not in REMAKES])
def test_a_move_without_an_image_that_is_not_legal_is_refused(kind: Kind, before: State) -> None:
    state = make_state()
    state.apply(INTO[before])
    with pytest.raises(AssertionError):
        state.move(job_of(state), kind, sorted(LEGAL_MOVES[kind][1])[0], Reason.CLIENT)


def test_only_committing_records_move_the_lsn_that_replies_wait_for() -> None:
    state = make_state()
    state.apply(READY, lsn=5, segment=3)
    reserve = READY._replace(kind=Kind.RESERVE, state=State.RESERVED, deadline_ns=9, reserves=1)
    state.apply(reserve, lsn=6, segment=4)
    assert (job_of(state).lsn, job_of(state).segment) == (5, 3)
    state.apply(READY._replace(kind=Kind.RELEASE, reserves=1, releases=1), lsn=7, segment=4)
    assert (job_of(state).lsn, job_of(state).segment) == (7, 3), "the body is where it was"


def test_a_restated_job_lies_where_it_was_restated() -> None:
    state = make_state()
    state.apply(READY, lsn=5, segment=3)
    state.apply(READY._replace(kind=Kind.COPY, reserves=1), lsn=9, segment=8)
    # No reply waits for a copy.
    assert (job_of(state).lsn, job_of(state).segment) == (5, 8)
    assert state.live.of(8)[0] == 1
    assert places(state) == {State.READY: 1}


def test_a_tube_that_a_log_names_again_is_a_new_one() -> None:
    state = make_state()
    state.define(7, b"work")
    assert state.tubes.find(b"work") is state.tubes.by_id(7)
    assert not state.tubes.has_id(TUBE_ID)
    assert state.tubes.get_or_make(b"next").tube_id == 8
