"""Many kicks in one go, compared with one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.cold import MAX_COUNT
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.jobs.ordered import ID_MASK, OrderedJobs
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import URGENT_BELOW, ReadyIndex, Tube
from beanstalk_twisted.rules.changes import Changes
from tests.rules.conversation import Client, Server
from tests.rules.recording_log import RecordingLog

CONNECTION = 5
NOW_NS = 1000


class Place:
    """A tube, its log, and an index that wants to be told of better jobs."""

    def __init__(self) -> None:
        self.state = QueueState()
        self.state.default()
        self.log = RecordingLog()
        self.changes = Changes(self.state)
        self.changes.log = self.log
        self.index = ReadyIndex(())

    @property
    def tube(self) -> Tube:
        return self.state.default()

    def queue(self, state: State) -> OrderedJobs:
        return self.tube.buried if state is State.BURIED else self.tube.delayed

    def set(
        self, state: State, job_id: int, priority: int, when_ns: int, kicks: int = 0
    ) -> None:  # fmt: skip
        """Let a job be so, whatever it was."""
        deadline_ns = 0 if state is State.READY else when_ns
        image = JobImage(
            Kind.COPY, state, Reason.NONE, priority, job_id, ts_ns=1, deadline_ns=deadline_ns,
            delay_s=0, ttr_s=1, tube_id=self.tube.tube_id, buries=1, kicks=kicks, body=b"x",
        )  # fmt: skip
        if state is State.GONE:
            if job_id not in self.state.jobs:
                return
            image = image._replace(kind=Kind.DELETE, deadline_ns=0, body=b"")
        self.changes.make(image)

    def kick_one_by_one(self, state: State, most: int) -> int:
        """The plain way: the first job's image is made, logged and applied, and so on."""
        kicked = 0
        while kicked < most and (key := self.queue(state).first()) is not None:
            job = self.state.jobs.job(key & ID_MASK)
            self.changes.make(
                job.image(Kind.KICK, State.READY, Reason.CLIENT, NOW_NS, connection=CONNECTION)
            )
            kicked += 1
        return kicked

    def kick_in_one_go(self, state: State, most: int) -> int:
        """The quick way, which may take several goes."""
        kicked, some = 0, 1
        while kicked < most and some:
            queue, left = self.queue(state), most - kicked
            some = self.changes.kick(self.tube, queue, left, CONNECTION, NOW_NS)
            assert some <= left
            kicked += some
        return kicked

    def looks(self) -> dict[str, Any]:
        """Write down all that can be seen."""
        state, tube = self.state, self.tube
        jobs = {job_id: state.jobs.look(job_id) for job_id in state.jobs}
        return {
            "jobs": {job_id: fields(job) for job_id, job in jobs.items()},
            "firsts": [queue.first() for queue in (tube.ready, tube.buried, tube.delayed)],
            "counts": [queue.count for queue in (tube.ready, tube.buried, tube.delayed)],
            "states": {known: state.counts[known] for known in State},
            "urgent": (state.urgent, tube.urgent),
            "records": self.log.records,
            "committed": self.changes.committed_lsn,
            "told": tube.listeners is None,
        }

    def order(self) -> list[int]:
        """Empty the tube and give its jobs in their order, the ready ones first."""
        order = []
        for queue in (self.tube.ready, self.tube.buried, self.tube.delayed):
            while (key := queue.first()) is not None:
                order.append(key & ID_MASK)
                self.set(State.GONE, key & ID_MASK, 0, 0)
        return order


def fields(job: object) -> dict[str, Any]:
    """Give all that a job knows of itself."""
    # Not `__slots__`, which a compiled class does not have.
    found = {name: getattr(job, name) for name in dir(job) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not callable(value)}


STATES = st.sampled_from([State.BURIED, State.DELAYED])
SET = st.tuples(
    st.just("set"), st.sampled_from([State.BURIED, State.DELAYED, State.READY, State.GONE]),
    st.integers(1, 40), st.sampled_from([0, 7, URGENT_BELOW - 1, URGENT_BELOW]),
    st.integers(1, 20),
)  # fmt: skip
MANY = st.tuples(st.just("many"), STATES, st.integers(1, 40), st.integers(1, 20), st.booleans())
KICK = st.tuples(st.just("kick"), STATES, st.integers(1, 50))


