"""Jobs with a concurrency key: who gets one, and when."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.limits import OPENED_LINES
from beanstalk_twisted.rules.bulk import LOOK_JOBS
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from tests.rules.conversation import Client, Server
from tests.rules.tagged import heard, put


def two() -> tuple[Server, Client, Client]:
    server = Server()
    return server, server.connect(), server.connect()


def takes(client: Client) -> int | None:
    """Reserve a job if there is one."""
    return heard(client.says("reserve-with-timeout 0"))


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
