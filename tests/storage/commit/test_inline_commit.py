"""Syncs in the reactor's thread: when they are done there, and what it changes for others."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest
from twisted.internet.defer import Deferred

from beanstalk_twisted.binlog.errors import NoSpace, WriteFailed
from beanstalk_twisted.storage.commit_states import SPACE_RETRY_S
from beanstalk_twisted.storage.fsync import (
    ALWAYS,
    LESSONS,
    MAX_BATCH_BYTES,
    NEVER,
    FsyncPolicy,
    InlineSyncPolicy,
)
from beanstalk_twisted.storage.group_commit import IDLE_FLUSH_S, GroupCommit
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.hand_reactor import Wire
from tests.held_io import HeldIo
from tests.server.connections.test_epoll_reader import PUT, HubServer
from tests.storage.commit.test_group_commit import Bench

T = TypeVar("T")

QUICK_S = 0.000_1
SLOW_S = 0.001


class TwoWays(HeldIo):
    """An `Io` whose thread works when the test says so, and that does at once what is to be; it
    notes which way each piece went.

    :ivar ways: "here" or "thread", for each piece.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ways: list[str] = []

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """See `Io.run`."""
        self.ways.append("thread")
        return super().run(work)

    @property
    def is_free(self) -> bool:
        """See `Io.is_free`."""
        return not self

    def call(self, work: Callable[[], T]) -> T:
        """See `Io.call`."""
        self.ways.append("here")
        return work()


class InlineBench(Bench):
    """A committer that may do work at once, on a disk of which enough is known.

    :ivar sync_s: how long a sync takes.
    :ivar switches: which way each end and each beginning of a segment went.
    """

    io: TwoWays

    def __init__(self, policy: FsyncPolicy = ALWAYS, *, is_known: bool = True) -> None:
        self.sync_s = QUICK_S
        self.switches: list[str] = []
        super().__init__(policy, segment_bytes=1 << 20, io=TwoWays())
        if is_known:
            self.learn()

    def learn(self) -> None:
        """Let the thread do enough syncs."""
        for _ in range(LESSONS):
            self.put()
            self.finish_io()
        self.io.ways.clear()
        self.operations.clear()
        self.acknowledged.clear()

    def _committer(self, policy: FsyncPolicy) -> GroupCommit:
        return GroupCommit(
            self.log, self.writer, self._environment(), policy, self._events(),
            InlineSyncPolicy(),
        )  # fmt: skip

    def _note(self, operation: str, name: str) -> None:
        super()._note(operation, name)
        if operation in ("truncate", "rename"):
            self.switches.append(self.io.ways[-1])
        if operation == "sync":
            # Not `advance`: nothing else can happen meanwhile.
            self.clock.rightNow += self.sync_s

    def put_and_turn(self, body: bytes = b"body") -> str:
        """Append a record that one reply waits for, and end the turn.

        :return: which way it went.
        """
        self.put(body)
        self.turn()
        return self.io.ways[-1]


# When.


def test_a_new_disk_is_left_to_the_thread_until_it_is_known() -> None:
    bench = InlineBench(is_known=False)
    ways = []
    for _ in range(LESSONS + 2):
        ways.append(bench.put_and_turn())
        bench.finish_io()
    assert ways == ["thread"] * LESSONS + ["here"] * 2


def test_what_clients_wait_for_is_durable_and_acknowledged_when_the_turn_is_over() -> None:
    bench = InlineBench()
    lsn = bench.put()
    bench.turn()
    assert (bench.io.ways, bench.operations) == (["here"], ["write", "sync"])
    assert bench.acknowledged == [lsn] == [bench.log.durable_lsn]


def test_alone_it_is_left_to_the_thread() -> None:
    bench = InlineBench()
    bench.reserve()
    bench.turn()
    bench.clock.advance(IDLE_FLUSH_S)
    bench.finish_io()
    assert (bench.io.ways, bench.operations) == (["thread"], ["write"])


