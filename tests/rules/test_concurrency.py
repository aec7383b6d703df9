"""Jobs with a concurrency key: who gets one, and when."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.limits import OPENED_LINES
from beanstalk_twisted.rules.bulk import LOOK_JOBS
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from tests.rules.conversation import Client, Server
from tests.rules.tagged import heard, put, states

TIMED_OUT = "TIMED_OUT"


def two() -> tuple[Server, Client, Client]:
    server = Server()
    return server, server.connect(), server.connect()


def takes(client: Client) -> int | None:
    """Reserve a job if there is one."""
    return heard(client.says("reserve-with-timeout 0"))


def test_others_with_the_key_are_passed_over_until_the_first_is_gone() -> None:
    _, a, b = two()
    first, second = put(a, "con:k"), put(a, "con:k")
    plain = a.put(pri=9)
    assert [takes(a), takes(b), takes(b)] == [first, plain, None]
    assert a.says(f"delete {first}") == "DELETED"
    assert takes(b) == second


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_as_many_are_reserved_as_the_key_says_and_not_one_more(limit: int) -> None:
    _, a, b = two()
    ids = [put(a, f"con:k:{limit}") for _ in range(limit + 2)]
    assert [takes(b) for _ in range(limit + 1)] == [*ids[:limit], None]
    a.says(f"delete {ids[-1]}")
    b.says(f"release {ids[0]} 5 0")
    assert takes(b) == ids[limit]
    assert takes(b) is None


ENDS = ["delete {}", "release {} 9 0", "release {} 9 5", "bury {} 0", "delete-batch {}"]


@pytest.mark.parametrize("end", ENDS)
def test_who_waits_gets_the_next_one_as_soon_as_the_first_is_given_back(end: str) -> None:
    server, a, b = two()
    b.says("watch other")
    first, second = put(a, "con:k"), put(a, "con:k")
    assert takes(a) == first
    assert b.says("reserve") is None
    assert b.hears() is None
    a.says(end.format(first))
    assert heard(b.hears()) == second
    assert server.queue.next_due_ns() != 0


def test_one_that_waits_in_another_tube_gets_it_and_the_best_first() -> None:
    server = Server()
    a, *workers = [server.connect() for _ in range(4)]
    ids = []
    for number, worker in enumerate(workers):
        a.says(f"use t{number}")
        ids.append(put(a, "con:k", pri=9 - number))
        worker.says(f"watch t{number}")
        worker.says("ignore default")
    a.says("use default")
    held = put(a, "con:k")
    assert takes(a) == held
    for worker in workers:
        assert worker.says("reserve") is None
    a.says("pause-tube t2 60")
    a.says(f"delete {held}")
    assert [heard(worker.hears()) for worker in workers] == [None, ids[1], None]
    workers[1].says(f"delete {ids[1]}")
    assert [heard(worker.hears()) for worker in workers] == [ids[0], None, None]
    workers[0].says(f"delete {ids[0]}")
    assert workers[2].hears() is None
    a.says("pause-tube t2 0")
    assert heard(workers[2].hears()) == ids[2]


def test_a_tube_that_nobody_watches_keeps_no_others_waiting() -> None:
    _, a, b = two()
    a.says("use unwatched")
    put(a, "con:k")
    a.says("use default")
    first, second = put(a, "con:k", pri=5), put(a, "con:k", pri=5)
    assert takes(b) == first
    b.says(f"delete {first}")
    assert takes(b) == second


def test_the_end_of_a_ttr_lets_the_next_one_go() -> None:
    server, a, b = two()
    first, second = put(a, "con:k", pri=9, ttr=5), put(a, "con:k", pri=9, ttr=5)
    b.says("watch other")
    assert takes(a) == first
    better = put(a, "con:k")
    assert b.says("reserve") is None
    server.pass_time(4)
    assert b.hears() is None
    server.pass_time(1)
    assert heard(b.hears()) == better
    assert states(a, first, second) == ["ready", "ready"]


def test_the_end_of_a_connection_lets_as_many_go_as_it_had() -> None:
    server, a, b = two()
    c = server.connect()
    first, second = put(a, "con:k:2"), put(a, "con:k:2")
    assert [takes(a), takes(a)] == [first, second]
    third = put(a, "con:k:2", pri=9)
    assert b.says("reserve") is None
    assert c.says("reserve") is None
    a.leaves()
    assert [heard(b.hears()), heard(c.hears())] == [first, second]
    assert states(server.connect(), third) == ["ready"]


def test_reserve_batch_keeps_to_the_limit() -> None:
    _, a, b = two()
    ids = [put(a, "con:k:2") for _ in range(4)] + [a.put(pri=1)]
    reply = b.says("reserve-batch 10")
    assert reply is not None
    words = [line.split() for line in reply.splitlines() if line.startswith("RESERVED ")]
    assert [int(word[1]) for word in words] == [ids[0], ids[1], ids[4]]


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_reserve_job_keeps_to_the_limit(state: str) -> None:
    _, a, b = two()
    job_id = put(a, "con:k", delay=50 if state == "delayed" else 0)
    if state == "buried":
        a.says(f"reserve-job {job_id}")
        a.says(f"bury {job_id} 0")
    first = put(a, "con:k")
    assert heard(a.says(f"reserve-job {first}")) == first
    assert b.says(f"reserve-job {job_id}") == "NOT_FOUND"
    a.says(f"delete {first}")
    assert heard(b.says(f"reserve-job {job_id}")) == job_id
    assert takes(a) is None


def test_jobs_of_one_key_with_different_limits_are_each_judged_by_their_own() -> None:
    _, a, b = two()
    ids = [put(a, f"con:k:{limit}", pri=pri) for pri, limit in enumerate([1, 1, 2, 3])]
    assert [takes(b) for _ in range(4)] == [ids[0], ids[2], ids[3], None]
    b.says(f"delete {ids[0]}")
    assert takes(b) is None
    b.says(f"delete {ids[2]}")
    assert takes(b) is None
    b.says(f"delete {ids[3]}")
    assert takes(b) == ids[1]


def test_peek_ready_shows_the_first_that_may_be_handed_out_or_else_the_first() -> None:
    _, a, b = two()
    first, second = put(a, "con:k"), put(a, "con:k")
    assert heard(a.says("peek-ready")) == first
    assert takes(b) == first
    assert heard(a.says("peek-ready")) == second
    plain = a.put(pri=9)
    assert heard(a.says("peek-ready")) == plain


def test_parked_jobs_are_ready_in_all_that_is_told() -> None:
    _, a, b = two()
    ids = [put(a, "con:k", pri=pri) for pri in (0, 3, 2, 1)]
    plain = a.put(pri=2)
    assert takes(b) == ids[0]
    assert a.asks("stats")["current-jobs-ready"] == "4"
    told = a.asks("stats-tube default")
    assert (told["current-jobs-ready"], told["current-jobs-urgent"]) == ("4", "4")
    assert states(a, *ids) == ["reserved", "ready", "ready", "ready"]
    order = [ids[3], ids[2], plain, ids[1]]
    assert listed(a, "ready", 9) == [order]
    assert listed(a, "ready", 1) == [[job_id] for job_id in order]


def listed(client: Client, state: str, limit: int) -> list[list[int]]:
    """List jobs page by page."""
    pages, cursor = [], ""
    while True:
        reply = client.says(f"list-jobs default {state} {limit}{cursor}") or ""
        lines = reply.splitlines()
        pages.append([int(line.split()[-1]) for line in lines if line.startswith("- id: ")])
        more = [line.split()[1] for line in lines if line.startswith("cursor: ")]
        if not more:
            return pages
        cursor = f" {more[0]}"


def test_a_flush_takes_parked_jobs_too_while_workers_go_on() -> None:
    server, a, b = two()
    count = LOOK_JOBS + SLICE_JOBS
    for number in range(count):
        put(a, "con:k", pri=number % 3)
    held, taken = takes(b), 1
    assert a.says("flush-tube default") is None
    while not a.late:
        assert held is not None
        b.says(f"delete {held}")
        server.tick()
        held = takes(b)
        taken += held is not None
    assert a.hears() == f"FLUSHED {count - taken}"
    if held is not None:
        b.says(f"delete {held}")
    assert (sum(server.queue.state.counts.values()), server.queue.state.tagged) == (0, 0)


def test_kicked_and_delayed_jobs_are_parked_behind_a_full_key() -> None:
    _, a, b = two()
    ids = [put(a, "con:k:9") for _ in range(3)]
    for job_id in ids:
        assert takes(b) == job_id
        b.says(f"bury {job_id} {job_id}")
    delayed, held = put(a, "con:k", delay=5), put(a, "con:k")
    limited = put(a, "con:k")
    assert takes(b) == held
    assert a.says("kick 9") == "KICKED 3"
    a.says(f"kick-job {delayed}")
    assert takes(a) == ids[0]
    b.says(f"delete {held}")
    assert takes(a) == ids[1]
    assert states(a, delayed, limited) == ["ready", "ready"]


def test_a_paused_tube_hands_out_none_and_others_do() -> None:
    _, a, b = two()
    a.says("use p")
    put(a, "con:k")
    a.says("use default")
    other = put(a, "con:k", pri=9)
    b.says("watch p")
    a.says("pause-tube p 60")
    assert takes(b) == other
    assert takes(b) is None


def test_touching_and_peeking_change_nothing() -> None:
    _, a, b = two()
    first = put(a, "con:k")
    put(a, "con:k")
    takes(a)
    for _ in range(3):
        assert a.says(f"touch {first}") == "TOUCHED"
        assert takes(b) is None


def test_many_watched_tubes_hear_of_the_job_that_may_go() -> None:
    _, a, b = two()
    for number in range(300):
        b.says(f"watch t{number}")
    a.says("use t7")
    first, second = put(a, "con:k"), put(a, "con:k")
    assert [takes(b), takes(b)] == [first, None]
    b.says(f"delete {first}")
    assert [takes(b), takes(b)] == [second, None]


@pytest.mark.parametrize("mode", ["weighted", "weighted-fair"])
def test_the_modes_of_weights_keep_to_the_limit(mode: str) -> None:
    _, a, b = two()
    b.says(f"reserve-mode {mode}")
    first, second = put(a, "con:k"), put(a, "con:k")
    assert [takes(b), takes(b)] == [first, None]
    b.says(f"delete {first}")
    assert [takes(b), takes(b)] == [second, None]


@pytest.mark.parametrize("past", [0, 1])
def test_of_very_many_tubes_some_hand_out_the_next_job_a_tick_later(past: int) -> None:
    server = Server()
    client, waiter = server.connect(), server.connect()
    for number in range(OPENED_LINES + past):
        client.says(f"use t{number}")
        put(client, "con:k", pri=number)
    holder = put(client, "con:k", pri=9999)
    client.says(f"reserve-job {holder}")
    waiter.says(f"watch t{OPENED_LINES + past - 1}")
    assert waiter.says("reserve-with-timeout 5") is None
    # The holder's tube has no other job: there are as many lines as tubes.
    client.says(f"delete {holder}")
    assert (waiter.hears() is None) is bool(past)
    assert server.finish_slices() == past
    if past:
        assert heard(waiter.hears()) == OPENED_LINES + past
