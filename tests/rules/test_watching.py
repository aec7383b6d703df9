"""Tubes that sessions use and watch: they come and go with them."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.figures import TUBE_BYTES, WAITERS_BYTES, WATCH_BYTES
from beanstalk_twisted.rules.watching import MAX_WATCHED_TUBES, SLICE_TUBES
from tests.rules.conversation import Client, Server


@pytest.mark.parametrize("words", ["", " 3"], ids=["watch", "watch with a weight"])
def test_so_many_tubes_are_watched_and_the_next_is_refused_and_not_made(words: str) -> None:
    server = Server()
    client = server.connect()
    for number in range(2, MAX_WATCHED_TUBES + 1):
        assert client.says(f"watch t{number}{words}") == f"WATCHING {number}"
    assert client.says(f"watch more{words}") == "BAD_FORMAT"
    assert server.queue.state.tubes.find(b"more") is None
    assert server.queue.tally.watches_refused == 1
    assert client.says(f"watch t2{words}") == f"WATCHING {MAX_WATCHED_TUBES}"
    assert server.connect().says(f"watch more{words}") == "WATCHING 2"
    assert client.says(f"watch more{words}") == "BAD_FORMAT"
    assert client.says("ignore t2") == f"WATCHING {MAX_WATCHED_TUBES - 1}"
    assert client.says(f"watch more{words}") == f"WATCHING {MAX_WATCHED_TUBES}"


# Tubes that come and go.


@pytest.mark.parametrize("more", [0, 1])
def test_others_are_served_between_the_slices_of_the_end_of_one_that_watches_very_many_tubes(
    server: Server, client: Client, more: int
) -> None:
    other = server.connect()
    for number in range(SLICE_TUBES - 1 + more):
        client.says(f"watch {number}")
    client.leaves()
    left = len(server.queue.state.tubes) - 1
    assert left == more
    assert other.says("use elsewhere") == "USING elsewhere"
    server.finish_slices()
    assert other.lists("list-tubes") == ["default", "elsewhere"]


def test_what_is_watched_and_waited_for_counts_as_memory_until_it_ends(server: Server) -> None:
    state, other = server.queue.state, server.connect()
    before = state.memory_bytes
    client = server.connect()
    for line in ("watch a", "watch a", "watch b", "watch b 2", "ignore a", "ignore a", "watch a"):
        client.says(line)
    tubes = 2 * TUBE_BYTES
    assert state.memory_bytes - before == tubes + 2 * WATCH_BYTES
    for _ in range(2):
        client.says("reserve-with-timeout 5")
        assert state.memory_bytes - before == tubes + 2 * WATCH_BYTES + 3 * WAITERS_BYTES
        server.pass_time(5)
        assert client.hears() == "TIMED_OUT"
    client.leaves()
    other.says("watch c")
    other.says("ignore c")
    # The tube `default` stays, and with it its queue.
    assert state.memory_bytes - before == WAITERS_BYTES