@pytest.mark.parametrize(("extra", "way"), [(0, "here"), (1, "thread")])
def test_a_long_batch_goes_to_the_thread(extra: int, way: str) -> None:
    bench = InlineBench()
    # A frame's header and a record; see docs/binlog-format.md.
    others = 64 + 80
    assert bench.put_and_turn(b"x" * (MAX_BATCH_BYTES - others + extra)) == way


def test_a_disk_that_has_become_slow_has_the_thread_again_until_it_is_quick() -> None:
    bench = InlineBench()
    bench.sync_s = SLOW_S
    slow = []
    for _ in range(20):
        slow.append(bench.put_and_turn())
        bench.finish_io()
    assert slow[0] == "here" and slow[4:] == ["thread"] * 16
    bench.sync_s = QUICK_S
    quick = []
    for _ in range(40):
        quick.append(bench.put_and_turn())
        bench.finish_io()
    assert quick[0] == "thread" and quick[-10:] == ["here"] * 10


def test_while_the_thread_works_the_next_batch_waits_for_it() -> None:
    bench = InlineBench()
    bench.put_and_turn(bytes(MAX_BATCH_BYTES))
    bench.put_and_turn()
    assert bench.io.ways == ["thread"] and len(bench.io) == 1
    bench.io.step()
    assert bench.io.ways == ["thread", "here"]


def test_the_sync_mark_is_left_to_the_thread() -> None:
    bench = InlineBench()
    bench.put_and_turn()
    bench.clock.advance(IDLE_FLUSH_S)
    assert bench.io.ways == ["here", "thread"]


@pytest.mark.parametrize("policy", [FsyncPolicy(0.25), NEVER])
def test_where_replies_wait_for_no_sync_nothing_is_changed(policy: FsyncPolicy) -> None:
    bench = InlineBench(policy)
    briefs = bench.io.briefs
    assert bench.put_and_turn() == "thread"
    assert bench.io.briefs == briefs + 1


def test_a_segment_is_begun_by_the_thread() -> None:
    bench = InlineBench()
    for _ in range(60):
        bench.put(b"x" * 40_000)
        bench.finish_io()
    assert bench.io.ways.count("here") > 30
    assert bench.switches and set(bench.switches) == {"thread"}


def test_a_stop_is_left_to_the_thread() -> None:
    bench = InlineBench()
    bench.put()
    bench.committer.finish()
    assert bench.io.ways == ["thread"]


# What comes of it.


def test_what_is_set_off_by_the_first_batch_of_a_turn_goes_to_the_thread() -> None:
    bench = InlineBench()
    depths: list[int] = []

    def again() -> None:
        depths.append(len(bench.io.ways))
        if len(depths) < 5:
            bench.put()

    bench.on_acknowledge = again
    bench.put_and_turn()
    assert bench.io.ways == ["here", "thread"]
    bench.finish_io()
    assert len(depths) == 5


