"""What the API shows of held jobs and of the log."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.web.browsing import V1, Caller, parsed, settle


@pytest.fixture
def holding() -> Caller:
    made = Caller()
    made.put(b"mail", b"a", b"b", b"c")
    made.ask(b"watch mail\r\nreserve\r\n")
    made.server.advance(20)
    return made


def test_a_reserved_job_is_shown_with_who_holds_it_and_since_when(holding: Caller) -> None:
    assert holding.get("/jobs/1")["holder"] == {
        "connection": 1, "peer": "127.0.0.1:1", "reserved_seconds": 20, "touched_seconds": 20,
        "seconds_left": 40,
    }  # fmt: skip
    assert "holder" not in holding.get("/jobs/2")


def test_a_job_that_was_reserved_again_is_held_since_then(holding: Caller) -> None:
    holding.ask(b"release 1 0 0\r\nreserve-job 1\r\n")
    holding.server.advance(1)
    assert holding.get("/jobs/1")["holder"]["reserved_seconds"] == 1


def test_a_ttr_that_was_made_longer_does_not_show_a_reserve_behind_the_last_touch(
    holding: Caller,
) -> None:
    holding.ask(b"update-job 1 0 0 100 1\r\nx\r\n")
    by = holding.get("/jobs/1")["holder"]
    assert by["touched_seconds"] == 0
    assert by["reserved_seconds"] >= by["touched_seconds"]
    holding.ask(b"update-job 1 0 0 10 1\r\nx\r\n")
    by = holding.get("/jobs/1")["holder"]
    assert by["reserved_seconds"] >= by["touched_seconds"] == 0


def test_a_connection_is_shown_with_the_first_jobs_that_it_holds(holding: Caller) -> None:
    holding.ask(b"reserve\r\n")
    holding.server.advance(2)
    mine, asking = holding.get("/connections")["connections"]
    assert [(job["id"], job["reserved_seconds"], job["seconds_left"]) for job in mine["held"]] == [
        (1, 22, 38),
        (2, 2, 58),
    ]
    assert asking["held"] == []
    assert (mine["is_request"], asking["is_request"]) == (False, True)
    holding.put(b"mail", *(12 * [b"x"]))
    holding.ask(12 * b"reserve\r\n")
    mine = holding.get("/connections")["connections"][0]
    assert (len(mine["held"]), mine["reserved"]) == (10, 14)


def test_no_connection_of_a_request_is_remembered_behind_its_end(holding: Caller) -> None:
    factory = holding.browser.channel.factory
    numbers = factory.operations["listConnections"].__self__._connections.numbers
    holding.get("/jobs/1")
    holding.get("/tubes/mail/jobs?cursor=%0D%0A", 400)
    assert numbers == set()


@pytest.fixture
def logged() -> Caller:
    """One whose log has several segments, which all jobs live in."""
    made = Caller(MemoryServer(directory=MemoryDirectory(), segment_bytes=8192))
    made.put(b"mail", *(40 * [b"x" * 500]))
    made.server.advance(10)
    return made


def test_the_log_says_why_its_oldest_segment_is_kept(logged: Caller) -> None:
    shown = logged.get("/log")
    assert (shown["oldest_kept"], shown["debt_bytes"]) == ("small", 0)
    assert shown["total_bytes"] <= shown["may_be_bytes"]
    assert shown["oldest_jobs"] > 0


def test_segments_are_shown_by_pages(logged: Caller) -> None:
    shown = logged.get("/log/segments")
    rows, log = shown["segments"], logged.get("/log")
    assert len(rows) == log["segments"]
    assert (rows[0]["jobs"], rows[0]["live_bytes"]) == (
        log["oldest_jobs"],
        log["oldest_live_bytes"],
    )
    assert sum(row["size"] for row in rows) == log["total_bytes"]
    assert (rows[0]["is_sealed"], rows[-1]["is_sealed"]) == (True, False)
    assert (rows[0]["first_lsn"], rows[0]["is_archived"]) == (1, None)
    assert 10 <= rows[0]["age_seconds"] < 11
    assert shown["after"] is None
    pages: list[Any] = []
    after = 0
    while after is not None:
        page = logged.get(f"/log/segments?limit=2&after={after}")
        pages += page["segments"]
        after = page["after"]
    assert pages == rows


def test_the_jobs_that_keep_a_segment_are_found(logged: Caller) -> None:
    rows, found = logged.get("/log/segments")["segments"], []
    assert logged.get("/log")["oldest_segment"] == rows[0]["number"]
    for row in rows:
        jobs = logged.get(f"/search?where=file={row['number']}&limit=200")["jobs"]
        assert [job["file"] for job in jobs] == row["jobs"] * [row["number"]]
        found += [job["id"] for job in jobs]
    assert found == list(range(1, 41)), "each in one of them"


def test_without_a_log_there_are_none() -> None:
    assert "in memory only" in Caller(MemoryServer()).get("/log/segments", 404)["detail"]


LOOKS = ["/jobs/1", "/jobs/9", "/tubes/mail", "/tubes/none", "/tubes/mail/jobs", "/connections",
         "/tubes/mail/jobs?body_bytes=9"]  # fmt: skip


@pytest.mark.parametrize("path", LOOKS)
def test_nothing_is_shown_before_it_is_on_disk(path: str) -> None:
    io = HeldIo()
    made = Caller(MemoryServer(directory=MemoryDirectory(), io=lambda: io))

    settle(made.server, io)
    sent = b"use mail\r\nput 1 0 60 3\r\nnew\r\nput 1 0 60 3\r\nold\r\ndelete 2\r\n"
    made.client.protocol.dataReceived(sent)
    made.browser.send(f"GET {V1}{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    made.server.advance(1)
    assert made.browser.transport.value == b""
    settle(made.server, io)
    reply = parsed(made.browser.transport.value)
    assert reply.status == (404 if path in ("/jobs/9", "/tubes/none") else 200)
    if "jobs?" in path:
        assert [job["body"]["text"] for job in reply.json["jobs"]] == ["new"]


def test_a_client_that_does_not_wait_for_the_disk_leaves_nothing_behind() -> None:
    io = HeldIo()
    made = Caller(MemoryServer(directory=MemoryDirectory(), io=lambda: io))
    made.server.advance(1)
    made.client.protocol.dataReceived(b"use mail\r\nput 1 0 60 3\r\nnew\r\n")
    made.browser.send(f"GET {V1}/jobs/1 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    made.browser.transport.abortConnection()
    made.server.advance(1)
    assert made.server.service.queue.tally.connected == 1
    settle(made.server, io)
    assert made.state(1) == "ready"


def test_looks_are_counted_as_the_commands_that_they_are(holding: Caller) -> None:
    holding.get("/jobs/1")
    holding.get("/jobs/9", 404)
    holding.get("/tubes/mail")
    shown = holding.get("/server")
    assert (shown["cmd_stats_job"], shown["cmd_peek"], shown["cmd_stats_tube"]) == (2, 2, 1)


def test_very_many_connections_are_shown() -> None:
    made = Caller(MemoryServer())
    clients = [made.server.connect() for _ in range(250)]
    shown = made.get("/connections")["connections"]
    assert [each["connection"] for each in shown] == list(range(1, len(clients) + 3))
    assert [each["is_request"] for each in shown[-2:]] == [False, True]


def test_a_policy_that_looks_like_a_number_stays_a_string(holding: Caller) -> None:
    holding.ask(b"tube-policy mail backoff=5 rate=7 max-jobs=9\r\n")
    policy = holding.get("/tubes/mail")["policy"]
    assert (policy["backoff"], policy["rate"], policy["max_jobs"]) == ("5", "7", 9)
