"""Tubes that sessions use and watch: they come and go with them."""

from __future__ import annotations

import pytest

from beanstalk_twisted.jobs.figures import TUBE_BYTES, WAITERS_BYTES, WATCH_BYTES
from beanstalk_twisted.rules.watching import MAX_WATCHED_TUBES, SLICE_TUBES
from tests.rules.conversation import Server


def test_use_says_which_tube_and_puts_go_there() -> None:
    client = Server().connect()
    assert client.says("list-tube-used") == "USING default"
    assert client.says("use x_y") == "USING x_y"
    assert client.says("use x_y") == "USING x_y"
    assert client.says("list-tube-used") == "USING x_y"
    client.put()
    assert client.asks("stats-tube x_y")["current-jobs-ready"] == "1"


def test_watch_and_ignore_say_how_many_tubes_are_watched() -> None:
    client = Server().connect()
    said = [
        client.says(line)
        for line in (
            "watch a", "watch a", "watch b", "ignore nosuch", "ignore default", "ignore default",
            "ignore b", "ignore a", "ignore nosuch",
        )
    ]  # fmt: skip
    assert said == [
        "WATCHING 2", "WATCHING 2", "WATCHING 3", "WATCHING 3", "WATCHING 2", "WATCHING 2",
        "WATCHING 1", "NOT_IGNORED", "WATCHING 1",
    ]  # fmt: skip


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


def test_the_only_tube_watched_cannot_be_ignored_but_others_may_be_named() -> None:
    client = Server().connect()
    client.says("use used")
    assert client.says("ignore used") == "WATCHING 1"
    assert client.says("ignore default") == "NOT_IGNORED"
    assert client.lists("list-tubes-watched") == ["default"]


def test_a_watched_tube_is_reserved_from_and_an_ignored_one_is_not() -> None:
    client = Server().connect()
    client.says("watch a")
    client.says("use a")
    client.put()
    client.put()
    assert client.takes() == 1
    client.says("ignore a")
    assert client.says("reserve-with-timeout 0") == "TIMED_OUT"


# Tubes that come and go.


def test_the_lists_show_tubes_as_they_were_made_and_watched() -> None:
    client = Server().connect()
    client.says("watch w")
    client.says("use u")
    assert client.lists("list-tubes") == ["default", "w", "u"]
    assert client.lists("list-tubes-watched") == ["default", "w"]
    client.says("ignore default")
    assert client.lists("list-tubes-watched") == ["w"]


def test_a_name_that_looks_like_a_number_or_a_date_is_quoted_in_lists() -> None:
    client = Server().connect()
    for tube in ("2026-11-29", "123", "null", "1.2.3"):
        client.says(f"watch {tube}")
    items = '- default\n- "2026-11-29"\n- "123"\n- "null"\n- 1.2.3\n'
    assert client.says("list-tubes") == client.says("list-tubes-watched")
    assert client.says("list-tubes") == f"OK {len(items) + 4}\r\n---\n{items}"


def test_the_last_of_a_list_takes_the_place_of_one_that_is_gone() -> None:
    client = Server().connect()
    for line in ("watch w1", "watch w2", "watch w3", "use u1", "ignore w1"):
        client.says(line)
    assert client.lists("list-tubes") == ["default", "u1", "w2", "w3"]
    assert client.lists("list-tubes-watched") == ["default", "w3", "w2"]
    client.says("ignore default")
    assert client.lists("list-tubes-watched") == ["w2", "w3"]


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("stats-tube nosuch", "NOT_FOUND"),
        ("pause-tube nosuch 5", "NOT_FOUND"),
        ("ignore nosuch", "WATCHING 1"),
        ("reserve-job 1", "NOT_FOUND"),
    ],
)
def test_only_use_and_watch_make_tubes(line: str, reply: str) -> None:
    client = Server().connect()
    assert client.says(line) == reply
    assert client.lists("list-tubes") == ["default"]


def test_a_tube_that_is_no_longer_used_or_watched_is_gone_with_its_counters() -> None:
    client = Server().connect()
    client.says("use a")
    client.says(f"delete {client.put()}")
    client.says("pause-tube a 100")
    client.says("use default")
    assert client.says("stats-tube a") == "NOT_FOUND"
    client.says("watch a")
    stats = client.asks("stats-tube a")
    names = ("total-jobs", "cmd-delete", "cmd-pause-tube", "pause")
    assert [stats[name] for name in names] == ["0"] * 4
    client.says("ignore a")
    assert client.lists("list-tubes") == ["default"]


@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "reserved"])
def test_a_job_in_any_state_keeps_its_tube(state: str) -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    client.says("use a")
    client.place(state, 0, "a")
    client.says("use default")
    assert other.asks("stats-tube a")[f"current-jobs-{state}"] == "1"
    assert client.says("delete 1") == "DELETED"
    assert other.lists("list-tubes") == ["default"]


@pytest.mark.parametrize("more", [0, 1])
def test_others_are_served_between_the_slices_of_the_end_of_one_that_watches_very_many_tubes(
    more: int,
) -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    for number in range(SLICE_TUBES - 1 + more):
        client.says(f"watch {number}")
    client.leaves()
    left = len(server.queue.state.tubes) - 1
    assert left == more
    assert other.says("use elsewhere") == "USING elsewhere"
    server.finish_slices()
    assert other.lists("list-tubes") == ["default", "elsewhere"]


def test_a_connection_that_ends_takes_its_tubes_along_but_those_with_jobs() -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    for line in ("use used", "watch watched", "watch full", "use full"):
        client.says(line)
    client.put()
    client.says("use used")
    client.says("reserve")
    client.leaves()
    assert other.lists("list-tubes") == ["default", "full"]
    assert other.asks("stats-tube full")["current-jobs-ready"] == "1"


def test_the_default_tube_stays_though_nobody_wants_it() -> None:
    server = Server()
    client = server.connect()
    for line in ("use a", "watch a", "ignore default"):
        client.says(line)
    stats = client.asks("stats-tube default")
    assert (stats["current-using"], stats["current-watching"]) == ("0", "0")
    assert client.lists("list-tubes") == ["default", "a"]


def test_what_is_watched_and_waited_for_counts_as_memory_until_it_ends() -> None:
    server = Server()
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