def test_a_batch_that_finds_no_space_waits_as_ever() -> None:
    bench = InlineBench()

    def full(operation: str, name: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    bench.directory.fault = full
    bench.put_and_turn()
    assert bench.io.ways == ["here"] and bench.acknowledged == []
    assert bench.told[-1] is not None and bench.told[-1].check(NoSpace)
    bench.directory.fault = bench._note
    bench.clock.advance(SPACE_RETRY_S)
    bench.finish_io()
    assert bench.io.ways[1] == "thread" and bench.acknowledged == [bench.log.last_lsn]


def test_a_sync_that_fails_ends_the_server() -> None:
    bench = InlineBench()
    bench.fail("sync")
    bench.put_and_turn()
    assert bench.io.ways == ["here"] and bench.acknowledged == []
    assert [failure.type for failure in bench.failures] == [WriteFailed]


# A server.


class OnDisk(MemoryServer):
    """A server whose disk works when the test says so."""

    disk: TwoWays

    def settle(self) -> None:
        """Let the disk do all that it is asked for."""
        self.advance()
        while self.disk:
            self.disk.step()
            self.advance()


class Recorded(OnDisk):
    """A server on a disk that takes no time, and which way each piece of work went."""

    def __init__(self, inline_us: int = 300) -> None:
        self.disk = TwoWays()
        super().__init__(directory=MemoryDirectory(), io=lambda: self.disk, is_started=False)
        self.settings = self.settings._replace(fsync_inline_us=inline_us)
        self.start()

    def learn(self) -> None:
        """A client alone puts enough jobs for the disk to be known."""
        client = self.connect()
        for _ in range(LESSONS + 1):
            client.send(PUT)
            self.settle()
        client.take()
        self.disk.ways.clear()


def test_a_client_is_answered_in_the_turn_in_which_it_asks() -> None:
    server = Recorded()
    server.learn()
    client, idle = server.connect(), server.connect()
    client.send(PUT)
    server.advance()
    assert client.take().startswith(b"INSERTED ")
    assert server.disk.ways == ["here"]
    assert idle.ask(b"list-tube-used\r\n") == b"USING default\r\n"


def test_with_0_a_client_waits_for_the_thread_and_others_are_served() -> None:
    server = Recorded(inline_us=0)
    server.learn()
    client, other = server.connect(), server.connect()
    client.send(PUT)
    server.advance()
    assert (server.disk.ways, client.take()) == (["thread"], b"")
    assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"


class RecordedHub(OnDisk, HubServer):
    """The same, with a hub."""

    def __init__(self) -> None:
        self.disk = TwoWays()
        super().__init__(directory=MemoryDirectory(), io=lambda: self.disk)

    def learn_with(self, wire: Wire) -> None:
        """A client alone puts enough jobs for the disk to be known."""
        self.hear(wire, PUT)
        for _ in range(LESSONS + 1):
            self.call_hub()
            self.settle()
            wire.far.send(PUT)
        self.call_hub()
        self.settle()
        self.disk.ways.clear()
        wire.read()


def test_a_reply_leaves_before_what_its_commit_sets_off_is_done() -> None:
    server = RecordedHub()
    wire = Wire(server.reactor)
    figures = server.service.log_figures()
    assert figures is not None
    counts = figures.commits.syncs.counts
    server.learn_with(wire)
    before = sum(counts)
    when_sent: list[int] = []
    cast(Any, wire.transport).socket.sends = lambda: when_sent.append(sum(counts))
    wire.far.send(PUT)
    server.call_hub()
    assert (server.disk.ways, when_sent) == (["here"], [before])
    assert sum(counts) == before + 1
    wire.close()


@pytest.mark.parametrize("count", [1, 2, 20])
def test_all_sockets_of_a_turn_share_one_sync_and_are_answered_in_it(count: int) -> None:
    server = RecordedHub()
    wires = [Wire(server.reactor)]
    server.learn_with(wires[0])
    for _ in range(count - 1):
        wires.append(Wire(server.reactor))
        server.hear(wires[-1], PUT)
    server.call_hub()
    server.settle()
    for wire in wires:
        wire.read()
        wire.far.send(PUT)
    server.disk.ways.clear()
    server.call_hub()
    assert server.disk.ways == ["here"]
    assert all(wire.read().startswith(b"INSERTED ") for wire in wires)
    for wire in wires:
        wire.close()


def test_a_client_that_never_rests_lets_the_reactor_have_its_turns() -> None:
    server = RecordedHub()
    wire = Wire(server.reactor)
    server.hear(wire, *[PUT] * 1000)

    for _ in range(LESSONS + 1):
        server.call_hub()
        server.settle()
    server.disk.ways.clear()
    # Each operation on the disk takes a while, by the server's clock.
    assert isinstance(server.directory, MemoryDirectory)
    server.directory.fault = lambda operation, name: setattr(
        server.clock, "rightNow", server.clock.rightNow + QUICK_S
    )
    server.call_hub()
    assert 2 <= len(server.disk.ways) <= 20 and set(server.disk.ways) == {"here"}
    wire.close()
