"""Whose turn it is of watched tubes with weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.jobs.figures import MIN_SAMPLES, USUAL_NS
from beanstalk_twisted.jobs.session import (
    FIFO,
    WEIGHTED,
    WEIGHTED_FAIR,
    Session,
    WeightedIndex,
    spread,
)
from beanstalk_twisted.jobs.tube import Tube
from tests.jobs.test_ready_index import TUBES, Place
from tests.rules.memory import growth_bytes
from tests.sampling import share

SEED = 7


def index(
    place: Place, *, counts_time: bool = False, weights: tuple[int, ...] = ()
) -> WeightedIndex:
    """Make an index of a place's tubes, each with weight 1 unless told."""
    given_weights = weights or (1,) * len(place.watched)
    pairs = zip(place.watched, given_weights, strict=True)
    return WeightedIndex(pairs, counts_time=counts_time, seed=SEED, first_number=0)


@dataclass
class Part:
    """What the model knows of a tube."""

    number: int
    weight: int
    due: int


class Model:
    """The rule without a queue: look at all tubes each time."""

    def __init__(self, place: Place, *, counts_time: bool) -> None:
        self.counts_time = counts_time
        self.now = self.made = 0
        self.parts: dict[Tube, Part] = {}
        self.turn: Tube | None = None
        for tube in place.watched:
            self.watch(tube)

    def stride(self, tube: Tube) -> int:
        """Give what a turn costs a tube."""
        times = tube.processing_time if self.counts_time else None
        return (times.expected_ns() if times else USUAL_NS) // self.parts[tube].weight

    def make(self, tube: Tube, weight: int, due: int) -> None:
        """Begin with a tube, or begin anew."""
        self.parts[tube] = Part(self.made, weight, due)
        self.made += 1

    def watch(self, tube: Tube) -> None:
        self.end_turn()
        begins = spread((SEED << 32) + self.made)
        self.make(tube, 1, 0)
        self.parts[tube].due = self.now + self.stride(tube) * begins // 2**32

    def weigh(self, tube: Tube, weight: int) -> None:
        """A tube has another weight."""
        self.end_turn()
        old = self.parts[tube]
        left = max(old.due, self.now) - self.now
        self.make(tube, weight, self.now + left * old.weight // weight)

    def ignore(self, tube: Tube) -> None:
        """A tube is no longer watched."""
        self.end_turn()
        del self.parts[tube]

    def end_turn(self) -> None:
        """Whose turn it was has had it."""
        if self.turn is not None:
            self.now = self.parts[self.turn].due
            self.parts[self.turn].due += self.stride(self.turn)
            self.turn = None

    def first(self) -> int | None:
        """Find whose turn it is."""
        self.end_turn()
        tubes = [tube for tube in self.parts if tube.first_open() is not None]
        for tube in tubes:
            self.parts[tube].due = max(self.parts[tube].due, self.now)
        if tubes:
            self.turn = min(tubes, key=lambda each: (self.parts[each].due, self.parts[each].number))
        return None if self.turn is None else self.turn.first_open()


STEPS = st.lists(
    st.tuples(
        st.sampled_from([
            "put", "put", "delete", "pause", "resume", "watch", "ignore", "weigh", "look", "look",
            "take", "take", "forgo", "measure",
        ]),
        st.integers(1, TUBES), st.integers(1, 12), st.sampled_from([1, 2, 3, 1000]),
    ),
    max_size=120,
)  # fmt: skip


@pytest.mark.parametrize("counts_time", [False, True])
def test_whatever_happens_in_the_tubes_the_turns_are_those_of_the_model(counts_time: bool) -> None:
    @given(STEPS)
    def each(steps: list[tuple[str, int, int, int]]) -> None:
        place = Place()
        tested, model = index(place, counts_time=counts_time), Model(place, counts_time=counts_time)
        for step, number, job_id, weight in steps:
            tube = place.tube(number)
            match step:
                case "put" if job_id not in place.state.jobs:
                    place.put(job_id, number, weight)
                case "delete" if job_id in place.state.jobs:
                    place.delete(job_id)
                case "pause" | "resume":
                    place.pause(number, 1 if step == "pause" else 0)
                case "watch" if tube not in place.watched:
                    place.watched.append(tube)
                    tested.watch(tube)
                    model.watch(tube)
                case "ignore" if tube in place.watched:
                    place.watched.remove(tube)
                    tested.ignore(tube)
                    model.ignore(tube)
                case "weigh" if tube in place.watched:
                    tested.weigh(tube, weight)
                    model.weigh(tube, weight)
                case "measure" if tube.processing_time is not None:
                    for _ in range(MIN_SAMPLES):
                        tube.processing_time.note(weight * USUAL_NS // 100)
                case "look" | "take" | "forgo":
                    key = tested.first()
                    assert key == model.first()
                    if step == "forgo":
                        tested.forgo()
                        model.turn = None
                    if step == "take" and key is not None:
                        place.delete(key & (1 << 64) - 1)
        assert tested.first() == model.first()

    each()


def turns(tested: WeightedIndex, count: int) -> list[int]:
    """Give the jobs of so many turns; none is taken away."""
    return [key for _ in range(count) if (key := tested.first()) is not None]


def filled(*weights: int) -> tuple[Place, WeightedIndex]:
    """Make tubes of these weights, each with one job of the tube's number."""
    place = Place(len(weights))
    for number in range(1, len(weights) + 1):
        place.put(number, number)
    return place, index(place, weights=weights)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(0, 300))
def test_no_two_tubes_that_always_have_jobs_differ_by_more_than_a_turn_of_each(
    weights: list[int], start: int
) -> None:
    _, tested = filled(*weights)
    turns(tested, start)
    had = Counter[int]()
    for _ in range(100):
        had.update(turns(tested, 1))
        for one, other in combinations(range(len(weights)), 2):
            v, w = weights[one], weights[other]
            apart = abs(Fraction(had[one + 1], v) - Fraction(had[other + 1], w))
            assert apart <= Fraction(1, v) + Fraction(1, w) + Fraction(1, 10**4)


@pytest.mark.parametrize(("weight", "least"), [(1, 0.45), (3, 0.70), (10, 0.85)])
def test_connections_that_reserve_once_do_not_all_have_the_same_tube(
    weight: int, least: float
) -> None:
    place, _ = filled(weight, 1)
    pairs = list(zip(place.watched, (weight, 1), strict=True))
    firsts = Counter(
        WeightedIndex(pairs, counts_time=False, seed=seed, first_number=0).first()
        for seed in range(1, 1001)
    )
    assert least <= firsts[1] / 1000 <= 1 - 0.4 / weight


def test_by_time_each_tube_has_its_part_of_the_time() -> None:
    place, _ = filled(1, 1, 2)
    tested = index(place, counts_time=True, weights=(1, 1, 2))
    takes_ns = {1: USUAL_NS // 10, 2: 10 * USUAL_NS, 3: USUAL_NS}
    spent = Counter[int]()
    for turn in range(share(20_000)):
        (job_id,) = turns(tested, 1)
        tested.forgo()
        assert tested.first() == job_id
        times = place.tube(job_id).processing_time
        if times is not None:
            times.note(takes_ns[job_id])
        if turn >= 1000:
            spent[job_id] += takes_ns[job_id]
    for job_id, part in {1: 0.25, 2: 0.25, 3: 0.5}.items():
        assert abs(spent[job_id] / spent.total() - part) <= 0.02


def test_only_by_time_are_tubes_measured_and_only_those_that_had_a_turn() -> None:
    place, tested = filled(1, 1)
    turns(tested, 9)
    assert not any(tube.processing_time for tube in place.watched)
    place.pause(2, 1)
    turns(index(place, counts_time=True), 2)
    assert [tube.processing_time is not None for tube in place.watched] == [True, False]


@pytest.mark.exhaustive
def test_tubes_and_weights_that_come_and_go_leave_no_memory_behind() -> None:
    place, tested = filled(1, 1, 1)
    tube = place.tube(3)

    def come_and_go() -> None:
        for number in range(10_000):
            tested.ignore(tube)
            tested.first()
            tested.watch(tube)
            tested.first()
            tested.weigh(tube, number % 7 + 1)
            place.delete(3)
            tested.first()
            place.put(3, 3)
        for _ in range(10_000):
            tested.ignore(tube)
            tested.watch(tube)
            tested.first()
            tested.forgo()

    assert growth_bytes(come_and_go) < 100_000


def test_weights_that_change_and_change_leave_no_memory_behind() -> None:
    place, tested = filled(1, 1)

    def change() -> None:
        for number in range(10_000):
            tested.first()
            tested.forgo()
            tested.weigh(place.tube(2), number % 2 + 1)

    assert growth_bytes(change) < 100_000


# Sessions.


def test_a_session_listens_to_its_tubes_in_a_mode_of_weights_only_and_until_it_ends() -> None:
    place = Place()
    session = Session(1, place.tube(1))
    for number in range(2, TUBES + 1):
        session.watch(place.tube(number))
    for mode in (WEIGHTED, WEIGHTED_FAIR, FIFO, WEIGHTED):
        session.choose_by(mode)
        assert session.best_id() is None
        assert all(tube.listeners for tube in place.watched) == (mode != FIFO)
    for tube in list(session.watching):
        session.stop_watching(tube)
    assert not any(tube.listeners for tube in place.watched)


def test_a_mode_that_is_set_again_changes_nothing_and_another_one_begins_elsewhere() -> None:
    place, _ = filled(1, 1)
    session = Session(1, place.tube(1))
    session.watch(place.tube(2))
    firsts = Counter[int | None]()
    for _ in range(200):
        session.choose_by(WEIGHTED)
        firsts[session.best_id()] += 1
        session.choose_by(WEIGHTED)
        assert {session.best_id(), session.best_id()} == {1, 2}
        session.choose_by(FIFO)
    assert 60 < firsts[1] < 140


def test_weights_are_kept_in_every_mode_until_their_tubes_are_ignored() -> None:
    place, _ = filled(1, 1)
    light, heavy = place.watched
    session = Session(1, light)
    session.watch(heavy)
    session.weigh(heavy, 4)

    def heavy_turns() -> int:
        session.choose_by(WEIGHTED)
        count = [session.best_id() for _ in range(100)].count(2)
        session.choose_by(FIFO)
        return count

    assert abs(heavy_turns() - 80) <= 1
    assert abs(heavy_turns() - 80) <= 1
    session.ignore(heavy)
    session.watch(heavy)
    assert abs(heavy_turns() - 50) <= 1
    session.weigh(heavy, 4)
    session.watch(heavy)
    assert abs(heavy_turns() - 50) <= 1
