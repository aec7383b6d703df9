"""Concurrency keys: which ready jobs may be handed out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.limits import OPENED_LINES, ConcurrencyKeys
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import NO_JOBS, Tube

TUBES = 3
HOLDER = 7


class Jobs:
    """A state with some tubes and one session, and a plain list beside it."""

    def __init__(self) -> None:
        self.state = QueueState()
        for number in range(1, TUBES + 1):
            self.state.define(number, b"t%d" % number)
        self.state.sessions[HOLDER] = Session(HOLDER, self.tube(1))
        self.images: dict[int, JobImage] = {}
        self.next_id = 1

    def tube(self, number: int) -> Tube:
        return self.state.tubes.by_id(number)

    def put(self, tube: int = 1, pri: int = 0, key: bytes = b"k", limit: int = 1) -> int:
        """Put a ready job and give its id."""
        tags = Tags(concurrency_key=key, concurrency_limit=limit) if key else None
        image = JobImage(
            Kind.PUT, State.READY, Reason.CLIENT, pri, self.next_id, 5, 0, 0, 60, tube, body=b"b",
            tags=tags,
        )  # fmt: skip
        self.next_id += 1
        self.set(image)
        return image.job_id

    def set(self, image: JobImage) -> None:
        """Apply an image."""
        self.state.apply(image)
        self.images[image.job_id] = image
        if image.state is State.GONE:
            del self.images[image.job_id]

    def change(self, job_id: int, kind: Kind, state: State, **fields: int) -> None:
        """Apply a change of a job."""
        holder = HOLDER if state is State.RESERVED else 0
        image = self.images[job_id]._replace(kind=kind, state=state, connection=holder)
        self.set(image._replace(**fields))  # type: ignore[arg-type]

    def reserve(self, job_id: int) -> None:
        self.change(job_id, Kind.RESERVE, State.RESERVED, deadline_ns=99)

    def release(self, job_id: int, pri: int = 0) -> None:
        """Give a reserved job back."""
        self.change(job_id, Kind.RELEASE, State.READY, deadline_ns=0, priority=pri)

    def delete(self, job_id: int) -> None:
        self.change(job_id, Kind.DELETE, State.GONE)

    def first(self, tube: int = 1) -> int | None:
        """Give the job that the tube hands out next."""
        key = self.tube(tube).first_open()
        return None if key is None else key & ID_MASK

    def ready(self, tube: int) -> list[JobImage]:
        """Give the images of the tube's ready jobs, in order."""
        images = [
            image for image in self.images.values()
            if image.state is State.READY and image.tube_id == tube
        ]  # fmt: skip
        return sorted(images, key=lambda image: (image.priority, image.job_id))

    def may_go(self, image: JobImage) -> bool:
        """Say whether a job may be reserved, by counting."""
        tags = image.tags
        if tags is None:
            return True
        reserved = [
            other for other in self.images.values()
            if other.state is State.RESERVED and other.tags is not None
            and other.tags.concurrency_key == tags.concurrency_key
        ]  # fmt: skip
        return len(reserved) < tags.concurrency_limit

    def check(self) -> None:
        """Compare all tubes with the list."""
        for number in range(1, TUBES + 1):
            tube, ready = self.tube(number), self.ready(number)
            firsts = [image.job_id for image in ready if self.may_go(image)]
            assert self.first(number) == (firsts[0] if firsts else None)
            looked = tube.first_ready()
            expected = [*firsts, *[image.job_id for image in ready]][:1]
            assert ([] if looked is None else [looked & ID_MASK]) == expected
            assert tube.ready_count == len(ready)
            assert tube.job_count == len([i for i in self.images.values() if i.tube_id == number])
            assert tube.urgent == len([image for image in ready if image.priority < 1024])
            both = tube.queue(State.READY)
            keys = [image.priority << 64 | image.job_id for image in ready]
            assert both.behind(-1, len(keys) + 1) == keys
            for at, key in enumerate(keys):
                assert both.behind(key, 2) == keys[at + 1 : at + 3]
            assert both.last() == (keys[-1] if keys else None)


def test_a_limit_of_none_is_one() -> None:
    jobs = Jobs()
    first, second = jobs.put(limit=0), jobs.put(limit=0)
    jobs.reserve(first)
    assert jobs.first() is None
    jobs.delete(first)
    assert jobs.first() == second


