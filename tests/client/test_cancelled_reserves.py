"""
A job that comes for a `reserve` that was cancelled, while another one waits behind it.
"""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError

from tests.client.world import World, error, result


@pytest.mark.parametrize("seconds", [None, 10])
def test_the_next_reserve_gets_it_at_once_and_can_delete_it(seconds: int | None) -> None:
    world = World()
    client, producer = world.client(), world.client()
    cancelled = client.reserve()
    wanted = client.reserve() if seconds is None else client.reserve_with_timeout(seconds)
    cancelled.cancel()
    error(cancelled, CancelledError)
    job = world.result(producer.put(b"a", ttr=60))
    world.settle()
    assert result(wanted).id == job
    stats = world.result(producer.stats_job(job))
    assert (stats.state, stats.reserves, stats.releases) == ("reserved", 1, 0)
    # What still waits in the server is the next reserve's, or ends with its time.
    deleted = client.delete(job)
    world.advance(11)
    if seconds is None:
        again = client.reserve()
        world.result(producer.put(b"b"))
        assert world.result(again).body == b"b"
    world.settle()
    assert result(deleted) is None
