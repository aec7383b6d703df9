"""The API: what is shown, what is changed, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from twisted.internet.address import IPv6Address, UNIXAddress
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.rules.policy_keys import KEYS
from beanstalk_twisted.server.audit import AUDIT, MAX_LINES
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.logins import WRITE_HEADER
from beanstalk_twisted.web.routes import (
    MAX_SHOWN_BODY,
)
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.web.browsing import V1, Caller, browse, settle


def test_the_server_is_shown_as_stats_has_it(caller: Caller) -> None:
    caller.put(b"mail", b"x")
    shown = caller.get("/server")
    assert shown["current_jobs_ready"] == 1
    assert shown["draining"] is False
    assert set(shown) == {
        key.replace("-", "_") for key in caller.server.service.queue.server_stats()
    }


def test_the_log_is_shown_if_there_is_one(caller: Caller) -> None:
    caller.put(b"mail", b"x")
    shown = caller.get("/log")
    assert shown["live_bytes"] > 0
    assert sum(shown["fsync_seconds"]["counts"]) > 0
    assert "in memory only" in Caller(MemoryServer()).get("/log", 404)["detail"]


def names(page: Any) -> list[str]:
    return [tube["name"] for tube in page["tubes"]]


def test_tubes_are_shown_by_pages_sorted_and_searched(caller: Caller) -> None:
    for name, count in ((b"b", 2), (b"a", 1), (b"c-mail", 3)):
        caller.put(name, *(count * [b"x"]))
    caller.ask(b"use default\r\n")
    assert names(caller.get("/tubes")) == ["a", "b", "c-mail", "default"]
    assert names(caller.get("/tubes?limit=2&offset=1")) == ["b", "c-mail"]
    assert names(caller.get("/tubes?sort=ready&limit=2")) == ["c-mail", "b"]
    found = caller.get("/tubes?search=mail")
    assert (found["total"], found["matches"], names(found)) == (4, 1, ["c-mail"])
    assert found["tubes"][0]["ready"] == 3


@pytest.mark.parametrize("path", ["/tubes/none", "/tubes/none/jobs", "/jobs/99"])
def test_what_is_not_there_is_not_found(caller: Caller, path: str) -> None:
    assert caller.get(path, 404)["title"] == "Not Found"


@pytest.mark.parametrize(
    "path", ["/tubes/%3Cscript%3E", "/tubes/a%20b", "/tubes/a%0D%0Adelete%201", "/jobs/x",
             "/jobs/-1", "/tubes/" + 201 * "a", f"/jobs/{1 << 64}", "/tubes/%E2%82%AC"],
)  # fmt: skip
def test_what_is_no_name_or_number_is_refused(caller: Caller, path: str) -> None:
    assert caller.get(path, 400)["status"] == 400


def test_jobs_of_a_tube_are_shown_by_pages(caller: Caller) -> None:
    caller.put(b"mail", b"one", b"two", b"three")
    caller.ask(b"watch mail\r\nreserve\r\n")
    page = caller.get("/tubes/mail/jobs?limit=2")
    assert [job["id"] for job in page["jobs"]] == [2, 3]
    rest = caller.get(f"/tubes/mail/jobs?limit=2&cursor={page['cursor']}")
    assert ([job["id"] for job in rest["jobs"]], rest["cursor"]) == ([1], None)
    reserved = caller.get("/tubes/mail/jobs?state=reserved")["jobs"]
    assert [(job["id"], job["connection"]) for job in reserved] == [(1, 1)]
    assert "body" not in reserved[0]


def test_a_page_of_jobs_shows_the_beginnings_of_bodies_if_asked_to(caller: Caller) -> None:
    caller.put(b"mail", b"hello", b"\xff\x00", "ä".encode() * 10)
    jobs = caller.get("/tubes/mail/jobs?body_bytes=3")["jobs"]
    assert [job["body"] for job in jobs] == [
        {"size": 5, "truncated": True, "text": "hel"},
        {"size": 2, "truncated": False, "base64": "/wA="},
        {"size": 20, "truncated": True, "text": "ä"},
    ]


@pytest.mark.parametrize("cursor", ["nonsense", "%0D%0A", "%E2%82%AC", "h1-2"])
def test_a_wrong_cursor_is_refused(caller: Caller, cursor: str) -> None:
    caller.put(b"mail", b"x")
    caller.get(f"/tubes/mail/jobs?state=ready&cursor={cursor}", 400)


def test_a_job_is_shown_with_its_body(caller: Caller) -> None:
    caller.put(b"mail", b"<script>alert(1)</script>")
    reply = caller.browser.ask("GET", f"{V1}/jobs/1")
    assert b"<" not in reply.body
    assert reply.json["body"]["text"] == "<script>alert(1)</script>"
    assert (reply.json["tube"], reply.json["state"], reply.json["ttr"]) == ("mail", "ready", 60)


def test_of_a_long_body_the_beginning_is_shown() -> None:
    caller = Caller(MemoryServer(max_job_bytes=1 << 20))
    caller.put(b"mail", b"x" * (MAX_SHOWN_BODY + 1))
    body = caller.get("/jobs/1")["body"]
    assert (len(body["text"]), body["truncated"]) == (MAX_SHOWN_BODY, True)
    assert body["size"] == MAX_SHOWN_BODY + 1


def test_connections_are_shown_and_who_asks_is_one_of_them(caller: Caller) -> None:
    shown = caller.get("/connections")["connections"]
    assert [each["connection"] for each in shown] == [1, 2]
    assert shown[1]["peer"].startswith("127.0.0.1:")


# What is changed.


def test_a_job_is_put(caller: Caller) -> None:
    assert caller.post("/tubes/mail/jobs", body="hällo", priority=7, delay=0, ttr=9) == {"id": 1}
    assert caller.ask(b"peek 1\r\n") == "FOUND 1 6\r\nhällo\r\n".encode()
    assert b"\npri: 7\n" in caller.ask(b"stats-job 1\r\n")
    body = base64.b64encode(b"\xff\x00\r\n").decode()
    assert caller.post("/tubes/mail/jobs", body_base64=body) == {"id": 2}
    assert caller.ask(b"peek 2\r\n") == b"FOUND 2 4\r\n\xff\x00\r\n\r\n"


def test_a_tube_is_paused_kicked_and_flushed(caller: Caller) -> None:
    caller.put(b"mail", b"a", b"b")
    caller.ask(b"watch mail\r\nreserve\r\nbury 1 0\r\n")
    caller.post("/tubes/mail/pause", seconds=60)
    assert caller.get("/tubes/mail")["pause_seconds_left"] == 60
    caller.post("/tubes/mail/pause", seconds=0)
    assert caller.get("/tubes/mail")["pause_seconds_left"] == 0
    assert caller.post("/tubes/mail/kick", count=10) == {"kicked": 1}
    assert caller.post("/tubes/mail/flush", state="ready") == {"flushed": 2}
    assert caller.post("/tubes/none/flush", state="ready") == {"flushed": 0}
    caller.get("/tubes/none", 404)


def test_a_job_is_kicked_moved_edited_and_deleted(caller: Caller) -> None:
    caller.put(b"mail", b"a")
    caller.ask(b"watch mail\r\nreserve\r\nbury 1 0\r\n")
    assert caller.state(1) == "buried"
    caller.post("/jobs/1/kick")
    assert caller.state(1) == "ready"
    caller.post("/jobs/1/move", tube="other")
    assert caller.get("/jobs/1")["tube"] == "other"
    caller.post("/jobs/1/edit", body="new", priority=1)
    job = caller.get("/jobs/1")
    assert (job["body"]["text"], job["pri"], job["ttr"]) == ("new", 1, 60)
    caller.post("/jobs/1/delete")
    caller.get("/jobs/1", 404)


def test_an_edit_of_one_value_leaves_the_others(caller: Caller) -> None:
    caller.ask(b"put 3 100 60 1\r\na\r\n")
    caller.server.advance(40)
    caller.post("/jobs/1/edit", priority=9)
    job = caller.get("/jobs/1")
    assert (job["pri"], job["state"], job["time_left"]) == (9, "delayed", 60)
    assert job["body"]["text"] == "a"


def test_a_policy_is_set_and_removed(caller: Caller) -> None:
    caller.put(b"mail", b"a")
    caller.post("/tubes/mail/policy", **{"max-reserves": 3})
    assert caller.get("/tubes/mail")["policy"]["max_reserves"] == 3
    removed: dict[str, Any] = {"max-reserves": None}
    caller.post("/tubes/mail/policy", **removed)
    assert "max_reserves" not in caller.get("/tubes/mail")["policy"]
    shown: dict[str, Any] = {"max_reserves": 4, "dead_letter": "mail.dead"}
    caller.post("/tubes/mail/policy", **shown)
    assert shown.items() <= caller.get("/tubes/mail")["policy"].items()
    caller.post("/tubes/mail/policy", 400, **{"nonsense": 3})


def test_a_wrong_policy_is_refused_with_the_key_that_is_wrong(caller: Caller) -> None:
    caller.put(b"mail", b"a")
    for key, value in (("max_reserves", 0), ("backoff", "x"), ("nonsense", 1)):
        given: dict[str, Any] = {"max_jobs": 5, key: value}
        detail = caller.post("/tubes/mail/policy", 400, **given)["detail"]
        assert key.replace("_", "-") in detail.partition(",")[0]
        assert detail.endswith("nothing was changed")
    assert caller.get("/tubes/mail")["policy"] == {}


def test_the_keys_of_policies_are_shown_with_what_their_values_are(caller: Caller) -> None:
    keys = caller.get("/policy-keys")["keys"]
    assert [each["key"] for each in keys] == list(KEYS)
    for each in keys:
        assert each["expected"] == KEYS[each["key"]].expected


@pytest.mark.parametrize("name", [".", ".."])
def test_tubes_named_as_steps_of_a_path_are_reached_behind_a_tilde(
    caller: Caller, name: str
) -> None:
    caller.put(name.encode(), b"x")
    assert caller.get(f"/tubes/~{name}")["name"] == name
    assert caller.get(f"/tubes/%7E{name}/jobs")["jobs"][0]["id"] == 1
    assert caller.post(f"/tubes/~{name}/flush", state="all") == {"flushed": 1}


def test_the_server_is_drained_and_takes_jobs_again(caller: Caller) -> None:
    caller.post("/server/drain")
    assert caller.post("/tubes/mail/jobs", 503, body="x")["detail"].startswith("the server drains")
    caller.post("/server/undrain")
    caller.post("/tubes/mail/jobs", body="x")


def test_a_change_is_answered_when_it_is_on_disk() -> None:
    io = HeldIo()
    caller = Caller(MemoryServer(directory=MemoryDirectory(), io=lambda: io))
    settle(caller.server, io)
    request = b'{"body":"x"}'
    head = f"POST {V1}/tubes/mail/jobs HTTP/1.1\r\nHost: localhost\r\n{WRITE_HEADER}: 1\r\n"
    caller.browser.send(f"{head}Content-Length: {len(request)}\r\n\r\n".encode() + request)
    caller.server.advance(0.1)
    assert caller.browser.transport.value == b""
    settle(caller.server, io)
    assert caller.browser.transport.value.endswith(b'{"id":1}\n')


WRONG: dict[str, list[dict[str, Any]]] = {
    "/tubes/mail/pause": [
        {}, {"seconds": -1}, {"seconds": 1.5}, {"seconds": True}, {"seconds": 1 << 32},
        {"seconds": 1, "unknown": 1},
    ],
    "/tubes/mail/kick": [{"count": "x"}],
    "/tubes/mail/jobs": [
        {}, {"body": 1}, {"body": "\ud800"}, {"body": "x", "body_base64": "eA=="},
        {"body_base64": "x"},
    ],
    "/tubes/mail/policy": [{}, {"max-reserves": [1]}, {"a b": "1\r\ndelete 1"}],
    "/tubes/a%0D%0Ab/jobs": [{"body": "x"}],
    "/jobs/1/move": [{}, {"tube": "a b"}],
    "/jobs/1/edit": [{"ttr": -1}],
    "/jobs/x/delete": [{}],
    "/server/drain": [{"x": 1}],
}  # fmt: skip


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_change_is_refused_and_nothing_is_done(caller: Caller, path: str) -> None:
    caller.put(b"mail", b"a")
    before = caller.ask(b"stats-job 1\r\n")
    for fields in WRONG[path]:
        caller.post(path, 400, **fields)
    assert caller.ask(b"stats-job 1\r\n") == before
    caller.post("/tubes/mail/jobs", body="x" * 65_535)
    caller.post("/tubes/mail/jobs", 413, body="x" * 65_536)


@pytest.mark.parametrize("body", [b"[]", b"x", b'"x"', b"\xff", b"[" * 100_000, b"null"])
def test_a_body_that_is_no_object_is_refused(caller: Caller, body: bytes) -> None:
    assert caller.send("/tubes/mail/pause", body).status == 400


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/tubes/none/pause", {"seconds": 1}), ("/tubes/none/kick", {"count": 1}),
     ("/jobs/9/kick", {}), ("/jobs/9/delete", {}),
     ("/jobs/9/move", {"tube": "x"}), ("/jobs/9/edit", {"priority": 1})],
)  # fmt: skip
def test_a_change_of_what_is_not_there_is_not_found(
    caller: Caller, path: str, fields: dict[str, Any]
) -> None:
    caller.post(path, 404, **fields)
    assert caller.server.service.queue.state.tubes.find(b"none") is None


def test_a_job_that_somebody_has_reserved_is_left_alone(caller: Caller) -> None:
    caller.put(b"mail", b"a")
    caller.ask(b"watch mail\r\nreserve\r\n")
    caller.post("/jobs/1/delete", 404)
    assert caller.state(1) == "reserved"


def test_but_it_can_be_cancelled(caller: Caller) -> None:
    caller.put(b"mail", b"a")
    caller.ask(b"watch mail\r\nreserve\r\n")
    with capturedLogs() as events:
        caller.post("/jobs/1/cancel")
        assert caller.post("/jobs/1/cancel", 404)["detail"] == "no such job"
    caller.get("/jobs/1", 404)
    assert caller.ask(b"touch 1\r\n") == b"NOT_FOUND\r\n"
    said = [line for line in told(events) if line is not None]
    assert [line.partition(": ")[2] for line in said] == [
        "cancel-job id=1: CANCELLED", "cancel-job id=1: NOT_FOUND"
    ]  # fmt: skip


def told(events: Sequence[Mapping[str, Any]]) -> list[str | None]:
    return [formatEvent(dict(event)) for event in events if event.get("event") == AUDIT]


def test_a_change_has_one_line_in_the_audit_that_of_its_command(caller: Caller) -> None:
    caller.put(b"mail", b"a", b"b")
    with capturedLogs() as events:
        caller.post("/tubes/mail/pause", seconds=0)
        caller.post("/jobs/1/move", tube="other")
        caller.post("/jobs/9/move", 404, tube="other")
        caller.post("/tubes/mail/jobs", body="c")
        caller.post("/tubes/mail/flush", 400)
        caller.post("/tubes/mail/flush", state="all")
    who = "127.0.0.1:4711"
    assert told(events) == [
        f"{who} over HTTP: pause-tube tube=mail pause=0: PAUSED",
        f"{who} over HTTP: move-job id=1 tube=other: MOVED",
        f"{who} over HTTP: move-job id=9 tube=other: NOT_FOUND",
        # No command of the audit's was sent.
        f"{who}: HTTP {V1}/tubes/mail/jobs: 200",
        f"{who}: HTTP {V1}/tubes/mail/flush: 400",
        f"{who} over HTTP: flush-tube tube=mail state=all: FLUSHED 2",
    ]
    [flushed] = [event for event in events if event.get("command") == "flush-tube"]
    assert flushed["words"] == "flush-tube tube=mail state=all"


def test_who_asks_over_ipv6_is_told_and_shown_so(caller: Caller) -> None:
    caller.put(b"mail", b"a")
    caller.browser.transport.address = IPv6Address("TCP", "::1", 4712)
    with capturedLogs() as events:
        caller.post("/jobs/1/move", tube="other")
    assert told(events) == ["[::1]:4712 over HTTP: move-job id=1 tube=other: MOVED"]
    assert caller.get("/connections")["connections"][1]["peer"] == "[::1]:4712"


def test_a_change_over_a_unix_socket_is_told_by_its_path_too(caller: Caller) -> None:
    # Two peers could not be told apart: so no line is left out.
    caller.put(b"mail", b"a")
    caller.browser.transport.address = UNIXAddress("")
    with capturedLogs() as events:
        caller.post("/jobs/1/move", tube="other")
    assert told(events) == [
        "a UNIX socket over HTTP: move-job id=1 tube=other: MOVED",
        f"a UNIX socket: HTTP {V1}/jobs/1/move: 200",
    ]


@pytest.mark.parametrize("wrong", [1, 0, True, ["YQ=="], {"a": 1}, "YQ", "Y Q=="])
def test_a_body_in_base64_is_a_string_of_base64(caller: Caller, wrong: object) -> None:
    told = caller.post("/tubes/mail/jobs", 400, body_base64=wrong)["detail"]
    assert "body_base64 is a string" in told or "body_base64 of base64" in told
    caller.post("/tubes/mail/jobs", body_base64="YQ==")


@pytest.mark.parametrize("fields", [{}, {"state": "reserved"}, {"state": 1}, {"state": ["all"]}])
def test_a_flush_says_which_jobs(caller: Caller, fields: dict[str, Any]) -> None:
    caller.put(b"mail", b"a")
    detail = caller.post("/tubes/mail/flush", 400, **fields)["detail"]
    assert detail == "state says which jobs are deleted: one of ready, delayed, buried, all"


def test_a_tube_says_each_figure_once(caller: Caller) -> None:
    caller.put(b"mail", b"a")
    caller.ask(b"put 1 30 60 1\r\na\r\n")
    one, [row] = caller.get("/tubes/mail"), caller.get("/tubes?search=mail")["tubes"]
    assert one.keys() == {*row, "policy", "body_bytes"}
    assert (one["total_jobs"], one["body_bytes"]) == (2, 2)
    assert one["next_delayed_seconds"] == row["next_delayed_seconds"] == 30
    assert caller.get("/tubes/default")["next_delayed_seconds"] is None


def test_who_does_not_wait_for_the_answer_or_may_not_ask_is_in_the_log_too() -> None:
    server = MemoryServer()
    browser = browse(server, may_write=True)
    with capturedLogs() as events:
        browser.ask("POST", f"{V1}/jobs/1/delete")
        head = f"POST {V1}/jobs/2/delete HTTP/1.1\r\nHost: localhost\r\n{WRITE_HEADER}: 1\r\n"
        browser.send(f"{head}Content-Length: 0\r\n\r\n".encode())
        browser.transport.abortConnection()
        server.clock.advance(0)
    lines = [formatEvent(event) for event in events if "HTTP" in str(event.get("log_format"))]
    assert lines == [
        f"127.0.0.1:4711: HTTP {V1}/jobs/1/delete: 403",
        f"127.0.0.1:4711: HTTP {V1}/jobs/2/delete: 503",
    ]
    server.stop()


def test_many_changes_of_one_host_are_summed(caller: Caller) -> None:
    with capturedLogs() as events:
        for _ in range(MAX_LINES + 5):
            caller.post("/jobs/1/delete", 404)
        caller.server.clock.advance(1)
    lines = told(events)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "127.0.0.1: HTTP 5 more times in this second, 0 jobs changed"


def test_a_list_looks_at_large_bodies_one_after_the_other(caller: Caller) -> None:
    for _ in range(40):
        caller.put(b"mail", bytes(60_000))
    jobs = caller.get("/tubes/mail/jobs?body_bytes=2")["jobs"]
    assert [job["body"]["text"] for job in jobs] == 40 * ["\0\0"]


def test_a_server_without_room_for_connections_says_so(caller: Caller) -> None:
    connections = caller.server.service.connections
    connections.settings = connections.settings._replace(max_connections=1)
    assert caller.get("/jobs/1", 503)["detail"] == "the server takes no more connections"
    caller.server.stop()
