"""Which bodies are in memory, and which are left to the log: there is none, and reads end when the
test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import pytest

from beanstalk_twisted.binlog.errors import BodyLost
from beanstalk_twisted.binlog.records.jobs import BodyPlace, JobImage, Kind, Reason, State
from beanstalk_twisted.jobs.bodies import (
    AHEAD_BYTES,
    AHEAD_JOBS,
    AHEAD_SHARE,
    AHEAD_TUBES,
    DROP_JOBS,
    IN_USE_TAKES,
    KEEP_NS,
    MOST_STALE,
    SPARE_NOTES,
)
from beanstalk_twisted.jobs.body_room import PAUSES_S, Unread
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube

NS = 1_000_000_000
LOST = Unread("the checksum is wrong.", is_lost=True)
BODY = b"x" * 100
SEGMENT = 1


class World:
    """Jobs of one tube in a log whose records are durable when the test says so.

    :ivar asked: the reads that have begun, and not ended; ``wanted`` of which jobs somebody waits
        for them.
    :ivar logged: the bodies in the log, ``reads`` the places that were read; ``fault`` is called
        before each read, and may raise.
    :ivar told: the jobs whose bodies were lost, ``said`` those of which that was said; ``put_off``
        those whose reads have failed, and until when.
    """

    def __init__(self, most_bytes: int, jobs: int = 0) -> None:
        self.state = QueueState()
        self.tube = self.state.default()
        self.logged: dict[tuple[BodyPlace, int], bytes] = {}
        self.fault: Callable[[BodyPlace], None] = lambda place: None
        self.reads: list[BodyPlace] = []
        self.asked: list[tuple[BodyPlace, int]] = []
        self.told: list[int] = []
        self.durable_lsn = self.last_lsn = self.now_ns = 0
        self.bodies = self.state.bodies
        self.bodies.tell_lost = lambda job_id, now_ns: self.told.append(job_id)
        self.said: list[int] = []
        self.put_off: list[tuple[int, int]] = []
        self.bodies.say_lost = lambda job_id, why: self.said.append(job_id)
        self.bodies.tell_failed = self.note_failed
        self.wanted: list[int] = []
        self.bodies.begin(most_bytes, self.ask)
        for job_id in range(1, jobs + 1):
            self.put(job_id)

    def note_failed(self, job_id: int, until_ns: int, now_ns: int) -> None:
        """See `Bodies.tell_failed`."""
        self.put_off.append((job_id, until_ns))

    def ask(self, bodies: Sequence[tuple[BodyPlace, int]], is_wanted: bool) -> None:
        """See `bodies.Ask`."""
        self.asked += [each for each in bodies if each not in self.asked]
        if is_wanted:
            self.wanted += [job_id for _, job_id in bodies]

    def put(self, job_id: int, body: bytes = BODY) -> None:
        """A job is put, and is durable."""
        self.log(JobImage(
            Kind.PUT, State.READY, Reason.CLIENT, priority=0, job_id=job_id, ts_ns=0,
            deadline_ns=0, delay_s=0, ttr_s=60, tube_id=self.tube.tube_id, body=body,
        ))  # fmt: skip
        self.durable_lsn = self.last_lsn

    def log(self, image: JobImage) -> None:
        """Apply an image as the next record, which is not durable yet."""
        self.last_lsn += 1
        self.logged[BodyPlace(SEGMENT, self.last_lsn), image.job_id] = image.body
        self.state.apply(image, self.last_lsn, SEGMENT)

    def drop(self) -> int:
        """Leave to the log what may be left.

        :return: in how many slices.
        """
        slices = 1
        while self.bodies.drop_slice(self.durable_lsn, self.now_ns):
            slices += 1
        return slices

    def end_reads(self) -> None:
        """End all reads, those too that begin meanwhile."""
        while self.asked:
            place, job_id = self.asked.pop(0)
            body: bytes | Unread
            try:
                self.reads.append(place)
                self.fault(place)
                if (place, job_id) not in self.logged:
                    raise BodyLost("no full record of the job stands there.")
                body = self.logged[place, job_id]
            except (BodyLost, OSError) as problem:
                body = Unread(str(problem), isinstance(problem, BodyLost))
            self.bodies.arrived(job_id, body, self.now_ns)

    @property
    def loaded(self) -> list[int]:
        """The jobs whose bodies are in memory."""
        return [job_id for job_id in self.state.jobs if self.state.jobs.has_body(job_id)]


def test_nothing_leaves_memory_unless_that_was_begun() -> None:
    state = QueueState()
    assert not state.bodies.is_on
    world = World(0)
    assert world.bodies.is_on and world.state.jobs.keeps_places


@pytest.mark.parametrize(("most", "left"), [(0, 0), (1, 0), (100, 1), (499, 4), (500, 5), (501, 5)])
def test_no_more_bodies_stay_than_may_be(most: int, left: int) -> None:
    world = World(most, jobs=5)
    world.drop()
    assert len(world.loaded) == left
    assert world.state.jobs.loaded_bytes == 100 * left
    assert world.state.jobs.absent_bytes == 500 - 100 * left
    assert world.bodies.dropped == 5 - left


def test_the_bodies_put_last_go_first() -> None:
    world = World(300, jobs=6)
    world.drop()
    assert world.loaded == [1, 2, 3]


def test_a_body_that_is_not_durable_stays_however_many_there_are() -> None:
    world = World(0, jobs=3)
    world.durable_lsn = 1
    world.drop()
    assert world.loaded == [2, 3]
    world.durable_lsn = 3
    world.drop()
    assert world.loaded == []


def test_a_body_that_a_session_holds_leaves_too() -> None:
    world = World(0, jobs=1)
    job = world.state.jobs.job(1)
    job.state = State.RESERVED
    world.state.jobs.keep(job)
    world.drop()
    assert world.loaded == []


@pytest.mark.parametrize(("jobs", "slices"), [(DROP_JOBS - 1, 1), (2 * DROP_JOBS, 3)])
def test_bodies_leave_in_bounded_slices(jobs: int, slices: int) -> None:
    world = World(0, jobs)
    assert world.drop() in (slices, slices + 1)
    assert world.loaded == []


def test_bodies_are_noted_above_half_of_what_may_be() -> None:
    world = World(1000, jobs=5)
    assert not world.bodies.is_noting
    world.bodies.most_bytes = 0
    world.drop()
    assert len(world.loaded) == 5, "none was noted"
    world = World(1000, jobs=6)
    world.bodies.most_bytes = 0
    world.drop()
    assert world.loaded == [1, 2, 3, 4, 5]


def test_jobs_that_are_there_when_it_begins_leave_too() -> None:
    world = World(1 << 30, jobs=6)
    world.bodies.begin(200, lambda bodies, is_wanted: None)
    world.drop()
    assert world.loaded == [1, 2]


@pytest.mark.parametrize(("most", "left"), [(0, []), (299, [1, 2]), (300, [1, 2, 3])])
def test_of_what_a_start_loads_the_oldest_stay(most: int, left: list[int]) -> None:
    """A log is loaded from its end to its beginning."""
    world = World(1 << 30)
    for first in (5, 3, 1):
        world.put(first)
        world.put(first + 1)
        world.bodies.loaded([first, first + 1], most)
    assert world.loaded == left
    assert world.bodies.noted == len(left)
    world.bodies.begin(0, world.ask)
    assert world.bodies.noted == len(left), "they are not noted twice"
    world.drop()
    assert world.loaded == []


def test_the_jobs_of_a_start_are_gone_through_once() -> None:
    world = World(1 << 30, jobs=6)
    world.bodies.loaded([5, 6], 0)
    assert world.loaded == []
    world.put(7)
    world.put(8)
    world.bodies.loaded([8], 0)
    assert world.loaded == [7]


@pytest.mark.parametrize(("most", "noted"), [(399, 2), (400, 0)])
def test_what_a_start_loads_is_noted_above_half_of_what_may_be(most: int, noted: int) -> None:
    world = World(1 << 30, jobs=2)
    world.bodies.loaded([1, 2], most)
    world.bodies.begin(most, world.ask)
    assert (world.bodies.noted, world.loaded) == (noted, [1, 2])


def test_what_is_noted_of_jobs_that_are_gone_is_forgotten() -> None:
    """A queue between half of the cache and all of it, whose jobs come and go."""
    world = World(100 * 12)
    for job_id in range(1, 20 * (SPARE_NOTES + 20)):
        world.put(job_id)
        gone = world.state.jobs.get(job_id - 10)
        if gone is not None:
            world.state.apply(
                gone.image(Kind.DELETE, State.GONE, Reason.CLIENT, 0), world.last_lsn, SEGMENT
            )
        if not job_id % 100:
            world.drop()
        most = MOST_STALE * len(world.state.jobs) + SPARE_NOTES + 200
        assert world.bodies.noted <= most


# Back.


def test_a_body_is_read_back_and_told_of() -> None:
    world = World(0, jobs=2)
    world.drop()
    calls: list[int] = []
    world.now_ns = 7
    world.bodies.when_loaded(1, calls.append)
    world.bodies.when_loaded(1, calls.append)
    assert (len(world.asked), calls) == (1, [])
    world.end_reads()
    assert (calls, world.loaded, world.bodies.read) == ([7, 7], [1], 1)
    job = world.state.jobs.look(1)
    assert job is not None and job.body == BODY


def test_what_was_read_back_leaves_again_but_after_all_others() -> None:
    world = World(0, jobs=3)
    world.drop()
    world.bodies.when_loaded(2, lambda now_ns: None)
    world.end_reads()
    world.put(4)
    world.bodies.most_bytes = 100
    world.drop()
    assert world.loaded == [2]
    world.bodies.most_bytes = 0
    world.drop()
    assert world.loaded == []


def end(world: World) -> None:
    """Job 1 is deleted."""
    job = world.state.jobs.job(1)
    world.state.apply(job.image(Kind.DELETE, State.GONE, Reason.CLIENT, 0), 9, SEGMENT)


def update(world: World) -> None:
    """Job 1 has another body."""
    job = world.state.jobs.job(1)
    image = job.image(Kind.UPDATE, State.READY, Reason.CLIENT, 0)
    world.log(image._replace(body=b"another"))
    world.durable_lsn = world.last_lsn


@pytest.mark.parametrize(("change", "left"), [(end, None), (update, b"another")])
def test_what_changed_while_a_body_was_read_holds(
    change: Callable[[World], None], left: bytes | None
) -> None:
    world = World(0, jobs=1)
    world.drop()
    calls: list[int] = []
    world.bodies.when_loaded(1, calls.append)
    change(world)
    world.end_reads()
    job = world.state.jobs.look(1)
    assert (calls, world.told) == ([0], [])
    assert (None if job is None else job.body) == left


def test_a_place_that_changed_while_a_body_was_read_is_read_anew() -> None:
    world = World(0, jobs=1)
    world.drop()
    calls: list[int] = []
    world.bodies.when_loaded(1, calls.append)
    update(world)
    world.drop()
    world.end_reads()
    job = world.state.jobs.look(1)
    assert job is not None and (job.body, calls) == (b"another", [0])
    assert [place.lsn for place in world.reads] == [1, 2]


@pytest.mark.parametrize("error", [BodyLost("damaged"), OSError(5, "Input/output error")])
def test_a_body_that_cannot_be_read_is_told_and_costs_nobody_else_his(error: Exception) -> None:
    world = World(0, jobs=3)
    world.drop()

    def fail(place: BodyPlace) -> None:
        if place.lsn == 2:
            raise error

    world.fault = fail
    calls: list[int] = []
    for job_id in (1, 2, 3):
        world.bodies.when_loaded(job_id, calls.append)
    world.end_reads()
    is_lost = isinstance(error, BodyLost)
    assert world.told == ([2] if is_lost else [])
    assert world.put_off == ([] if is_lost else [(2, PAUSES_S[0] * NS)])
    assert (world.loaded, calls) == ([1, 3], [0, 0, 0])
    assert (world.bodies.lost, world.bodies.read) == (int(is_lost), 2)


def fail_always(place: BodyPlace) -> None:
    """A disk of which nothing can be read."""
    raise OSError(5, "Input/output error")


def test_who_comes_again_has_no_body_read_that_cannot_be() -> None:
    world = World(0, jobs=2)
    world.drop()
    world.fault = fail_always
    assert not world.bodies.want(1, world.now_ns)
    world.end_reads()
    pause_ns = PAUSES_S[0] * NS
    for world.now_ns, is_asked in ((pause_ns - 1, False), (pause_ns, True)):
        assert world.bodies.is_unreadable(1, world.now_ns) != is_asked
        assert not world.bodies.want(1, world.now_ns)
        assert bool(world.asked) == is_asked
    world.fault = lambda place: None
    world.end_reads()
    assert world.bodies.want(1, world.now_ns)
    assert not world.bodies.has_failed(1)


def test_a_lost_body_counts_once_and_is_told_each_time_it_is_asked_for() -> None:
    world = World(0, jobs=1)
    world.drop()
    world.logged.clear()
    for _ in range(3):
        world.bodies.when_loaded(1, lambda now_ns: None)
        world.end_reads()
    assert (world.bodies.lost, world.told, world.said) == (1, [1, 1, 1], [1])
    world.bodies.look_ahead(world.tube)
    assert not world.bodies.want(1, 1 << 60) and world.asked == []


def test_what_was_wanted_and_is_stated_again_may_leave_at_once() -> None:
    world = World(0, jobs=1)
    world.drop()
    world.bodies.want(1, world.now_ns)
    world.end_reads()
    update(world)
    world.drop()
    assert world.loaded == []


def test_a_segment_is_in_use_while_a_body_is_read_from_it() -> None:
    world = World(0, jobs=1)
    world.drop()
    assert not world.bodies.is_reading(SEGMENT)
    world.bodies.when_loaded(1, lambda now_ns: None)
    assert world.bodies.is_reading(SEGMENT) and not world.bodies.is_reading(SEGMENT + 1)
    world.end_reads()
    assert not world.bodies.is_reading(SEGMENT)


def test_a_body_for_whoever_comes_again_stays_for_a_while() -> None:
    world = World(0, jobs=1)
    world.drop()
    assert not world.bodies.want(1, world.now_ns)
    world.end_reads()
    assert world.bodies.want(1, world.now_ns)
    world.now_ns = KEEP_NS - 1
    world.drop()
    assert world.loaded == [1]
    world.now_ns = KEEP_NS
    world.drop()
    assert world.loaded == []


def test_reads_that_end_at_once_and_begin_others_are_no_recursion() -> None:
    """Each body that is lost has the next one read, as a reserve does."""
    world = World(0, jobs=5000)
    world.drop()
    world.bodies.begin(0, lambda bodies, _: world.bodies.arrived(bodies[0][1], LOST, 0))
    seen: list[int] = []

    def go_on(now_ns: int) -> None:
        seen.append(len(seen) + 1)
        if len(seen) < 5000:
            world.bodies.when_loaded(len(seen) + 1, go_on)

    world.bodies.when_loaded(1, go_on)
    assert world.told == list(range(1, 5001))


# Ahead.


def test_the_next_jobs_of_a_tube_are_read_ahead() -> None:
    world = World(0, jobs=2 * AHEAD_JOBS)
    world.drop()
    world.bodies.most_bytes = 100 * AHEAD_SHARE * 2 * AHEAD_JOBS
    world.bodies.look_ahead(world.tube)
    world.bodies.look_ahead(world.tube)
    assert [job_id for _, job_id in world.asked] == list(range(1, AHEAD_JOBS + 1))
    assert world.wanted == []


@pytest.mark.parametrize(("bytes_each", "count"), [(99, 2), (100, 2), (101, 1)])
def test_no_more_is_read_ahead_than_its_share(bytes_each: int, count: int) -> None:
    world = World(0)
    for job_id in (1, 2, 3):
        world.put(job_id, b"x" * bytes_each)
    world.drop()
    world.bodies.most_bytes = 200 * AHEAD_SHARE
    world.bodies.look_ahead(world.tube)
    assert len(world.asked) == count


@pytest.mark.parametrize(("more", "count"), [(0, 4), (1, 3)])
def test_no_more_bytes_are_read_ahead_than_may_be(more: int, count: int) -> None:
    world = World(0)
    for job_id in range(1, 7):
        world.put(job_id, b"x" * (AHEAD_BYTES // 4 + more))
    world.drop()
    world.bodies.most_bytes = 100 * AHEAD_BYTES
    world.bodies.look_ahead(world.tube)
    assert len(world.asked) == count


def take(world: World, job_id: int) -> None:
    """A worker takes a job."""
    world.tube.ready.discard(0, job_id)
    job = world.state.jobs.job(job_id)
    world.bodies.read_ahead(world.tube, job)


def test_when_half_of_what_was_looked_at_is_taken_it_goes_on() -> None:
    world = World(0, jobs=3 * AHEAD_JOBS)
    world.drop()
    world.bodies.most_bytes = 1 << 30
    world.bodies.look_ahead(world.tube)
    world.end_reads()
    half = AHEAD_JOBS // 2
    for job_id in range(1, half):
        take(world, job_id)
    assert world.asked == []
    take(world, half)
    assert [job_id for _, job_id in world.asked] == list(range(AHEAD_JOBS + 1, 3 * half + 1))


def test_a_job_that_was_not_read_in_time_has_the_next_ones_read_at_once() -> None:
    world = World(0, jobs=AHEAD_JOBS + 10)
    world.drop()
    world.bodies.most_bytes = 1 << 30
    world.tube.until_look = AHEAD_JOBS
    take(world, 1)
    assert [job_id for _, job_id in world.asked] == list(range(2, AHEAD_JOBS + 2))
    take(world, 2)
    assert len(world.asked) == AHEAD_JOBS, "it is being read"


def draining(tubes: int) -> tuple[World, list[Tube]]:
    """So many tubes that were looked ahead of: the first and the last have jobs to read ahead, each
    of the others has one.
    """
    world = World(0, jobs=tubes + 2 * AHEAD_JOBS)
    world.drop()
    world.bodies.most_bytes = 1 << 30
    made = [Tube(number, b"%d" % number) for number in range(10, 10 + tubes)]
    job_ids = iter(world.state.jobs)
    for tube in made:
        for job_id in islice(job_ids, AHEAD_JOBS if tube in (made[0], made[-1]) else 1):
            tube.ready.add(0, job_id)
        world.asked.clear()
        world.bodies.look_ahead(tube)
    return world, made


@pytest.mark.parametrize(
    ("tubes", "jobs"),
    [
        (AHEAD_TUBES, AHEAD_JOBS),
        (2 * AHEAD_TUBES, AHEAD_JOBS // 2),
        ((AHEAD_JOBS // 2 + 1) * AHEAD_TUBES, 2),
    ],
)
def test_tubes_share_what_is_read_ahead(tubes: int, jobs: int) -> None:
    world, _ = draining(tubes)
    assert len(world.asked) == jobs


def test_tubes_without_ready_jobs_have_no_share() -> None:
    world = World(0, jobs=2 * AHEAD_JOBS)
    world.drop()
    world.bodies.most_bytes = 1 << 30
    for number in range(10, 10 + 10 * AHEAD_TUBES):
        world.bodies.look_ahead(Tube(number, b"%d" % number))
    world.bodies.look_ahead(world.tube)
    assert len(world.asked) == AHEAD_JOBS


@pytest.mark.parametrize(("takes", "jobs"), [(0, AHEAD_JOBS // 2), (1, AHEAD_JOBS)])
def test_a_tube_of_which_nobody_has_taken_for_long_has_no_share(takes: int, jobs: int) -> None:
    world, (first, *_) = draining(2 * AHEAD_TUBES)
    taken = world.state.jobs.get(1)
    assert taken is not None
    taken.body = b""
    first.until_look = 2 * IN_USE_TAKES
    for _ in range(IN_USE_TAKES + takes):
        world.bodies.read_ahead(first, taken)
    first.ready.discard(0, 1)
    world.asked.clear()
    world.bodies.look_ahead(first)
    assert first.until_look == jobs // 2


def test_what_was_read_ahead_and_is_wanted_by_now_is_hurried() -> None:
    world = World(0, jobs=3)
    world.drop()
    world.bodies.most_bytes = 1 << 30
    world.bodies.look_ahead(world.tube)
    calls: list[int] = []
    for _ in range(2):
        world.bodies.when_loaded(2, calls.append)
    assert (len(world.asked), world.wanted) == (3, [2])
    world.end_reads()
    assert (calls, world.loaded) == ([0, 0], [1, 2, 3])


def test_what_is_wanted_elsewhere_while_it_is_read_ahead_is_read_there() -> None:
    world = World(0, jobs=1)
    world.drop()
    world.bodies.most_bytes = 1 << 30
    world.bodies.look_ahead(world.tube)
    update(world)
    world.bodies.most_bytes = 0
    world.drop()
    calls: list[int] = []
    world.bodies.when_loaded(1, calls.append)
    assert [place.lsn for place, _ in world.asked] == [1], "its segment is kept until then"
    world.end_reads()
    job = world.state.jobs.look(1)
    assert job is not None and (job.body, calls) == (b"another", [0])


def test_nothing_is_read_ahead_where_all_is_in_memory() -> None:
    world = World(1 << 20, jobs=3)
    world.bodies.look_ahead(world.tube)
    assert world.asked == []
