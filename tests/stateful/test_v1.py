"""A conversation in the older dialect and its translation into the modern one, on two servers: the
jobs are the same after each step, and the answers say the same.

A third client, modern on both servers, does what v1 cannot: delays, other tubes, pauses.
"""

from __future__ import annotations

import re
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from beanstalk_twisted.testing.inspection import JobView, look
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.v1 import TTR_S
from tests.binlog.memory import MemoryDirectory

OLD: Final = 3
"""Clients that speak v1 on one server, and its translation on the other."""

LARGEST: Final = 20
PRIORITIES = st.sampled_from([0, 1, 5, 4294967295])
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.5, 9.0, TTR_S - 1, TTR_S - 0.5, TTR_S])
BODIES = st.one_of(
    st.binary(max_size=LARGEST + 2), st.sampled_from([b"", b"\r\n", b"x" * LARGEST, b"peek\r\n"])
)
THIRD = (
    b"put 3 2 6 1\r\nd\r\n", b"put 2 0 6 1\r\nm\r\n",
    b"use a\r\nput 1 0 6 1\r\na\r\nuse default\r\n",
    b"pause-tube default 2\r\n", b"pause-tube default 0\r\n", b"kick 2\r\n",
    b"reserve-with-timeout 0\r\n", b"reserve\r\n", b"watch a\r\n",
)  # fmt: skip

SERVER_KEYS = (
    "current-jobs-ready", "current-jobs-reserved", "current-jobs-buried", "cmd-put", "cmd-reserve",
    "cmd-delete", "cmd-release", "cmd-bury", "cmd-kick", "job-timeouts", "current-connections",
    "current-workers", "current-producers",
)  # fmt: skip
"""What both dialects count alike; a v1 `peek` and `stats` have other names in the other."""


def in_words_of_v1(command: str, reply: bytes, priorities: dict[int, int]) -> bytes:
    """Translate a modern reply, as the description of v1 has it.

    :param priorities: the jobs' priorities, which a modern reply does not tell.
    """
    if command == "put":
        if reply in (b"JOB_TOO_BIG\r\n", b"DRAINING\r\n", b"OUT_OF_MEMORY\r\n"):
            return b"NOT_INSERTED\r\n"
        return re.sub(rb"^INSERTED \d+\r\n$", b"INSERTED\r\n", reply)
    found = re.match(rb"(RESERVED|FOUND) (\d+) (\d+\r\n.*)", reply, re.DOTALL)
    if found is None:
        return reply
    return b"%s %s %d %s" % (found[1], found[2], priorities[int(found[2])], found[3])


