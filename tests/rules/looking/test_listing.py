"""Jobs are listed page by page, while others do what they like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.rules import looks as listing
from beanstalk_twisted.rules.looks import LOOK_RESERVED, Place
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES
from beanstalk_twisted.wire.extensions import MAX_PAGE_JOBS
from tests.rules.conversation import Client, Server

Jobs = list[dict[str, str]]

STATES = ("ready", "reserved", "delayed", "buried")


def page(client: Client, line: str) -> tuple[Jobs, str | None]:
    """Ask for a page.

    :return: its jobs, and its cursor if it has one.
    """
    reply = client.says(line)
    assert reply is not None and reply.startswith("OK "), reply
    head, start, jobs, *rows = reply.split("\r\n", 1)[0], *reply.split("\r\n", 1)[1].splitlines()
    assert (start, jobs) in [("---", "jobs:"), ("---", "jobs: []")], head
    found: Jobs = []
    cursor = None
    for row in rows:
        key, value = row[2:].split(": ") if row[0] in "- " else ("", "")
        if row.startswith("- "):
            found.append({})
        if key:
            found[-1][key] = value
        else:
            assert row is rows[-1]
            cursor = row.removeprefix("cursor: ")
    assert bool(found) == (jobs == "jobs:")
    return found, cursor


def pages(client: Client, asked: str, limit: int) -> list[list[int]]:
    """Ask for all pages, one after the other."""
    found, cursor = page(client, f"list-jobs {asked} {limit}")
    listed = [[int(job["id"]) for job in found]]
    while cursor is not None:
        found, cursor = page(client, f"list-jobs {asked} {limit} {cursor}")
        listed.append([int(job["id"]) for job in found])
    return listed


def ids(client: Client, asked: str) -> list[int]:
    """Give the ids of a whole list."""
    return [job_id for each in pages(client, asked, 3) for job_id in each]


@pytest.mark.parametrize("state", ["ready", "all"])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 1000])
def test_only_a_page_that_has_more_behind_it_has_a_cursor(state: str, limit: int) -> None:
    client = Server().connect()
    jobs = [client.put() for _ in range(4)]
    expected = [jobs[at : at + limit] for at in range(0, 4, limit)]
    assert pages(client, f"default {state}", limit) == expected


def test_a_page_has_so_many_jobs_at_most(client: Client) -> None:
    for _ in range(MAX_PAGE_JOBS + 1):
        client.put()
    found = pages(client, "default all", MAX_PAGE_JOBS)
    assert [len(each) for each in found] == [MAX_PAGE_JOBS, 1]


def test_a_tube_that_is_not_there_is_not_found_and_an_empty_one_is(client: Client) -> None:
    assert client.says("list-jobs nowhere all 1") == "NOT_FOUND"
    assert client.says("list-jobs default all 1") == "OK 13\r\n---\njobs: []\n"


@pytest.mark.parametrize(
    "asked",
    ["all 1 x1-1", "all 1 r1", "all 1 r1-", "all 1 r-1", "all 1 1-1", "all 1 r1-1-1", "all 1 -",
     "ready 1 d1-1", "reserved 1 r1-1", "delayed 1 b1-1", "buried 1 h1-1", "all 1 rr1-1",
     f"all 1 r1-{1 << 64}", "all 1 r99999999999999999999-1"],
)  # fmt: skip
def test_a_cursor_that_no_page_could_have_is_bad_format(client: Client, asked: str) -> None:
    client.put()
    for tube in ("default", "nowhere"):
        assert client.says(f"list-jobs {tube} {asked}") == "BAD_FORMAT"


def test_the_largest_ids_and_times_before_1970_have_cursors(client: Client) -> None:
    assert page(client, f"list-jobs default all 1 b-{1 << 63}-{(1 << 64) - 1}") == ([], None)


def test_a_list_changes_nothing_and_is_answered_when_what_it_shows_is_durable() -> None:
    server = Server()
    client = server.connect()
    client.put()
    client.put(b"x" * 8000)
    before = len(server.log.records), client.asks("stats"), client.asks("stats-tube default")
    page(client, "list-jobs default all 9")
    assert client.last is not None and client.last[1] == server.log.committed_lsn() > 0
    stats = client.asks("stats")
    assert stats["cmd-stats"] == "2"
    stats["cmd-stats"] = "1"
    stats["cmd-stats-tube"] = "0"
    assert (len(server.log.records), stats, client.asks("stats-tube default")) == before


def test_a_touch_does_not_move_a_job_to_another_page(server: Server, client: Client) -> None:
    held = [client.put() for _ in range(4)]
    for _ in held:
        client.takes()
    _, cursor = page(client, "list-jobs default reserved 2")
    server.pass_time(1)
    client.says(f"touch {held[0]}")
    found, _ = page(client, f"list-jobs default reserved 9 {cursor}")
    assert [int(job["id"]) for job in found] == held[2:]


@pytest.mark.exhaustive
def test_a_page_looks_at_so_many_reserved_jobs_and_then_has_a_cursor(server: Server) -> None:
    client, worker, other = server.connect(), server.connect(), server.connect()
    worker.says("watch b")
    for number in range(LOOK_RESERVED + 10):
        client.says("use b" if number % 100 else "use default")
        client.put()
        worker.takes()
    client.says("use b")
    last = client.put()
    other.says(f"reserve-job {last}")
    assert ids(client, "default reserved") == list(range(1, LOOK_RESERVED + 11, 100))
    found = pages(client, "default reserved", MAX_PAGE_JOBS)
    assert [len(each) for each in found] == [50, 1]
    client.says("use empty")
    assert pages(client, "empty all", 9) == [[]]
    assert [len(each) for each in pages(client, "b reserved", 1)] == [1] * (LOOK_RESERVED + 10 - 50)


# Against a plain list, with others at work between the pages.

PLACED = st.tuples(st.sampled_from(STATES), st.sampled_from([0, 1, 9]), st.sampled_from(["a", "b"]))


CHANGES = st.lists(st.one_of(PLACED, st.integers(1, 40)), max_size=6)
"""What comes, and the ids of what goes."""


@given(
    st.lists(PLACED, max_size=30), st.sampled_from([*STATES, "all"]), st.integers(1, 8),
    st.lists(CHANGES, max_size=8),
)  # fmt: skip
def test_each_job_that_stays_is_seen_once_whatever_comes_and_goes(
    jobs: list[tuple[str, int, str]], which: str, limit: int,
    changes: list[list[tuple[str, int, str] | int]],
) -> None:  # fmt: skip
    server = Server()
    asker, *others = [server.connect() for _ in range(3)]
    asker.says("use a")
    places = [others[at % 2].place(*job) for at, job in enumerate(jobs)]
    stays = {
        job_id for job_id, (state, _, tube) in zip(places, jobs, strict=True)
        if tube == "a" and which in (state, "all")
    }  # fmt: skip
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        found, cursor = page(asker, f"list-jobs a {which} {limit} {cursor}".strip())
        seen += [int(job["id"]) for job in found]
        assert len(found) == limit or cursor is None
        for change in changes.pop() if changes else ():
            if isinstance(change, int):
                for client in others:
                    client.says(f"delete {change}")
                stays.discard(change)
            else:
                others[change[1] % 2].place(*change)
    assert len(seen) == len(set(seen))
    assert stays <= set(seen)


def test_a_tube_with_a_name_of_150_bytes_has_cursors_that_fit_into_a_line() -> None:
    cursors = [Place(state, -(1 << 63) << 64 | ID_MASK) for state in listing.LISTED[b"all"]]
    longest = max(len(str(cursor)) for cursor in cursors)
    line = f"list-jobs {'x' * 150} reserved {MAX_PAGE_JOBS} {'h' * longest}\r\n"
    assert len(line) <= MAX_LINE_BYTES