def go(place: Place, kick: Callable[[State, int], int], steps: list[tuple[Any, ...]]) -> list[Any]:
    """Take all steps, and give what could be seen after each."""
    seen: list[Any] = []
    for what, state, *numbers in steps:
        place.tube.listen(place.index)
        if what == "kick":
            seen.append(kick(state, numbers[0]))
        elif what == "set":
            place.set(state, *numbers)
        else:
            first, priorities, is_falling = numbers
            for at in range(30):
                when_ns = 100 - at if is_falling else 100 + at
                place.set(state, first + at, at % priorities, when_ns)
        seen.append(place.looks())
    return [*seen, place.order(), place.looks()]


@given(st.lists(st.one_of(SET, SET, MANY, KICK, KICK), max_size=30))
def test_many_kicks_in_one_go_do_what_they_do_one_by_one(steps: list[tuple[Any, ...]]) -> None:
    plain, quick = Place(), Place()
    expected = go(plain, plain.kick_one_by_one, steps)
    assert go(quick, quick.kick_in_one_go, steps) == expected


@pytest.mark.parametrize("odd", [None, 32, 40, 63])
@pytest.mark.parametrize("kicks", [0, 254, 255, 256, MAX_COUNT - 1, MAX_COUNT])
@pytest.mark.parametrize("state", [State.BURIED, State.DELAYED])
def test_whole_pages_of_jobs_are_kicked_as_one_by_one(
    state: State, kicks: int, odd: int | None
) -> None:
    plain, quick = Place(), Place()
    for place in (plain, quick):
        for job_id in range(20, 101):
            place.set(state, job_id, job_id % 7, job_id, kicks if job_id == odd else 3)
    assert plain.kick_one_by_one(state, 78) == quick.kick_in_one_go(state, 78) == 78
    assert quick.looks() == plain.looks()
    assert quick.order() == plain.order()


@pytest.mark.parametrize("state", [State.BURIED, State.DELAYED])
def test_the_records_of_a_kick_make_the_same_jobs_again(state: State) -> None:
    live, made = Place(), Place()
    for job_id in range(1, 2001):
        live.set(state, job_id, job_id % 5, 1 + job_id * 7919 % 2003)
    assert live.kick_in_one_go(state, 1500) == 1500
    for lsn, record in enumerate(live.log.records, start=1):
        if isinstance(record, JobImage):
            made.state.apply(record, lsn, made.log.segment)
    assert [fields(made.state.jobs.look(job_id)) for job_id in made.state.jobs] == [
        fields(live.state.jobs.look(job_id)) for job_id in live.state.jobs
    ]
    assert made.state.counts == live.state.counts
    assert made.order() == live.order()


def test_a_kick_in_one_go_knows_the_newest_record_of_each_job() -> None:
    place = Place()
    for job_id in (1, 2, 3):
        place.set(State.BURIED, job_id, 0, job_id)
    place.kick_in_one_go(State.BURIED, 2)
    jobs = [place.state.jobs.look(job_id) for job_id in (1, 2, 3)]
    # The tube's name and three copies come before.
    assert [job and job.lsn for job in jobs] == [5, 6, 4]
    assert place.changes.committed_lsn == 6


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_counter_that_passes_what_a_row_can_say_is_kicked_as_one_by_one(more: int) -> None:
    plain, quick = Place(), Place()
    for place in (plain, quick):
        place.set(State.BURIED, 1, 0, 1)
        place.set(State.BURIED, 2, 0, 2, MAX_COUNT + more)
        place.set(State.BURIED, 3, 0, 3)
    assert plain.kick_one_by_one(State.BURIED, 3) == quick.kick_in_one_go(State.BURIED, 3) == 3
    assert quick.looks() == plain.looks()
    assert quick.order() == plain.order()


def buried(client: Client, count: int) -> list[int]:
    """Put so many jobs aside."""
    ids = [client.put() for _ in range(count)]
    for job_id in ids:
        client.says(f"reserve-job {job_id}")
        client.says(f"bury {job_id} 0")
    return ids


def test_who_waits_is_served_job_by_job_and_the_rest_is_kicked_in_one_go(server: Server) -> None:
    client, workers = server.connect(), [server.connect() for _ in range(3)]
    ids = buried(client, 20)
    for worker in workers:
        worker.says("reserve")
    before = len(server.log.records)
    assert client.says("kick 20") == "KICKED 20"
    assert [worker.hears() for worker in workers] == [f"RESERVED {n} 1\r\nx" for n in ids[:3]]
    kinds = [record.kind for record in server.log.records[before:]]
    assert kinds == [Kind.KICK, Kind.RESERVE] * 3 + [Kind.KICK] * 17
