"""Groups of jobs, and those who wait for them."""

from __future__ import annotations

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.state import QueueState


def image(job_id: int, *, pri: int = 0, delay: int = 0, **tags: bytes) -> JobImage:
    """Make the image of a put."""
    state = State.DELAYED if delay else State.READY
    return JobImage(
        Kind.PUT, state, Reason.CLIENT, pri, job_id, 5, 5 + delay if delay else 0, delay, 60, 1,
        body=b"b", tags=Tags(**tags) if tags else None,  # type: ignore[arg-type]
    )  # fmt: skip


def make(*images: JobImage) -> QueueState:
    """Make a state in which these jobs were put together."""
    state = QueueState()
    state.define(1, b"default")
    for each in state.groups.held(images):
        state.apply(each)
    return state


def known(state: QueueState, group: bytes) -> tuple[int, int, list[int], bool]:
    """Give what is known of a group: jobs, buried ones, those who wait, and whether it has
    ended.
    """
    groups = state.groups
    waiting = [key & ID_MASK for key in groups.first_waiting(group, 99)]
    assert len(waiting) == groups.waiting(group)
    return (
        groups.members(group),
        groups.in_state(group, State.BURIED),
        waiting,
        group in groups.ended,
    )


def change(state: QueueState, job_id: int, kind: Kind, to: State, deadline_ns: int = 0) -> None:
    """Apply a change of a job."""
    job = state.jobs.job(job_id)
    full = {"body": job.body, "tags": job.tags} if kind in (Kind.MOVE, Kind.UPDATE) else {}
    changed = job.image(kind, to, Reason.CLIENT, 9, deadline_ns=deadline_ns)
    state.apply(changed._replace(**full))  # type: ignore[arg-type]


def test_a_job_whose_group_has_a_job_waits_for_no_moment() -> None:
    state = make(image(1, group=b"g"), image(2, after=b"g"), image(3, after=b"other"), image(4))
    job = state.jobs.look(2)
    assert job is not None
    assert (job.state, job.deadline_ns) == (State.DELAYED, NEVER_NS)
    assert known(state, b"g") == (1, 0, [2], False)
    assert state.counts[State.READY] == 3


def test_those_that_wait_come_by_priority_and_id_in_whatever_order_they_are_loaded() -> None:
    images = [image(1, group=b"g"), *(image(n, pri=9 - n % 2, after=b"g") for n in (2, 3, 4))]
    held = make().groups.held(images)
    state = make()
    for each in reversed(held):
        state.apply(each)
    assert known(state, b"g") == (1, 0, [3, 2, 4], False)


def test_one_that_is_loaded_without_its_group_may_go() -> None:
    state = make()
    state.apply(image(2, after=b"g")._replace(state=State.DELAYED, deadline_ns=NEVER_NS))
    assert known(state, b"g") == (0, 0, [2], True)


def test_nothing_is_left_of_groups_that_are_gone() -> None:
    state = make(image(1, group=b"g"), image(2, group=b"h", after=b"g"))
    for job_id in (2, 1):
        change(state, job_id, Kind.DELETE, State.GONE)
    groups = state.groups
    assert (groups._members, groups._states, groups._waiting, groups.ended) == ({}, {}, {}, {})
