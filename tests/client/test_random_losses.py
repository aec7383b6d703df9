"""Connections break anywhere: no job is put twice, none that was confirmed is missing, each is
where it was meant to be, and they come in their order.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import MOST_S
from beanstalk_twisted.client.service import Client
from tests.client.world import World, result
from tests.sampling import share

TUBES = ("default", "a", "b")
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from([0, 30, 200_000])),
    st.tuples(st.just("batch"), st.lists(st.sampled_from([0, 30, 50_000]), min_size=1, max_size=3)),
    st.tuples(st.just("use"), st.sampled_from(TUBES)),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("lose"), st.integers(0, 400) | st.just(300_000)),
    st.tuples(st.just("come back"), st.none()),
)


def tell(outcome: Any, at: int, put: Deferred[int]) -> Any:
    put.callback(outcome if isinstance(outcome, Failure) else outcome[at])
    return outcome


class Story:
    """What an application asks for, and what becomes of it."""

    def __init__(self) -> None:
        self.world = World(max_job_bytes=1 << 20)
        self.client: Client = self.world.client()
        self.used = "default"
        self.puts: list[tuple[bytes, str, Deferred[Any]]] = []
        self.batches: list[list[bytes]] = []
        self.uses: list[Deferred[str]] = []

    def put(self, size: int) -> None:
        body = b"%d:" % len(self.puts) + bytes(size)
        self.puts.append((body, self.used, self.client.put(body)))

    def batch(self, sizes: list[int]) -> None:
        first = len(self.puts)
        bodies = [b"%d:" % (first + at) + bytes(size) for at, size in enumerate(sizes)]
        self.batches.append(bodies)
        sent = self.client.put_batch(bodies)
        for at, body in enumerate(bodies):
            put: Deferred[int] = Deferred()
            self.puts.append((body, self.used, put))
            sent.addBoth(tell, at, put)
        sent.addErrback(lambda failure: None)

    def use(self, tube: str) -> None:
        self.used = tube
        self.uses.append(self.client.use(tube))

    def lose(self, through: int) -> None:
        """Break the connection, with so many bytes of what was sent arriving, and no answer."""
        if not self.world.links or self.world.link.transport.is_closed:
            return
        link = self.world.link
        # What the transport has not taken stays with the client.
        link.wire.peer.send(bytes(link.transport.unread[:through]))
        link.transport.unread.clear()
        link.transport.end(ConnectionLost())
        self.world.settle()

    def go_on(self, step: str, value: Any) -> None:
        if step == "settle":
            self.world.settle()
        elif step == "come back":
            self.world.advance(MOST_S)
        else:
            getattr(self, step)(value)

    def jobs(self) -> dict[int, tuple[bytes, str]]:
        looker = self.world.connection()
        total = self.world.result(looker.stats()).total_jobs
        found = {}
        for number in range(1, total + 2 * len(self.puts) + 1):
            looked, stats = looker.peek(number), looker.stats_job(number)
            self.world.settle()
            looked.addErrback(lambda failure: failure.trap(errors.NotFound) and None)
            stats.addErrback(lambda failure: failure.trap(errors.NotFound) and None)
            if (job := result(looked)) is not None:
                found[number] = (job.body, result(stats).tube)
        return found


@settings(max_examples=share(120), deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_what_was_confirmed_is_there_once_and_no_more(steps: list[tuple[str, Any]]) -> None:
    story = Story()
    for step, value in steps:
        story.go_on(step, value)
    story.go_on("come back", None)
    jobs = story.jobs()
    times = Counter(body for body, _ in jobs.values())
    confirmed = []
    for body, tube, put in story.puts:
        outcomes: list[Any] = []
        put.addBoth(outcomes.append)
        (outcome,) = outcomes
        if isinstance(outcome, Failure):
            # Each other put finds its way sooner or later, since the client was not stopped.
            assert outcome.check(errors.Unanswered), outcome
            assert times[body] <= 1
        else:
            assert jobs[outcome] == (body, tube)
            assert times[body] == 1
            confirmed.append(outcome)
    assert confirmed == sorted(confirmed)
    assert all(len({times[body] for body in batch}) == 1 for batch in story.batches)
    assert all(use.called for use in story.uses)
