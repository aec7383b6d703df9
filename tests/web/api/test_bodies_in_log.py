"""Jobs whose bodies are in the log only are found, grouped, shown and changed as if they were in
memory.

Where reads are held, each piece of work ends when the test lets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from beanstalk_twisted.jobs.body_room import PAUSES_S
from beanstalk_twisted.storage.body_reads import RETRIES_S
from beanstalk_twisted.storage.io_thread import InlineIo, WatchableIo
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.api.fields import LOOK_BODY_BYTES, criteria_of
from beanstalk_twisted.web.api.looking import (
    LOOK_READS,
    MAX_READING,
    SLICE_BYTES,
    SLICE_READS,
    Look,
    Seeing,
    Seen,
)
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.sampling import share
from tests.server.test_body_cache import damage, fail
from tests.web.api.test_runs import ended
from tests.web.api.test_search import asked, ids, parts, put_many
from tests.web.browsing import V1, Caller, parsed

KIB_64 = 64 << 10

WORDS = (b"", b"spam", b"Spam 1", b"ham", b'{"a": 1}', b'{"a": 2}', b"\xff\x00spam", b"x" * 30_000)

COMMANDS = (
    b"delete %d", b"kick-job %d", b"reserve-job %d", b"release %d 1 0", b"release %d 1 99",
    b"bury %d 7", b"move-job %d a",
)  # fmt: skip


class Held(Caller):
    """A server that keeps no bodies in memory, and reads when the test says so."""

    def __init__(self, body_cache: int = 0) -> None:
        self.reads = HeldIo()
        ios: list[WatchableIo] = [InlineIo(), self.reads]
        self.directory = MemoryDirectory()
        super().__init__(
            MemoryServer(
                directory=self.directory, io=lambda: ios.pop(0), segment_bytes=1 << 24,
                max_job_bytes=1 << 20, body_cache=body_cache,
            )
        )  # fmt: skip

    @property
    def loaded_bytes(self) -> int:
        return self.server.service.queue.state.jobs.loaded_bytes

    def step(self) -> None:
        self.reads.step()
        self.server.advance()

    def finish(self) -> int:
        """All reads end."""
        count = 0
        while self.reads:
            self.step()
            count += 1
        return count

    def begin(self, path: str) -> None:
        self.browser.send(f"GET {V1}{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        self.server.advance()

    def reply(self) -> Any:
        self.finish()
        return parsed(self.browser.transport.value).json


def caller_of(body_cache: int | None) -> Caller:
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=1 << 20, body_cache=body_cache)
    return Caller(server)


QUERIES: Sequence[tuple[str, dict[str, object]]] = (
    ("/search", {"text": "spam"}),
    ("/search", {"text": "SPAM", "any_case": 1, "body_bytes": 9, "limit": 2}),
    ("/search", {"body_bytes": 4096, "states": "ready,buried"}),
    ("/search", {"text": "spam", "tube": "a", "where": "size>4"}),
    ("/groups", {"by": "body", "body_bytes": 5}),
    ("/groups", {"by": "reason", "body_bytes": 5, "tube": "a"}),
)


@settings(max_examples=share(40))
@given(
    puts=st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from(WORDS)), max_size=25),
    commands=st.lists(st.tuples(st.sampled_from(COMMANDS), st.integers(1, 25)), max_size=25),
    body_cache=st.sampled_from([0, KIB_64]),
    query=st.sampled_from(QUERIES),
    action=st.sampled_from(["delete", "kick", "move"]),
)
def test_all_is_as_if_bodies_were_in_memory(
    puts: list[tuple[bytes, bytes]], commands: list[tuple[bytes, int]], body_cache: int,
    query: tuple[str, dict[str, object]], action: str,
) -> None:  # fmt: skip
    path, fields = query
    outcomes = []
    for cache in (None, body_cache):
        caller = caller_of(cache)
        caller.server.connect().ask(b"watch a\r\n")  # So it is there without jobs too.
        caller.put(b"a", b"spam")
        for tube, body in puts:
            caller.put(tube, body)
        for command, job_id in commands:
            caller.ask(command % job_id + b"\r\n")
        caller.server.advance()
        seen = parts(caller, path, **fields)
        to: dict[str, Any] = {"to": "c"} if action == "move" else {}
        begun = caller.post("/runs", action=action, count=9, text="spam", **to)
        outcomes.append((seen, ended(caller, begun["run"]), parts(caller, "/search", body_bytes=9)))
    assert outcomes[0] == outcomes[1]


def test_what_is_searched_does_not_stay_in_memory_and_others_are_served_meanwhile() -> None:
    caller = Held()
    caller.put(b"mail", b"spam 1", b"ham", b"spam 2")
    caller.begin(asked("/search", text="spam", body_bytes=6))
    assert (len(caller.reads), caller.ask(b"use box\r\n")) == (1, b"USING box\r\n")
    found = caller.reply()
    assert [job["body"]["text"] for job in found["jobs"]] == ["spam 1", "spam 2"]
    assert (found["unread"], caller.loaded_bytes) == (0, 0)


def test_a_job_that_goes_or_changes_while_its_body_is_read_is_as_it_is_then() -> None:
    caller = Held()
    caller.put(b"mail", b"spam 1", b"spam 2", b"spam 3", b"spam 4")
    caller.begin(asked("/search", text="spam", states="ready", tube="mail"))
    assert caller.ask(b"delete 1\r\n") == b"DELETED\r\n"
    assert caller.ask(b"move-job 4 box\r\n") == b""
    assert [job["id"] for job in caller.reply()["jobs"]] == [2, 3]


def test_a_run_leaves_alone_what_was_changed_while_it_read() -> None:
    caller = Held()
    caller.put(b"mail", b"spam 1", b"spam 2", b"spam 3")
    caller.post("/runs", action="delete", count=3, text="spam", tube="mail", states="ready")
    caller.server.advance()
    assert len(caller.reads) == 1
    other = caller.server.connect()
    other.ask(b"delete 1\r\n")
    other.ask(b"reserve-job 2\r\n")
    caller.finish()
    shown = ended(caller, 1)
    assert (shown["state"], shown["done"], shown["skipped"]) == ("done", 1, 2)
    assert ids(caller) == [2]


def test_a_damaged_body_is_counted_and_all_others_are_found() -> None:
    caller = Held()
    caller.put(b"mail", b"spam 1", b"spam 2")
    damage(caller.directory, b"spam 1")
    caller.begin(asked("/search", text="spam"))
    found = caller.reply()
    assert ([job["id"] for job in found["jobs"]], found["unread"]) == ([2], 1)
    caller.begin(asked("/groups", by="body", body_bytes=9))
    found = caller.reply()
    assert [group["fingerprint"] is None for group in found["groups"]] == [True, False]
    assert found["unread"] == 1
    caller.begin(asked("/groups", by="reason", body_bytes=9))
    assert caller.reply()["unread"] == 1
    caller.post("/runs", action="delete", count=2, text="spam")
    caller.server.advance()
    caller.finish()
    shown = ended(caller, 1)
    assert (shown["done"], shown["skipped"], shown["unread"]) == (1, 1, 1)


def test_jobs_that_are_named_are_read_in_slices() -> None:
    caller = Held()
    caller.put(b"mail", *([b"spam"] * (SLICE_READS + 1)))
    named = list(range(1, SLICE_READS + 2))
    caller.post("/runs", action="delete", count=len(named), text="spam", ids=named)
    caller.server.advance()
    # Of each slice the first is read alone, and the others behind it together.
    assert caller.finish() == 3
    assert ended(caller, 1)["done"] == SLICE_READS + 1


def look_of(caller: Caller, **given: str) -> Look:
    return Look(caller.server.service.queue.state, criteria_of(given), counts_bytes=False)


def test_a_slice_reads_so_many_bodies_or_bytes() -> None:
    caller = Held()
    caller.put(b"mail", *([b"x"] * (SLICE_READS + 1)))
    look = look_of(caller, text="x", tube="mail")
    assert [len(look.slice(0, 99)) for _ in range(2)] == [SLICE_READS, 1]
    size = SLICE_BYTES // 2
    caller.put(b"large", b"x" * size, b"x" * (size - 1), b"x", b"x")
    look = look_of(caller, text="x", tube="large")
    # What is searched of them is counted beside what is read.
    assert size == LOOK_BODY_BYTES
    assert [len(look.slice(0, 99)) for _ in range(3)] == [1, 2, 1]


def test_a_request_reads_so_many_bodies() -> None:
    caller = caller_of(0)
    put_many(caller, b"mail", LOOK_READS + 1)
    caller.server.advance()
    found = parts(caller, "/groups", by="body")
    assert [part["looked"] for part in found] == [LOOK_READS, 1]
    assert [part["groups"][0]["jobs"] for part in found] == [LOOK_READS, 1]


class Looker:
    """Sees the same job again and again."""

    def __init__(self, caller: Held) -> None:
        self.seen: list[list[Seen]] = []
        self._state = caller.server.service.queue.state
        self._seeing = Seeing(caller.server.service)

    def look(self) -> None:
        job = self._state.jobs.look(1)
        assert job is not None
        seeing = Deferred.fromCoroutine(self._seeing.see([job], lambda job: True))
        seeing.addCallback(self.seen.append)


def test_so_many_slices_are_read_at_a_time() -> None:
    caller = Held()
    caller.put(b"mail", b"spam")
    looker = Looker(caller)
    for _ in range(MAX_READING + 1):
        looker.look()
    caller.step()
    assert (len(looker.seen), len(caller.reads)) == (MAX_READING, 1)
    caller.step()
    assert [seen[0].body for seen in looker.seen] == [b"spam"] * (MAX_READING + 1)


def test_a_read_that_fails_is_counted_and_not_tried_by_the_next_request() -> None:
    caller = Held()
    caller.put(b"mail", b"spam 1", b"spam 2")
    caller.directory.read_fault = fail
    caller.begin(asked("/search", text="spam"))
    for pause_s in RETRIES_S:
        caller.finish()
        caller.server.advance(pause_s)
    found = caller.reply()
    assert (found["jobs"], found["unread"]) == ([], 2)
    assert caller.get(asked("/search", text="spam"))["unread"] == 2
    caller.directory.read_fault = lambda name: None
    caller.server.advance(PAUSES_S[0])
    caller.begin(asked("/search", text="spam"))
    assert (caller.reply()["unread"], len(caller.reads)) == (0, 0)


def test_a_job_and_a_page_show_bodies_that_are_in_the_log_only() -> None:
    held = Held()
    held.put(b"mail", *(b"body %d" % number for number in range(SLICE_READS + 3)), b"x" * 300_000)
    held.finish()
    assert held.loaded_bytes == 0
    held.begin("/jobs/2")
    assert held.browser.transport.value == b""
    assert held.reply()["body"]["text"] == "body 1"
    held.begin("/tubes/mail/jobs?body_bytes=6")
    *jobs, large = held.reply()["jobs"]
    assert [job["body"]["text"] for job in jobs] == [f"body {number}"[:6] for number in range(19)]
    assert "body" not in large and large["size"] == 300_000
    assert held.loaded_bytes == 0


def test_a_body_that_changes_while_a_page_is_made_is_shown_as_it_is_then() -> None:
    held = Held()
    held.put(b"mail", b"old", b"two", b"gone", b"moved")
    held.finish()
    held.begin("/tubes/mail/jobs?body_bytes=9")
    held.client.protocol.dataReceived(
        b"update-job 1 5 0 60 3\r\nnew\r\ndelete 3\r\nmove-job 4 other\r\n"
    )
    jobs = held.reply()["jobs"]
    assert [job["id"] for job in jobs] == [1, 2, 3, 4]
    assert [job.get("body", {}).get("text") for job in jobs] == ["new", "two", None, None]


def test_of_a_body_that_is_lost_a_job_says_so_and_a_page_shows_the_others() -> None:
    held = Held()
    held.put(b"mail", b"lost-body", b"sound")
    held.finish()
    damage(held.directory, b"lost-body")
    held.begin("/jobs/1")
    held.server.advance(10)
    told = held.reply()
    assert (told["status"], told["detail"]) == (503, LOST)
    held.begin("/tubes/mail/jobs?body_bytes=9")
    first, second = held.reply()["jobs"]
    assert "body" not in first and second["body"]["text"] == "sound"


LOST = "its body cannot be read; the server's log says why"
