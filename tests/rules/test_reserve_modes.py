"""Reserves choose among the watched tubes by weights, in every command that reserves."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from beanstalk_twisted.jobs.figures import MIN_SAMPLES, USUAL_NS
from beanstalk_twisted.jobs.session import FIFO, WEIGHTED, WEIGHTED_FAIR
from beanstalk_twisted.rules import batches
from beanstalk_twisted.rules.watching import SLICE_TUBES
from beanstalk_twisted.wire.dialects import MODERN
from tests.rules.conversation import Client, Server
from tests.rules.looking.test_connections import listed

MODES = ("fifo", "weighted", "weighted-fair")


def serving(mode: str = "weighted", **weights: int) -> tuple[Server, Client, Client]:
    """Start a server with a worker in a mode that watches these tubes, and somebody else."""
    server = Server()
    worker, other = server.connect(), server.connect()
    for name, weight in weights.items():
        worker.says(f"watch {name} {weight}")
    worker.says("ignore default")
    assert worker.says(f"reserve-mode {mode}") == f"USING {mode}"
    return server, worker, other


def fill(client: Client, jobs: int, *tubes: str) -> None:
    """Put so many jobs into each tube, the first tube's with the best priority."""
    for pri, name in enumerate(tubes):
        client.says(f"use {name}")
        for _ in range(jobs):
            client.put(pri=pri)


def tube_of(client: Client, job_id: int) -> str:
    return client.asks(f"stats-job {job_id}")["tube"]


def reserves(client: Client, count: int) -> Counter[str]:
    """Reserve and release so often, and count the tubes."""
    had = Counter[str]()
    for _ in range(count):
        job_id = client.takes()
        tube = tube_of(client, job_id)
        had[tube] += 1
        client.says(f"release {job_id} {'abcd'.index(tube)} 0")
    return had


def test_the_modes_of_the_wire_are_those_of_sessions() -> None:
    parsed = [MODERN.parse(f"reserve-mode {mode}".encode())[1] for mode in MODES]
    assert parsed == [(FIFO,), (WEIGHTED,), (WEIGHTED_FAIR,)]


def test_only_what_is_deleted_by_whom_it_was_reserved_by_is_measured() -> None:
    server, worker, other = serving("weighted-fair", a=1)
    fill(other, 2 * MIN_SAMPLES, "a")
    ids = [worker.takes() for _ in range(MIN_SAMPLES)]
    worker.takes()
    server.pass_time(3)
    times = server.queue.state.tubes.get_or_make(b"a").processing_time
    assert times is not None
    for job_id in range(MIN_SAMPLES + 2, 2 * MIN_SAMPLES + 1):
        assert other.says(f"delete {job_id}") == "DELETED"
    for job_id in ids[:-1]:
        assert worker.says(f"delete {job_id}") == "DELETED"
    assert other.says(f"delete {ids[-1]}") == "NOT_FOUND"
    assert times.expected_ns() == USUAL_NS
    assert worker.says(f"delete-batch {ids[-1]}") == "DELETED_BATCH 1 0"
    assert times.expected_ns() == 3 * USUAL_NS


def alternate(had: list[str]) -> bool:
    """Tell whether no tube was had twice in a row."""
    return all(one != other for one, other in pairwise(had))


def test_a_batch_that_would_wait_takes_the_turn_that_it_has_found() -> None:
    _, worker, other = serving("weighted", a=1, b=1)
    fill(other, 10, "a", "b")
    for _ in range(20):
        assert str(worker.says("reserve-batch 1 5")).startswith("RESERVED_BATCH 1\r\n")
    assert alternate([tube_of(worker, job_id) for job_id in worker.session.reserved])


def test_a_job_that_a_batch_has_no_room_for_leaves_its_tube_the_turn() -> None:
    server, worker, other = serving("weighted", a=1, b=1)
    body = bytes(1 << 20)
    most = batches.MAX_REPLY_BYTES // len(body)
    for name in ("a", "b"):
        other.says(f"use {name}")
        for _ in range(most):
            other.put(body)
    assert worker.says("reserve-batch 1000") is None
    server.finish_slices()
    assert str(worker.hears()).startswith(f"RESERVED_BATCH {most}\r\n")
    for _ in range(3):
        worker.takes()
    assert alternate([tube_of(worker, job_id) for job_id in worker.session.reserved])


