"""A whole server on a disk that is full: what clients hear, what its log says, and that nothing
that was answered is lost, whatever happens next.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import LogEvent, capturedLogs

from beanstalk_twisted.storage.commit_states import SPACE_RETRY_S
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.sampling import share

SEGMENT_BYTES = 1 << 14
SPACE_BYTES = 10 * SEGMENT_BYTES
BODY = b"x" * 500
LARGE = BODY * 20


class Bounded:
    """A server on a disk with so much space, and what its clients were promised.

    :ivar promised: the jobs that must be there after a crash.
    """

    def __init__(
        self, space: int | None = SPACE_BYTES, fsync: FsyncPolicy = ALWAYS,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:  # fmt: skip
        self.directory = MemoryDirectory()
        self.directory.space = space
        self.server = MemoryServer(
            directory=self.directory, fsync=fsync, segment_bytes=segment_bytes
        )
        self.client = self.server.connect()
        self.promised: set[int] = set()

    def ask(self, request: bytes, client: Client | None = None) -> bytes:
        client = client or self.client
        client.send(request)
        output = b""
        for _ in range(200):
            self.server.advance(0.01)
            output += client.take()
            if output:
                return output
        raise AssertionError(f"no reply to {request[:60]!r}")

    def put(self, body: bytes = BODY) -> bool:
        """Put a job.

        :return: whether it was taken.
        """
        reply = self.ask(b"put 5 0 60 %d\r\n%s\r\n" % (len(body), body))
        if reply == b"OUT_OF_MEMORY\r\n":
            return False
        assert reply.startswith(b"INSERTED "), reply
        self.promised.add(int(reply.split()[1]))
        return True

    def fill(self, body: bytes = BODY) -> None:
        for _ in range(5000):
            if not self.put(body):
                return
        raise AssertionError("it is never full")

    def delete(self, job_id: int) -> None:
        reply = self.ask(b"delete %d\r\n" % job_id)
        assert reply == b"DELETED\r\n", reply
        self.promised.remove(job_id)

    def delete_all(self) -> None:
        for job_id in sorted(self.promised):
            self.delete(job_id)

    @property
    def jobs(self) -> set[int]:
        return set(self.server.service.queue.state.jobs)

    def used(self) -> int:
        directory = self.server.directory
        assert directory is not None
        return sum(len(directory.read(name)) for name in directory.names())

    def check(self) -> None:
        assert not self.server.failures
        assert self.jobs == self.promised
        assert self.directory.space is None or self.used() <= self.directory.space

    def kill_and_restart(self) -> None:
        """Another process begins on what this one has left."""
        self.server.kill_and_restart()
        assert isinstance(self.server.directory, MemoryDirectory)
        self.directory = self.server.directory
        self.client = self.server.connect()
        assert self.jobs == self.promised


def said(events: Sequence[LogEvent]) -> list[str]:
    lines = [event["log_format"].format(**event) for event in events if event.get("log_format")]
    return [line for line in lines if "space" in line]


@pytest.mark.parametrize("fsync", [ALWAYS, FsyncPolicy(0.05), NEVER])
def test_a_full_disk_refuses_new_jobs_and_serves_the_rest(fsync: FsyncPolicy) -> None:
    bounded = Bounded(fsync=fsync)
    bounded.fill()
    bounded.check()
    assert bounded.promised
    reserved = bounded.ask(b"reserve\r\n")
    assert reserved.startswith(b"RESERVED 1 500\r\n")
    assert bounded.ask(b"touch 1\r\n") == b"TOUCHED\r\n"
    assert bounded.ask(b"peek 2\r\n").startswith(b"FOUND 2 ")
    assert bounded.ask(b"stats\r\n").startswith(b"OK ")
    bounded.delete(1)
    bounded.check()


def test_each_state_of_the_disk_is_told_once() -> None:
    with capturedLogs() as events:
        bounded = Bounded()
        bounded.fill()
        bounded.server.advance(20)
        told = said(events)
        assert len(told) == len(set(told)) <= 3
        assert "no space for another segment: No space left on device; nothing was lost" in told[0]
        assert told[0].split()[-4].isdigit(), "how much is left"
        bounded.directory.space = None
        bounded.server.advance(20)
        full, *after = said(events)
        assert "Free some space; it is tried again every second. " in full
        assert full.endswith(" bytes are left.") and "start" not in full
        assert after == ["binlog (memory): there is space again"]


def test_space_that_is_taken_again_at_once_is_not_told() -> None:
    with capturedLogs() as events:
        bounded = Bounded()
        bounded.fill(LARGE)
        told = said(events)
        for times in range(1, 6):
            bounded.directory.space = (2 + times) * SPACE_BYTES
            bounded.server.advance(SPACE_RETRY_S)
            assert bounded.put(LARGE)
            bounded.fill(LARGE)
        assert said(events) == told


def test_commands_behind_a_put_that_waits_are_carried_out_after_it() -> None:
    bounded = Bounded(space=None)
    body = b"y" * 60_000
    request = b"put 0 0 60 60000\r\n%s\r\nreserve\r\nlist-tube-used\r\n" % body
    bounded.client.send(request)
    bounded.server.advance(1)
    replies = bounded.client.take()
    assert replies == b"INSERTED 1\r\nRESERVED 1 60000\r\n%s\r\nUSING default\r\n" % body


def test_who_leaves_while_its_put_waits_leaves_nothing() -> None:
    bounded = Bounded(space=None)
    bounded.client.send(b"put 0 0 60 60000\r\n" + b"y" * 60_000 + b"\r\n")
    bounded.client.hang_up()
    bounded.server.advance(1)
    bounded.client = bounded.server.connect()
    bounded.check()
    assert bounded.put()


def test_a_job_for_which_the_disk_has_no_file_is_refused_and_smaller_ones_are_taken() -> None:
    bounded = Bounded(space=5 * SEGMENT_BYTES)
    assert not bounded.put(b"y" * 65_535)
    bounded.server.advance(2 * SPACE_RETRY_S)
    assert bounded.put(b"y" * 100)
    bounded.check()


def test_what_was_not_logged_on_a_full_disk_costs_a_counter_and_never_a_job() -> None:
    bounded = Bounded()
    bounded.fill()
    narrow(bounded)
    assert bounded.ask(b"reserve\r\n").startswith(b"RESERVED ")
    job_id = min(bounded.promised)
    before = reserves_of(bounded, job_id)
    bounded.directory.space = None
    bounded.kill_and_restart()
    assert b"state: ready\n" in bounded.ask(b"stats-job %d\r\n" % job_id)
    assert reserves_of(bounded, job_id) < before


def reserves_of(bounded: Bounded, job_id: int) -> int:
    facts = bounded.ask(b"stats-job %d\r\n" % job_id)
    return int(facts.partition(b"reserves: ")[2].split()[0])


def narrow(bounded: Bounded) -> None:
    """Use up what is left for changes, while somebody else takes all that compaction frees."""
    bounded.directory.space = 0
    for _ in range(5000):
        job_id = min(bounded.promised)
        bounded.ask(b"reserve-job %d\r\n" % job_id)
        if bounded.ask(b"release %d 0 0\r\n" % job_id) == b"OUT_OF_MEMORY\r\n":
            bounded.client.hang_up()
            bounded.client = bounded.server.connect()
            return
    raise AssertionError("there is always room")


def test_changes_end_before_deletions_do_and_go_on_when_there_is_space() -> None:
    bounded = Bounded()
    bounded.fill()
    narrow(bounded)
    job_id = min(bounded.promised)
    bounded.ask(b"reserve-job %d\r\n" % job_id)
    for refused in (b"bury %d 1\r\n", b"release %d 0 0\r\n"):
        assert bounded.ask(refused % job_id) == b"OUT_OF_MEMORY\r\n"
    assert bounded.ask(b"pause-tube default 10\r\n") == b"OUT_OF_MEMORY\r\n"
    bounded.directory.space = None
    bounded.server.advance(SPACE_RETRY_S)
    assert bounded.ask(b"bury %d 1\r\n" % job_id) == b"BURIED\r\n"
    bounded.delete_all()
    bounded.check()


def test_many_tubes_on_a_full_disk_leave_room_for_the_end_of_all_jobs() -> None:
    bounded = Bounded(space=40 * SEGMENT_BYTES)
    for number in range(5000):
        bounded.ask(b"use %s%04d\r\n" % (b"t" * 190, number))
        if not bounded.put(b"x"):
            break
    else:
        raise AssertionError("it is never full")
    assert number > 45
    bounded.delete_all()
    bounded.check()
    bounded.server.advance(5)
    assert bounded.put()


TRAFFIC = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([0, 100, 700, 3000, 9000, 20_000])),
        st.tuples(st.just("fill"), st.sampled_from([200, 3000, 9000])),
        st.tuples(st.just("delete"), st.integers(0, 1000)),
        st.tuples(st.just("delete many"), st.integers(2, 10)),
        st.tuples(st.just("release"), st.integers(0, 1000)),
        st.tuples(st.just("bury"), st.integers(0, 1000)),
        st.tuples(st.just("kick"), st.integers(1, 100)),
        st.tuples(st.just("use"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 2])),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    max_size=25,
)


def act(bounded: Bounded, action: str, number: int) -> None:
    """Let a client do something, or somebody to the server."""
    ids = sorted(bounded.promised)
    match action:
        case "put":
            bounded.put(b"x" * number)
        case "fill":
            bounded.fill(b"x" * number)
        case "delete" if ids:
            bounded.delete(ids[number % len(ids)])
        case "delete many":
            for job_id in ids[::number]:
                bounded.delete(job_id)
        case "release" | "bury" if ids:
            job_id = ids[number % len(ids)]
            bounded.ask(b"reserve-job %d\r\n" % job_id)
            end = b" 7 0\r\n" if action == "release" else b" 7\r\n"
            bounded.ask(b"%s %d%s" % (action.encode(), job_id, end))
        case "kick":
            bounded.ask(b"kick %d\r\n" % number)
        case "use":
            bounded.ask(b"use %d\r\n" % number)
        case "wait":
            bounded.server.advance(number)
        case "kill":
            bounded.kill_and_restart()


@pytest.mark.parametrize("kills", range(3))
def test_what_a_start_writes_again_makes_no_later_segment_larger(kills: int) -> None:
    bounded = Bounded(space=6 * SEGMENT_BYTES)
    bounded.put(b"x" * 9000)
    for _ in range(kills):
        bounded.kill_and_restart()
    bounded.fill(b"x" * 200)
    bounded.delete_all()
    bounded.server.advance(10)
    assert bounded.put(b"once more")
    bounded.check()


@settings(deadline=None, max_examples=share(60))
@given(st.sampled_from([6, 8, 13]), TRAFFIC)
def test_whatever_is_done_on_a_small_disk_every_job_can_be_deleted_and_new_ones_come(
    segments: int, traffic: list[tuple[str, int]]
) -> None:
    bounded = Bounded(space=segments * SEGMENT_BYTES)
    for action, number in traffic:
        act(bounded, action, number)
        bounded.check()
    bounded.delete_all()
    bounded.check()
    bounded.server.advance(10)
    assert bounded.put(b"once more")
    bounded.check()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("after", range(40))
def test_a_kill_at_any_operation_of_a_full_disk_loses_nothing_that_was_answered(
    after: int,
) -> None:
    bounded = Bounded(space=6 * SEGMENT_BYTES)
    bounded.fill(b"x" * 2000)
    directory, last = bounded.directory, bounded.directory.operations + after
    left: list[MemoryDirectory] = []
    sure, doubtful = set(bounded.promised), 0

    def fault(operation: str, name: str) -> None:
        if directory.operations > last and not left:
            left.append(directory.after_kill())
            left.append(directory.after_power_loss())

    directory.fault = fault
    while not left:
        sure, doubtful = set(bounded.promised), min(bounded.promised, default=0)
        if doubtful:
            bounded.delete(doubtful)
        else:
            bounded.fill(b"x" * 2000)
    for found in left:
        found.space = directory.space
        bounded.server.directory = found
        bounded.server.kill_and_restart()
        jobs = set(bounded.server.service.queue.state.jobs)
        assert not bounded.server.failures
        assert sure - {doubtful} <= jobs <= sure | bounded.promised


@pytest.mark.parametrize("order", ["oldest first", "newest first", "from both ends"])
@pytest.mark.parametrize("size", [10_000, 15_900, 40_000])
def test_large_jobs_are_deleted_in_any_order_while_something_else_takes_what_is_freed(
    size: int, order: str
) -> None:
    run = Bounded(space=40 * size)
    for _ in range(20):
        assert run.put(b"x" * size)
    ids = sorted(run.promised)
    if order == "newest first":
        ids.reverse()
    elif order == "from both ends":
        ids = [each for pair in zip(ids[:10], ids[:9:-1], strict=True) for each in pair]
    for job_id in ids:
        names = run.directory.names()
        run.directory.space = sum(len(run.directory.read(name)) for name in names)
        assert run.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
        run.server.advance(3)
    run.directory.space = None
    run.server.advance(2 * SPACE_RETRY_S)
    assert run.put(b"x" * size)


def test_a_group_that_ends_on_a_full_disk_lets_jobs_go_as_soon_as_there_is_room() -> None:
    bounded = Bounded()
    for tags in (b"grp:g", b"aft:g"):
        reply = bounded.ask(b"put 5 0 60 1 %s\r\nx\r\n" % tags)
        bounded.promised.add(int(reply.split()[1]))
    bounded.fill()
    assert bounded.ask(b"reserve-job 3\r\n").startswith(b"RESERVED ")
    while bounded.ask(b"release 3 5 0\r\n") == b"RELEASED\r\n":
        bounded.ask(b"reserve-job 3\r\n")
    bounded.delete(1)
    group = b"stats-group g\r\n"
    assert b"complete: true\nwaiting-jobs: 1\n" in bounded.ask(group)
    bounded.check()
    for job_id in sorted(bounded.promised - {2}):
        bounded.delete(job_id)
    bounded.server.advance(2 * SPACE_RETRY_S)
    assert bounded.ask(group) == b"NOT_FOUND\r\n"
    bounded.check()
    bounded.server.kill_and_restart()
    bounded.client = bounded.server.connect()
    assert bounded.ask(b"reserve-with-timeout 0\r\n").startswith(b"RESERVED 2 ")
    bounded.check()
