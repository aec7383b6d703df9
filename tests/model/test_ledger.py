"""The checker of histories finds each kind of violation, and takes what a queue may do."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.model.ledger import MARGIN_S, Event, Fault, Kind, check
from tests.sampling import share

HISTORIES = share(200)


def faults(history: list[Event], left: dict[int, bytes], **options: float) -> list[Fault]:
    return [violation.fault for violation in check(history, left, **options)]


class Queue:
    """A queue that does what it may, and clients that write down what they see: connections are
    lost, replies do not come, jobs are given to others at once.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.history: list[Event] = []
        self.left: dict[int, bytes] = {}
        self.held: dict[int, str] = {}
        self.connections = [f"c{number}" for number in range(4)]
        self.made = 4
        self.puts = 0

    def note(self, connection: str, kind: Kind, job: int = 0, body: bytes = b"") -> None:
        self.now_s += self.random.random() / 100
        self.history.append(Event(self.now_s, connection, kind, job, body))

    def step(self) -> None:
        connection = self.random.choice(self.connections)
        choices: list[Callable[[str], None]] = [self.put, self.put, self.reserve, self.reserve]
        self.random.choice([*choices, self.delete, self.delete, self.release, self.lose])(
            connection
        )

    def put(self, connection: str) -> None:
        self.puts += 1
        body = b"%d" % self.puts
        self.note(connection, Kind.PUT_SENT, body=body)
        fate = self.random.random()
        if fate < 0.9:
            self.left[self.puts] = body
        if fate < 0.8:
            self.note(connection, Kind.PUT_TOLD, self.puts, body)
        else:
            self.lose(connection)

    def reserve(self, connection: str) -> None:
        ready = sorted(self.left.keys() - self.held.keys())
        if ready:
            job = self.random.choice(ready)
            self.held[job] = connection
            self.note(connection, Kind.RESERVED, job, self.left[job])

    def delete(self, connection: str) -> None:
        jobs = [job for job, holder in self.held.items() if holder == connection]
        job = self.random.choice(jobs or [10_000])
        self.note(connection, Kind.DELETE_SENT, job)
        if not jobs:
            self.note(connection, Kind.NOT_DELETED, job)
            return
        fate = self.random.random()
        if fate < 0.9:
            del self.left[job], self.held[job]
        if fate < 0.8:
            self.note(connection, Kind.DELETED, job)
        else:
            self.lose(connection)

    def release(self, connection: str) -> None:
        jobs = [job for job, holder in self.held.items() if holder == connection]
        if jobs:
            job = self.random.choice(jobs)
            self.note(connection, Kind.RELEASE_SENT, job)
            del self.held[job]

    def lose(self, connection: str) -> None:
        """End a connection; who had it hears of it a little later."""
        for job in [job for job, holder in self.held.items() if holder == connection]:
            del self.held[job]
        if self.random.random() < 0.5:
            self.reserve(next(other for other in self.connections if other != connection))
        self.note(connection, Kind.LOST)
        self.connections[self.connections.index(connection)] = f"c{self.made}"
        self.made += 1


def of_a_queue(seed: int) -> Queue:
    queue = Queue(seed)
    for _ in range(200):
        queue.step()
    return queue


def test_what_a_queue_may_do_is_no_violation() -> None:
    for seed in range(HISTORIES):
        queue = of_a_queue(seed)
        assert check(queue.history, queue.left) == []


