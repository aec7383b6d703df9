"""The best ready job of many watched tubes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Pause
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import MANY_TUBES, TRIES, ReadyIndex, Tube
from tests.rules.memory import growth_bytes

TUBES = 5


class Place:
    """Tubes with numbers from 1 on, all watched."""

    def __init__(self, tubes: int = TUBES) -> None:
        self.state = QueueState()
        for number in range(1, tubes + 1):
            self.state.tubes.make(number, b"t%d" % number)
        self.watched = list(self.state.tubes.in_order)
        self.firsts = ReadyIndex(self.watched)

    def tube(self, number: int) -> Tube:
        return self.state.tubes.by_id(number)

    def put(self, job_id: int, tube: int, priority: int = 0) -> None:
        """Let a job be ready."""
        self.state.apply(JobImage(
            Kind.PUT, State.READY, Reason.CLIENT, priority, job_id, 0, 0, 0, 1, tube
        ))  # fmt: skip

    def delete(self, job_id: int) -> None:
        """Let a job be gone."""
        job = self.state.jobs.look(job_id)
        assert job is not None
        self.state.apply(job.image(Kind.DELETE, State.GONE, Reason.CLIENT, 0))

    def pause(self, tube: int, seconds: int) -> None:
        """Let a tube hand out nothing; 0 seconds end that."""
        self.state.apply_pause(Pause(tube, seconds, 99, 0))

    def expected(self) -> int | None:
        """Find the first by looking at all."""
        firsts = (tube.ready.first() for tube in self.watched if not tube.pause_until_ns)
        return min((key for key in firsts if key is not None), default=None)


def test_the_best_job_is_found_when_very_many_have_gone_at_once() -> None:
    place = Place(tubes=10 * TRIES)
    for number in range(1, 10 * TRIES + 1):
        place.put(number, tube=number)
    assert place.firsts.first() == 1
    last = 10 * TRIES - 1
    for number in range(1, last):
        place.pause(number, 5)
    assert place.firsts.first() == last
    for number in range(1, last):
        place.pause(number, 0)
    assert place.firsts.first() == 1
    place.delete(last)
    place.pause(1, 5)
    assert place.firsts.first() == 2


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "pause", "resume", "watch", "ignore", "look"]),
        st.integers(1, TUBES), st.integers(1, 12), st.integers(0, 2),
    ),
    max_size=120,
)  # fmt: skip


@given(STEPS)
def test_whatever_happens_in_the_tubes_the_first_is_what_a_look_at_all_finds(
    steps: list[tuple[str, int, int, int]],
) -> None:
    place = Place()
    for step, number, job_id, priority in steps:
        tube = place.tube(number)
        match step:
            case "put" if job_id not in place.state.jobs:
                place.put(job_id, number, priority)
            case "delete" if job_id in place.state.jobs:
                place.delete(job_id)
            case "pause" | "resume":
                place.pause(number, 1 if step == "pause" else 0)
            case "watch" if tube not in place.watched:
                place.watched.append(tube)
                place.firsts.watch(tube)
            case "ignore" if tube in place.watched:
                place.watched.remove(tube)
                place.firsts.ignore(tube)
            case "look":
                assert place.firsts.first() == place.expected()
    assert place.firsts.first() == place.expected()


def test_jobs_that_come_and_go_leave_no_memory_behind() -> None:
    place = Place()
    place.put(1, tube=1, priority=99)
    place.put(2, tube=2, priority=98)

    def come_and_go() -> None:
        for job_id in range(3, 4_000):
            place.put(job_id, tube=1 + job_id % 2, priority=5)
            place.firsts.first()
            place.delete(job_id)
            place.firsts.first()

    assert growth_bytes(come_and_go) < 40_000


def test_a_session_of_few_tubes_is_told_of_nothing_and_one_of_many_by_each_until_it_ends() -> None:
    place = Place(MANY_TUBES + 1)
    session = Session(1, place.tube(1))
    for number in range(2, MANY_TUBES + 1):
        session.watch(place.tube(number))
    place.put(7, tube=2)
    assert session.best_id() == 7
    assert not any(tube.listeners for tube in place.watched)
    last = place.tube(MANY_TUBES + 1)
    session.watch(last)
    assert session.best_id() == 7
    assert all(tube.listeners for tube in place.watched)
    place.put(3, tube=last.tube_id)
    assert session.best_id() == 3
    session.ignore(last)
    assert session.best_id() == 7
    for tube in list(session.watching):
        session.stop_watching(tube)
    assert not any(tube.listeners for tube in place.watched)