def test_nothing_is_left_of_jobs_that_are_gone() -> None:
    jobs = Jobs()
    for job_id in [jobs.put(tube=number) for number in (1, 1, 2)]:
        jobs.delete(job_id)
    keys = jobs.state.concurrency
    assert (keys._lines, keys._reserved, keys.opened, keys._opening) == ({}, {}, {}, {})
    assert (jobs.tube(3).parked, NO_JOBS.count) == (NO_JOBS, 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "reserve", "release", "bury", "kick", "delete", "move"]),
        st.integers(0, 9), st.integers(1, TUBES), st.integers(0, 2),
        st.sampled_from([b"", b"k", b"k", b"m"]), st.integers(1, 3),
    ),
    max_size=40,
)  # fmt: skip


def test_lines_are_opened_slice_by_slice_the_best_first() -> None:
    jobs = Jobs()
    keys = jobs.state.concurrency = ConcurrencyKeys(2)
    holder = jobs.put(pri=9)
    jobs.reserve(holder)
    ids = {tube: jobs.put(tube=tube, pri=pri) for tube, pri in ((1, 3), (2, 1), (3, 2))}
    jobs.delete(holder)
    assert (jobs.first(1), jobs.first(2), jobs.first(3)) == (None, ids[2], ids[3])
    assert keys.is_opening
    keys.open_next()
    assert jobs.first(1) == ids[1]
    assert not keys.is_opening


def test_a_key_that_is_full_again_opens_no_more() -> None:
    jobs = Jobs()
    keys = jobs.state.concurrency = ConcurrencyKeys(1)
    ids = [jobs.put(tube=tube) for tube in (1, 1, 2, 3)]
    jobs.reserve(ids[0])
    jobs.delete(ids[0])
    jobs.reserve(ids[1])
    assert not keys.is_opening
    keys.open_next()
    assert [jobs.first(tube) for tube in (1, 2, 3)] == [None] * 3


def test_a_line_that_is_yet_to_be_opened_is_by_a_job_that_comes() -> None:
    jobs = Jobs()
    keys = jobs.state.concurrency = ConcurrencyKeys(1)
    first, _, last = [jobs.put(tube=tube) for tube in (1, 2, 3)]
    jobs.reserve(first)
    jobs.delete(first)
    jobs.put(tube=3, pri=5)
    assert jobs.first(3) == last
    jobs.delete(last)
    keys.open_next()
    jobs.check()


@settings(deadline=None)
@given(STEPS, st.sampled_from([1, 2, OPENED_LINES]))
def test_whatever_happens_a_tube_shows_the_first_job_that_may_be_handed_out(
    steps: list[tuple[str, int, int, int, bytes, int]], most: int
) -> None:
    jobs = Jobs()
    keys = jobs.state.concurrency = ConcurrencyKeys(most)
    for step, which, tube, pri, key, limit in steps:
        ids = sorted(jobs.images)
        if step == "put" or not ids:
            jobs.put(tube, pri, key, limit)
        else:
            do(jobs, step, ids[which % len(ids)], tube, pri)
        shown = [jobs.first(number) for number in range(1, TUBES + 1)]
        assert all(jobs.may_go(jobs.images[job_id]) for job_id in shown if job_id is not None)
        if which or most == OPENED_LINES:
            while keys.is_opening:
                keys.open_next()
            jobs.check()


def do(jobs: Jobs, step: str, job_id: int, tube: int, pri: int) -> None:
    """Carry out a step if the job is in a state for it."""
    image = jobs.images[job_id]
    is_reserved = image.state is State.RESERVED
    if step == "reserve" and not is_reserved and jobs.may_go(image):
        jobs.reserve(job_id)
    elif step == "release" and is_reserved:
        jobs.release(job_id, pri)
    elif step == "bury" and is_reserved:
        jobs.change(job_id, Kind.BURY, State.BURIED, deadline_ns=job_id, priority=pri)
    elif step == "kick" and image.state is State.BURIED:
        kick(jobs, image)
    elif step == "delete":
        jobs.delete(job_id)
    elif step == "move":
        state = State.READY if is_reserved else image.state
        deadline_ns = 0 if is_reserved else image.deadline_ns
        jobs.change(job_id, Kind.MOVE, state, tube_id=tube, deadline_ns=deadline_ns)


def kick(jobs: Jobs, image: JobImage) -> None:
    """Kick the first buried jobs of a tube, as many of them at once."""
    tube = jobs.tube(image.tube_id)
    buried = tube.buried.first_ids(2)
    jobs.state.apply_kicks(tube, tube.buried, buried)
    for job_id in buried:
        old = jobs.images[job_id]
        jobs.images[job_id] = old._replace(kind=Kind.KICK, state=State.READY, deadline_ns=0)