class Translation(RuleBasedStateMachine):
    """Two servers, told the same."""

    @initialize(is_logged=st.booleans())
    def start(self, is_logged: bool) -> None:
        """Connect all clients, in the same order."""
        self.servers = [self._serve(is_logged), self._serve(is_logged)]
        self.is_logged = is_logged
        self._connect()

    def _serve(self, is_logged: bool) -> MemoryServer:
        return MemoryServer(
            directory=MemoryDirectory() if is_logged else None, max_job_bytes=LARGEST
        )

    def _connect(self) -> None:
        self.pairs = [
            (self.servers[0].connect("v1"), self.servers[1].connect()) for _ in range(OLD)
        ]
        self.third = (self.servers[0].connect(), self.servers[1].connect())
        # The command whose answer a client waits for.
        self.asked = [""] * OLD

    def _views(self, at: int) -> list[JobView]:
        service = self.servers[at].service
        return look(service.queue.state, service.clock.now_ns())

    @property
    def _free(self) -> list[int]:
        """The old clients that do not wait."""
        return [at for at in range(OLD) if not self.asked[at]]

    def _tell(self, at: int, old: bytes, modern: bytes) -> None:
        """Send a command and its translation, and compare what comes."""
        self.asked[at] = old.split()[0].decode()
        self.pairs[at][0].send(old)
        self.pairs[at][1].send(modern)
        self._advance(0)

    def _advance(self, seconds: float) -> None:
        for server in self.servers:
            server.advance(seconds)
        self._compare()

    def _compare(self) -> None:
        priorities = {job.id: job.priority for job in self._views(1)}
        for at, (old, modern) in enumerate(self.pairs):
            said, meant = old.take(), modern.take()
            assert said == in_words_of_v1(self.asked[at], meant, priorities)
            if said:
                self.asked[at] = ""
        theirs = self.third[0].take(), self.third[1].take()
        assert theirs[0] == theirs[1]

    def _pick_job(self, data: st.DataObject) -> int:
        """A job that there is, or one that there is not."""
        return data.draw(st.sampled_from([*(job.id for job in self._views(0)), 999]))

    # What old clients say.

    @precondition(lambda self: self._free)
    @rule(data=st.data(), priority=PRIORITIES, body=BODIES)
    def put(self, data: st.DataObject, priority: int, body: bytes) -> None:
        """Some bodies are too big."""
        at = data.draw(st.sampled_from(self._free))
        rest = b"%d\r\n%s\r\n" % (len(body), body)
        self._tell(at, b"put %d " % priority + rest, b"put %d 0 %d " % (priority, TTR_S) + rest)

    @precondition(lambda self: self._free)
    @rule(data=st.data())
    def reserve(self, data: st.DataObject) -> None:
        """A modern client that has jobs hears DEADLINE_SOON in its stead, so one that would wait
        has none.
        """
        at = data.draw(st.sampled_from(self._free))
        session = self.pairs[at][0].protocol.connection.session
        if session.best_id() is not None or not session.reserved:
            self._tell(at, b"reserve\r\n", b"reserve\r\n")

    @precondition(lambda self: self._free)
    @rule(data=st.data(), command=st.sampled_from([b"delete", b"peek"]))
    def name_a_job(self, data: st.DataObject, command: bytes) -> None:
        """Commands with a number and nothing else."""
        at = data.draw(st.sampled_from(self._free))
        line = b"%s %d\r\n" % (command, self._pick_job(data))
        self._tell(at, line, line)

    @precondition(lambda self: self._free)
    @rule(data=st.data(), priority=PRIORITIES)
    def release(self, data: st.DataObject, priority: int) -> None:
        """Without a delay."""
        at, job = data.draw(st.sampled_from(self._free)), self._pick_job(data)
        line = b"release %d %d" % (job, priority)
        self._tell(at, line + b"\r\n", line + b" 0\r\n")

    @precondition(lambda self: self._free)
    @rule(data=st.data(), priority=PRIORITIES)
    def bury(self, data: st.DataObject, priority: int) -> None:
        """The same in both."""
        at, job = data.draw(st.sampled_from(self._free)), self._pick_job(data)
        line = b"bury %d %d\r\n" % (job, priority)
        self._tell(at, line, line)

    @precondition(lambda self: self._free)
    @rule(data=st.data(), count=st.integers(0, 3))
    def kick(self, data: st.DataObject, count: int) -> None:
        """The same in both."""
        at = data.draw(st.sampled_from(self._free))
        self._tell(at, b"kick %d\r\n" % count, b"kick %d\r\n" % count)

    @precondition(lambda self: self._free)
    @rule(data=st.data())
    def peek_buried(self, data: st.DataObject) -> None:
        """A bare `peek`."""
        self._tell(data.draw(st.sampled_from(self._free)), b"peek\r\n", b"peek-buried\r\n")

    @precondition(lambda self: self._free)
    @rule(data=st.data())
    def ask_about_a_job(self, data: st.DataObject) -> None:
        """What v1 shows is among what the other shows."""
        at, job = data.draw(st.sampled_from(self._free)), self._pick_job(data)
        old, modern = self.pairs[at]
        some, all_ = old.ask(b"stats %d\r\n" % job), modern.ask(b"stats-job %d\r\n" % job)
        if some == b"NOT_FOUND\r\n":
            assert all_ == some
        else:
            assert document(some).items() <= document(all_).items()

    # What others do, and time.

    @rule(command=st.sampled_from(THIRD))
    def act_the_modern_way(self, command: bytes) -> None:
        """The same on both servers, if it does not wait."""
        if not self.third[0].protocol.connection.session.is_blocked:
            for client in self.third:
                client.send(command)
        self._advance(0)

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        """Delays, pauses and TTRs end."""
        self._advance(seconds)

    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        """A client vanishes, and another comes."""
        at = data.draw(st.integers(0, OLD - 1))
        for client in self.pairs[at]:
            client.hang_up()
        self.pairs[at] = (self.servers[0].connect("v1"), self.servers[1].connect())
        self.asked[at] = ""
        self._advance(0)

    @precondition(lambda self: self.is_logged)
    @rule()
    def kill(self) -> None:
        """Both servers begin anew on their logs."""
        for server in self.servers:
            server.kill_and_restart()
        self._connect()

    @invariant()
    def the_jobs_are_the_same(self) -> None:
        """All that is known of each of them."""
        if hasattr(self, "servers"):
            assert self._views(0) == self._views(1)
            tallies = [server.service.queue.tally for server in self.servers]
            for key in ("timeouts", "total_jobs", "connected", "producers", "workers", "waiting"):
                assert getattr(tallies[0], key) == getattr(tallies[1], key)

    def teardown(self) -> None:
        """See what the two count."""
        if hasattr(self, "servers"):
            old = document(self.servers[0].connect("v1").ask(b"stats\r\n"))
            modern = document(self.servers[1].connect().ask(b"stats\r\n"))
            assert {key: old[key] for key in SERVER_KEYS} == {
                key: modern[key] for key in SERVER_KEYS
            }


def document(reply: bytes) -> dict[str, str]:
    """Read an answer in YAML."""
    return dict(yaml.read_mapping(reply.partition(b"\r\n")[2].removesuffix(b"\r\n")))


def test_a_conversation_in_v1_does_what_its_translation_does() -> None:
    examples = max(settings().max_examples // 2, 1)
    run_state_machine_as_test(
        Translation, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None)
    )
