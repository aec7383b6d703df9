"""Clients and pools know which jobs they hold after `return_job` and `cancel_job`."""

from __future__ import annotations

import pytest

from beanstalk_twisted.client import errors
from tests.client.fleet import Fleet
from tests.client.test_service import come_back
from tests.client.world import World, error


@pytest.mark.parametrize("delay", [0, 60])
def test_a_job_that_was_returned_or_cancelled_is_no_reservation_any_more(delay: int) -> None:
    world = World(has_log=True)
    client = world.client()
    ids = [world.result(client.put(b"x")) for _ in range(3)]
    jobs = [world.result(client.reserve()) for _ in ids]
    world.result(client.return_job(jobs[0], delay=delay))
    world.result(client.cancel_job(jobs[1]))
    world.kill()
    assert world.losses[0].reservations == (ids[2],)
    world.restart()
    come_back(world)
    stats = world.result(client.stats_job(ids[0]))
    assert (stats.state, stats.reserves) == ("delayed" if delay else "ready", 0)


def test_what_is_not_there_is_not_found() -> None:
    world = World()
    client = world.client()
    for asked in (client.return_job(7), client.cancel_job(7)):
        world.settle()
        error(asked, errors.NotFound)


def test_a_job_of_a_lost_connection_is_not_returned_on_the_next_one() -> None:
    world = World(has_log=True)
    client = world.client()
    number = world.result(client.put(b"x"))
    job = world.result(client.reserve())
    world.kill()
    world.restart()
    come_back(world)
    assert world.result(client.reserve()).id == number
    error(client.return_job(job), errors.ReservationLost)
    assert world.result(client.stats_job(number)).state == "reserved"


def test_a_pool_returns_and_cancels_jobs_on_their_servers() -> None:
    fleet = Fleet("a", "b")
    tubes = [fleet.tube_on(name) for name in ("a", "b")]
    pool = fleet.pool(tubes=tubes)
    for tube in tubes:
        fleet.result(pool.put(tube, b"x"))
    first, second = (fleet.result(pool.reserve()) for _ in tubes)
    fleet.result(pool.return_job(first, delay=60))
    stats = fleet.result(pool.stats_job(first))
    assert (stats.state, stats.reserves) == ("delayed", 0)
    fleet.result(pool.cancel_job(second))
    fleet.result(pool.cancel_job(first))
    for job in (first, second):
        gone = pool.stats_job(job)
        fleet.settle()
        error(gone, errors.NotFound)
