"""Many jobs are changed as a whole, as many as were confirmed and as long as they are as meant."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.server.audit import AUDIT
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.api.looking import SLICE_JOBS
from beanstalk_twisted.web.api.runs import KEPT_RUNS, MAX_RUNNING, SLICE_COMMANDS
from beanstalk_twisted.web.routes import MAX_IDS
from beanstalk_twisted.wire.grammar import MAX_U64
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.web.api.test_search import bury, die, ids, put_many
from tests.web.browsing import Caller


def run(caller: Caller, action: str, count: int, **fields: Any) -> Any:
    begun = caller.post("/runs", action=action, count=count, **fields)
    return ended(caller, begun["run"])


def ended(caller: Caller, number: int) -> Any:
    for _ in range(10_000):
        now = caller.get(f"/runs/{number}")
        if now["state"] != "running":
            return now
        caller.server.clock.advance(0)
    raise AssertionError("it does not end")


def counts(shown: Any) -> tuple[str, int, int]:
    return shown["state"], shown["done"], shown["skipped"]


def test_a_group_is_kicked(caller: Caller) -> None:
    bury(caller, b"mail", b"a", b"b", b"c")
    shown = run(caller, "kick", 3, tube="mail", states="buried")
    assert counts(shown) == ("done", 3, 0)
    assert ids(caller, states="ready") == [1, 2, 3]
    assert (shown["looked"], shown["total"], shown["to"]) == (3, 3, None)


def test_jobs_that_a_search_means_are_deleted_and_no_others(caller: Caller) -> None:
    caller.put(b"mail", b"spam 1", b"ham", b"spam 2")
    caller.put(b"box", b"spam 3")
    assert counts(run(caller, "delete", 2, text="spam")) == ("done", 2, 0)
    assert counts(run(caller, "delete", 0, text="spam")) == ("done", 0, 0)
    assert counts(run(caller, "delete", 3, text="spam")) == ("done", 1, 2)
    assert ids(caller) == [2]


def test_jobs_are_moved_and_what_is_there_already_is_not_met_again(caller: Caller) -> None:
    bury(caller, b"a", b"x", b"x")
    caller.ask(b"use review\r\n")
    bury(caller, b"b", b"x")
    assert counts(run(caller, "move", 3, to="review", states="buried")) == ("done", 3, 0)
    assert ids(caller, tube="review", states="buried") == [1, 2, 3]


class HeldCaller(Caller):
    """A caller of a server whose disk waits to be told."""

    def __init__(self, jobs: int) -> None:
        self.io = HeldIo()
        super().__init__(MemoryServer(directory=MemoryDirectory(), io=lambda: self.io))
        self.sync(20)
        put_many(self, b"mail", jobs)
        self.sync(20)

    def sync(self, times: int = 1) -> None:
        for _ in range(times):
            while self.io:
                self.io.step()
            self.server.advance(0.01)


def test_a_slice_begins_when_the_one_before_is_on_disk_and_others_are_served() -> None:
    caller = HeldCaller(3 * SLICE_JOBS)
    begun = caller.post("/runs", action="delete", count=9999, tube="mail")
    assert counts(begun) == ("running", 0, 0)
    caller.server.advance(0.01)
    between = caller.get("/runs/1")
    assert (counts(between), between["total"]) == (("running", 0, 0), 3 * SLICE_JOBS)
    assert len(ids(caller, limit=200)) == 2 * SLICE_JOBS
    assert caller.server.connect().ask(b"use box\r\n") == b"USING box\r\n"
    caller.sync()
    assert caller.get("/runs/1")["done"] == SLICE_JOBS
    caller.sync(9)
    assert counts(caller.get("/runs/1")) == ("done", 3 * SLICE_JOBS, 9999 - 3 * SLICE_JOBS)
    assert caller.get("/runs")["runs"][0]["done"] == 3 * SLICE_JOBS


@pytest.mark.parametrize("fields", [{"tube": "mail"}, {"ids": list(range(1, SLICE_COMMANDS + 2))}])
def test_a_slice_has_so_many_commands(fields: Any) -> None:
    caller = HeldCaller(SLICE_COMMANDS + 1)
    caller.post("/runs", action="move", to="box", count=SLICE_COMMANDS + 1, **fields)
    seen = set()
    for _ in range(20):
        caller.sync()
        seen.add(caller.get("/runs/1")["done"])
    assert seen == {0, SLICE_COMMANDS, SLICE_COMMANDS + 1}


def test_a_run_is_stopped() -> None:
    caller = HeldCaller(3 * SLICE_JOBS)
    caller.post("/runs", action="delete", count=9999, tube="mail")
    caller.server.advance(0.01)
    caller.post("/runs/1/stop")
    caller.sync(9)
    assert counts(caller.get("/runs/1")) == ("stopped", SLICE_JOBS, 0)
    assert len(ids(caller, limit=200)) == 2 * SLICE_JOBS
    caller.post("/runs/1/stop", 400, x=1)


def test_so_many_runs_go_on_at_a_time() -> None:
    caller = HeldCaller(5 * SLICE_JOBS)
    fields: dict[str, Any] = {"action": "delete", "count": SLICE_JOBS, "tube": "mail"}
    for _ in range(MAX_RUNNING):
        caller.post("/runs", **fields)
    assert "4 runs are under way" in caller.post("/runs", 503, **fields)["detail"]
    caller.sync(9)
    assert [each["done"] for each in caller.get("/runs")["runs"]] == MAX_RUNNING * [SLICE_JOBS]
    assert caller.post("/runs", **fields)["run"] == MAX_RUNNING + 1


def test_a_run_ends_with_the_server_and_says_so() -> None:
    caller = HeldCaller(3 * SLICE_JOBS)
    site = caller.browser.channel.factory
    caller.post("/runs", action="delete", count=9, tube="mail")
    with capturedLogs() as events:
        site.parts[-1].stop()
        caller.sync(9)
    assert lines(events) == [
        "127.0.0.1:4711: run 1: delete tube=mail: stopped, 0 jobs changed, 0 skipped"
    ]


def test_jobs_that_were_put_since_are_left_alone(caller: Caller) -> None:
    caller.put(b"mail", b"a", b"b")
    caller.ask(b"delete 1\r\n")
    caller.put(b"mail", b"c")
    assert counts(run(caller, "delete", 2, tube="mail", newest_job=2)) == ("done", 1, 1)
    assert ids(caller) == [3]
    caller.put(b"mail", b"d", b"e")
    assert counts(run(caller, "delete", 3, ids=[3, 4, 5], newest_job=4)) == ("done", 2, 1)
    assert ids(caller) == [5]


@pytest.mark.parametrize("action", ["delete", "move"])
@pytest.mark.parametrize(
    "count", [1, SLICE_COMMANDS - 1, SLICE_COMMANDS, SLICE_COMMANDS + 1, 3 * SLICE_COMMANDS - 1]
)
def test_of_those_that_are_named_no_more_are_changed_than_were_confirmed(
    caller: Caller, action: str, count: int
) -> None:
    put_many(caller, b"mail", 3 * SLICE_COMMANDS)
    to = {"to": "box"} if action == "move" else {}
    named = list(range(1, 3 * SLICE_COMMANDS + 1))
    assert counts(run(caller, action, count, ids=named, **to)) == ("done", count, 0)
    assert ids(caller, tube="mail", limit=200) == named[count:]


def test_a_named_job_that_was_not_changed_counts_as_one_of_those_confirmed(caller: Caller) -> None:
    caller.put(b"mail", b"a", b"b")
    assert counts(run(caller, "delete", 1, ids=[9, 1, 2])) == ("done", 0, 1)
    assert counts(run(caller, "delete", 2, ids=[9, 1, 2])) == ("done", 1, 1)
    assert ids(caller) == [2]


def test_jobs_that_are_not_as_they_were_meant_are_skipped(caller: Caller) -> None:
    caller.put(b"mail", b"a", b"b", b"c", b"d")
    caller.ask(b"delete 1\r\nreserve-job 2\r\n")
    given: dict[str, Any] = {"ids": [1, 2, 3, 4, 4], "tube": "mail"}
    assert counts(run(caller, "delete", 9, where="priority<9", **given)) == ("done", 2, 2)
    bury(caller, b"box", b"e")
    assert counts(run(caller, "kick", 1, ids=[5], tube="mail")) == ("done", 0, 1)
    assert counts(run(caller, "kick", 1, ids=[5], states="ready")) == ("done", 0, 1)
    assert counts(run(caller, "kick", 1, ids=[5])) == ("done", 1, 0)
    assert counts(run(caller, "kick", 1, ids=[5])) == ("done", 0, 1)
    assert caller.state(2) == "reserved"


def test_a_job_whose_key_is_taken_there_is_skipped(caller: Caller) -> None:
    caller.ask(b"use a\r\nput 0 0 9 1 idp:k\r\nx\r\nuse b\r\nput 0 0 9 1 idp:k\r\nx\r\n")
    caller.ask(b"put 0 0 9 1\r\nx\r\n")
    assert counts(run(caller, "move", 2, tube="b", to="a")) == ("done", 1, 1)


def test_dead_letters_are_kicked_back_and_begin_anew(caller: Caller) -> None:
    die(caller, b"mail", b"a", b"b", b"c")
    assert counts(run(caller, "kick-dead", 2, tube="mail")) == ("done", 2, 0)
    assert ids(caller, states="ready", where="reserves=0") == [1, 2]
    assert counts(run(caller, "kick-dead", 9, tube="mail")) == ("done", 1, 8)


def test_dead_letters_of_a_group_are_returned_and_no_others(caller: Caller) -> None:
    caller.ask(b"tube-policy mail dead-letter=grave\r\ntube-policy fax dead-letter=grave\r\n")
    die(caller, b"mail", b"a", b"b", b"c")
    die(caller, b"fax", b"d")
    bury(caller, b"grave", b"e")
    # One that was kicked where it was is returned too, and not one that somebody has.
    caller.ask(b"kick-job 2\r\nreserve-job 3\r\n")
    assert counts(run(caller, "return", 5, tube="grave", where="dead-from=mail")) == ("done", 2, 3)
    assert ids(caller, tube="mail", states="ready", where="reserves=0,dead-from=") == [1, 2]
    assert ids(caller, tube="grave") == [3, 4, 5]
    assert counts(run(caller, "return", 9)) == ("done", 1, 8)
    assert ids(caller, tube="fax", states="ready", where="reserves=0,dead-from=") == [4]
    assert counts(run(caller, "return", 2, ids=[3, 5])) == ("done", 0, 2)


def test_a_returned_job_is_tried_as_often_as_a_new_one(caller: Caller) -> None:
    die(caller, b"mail", b"a")
    caller.ask(b"tube-policy mail max-reserves=2\r\n")
    assert counts(run(caller, "return", 1, ids=[1])) == ("done", 1, 0)
    caller.ask(b"reserve-job 1\r\nrelease 1 0 0\r\n")
    assert caller.state(1) == "ready"
    caller.ask(b"reserve-job 1\r\nrelease 1 0 0\r\n")
    assert caller.state(1) == "buried"


def test_a_dead_letter_whose_key_is_taken_is_not_made_ready_where_it_is(caller: Caller) -> None:
    caller.ask(b"tube-policy mail max-reserves=1 dead-letter=grave\r\nuse mail\r\n")
    caller.ask(b"put 0 0 9 1 idp:k\r\nx\r\nreserve-job 1\r\nrelease 1 0 0\r\n")
    caller.ask(b"put 0 0 9 1 idp:k\r\nx\r\n")
    assert counts(run(caller, "return", 1, ids=[1])) == ("done", 0, 1)
    assert ids(caller, tube="grave", states="buried") == [1]


def test_a_run_that_the_server_refuses_says_why(caller: Caller) -> None:
    connections = caller.server.service.connections
    caller.put(b"mail", b"x")
    connections.settings = connections.settings._replace(max_connections=1)
    shown = run(caller, "delete", 1, tube="mail")
    assert (shown["state"], shown["why"]) == ("failed", "the server takes no more connections")
    caller.server.stop()


def test_so_many_runs_are_kept(caller: Caller) -> None:
    for _ in range(KEPT_RUNS + 1):
        run(caller, "delete", 0)
    assert [each["run"] for each in caller.get("/runs")["runs"]] == list(range(2, KEPT_RUNS + 2))
    assert "ended long ago" in caller.get("/runs/1", 404)["detail"]


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"action": "delete"}, {"action": "burn", "count": 1}, {"action": "delete", "count": -1},
        {"action": "delete", "count": True}, {"action": "move", "count": 1},
        {"action": "move", "count": 1, "to": ""}, {"action": "move", "count": 1, "to": "a b"},
        {"action": "move", "count": 1, "to": "ä"}, {"action": "move", "count": 1, "to": 201 * "a"},
        {"action": "kick", "count": 1, "to": "a"}, {"action": "delete", "count": 1, "tube": 1},
        {"action": "delete", "count": 1, "tube": "a b"}, {"action": "delete", "count": 1, "x": 1},
        {"action": "delete", "count": MAX_U64 + 1}, {"action": "delete", "count": 1, "ids": 1},
        {"action": "delete", "count": 1, "ids": ["1"]},
        {"action": "delete", "count": 1, "ids": [-1]},
        {"action": "delete", "count": 1, "ids": list(range(MAX_IDS + 1))},
        {"action": "delete", "count": 1, "states": "all"},
        {"action": "delete", "count": 1, "where": "x"},
        {"action": "kick-dead", "count": 1}, {"action": "kick-dead", "count": 1, "ids": [1]},
        {"action": "kick-dead", "count": 1, "tube": "mail", "text": "x"},
    ],
)  # fmt: skip
def test_a_wrong_run_is_refused_and_nothing_is_done(caller: Caller, fields: dict[str, Any]) -> None:
    caller.put(b"mail", b"x")
    caller.post("/runs", 400, **fields)
    assert ids(caller) == [1]
    assert caller.get("/runs") == {"runs": []}


def test_a_run_may_name_so_many_jobs(caller: Caller) -> None:
    caller.put(b"mail", *([b"x"] * MAX_IDS))
    named = list(range(1, MAX_IDS + 1))
    assert counts(run(caller, "delete", MAX_IDS, ids=named)) == ("done", MAX_IDS, 0)


def test_what_is_not_there_is_not_found(caller: Caller) -> None:
    caller.post("/runs", 404, action="delete", count=1, tube="none")
    caller.get("/runs/1", 404)
    caller.post("/runs/1/stop", 404)
    caller.get("/runs/0", 400)


def lines(events: Any) -> list[str]:
    return [formatEvent(event) for event in events if event.get("event") == AUDIT]


def test_the_audit_tells_of_a_run_as_a_whole(caller: Caller) -> None:
    bury(caller, b"mail", *([b"x\n"] * 30))
    with capturedLogs() as events:
        run(caller, "kick", 31, tube="mail", states="buried", text="x\n")
    assert lines(events) == [
        "127.0.0.1:4711: HTTP /api/v1/runs: 200",
        "127.0.0.1:4711: run 1: kick tube=mail states=buried text=x\\n: done, 30 jobs changed, "
        "1 skipped",
    ]
    with capturedLogs() as events:
        caller.post("/jobs/1/move", tube="box")
    assert len(lines(events)) == 1