def test_who_waits_gets_what_comes_first_and_a_job_of_its_own_choice_is_no_turn() -> None:
    _, worker, other = serving("weighted", a=1, b=1000)
    assert worker.says("reserve") is None
    fill(other, 1, "a")
    assert str(worker.hears()).startswith("RESERVED 1 ")
    fill(other, 30, "a", "b")
    for job_id in range(2, 22):
        assert str(worker.says(f"reserve-job {job_id}")).startswith("RESERVED")
    assert Counter(tube_of(worker, worker.takes()) for _ in range(20))["b"] >= 19


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_paused_tube_loses_its_turns_and_an_ignored_one_too(mode: str) -> None:
    server, worker, other = serving(mode, a=1, b=1, c=2)
    fill(other, 2, "a", "b", "c")
    other.says("pause-tube c 9")
    assert reserves(worker, 20) == {"a": 10, "b": 10}
    server.pass_time(9)
    had = reserves(worker, 40)
    assert all(abs(had[name] - count) <= 1 for name, count in {"a": 10, "b": 10, "c": 20}.items())
    worker.says("ignore a")
    had = reserves(worker, 30)
    assert had["a"] == 0 and abs(had["c"] - 20) <= 1
    worker.says("watch a 4")
    had = reserves(worker, 70)
    assert abs(had["a"] - 40) <= 1
    worker.says("watch a")
    had = reserves(worker, 40)
    assert abs(had["a"] - 10) <= 1


def test_a_plain_watch_sets_the_weight_to_1_and_a_weighted_one_watches_once() -> None:
    _, worker, other = serving("weighted", a=9)
    assert worker.says("watch b 9") == "WATCHING 2"
    assert worker.says("watch b 3") == "WATCHING 2"
    assert worker.says("watch a") == "WATCHING 2"
    assert worker.lists("list-tubes-watched") == ["a", "b"]
    assert other.asks("stats-tube b")["current-watching"] == "1"
    fill(other, 2, "a", "b")
    assert abs(reserves(worker, 40)["b"] - 30) <= 1
    assert worker.says("ignore b") == "WATCHING 1"
    assert "b" in other.lists("list-tubes")
    assert worker.says("ignore a") == "NOT_IGNORED"


def test_the_mode_of_each_connection_is_listed() -> None:
    _, worker, other = serving("weighted-fair", a=1)
    assert [each["mode"] for each in listed(other.says("list-connections"))] == [
        "weighted-fair", "fifo",
    ]  # fmt: skip
    assert worker.says("reserve-mode fifo") == "USING fifo"
    assert "weighted" not in str(other.says("list-connections"))


def test_many_watched_tubes_have_their_turns() -> None:
    _, worker, other = serving("weighted", **{f"t{number}": 1 for number in range(600)})
    for number in range(0, 600, 2):
        other.says(f"use t{number}")
        other.put()
    had = Counter[str]()
    for _ in range(900):
        job_id = worker.takes()
        had[tube_of(worker, job_id)] += 1
        worker.says(f"release {job_id} 0 0")
    assert len(had) == 300
    assert set(had.values()) <= {2, 3, 4}
    worker.says("reserve-mode fifo")
    assert worker.takes() == 1


# Whatever else happens.


def watching(client: Client, tubes: int) -> None:
    """Watch so many tubes, `default` among them."""
    for number in range(1, tubes):
        client.says(f"watch t{number}")


@pytest.mark.parametrize("past", [0, 1])
def test_very_many_watched_tubes_are_entered_in_slices(server: Server, past: int) -> None:
    client, other = server.connect(), server.connect()
    watching(client, SLICE_TUBES + past)
    reply = client.says("reserve-mode weighted")
    assert (reply is None) is bool(past)
    assert client.session.is_busy is bool(past)
    other.says("use t3")
    job_id = other.put()
    assert server.finish_slices() == 2 * past
    assert (client.hears() if past else reply) == "USING weighted"
    assert client.session.mode == b"weighted"
    assert client.takes() == job_id
    assert client.says("reserve-mode weighted") == "USING weighted"
    assert client.says("reserve-mode fifo") == "USING fifo"


def test_a_session_that_ends_in_between_leaves_nobody_who_listens(server: Server) -> None:
    client, other = server.connect(), server.connect()
    watching(client, SLICE_TUBES + 1)
    other.says("use t3")
    client.says("reserve-mode weighted")
    tube = server.queue.state.tubes.find(b"t3")
    assert tube is not None and tube.listeners
    client.leaves()
    server.finish_slices()
    assert not tube.listeners
