"""New jobs when there is no room: who waits, who is refused, who is forgotten."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.space_budget import new_job_bytes
from tests.rules.conversation import Client, Server
from tests.rules.recording_log import Budget, full_disk


class Place:
    """A server whose log has a room that the test rules."""

    def __init__(self) -> None:
        self.server = Server()
        self.budget = Budget()
        self.server.log.budget = self.budget
        self.clients: list[Client] = []

    def waits(self, body: bytes = b"x", line: str = "put 0 0 60 {}") -> Client:
        """Put a job that has no room yet, from a connection of its own."""
        client = self.server.connect()
        assert client.says(line.format(len(body)), body) is None
        assert client.session.is_blocked
        return client

    def change(self) -> None:
        """Tell the queue that the room has changed."""
        self.server.queue.room_changed(self.server.now_ns)
        self.server.deliver()

    @property
    def job_ids(self) -> list[int]:
        """Give the jobs there are."""
        return sorted(self.server.queue.state.jobs)


def test_a_put_that_has_room_is_answered_at_once() -> None:
    place = Place()
    assert place.server.connect().put() == 1
    assert place.budget.asked == [(1, 0)]
    place.server.connect().put(b"second")
    assert place.budget.asked[-1] == (6, 1), "how many others there are matters"


def test_it_is_forgotten_also_while_the_end_of_the_connection_takes_its_time() -> None:
    place = Place()
    client = place.server.connect()
    for _ in range(1200):
        client.put()
        client.takes()
    client.says("use elsewhere")
    place.budget.largest = None
    assert client.says("put 0 0 60 1", b"x") is None
    client.leaves()
    place.budget.largest = 1
    place.change()
    assert place.server.finish_slices() > 1
    assert place.job_ids == list(range(1, 1201))


def test_the_demand_is_all_that_waits_and_all_deletions() -> None:
    place = Place()
    for _ in range(3):
        place.server.connect().put()
    assert place.server.queue.demand() == (3, 0, 0)
    place.budget.largest = None
    for size in (10, 70_000, 20):
        place.waits(b"x" * size)
    own = [new_job_bytes(size) for size in (10, 70_000, 20)]
    assert place.server.queue.demand() == (3, sum(own), own[1])


# Changes at the edge of the room.


class Full(Place):
    """Jobs in all states, and then a full disk."""

    def __init__(self) -> None:
        super().__init__()
        self.worker = self.server.connect()
        ready, delayed, buried, held = (
            self.worker.put(delay=delay, pri=pri)
            for delay, pri in ((0, 9), (50, 0), (0, 1), (0, 2))
        )
        assert (self.worker.takes(), self.worker.takes()) == (buried, held)
        self.worker.says(f"bury {buried} 0")
        self.ready, self.delayed, self.buried, self.held = ready, delayed, buried, held
        self.server.log.budget = full_disk()
        self.records = len(self.server.log.records)

    def states(self) -> list[tuple[int, str, str]]:
        """Give every job's state and priority."""
        asked = ((job_id, self.worker.asks(f"stats-job {job_id}")) for job_id in self.job_ids)
        return [(job_id, facts["state"], facts["pri"]) for job_id, facts in asked]

    @property
    def logged(self) -> int:
        """How many records there were since."""
        return len(self.server.log.records) - self.records


@pytest.mark.parametrize(
    "line",
    [
        "release {held} 5 0", "release {held} 5 9", "bury {held} 5", "kick 1", "kick 1000",
        "kick-job {buried}", "kick-job {delayed}", "reserve-job {buried}", "reserve-job {delayed}",
        "pause-tube default 5", "pause-tube default 0",
    ],
)  # fmt: skip
def test_a_change_without_room_is_refused_and_changes_nothing(line: str) -> None:
    full = Full()
    before = full.states(), full.worker.asks("stats-tube default")["cmd-pause-tube"]
    reply = full.worker.says(line.format(**vars(full)))
    assert reply == "OUT_OF_MEMORY"
    assert (full.states(), full.worker.asks("stats-tube default")["cmd-pause-tube"]) == before
    assert full.logged == 0
    assert not full.worker.session.is_blocked
    full.server.log.budget = Budget()
    assert full.worker.says(line.format(**vars(full))) != "OUT_OF_MEMORY"


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("release {ready} 5 0", "NOT_FOUND"), ("bury 99 5", "NOT_FOUND"), ("touch 99", "NOT_FOUND"),
        ("kick-job {ready}", "NOT_FOUND"), ("kick-job 99", "NOT_FOUND"),
        ("reserve-job {held}", "NOT_FOUND"), ("pause-tube none 5", "NOT_FOUND"),
    ],
)  # fmt: skip
def test_what_would_not_be_done_anyway_is_answered_as_ever(line: str, reply: str) -> None:
    full = Full()
    assert full.worker.says(line.format(**vars(full))) == reply
    assert full.logged == 0


