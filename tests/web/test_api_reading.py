"""Who holds a job, and since when."""

from __future__ import annotations

import pytest

from tests.web.test_api import Caller


@pytest.fixture
def caller() -> Caller:
    """One whose client has reserved job 1 of three 20 s ago."""
    made = Caller()
    made.put(b"mail", b"a", b"b", b"c")
    made.ask(b"watch mail\r\nreserve\r\n")
    made.server.advance(20)
    return made


def test_a_reserved_job_is_shown_with_who_holds_it_and_since_when(caller: Caller) -> None:
    assert caller.get("/jobs/1")["holder"] == {
        "connection": 1, "peer": "127.0.0.1:1", "reserved_seconds": 20, "touched_seconds": 20,
        "seconds_left": 40,
    }  # fmt: skip
    assert "holder" not in caller.get("/jobs/2")


def test_a_touch_does_not_change_since_when_it_is_reserved(caller: Caller) -> None:
    caller.ask(b"touch 1\r\n")
    caller.server.advance(5)
    by = caller.get("/jobs/1")["holder"]
    assert (by["reserved_seconds"], by["touched_seconds"], by["seconds_left"]) == (25, 5, 55)


def test_a_job_that_was_reserved_again_is_held_since_then(caller: Caller) -> None:
    caller.ask(b"release 1 0 0\r\nreserve-job 1\r\n")
    caller.server.advance(1)
    assert caller.get("/jobs/1")["holder"]["reserved_seconds"] == 1


def test_a_ttr_that_was_made_longer_does_not_show_a_reserve_behind_the_last_touch(
    caller: Caller,
) -> None:
    caller.ask(b"update-job 1 0 0 100 1\r\nx\r\n")
    by = caller.get("/jobs/1")["holder"]
    assert by["touched_seconds"] == 0
    assert by["reserved_seconds"] >= by["touched_seconds"]
    caller.ask(b"update-job 1 0 0 10 1\r\nx\r\n")
    by = caller.get("/jobs/1")["holder"]
    assert by["reserved_seconds"] >= by["touched_seconds"] == 0


def test_a_connection_is_shown_with_the_first_jobs_that_it_holds(caller: Caller) -> None:
    caller.ask(b"reserve\r\n")
    caller.server.advance(2)
    mine, asking = caller.get("/connections")["connections"]
    assert [(job["id"], job["reserved_seconds"], job["seconds_left"]) for job in mine["held"]] == [
        (1, 22, 38),
        (2, 2, 58),
    ]
    assert asking["held"] == []
    assert (mine["is_request"], asking["is_request"]) == (False, True)
    caller.put(b"mail", *(12 * [b"x"]))
    caller.ask(12 * b"reserve\r\n")
    mine = caller.get("/connections")["connections"][0]
    assert (len(mine["held"]), mine["reserved"]) == (10, 14)


def test_no_connection_of_a_request_is_remembered_behind_its_end(caller: Caller) -> None:
    factory = caller.browser.channel.factory
    numbers = factory.operations["listConnections"].__self__._connections.numbers
    caller.get("/jobs/1")
    caller.get("/tubes/mail/jobs?cursor=%0D%0A", 400)
    assert numbers == set()