def last(queue: Queue, kind: Kind, *, left: bool) -> Event:
    """Find the newest event of a kind, about a job that is there, or is none any more."""
    return next(
        event for event in reversed(queue.history)
        if event.kind is kind and (event.job in queue.left) is left
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_a_job_that_is_gone_is_found(seed: int) -> None:
    queue = of_a_queue(seed)
    told = last(queue, Kind.PUT_TOLD, left=True)
    sent = {event.job for event in queue.history if event.kind is Kind.DELETE_SENT}
    del queue.left[told.job]
    assert faults(queue.history, queue.left) == ([] if told.job in sent else [Fault.LOST])


@pytest.mark.parametrize("seed", range(10))
def test_jobs_and_ids_that_were_made_twice_or_by_nobody_are_found(seed: int) -> None:
    queue = of_a_queue(seed)
    told = last(queue, Kind.PUT_TOLD, left=True)
    assert faults(queue.history, {**queue.left, 9999: b"?"}) == [Fault.FROM_NOWHERE]
    assert faults(queue.history, {**queue.left, 9999: told.body}) == [Fault.TWICE]
    queue.note("new", Kind.PUT_SENT, body=b"new")
    queue.note("new", Kind.PUT_TOLD, told.job, b"new")
    assert Fault.SAME_ID in faults(queue.history, queue.left)


@pytest.mark.parametrize("seed", range(10))
def test_a_job_that_comes_back_is_found(seed: int) -> None:
    queue = of_a_queue(seed)
    gone = last(queue, Kind.DELETED, left=False)
    body = next(event.body for event in queue.history if event.kind is Kind.RESERVED
                and event.job == gone.job)  # fmt: skip
    assert faults(queue.history, {**queue.left, gone.job: body}) == [Fault.BACK]
    late = Event(gone.at_s + MARGIN_S, "late", Kind.RESERVED, gone.job, body)
    assert faults([*queue.history, late], queue.left) == []
    late = late._replace(at_s=late.at_s + 0.001)
    assert faults([*queue.history, late], queue.left) == [Fault.BACK]


SENT = Event(0, "a", Kind.PUT_SENT, body=b"x")


@pytest.mark.parametrize(
    ("end", "other_s", "found"),
    [
        (None, 5.0, [Fault.TWO_HANDS]),
        (Event(5 + MARGIN_S, "a", Kind.LOST), 5.0, []),
        (Event(5.001 + MARGIN_S, "a", Kind.LOST), 5.0, [Fault.TWO_HANDS]),
        (Event(4.0, "a", Kind.RELEASE_SENT, 1), 5.0, []),
        (Event(4.0, "a", Kind.RELEASE_SENT, 2), 5.0, [Fault.TWO_HANDS]),
        (Event(4.0, "b", Kind.LOST), 5.0, [Fault.TWO_HANDS]),
        (Event(4.0, "a", Kind.LOST), 5.0, []),
    ],
)
def test_a_job_may_be_in_two_hands_for_the_margin(
    end: Event | None, other_s: float, found: list[Fault]
) -> None:
    history = [
        SENT, Event(1, "a", Kind.RESERVED, 1, b"x"), Event(other_s, "b2", Kind.RESERVED, 1, b"x"),
        *([] if end is None else [end]),
    ]  # fmt: skip
    assert faults(history, {1: b"x"}) == found


@pytest.mark.parametrize(("ttr_s", "found"), [(5.0, []), (5.1, [Fault.TWO_HANDS])])
def test_a_ttr_ends_what_is_in_hand(ttr_s: float, found: list[Fault]) -> None:
    history = [
        SENT, Event(1, "a", Kind.RESERVED, 1, b"x"), Event(5, "b", Kind.RESERVED, 1, b"x"),
    ]  # fmt: skip
    assert faults(history, {1: b"x"}, ttr_s=ttr_s) == found


def test_a_job_that_the_same_connection_gets_again_is_in_one_hand() -> None:
    history = [SENT, *(Event(at_s, "a", Kind.RESERVED, 1, b"x") for at_s in (1, 5, 9))]
    assert faults(history, {1: b"x"}) == []


def test_a_delete_without_an_answer_may_have_been_carried_out() -> None:
    history = [
        SENT, Event(1, "a", Kind.PUT_TOLD, 1, b"x"), Event(2, "a", Kind.DELETE_SENT, 1),
        Event(3, "a", Kind.LOST),
    ]  # fmt: skip
    assert faults(history, {}) == faults(history, {1: b"x"}) == []
    refused = [*history, Event(2.5, "a", Kind.NOT_DELETED, 1)]
    assert faults(refused, {}) == [Fault.LOST]