def test_a_kick_that_finds_nothing_needs_no_room() -> None:
    full = Full()
    full.worker.says("use empty")
    assert full.worker.says("kick 10") == "KICKED 0"


def test_jobs_in_any_state_can_be_deleted_on_a_full_disk() -> None:
    full = Full()
    for job_id in (full.ready, full.delayed, full.buried, full.held):
        assert full.worker.says(f"delete {job_id}") == "DELETED"
    assert full.job_ids == []
    assert full.logged == 4, "each is on disk"


@pytest.mark.parametrize("count", [3, 700])
def test_a_kick_ends_where_the_room_does(count: int) -> None:
    place = Place()
    client = place.server.connect()
    for _ in range(count + 5):
        client.put(delay=1000)
    place.server.log.budget = full_disk(changes=count + 1)
    reply = client.says(f"kick {count + 5}")
    if reply is None:
        place.server.finish_slices()
        reply = client.hears()
    assert reply == f"KICKED {count}"
    assert client.asks("stats")["current-jobs-delayed"] == "5"
    assert not client.session.is_blocked


def test_reserving_and_touching_go_on_and_are_not_logged() -> None:
    full = Full()
    assert full.worker.takes() == full.ready
    assert full.worker.says(f"touch {full.held}") == "TOUCHED"
    assert full.logged == 0
    assert dict((job_id, state) for job_id, state, _ in full.states())[full.ready] == "reserved"
    assert full.worker.says(f"delete {full.ready}") == "DELETED"


def test_a_reply_of_what_is_not_logged_still_waits_for_the_job_itself() -> None:
    full = Full()
    full.worker.takes()
    assert full.worker.last is not None
    assert full.worker.last[1] == full.server.log.committed_lsn(full.ready) > 0


def test_ttrs_end_and_connections_end_without_a_record() -> None:
    full = Full()
    full.server.pass_time(60)
    assert ("ready", "2") in [state[1:] for state in full.states()]
    other = full.server.connect()
    other.takes()
    other.leaves()
    assert {state for _, state, _ in full.states()} == {"ready", "buried"}
    assert full.logged == 0
    assert full.worker.asks(f"stats-job {full.held}")["timeouts"] == "1"


def test_a_ready_job_is_reserved_by_its_id_without_a_record() -> None:
    full = Full()
    reply = full.worker.says(f"reserve-job {full.ready}")
    assert reply is not None and reply.startswith("RESERVED")
    assert full.logged == 0


def test_the_pause_of_a_tube_that_is_forgotten_ends_without_a_record() -> None:
    place = Place()
    client = place.server.connect()
    client.says("use paused")
    client.says("pause-tube paused 100")
    records = len(place.server.log.records)
    place.server.log.budget = full_disk()
    client.says("use default")
    assert len(place.server.log.records) == records
    assert client.lists("list-tubes") == ["default"]


# Copies.


def test_copies_stop_before_the_first_that_has_no_room_and_go_on_there() -> None:
    place = Place()
    client = place.server.connect()
    ids = [client.put(b"x" * size) for size in (1, 2, 30, 4)]
    place.server.log.begin_segment([])
    place.budget.largest_copy = 29
    queue = place.server.queue
    assert queue.copy(ids, 1, 0) == 2
    assert queue.copy(ids[2:], 1, 0) == 0
    assert queue.tally.copies == 2
    place.budget.largest_copy = 30
    assert queue.copy(ids[2:], 1, 0) == 2
    copies = [image for image in place.server.log.images() if image.kind is Kind.COPY]
    assert [image.job_id for image in copies] == ids


def test_what_is_no_longer_in_a_segment_needs_no_room_to_be_copied() -> None:
    place = Place()
    client = place.server.connect()
    ids = [client.put() for _ in range(3)]
    place.budget.largest_copy = None
    client.says(f"delete {ids[0]}")
    assert place.server.queue.copy(ids, 1, 0) == 1
    assert place.server.queue.copy(ids, 7, 0) == 3
