"""Group commit: what goes to disk together, when replies may go, and what happens when the disk
fails.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.batches import Opening, Position
from beanstalk_twisted.binlog.errors import NoSpace, WriteFailed
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Start, TubeDef
from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES, RECORD_BYTES
from beanstalk_twisted.binlog.space_budget import Demand
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.storage.commit_states import SPACE_RETRY_S
from beanstalk_twisted.storage.environment import CommitEvents, Environment, SlowSync
from beanstalk_twisted.storage.fail_stop import FailStop
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, RELAXED_SYNC_S, FsyncPolicy
from beanstalk_twisted.storage.group_commit import (
    IDLE_FLUSH_S,
    LARGE_BYTES,
    MAX_RELAXED_BYTES,
    MAX_UNACKNOWLEDGED_BYTES,
    GroupCommit,
)
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.sampling import share

INTERVAL_S = 0.25
SLOW_NS = 100_000_000
PERIODIC = FsyncPolicy(INTERVAL_S)
POLICIES = pytest.mark.parametrize("policy", [ALWAYS, PERIODIC, NEVER])


class Bench:
    """A committer on a new log.

    :ivar jobs: how many were put.
    :ivar operations: what was asked of the disk since the log was opened.
    :ivar acknowledged: what the committer said, each time.
    :ivar failures: the same, when it gave up.
    :ivar demand: what the queue wants room for.
    :ivar slow: what took the disk long.
    :ivar told: what was said of the room: why there is none, or None for more.
    """

    def __init__(
        self, policy: FsyncPolicy, segment_bytes: int = 1 << 16, is_prepared: bool = True,
        io: HeldIo | None = None,
    ) -> None:  # fmt: skip
        """:param is_prepared: whether the room that is always kept ready is there already."""
        self.clock = Clock()
        self.io = HeldIo() if io is None else io
        self.directory = MemoryDirectory()
        self.operations: list[str] = []
        self.acknowledged: list[int] = []
        self.failures: list[Failure] = []
        self.demand = Demand()
        self.told: list[Failure | None] = []
        self.slow: list[SlowSync] = []
        self.jobs = 0
        position = Position(1, 1, 0, 1, b"u" * 16, 1, 1, 0)
        self.log = Log(position, segment_bytes, self._opening, lambda: 7, "test")
        self.writer = Writer(self.directory)
        self._begin_as_a_start_does()
        if is_prepared:
            self._prepare()
        self.on_acknowledge: Callable[[], None] = self._note_acknowledgeable
        self.committer = self._committer(policy)
        self.directory.fault = self._note

    def _opening(self, segment: int, now_ns: int) -> Opening:
        return Opening(self.jobs + 1, [TubeDef(1, b"default", now_ns)])

    def _begin_as_a_start_does(self) -> None:
        self.log.append(Start(0, 1, 2, 0))
        batch = self.log.take(0)
        assert batch is not None
        self.writer.write(batch, sync=True)
        self.log.durable(batch.last_lsn)

    def _prepare(self) -> None:
        while (spare := self.log.budget.wanted(Demand())) is not None:
            self.writer.prepare(spare)
            self.log.budget.add(spare)

    def _committer(self, policy: FsyncPolicy) -> GroupCommit:
        return GroupCommit(
            self.log, self.writer, self._environment(), policy, self._events(), slow_ns=SLOW_NS
        )  # fmt: skip

    def _environment(self) -> Environment:
        clock = LogClock(lambda: 0, lambda: round(self.clock.seconds() * NS))
        failed = FailStop(self.failures.append)
        return Environment(self.directory, self.io, self.io, self.clock, clock, failed)

    def _events(self) -> CommitEvents:
        return CommitEvents(
            acknowledge=lambda: self.on_acknowledge(), demand=lambda: self.demand,
            space_changed=self.told.append, slow=self.slow.append, count_waiting=lambda: 3,
        )  # fmt: skip

    def wait_for(self, demand: Demand) -> None:
        """Want room, since a job was refused."""
        assert not self.log.budget.takes_put(1 << 40, demand.jobs)
        self.demand = demand

    def _note_acknowledgeable(self) -> None:
        self.acknowledged.append(self.committer.acknowledgeable_lsn)

    def _note(self, operation: str, name: str) -> None:
        self.operations.append(operation)

    def put(self, body: bytes = b"body") -> int:
        self.jobs += 1
        ready, client = State.READY, Reason.CLIENT
        image = JobImage(Kind.PUT, ready, client, 0, self.jobs, 0, 0, 0, 60, 1, body=body)
        return self._append(image)

    def reserve(self) -> int:
        reserved, client = State.RESERVED, Reason.CLIENT
        return self._append(JobImage(Kind.RESERVE, reserved, client, 0, 1, 0, 9, 0, 60, 1))

    def _append(self, image: JobImage) -> int:
        lsn = self.log.append(image)
        self.committer.schedule()
        return lsn

    def turn(self) -> None:
        self.clock.advance(0)

    def finish_io(self) -> None:
        """Let the disk do all that it was and will be asked for in this turn."""
        self.turn()
        while self.io:
            self.io.step()
            self.turn()

    def commit(self) -> int:
        """Put a job, and let it become durable as the policy says."""
        lsn = self.put()
        self.finish_io()
        return lsn

    def schedule(self) -> None:
        """Let the committer look for something to do, and do it."""
        self.committer.schedule()
        self.finish_io()

    def wait(self, seconds: float) -> None:
        """Let time pass, and the disk do what it is asked for then."""
        self.clock.advance(seconds)
        self.finish_io()

    def jobs_after_power_loss(self) -> set[int]:
        """Give the ids of the jobs that survive one at this moment."""
        return jobs_in(self.directory.after_power_loss())

    def fail(self, operation: str) -> None:
        def fault(asked: str, name: str) -> None:
            self.operations.append(asked)
            if asked == operation:
                raise OSError(errno.EIO, "Input/output error")

        self.directory.fault = fault


def read(directory: MemoryDirectory) -> replay.Replay:
    return replay.read(directory, lambda done, total: None)


def jobs_in(directory: MemoryDirectory) -> set[int]:
    return {image.job_id for image, _, _ in read(directory).survivors(0)}


# What goes together.


def test_what_one_turn_appends_is_written_together_and_at_its_end() -> None:
    bench = Bench(ALWAYS)
    bench.put(), bench.put()
    assert not bench.io
    last = bench.commit()
    assert bench.operations == ["write", "sync"]
    assert bench.acknowledged == [last]


def test_what_arrives_during_a_sync_makes_one_next_batch() -> None:
    bench = Bench(ALWAYS)
    first = bench.put()
    bench.turn()
    for _ in range(5):
        last = bench.put()
        bench.turn()
    assert len(bench.io) == 1
    bench.io.step()
    assert bench.acknowledged == [first]
    assert bench.jobs_after_power_loss() == {1}
    assert len(bench.io) == 1
    bench.io.step()
    assert bench.acknowledged == [first, last]
    assert bench.operations == ["write", "sync"] * 2


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_large_and_has_come_with_the_end_of_a_write_has_a_turn_of_its_own(
    more: int,
) -> None:
    bench = Bench(ALWAYS, segment_bytes=4 * LARGE_BYTES)
    bench.put()
    bench.turn()
    bench.put(bytes(LARGE_BYTES - RECORD_BYTES + more))
    assert bench.log.open_bytes == LARGE_BYTES + more
    bench.io.step()
    assert len(bench.io) == 1 - more
    bench.turn()
    assert len(bench.io) == 1
    bench.finish_io()
    assert bench.jobs_after_power_loss() == {1, 2}


# When replies go.


def durable_after(bench: Bench, seconds: float) -> int:
    """Give what the log on disk says to be durable when so much time has passed."""
    bench.wait(seconds)
    return read(bench.directory.after_kill()).survey.durable_lsn


def test_always_syncs_what_no_reply_waits_for_in_time_and_once() -> None:
    bench = Bench(ALWAYS)
    lsn = bench.reserve()
    assert durable_after(bench, IDLE_FLUSH_S) < lsn
    assert durable_after(bench, RELAXED_SYNC_S - 0.001) < lsn
    assert bench.operations == ["write"]
    assert durable_after(bench, 0.002) < lsn
    assert bench.operations == ["write", "sync"]
    assert durable_after(bench, IDLE_FLUSH_S) == lsn
    assert durable_after(bench, 3600) == lsn
    assert bench.operations == ["write", "sync", "write"], "the mark that says so is the last"
    assert bench.clock.getDelayedCalls() == []


def test_an_interval_settles_what_is_written_and_syncs_in_time() -> None:
    bench = Bench(PERIODIC)
    lsn = bench.commit()
    assert (bench.operations, bench.acknowledged) == (["write"], [lsn])
    assert (bench.jobs_after_power_loss(), jobs_in(bench.directory.after_kill())) == (set(), {1})
    bench.clock.advance(INTERVAL_S - 0.001)
    assert not bench.io
    bench.wait(0.001)
    assert bench.operations == ["write", "sync"]
    assert bench.jobs_after_power_loss() == {1}


def test_an_interval_is_kept_while_the_disk_is_never_idle() -> None:
    bench = Bench(PERIODIC)
    bench.put()
    bench.turn()
    for _ in range(40):
        bench.put()
        bench.clock.advance(INTERVAL_S / 10)
        bench.io.step()
        assert bench.io
    assert len(bench.jobs_after_power_loss()) >= 25


def test_never_syncs_only_when_a_segment_or_the_server_ends() -> None:
    bench = Bench(NEVER)
    lsn = bench.commit()
    bench.reserve()
    bench.wait(IDLE_FLUSH_S)
    bench.wait(3600)
    assert (bench.operations, bench.acknowledged[:1]) == (["write", "write"], [lsn])
    bench.committer.finish()
    bench.finish_io()
    assert bench.jobs_after_power_loss() == {1}


@POLICIES
def test_replies_go_on_when_segments_end_in_between(policy: FsyncPolicy) -> None:
    bench = Bench(policy, MIN_SEGMENT_BYTES)
    for _ in range(20):
        lsn = bench.put(b"x" * 2000)
        bench.finish_io()
        assert bench.committer.acknowledgeable_lsn >= lsn
    assert len([name for name in bench.directory.names() if name.endswith(".tql")]) > 3
    assert jobs_in(bench.directory.after_kill()) == set(range(1, 21))


def test_exactly_the_limit_waiting_for_the_disk_is_no_congestion_yet() -> None:
    bench = Bench(ALWAYS, 2 * MAX_UNACKNOWLEDGED_BYTES)
    bench.put(b"x" * (MAX_UNACKNOWLEDGED_BYTES - 80))
    assert not bench.committer.is_congested
    bench.reserve()
    assert bench.committer.is_congested
    bench.finish_io()
    assert not bench.committer.is_congested


# The idle flush: relaxed records, and the sync mark.


def written_since(bench: Bench, lsn: int) -> int:
    """Give how many records a kill leaves behind this one."""
    position = read(bench.directory.after_kill()).position(b"u" * 16)
    return position.next_lsn - 1 - lsn


@POLICIES
def test_what_no_reply_waits_for_waits_for_what_one_does(policy: FsyncPolicy) -> None:
    bench = Bench(policy)
    lsn = bench.commit()
    written = bench.operations.count("write")
    for _ in range(3):
        bench.reserve()
        bench.finish_io()
    assert bench.operations.count("write") == written
    bench.commit()
    assert bench.operations.count("write") == written + 1
    assert written_since(bench, lsn) == 3 + 1


@POLICIES
def test_it_does_not_wait_longer_than_a_lull(policy: FsyncPolicy) -> None:
    bench = Bench(policy)
    lsn = bench.commit()
    bench.wait(IDLE_FLUSH_S)
    bench.reserve()
    bench.finish_io()
    bench.clock.advance(IDLE_FLUSH_S - 0.001)
    bench.reserve()
    bench.finish_io()
    assert written_since(bench, lsn) == 0
    bench.wait(0.001)
    assert written_since(bench, lsn) == 2


def test_nor_when_the_disk_is_busy_at_the_end_of_the_lull() -> None:
    bench = Bench(ALWAYS)
    bench.commit()
    lsn = bench.put()
    bench.turn()
    bench.reserve()
    bench.clock.advance(IDLE_FLUSH_S)
    assert len(bench.io) == 1 and written_since(bench, lsn) < 0, "the disk is busy"
    bench.io.step()
    assert len(bench.io) == 1, "it has the rest at once"
    bench.io.step()
    assert written_since(bench, lsn) == 1


def test_what_is_written_after_a_lull_vouches_for_the_commit_before_it() -> None:
    bench = Bench(ALWAYS)
    lsn = bench.commit()
    bench.reserve()
    bench.wait(IDLE_FLUSH_S)
    assert read(bench.directory.after_kill()).survey.durable_lsn >= lsn
    bench.wait(IDLE_FLUSH_S)
    assert bench.operations == ["write", "sync", "write"], "no mark is needed"


@pytest.mark.parametrize(("more", "writes"), [(0, 0), (1, 1)])
def test_many_of_them_are_written_without_waiting(more: int, writes: int) -> None:
    bench = Bench(ALWAYS)
    bench.commit()
    bench.operations.clear()
    record_bytes = 80
    for _ in range(MAX_RELAXED_BYTES // record_bytes + more):
        bench.reserve()
    bench.finish_io()
    assert bench.operations == ["write"] * writes


def test_a_sync_mark_follows_when_the_log_falls_idle() -> None:
    bench = Bench(ALWAYS)
    lsn = bench.commit()
    assert read(bench.directory.after_kill()).survey.durable_lsn < lsn
    bench.clock.advance(IDLE_FLUSH_S - 0.001)
    assert not bench.io
    bench.wait(0.001)
    assert bench.operations == ["write", "sync", "write"]
    bench.clock.advance(3600)
    assert (bench.operations[3:], bench.clock.getDelayedCalls()) == ([], [])
    assert read(bench.directory.after_kill()).survey.durable_lsn >= lsn


def test_no_sync_mark_is_written_while_there_is_something_else_to_write() -> None:
    bench = Bench(ALWAYS)
    bench.commit()
    bench.clock.advance(IDLE_FLUSH_S / 2)
    bench.put()
    bench.turn()
    bench.clock.advance(IDLE_FLUSH_S)
    assert len(bench.io) == 1
    bench.finish_io()
    assert bench.operations == ["write", "sync"] * 2
    bench.wait(IDLE_FLUSH_S)
    assert bench.operations == ["write", "sync", "write", "sync", "write"]


Action = Callable[[Bench], object]
ACTIONS: dict[str, Action] = {
    "put": Bench.put,
    "reserve": lambda bench: bench.reserve() if bench.jobs else None,
    "turn": Bench.turn,
    "step": lambda bench: bench.io.step() if bench.io else None,
    "soon": lambda bench: bench.clock.advance(IDLE_FLUSH_S),
    "later": lambda bench: bench.clock.advance(INTERVAL_S),
}


@settings(deadline=None, max_examples=share(200))
@given(
    st.sampled_from([ALWAYS, PERIODIC, NEVER]),
    st.lists(st.sampled_from(sorted(ACTIONS)), max_size=40),
)
def test_few_timers_are_pending_and_no_promise_is_early_or_forgotten(
    policy: FsyncPolicy, actions: list[str]
) -> None:
    bench = Bench(policy)
    for action in actions:
        ACTIONS[action](bench)
        assert len(bench.clock.getDelayedCalls()) <= 3
        assert len(bench.io) <= 1
        assert bench.acknowledged == sorted(set(bench.acknowledged))
        if policy.is_always:
            assert bench.committer.acknowledgeable_lsn == bench.log.durable_lsn
    bench.finish_io()
    for _ in range(round(2 * RELAXED_SYNC_S / INTERVAL_S)):
        bench.wait(INTERVAL_S)
    assert bench.clock.getDelayedCalls() == []
    assert policy is NEVER or bench.log.durable_lsn == bench.log.last_lsn
    puts = actions.count("put")
    if policy is not NEVER:
        assert len(bench.jobs_after_power_loss()) == puts
    assert len(jobs_in(bench.directory.after_kill())) == puts


# The disk fails.


@POLICIES
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_no_reply_is_released_after_the_disk_has_failed(
    operation: str, policy: FsyncPolicy
) -> None:
    bench = Bench(policy)
    bench.commit()
    before = list(bench.acknowledged)
    bench.fail(operation)
    bench.put(b"x" * (1 << 16))  # It begins a segment, so that every policy syncs.
    bench.turn()
    bench.put()
    bench.io.step()
    assert bench.acknowledged == before
    bench.put()
    for _ in range(4):
        bench.wait(INTERVAL_S)
    assert bench.acknowledged == before
    assert [failure.type for failure in bench.failures] == [WriteFailed]


def test_a_sync_that_fails_when_its_interval_is_over_is_not_forgiven() -> None:
    bench = Bench(PERIODIC)
    lsn = bench.commit()
    bench.fail("sync")
    bench.clock.advance(INTERVAL_S)
    bench.commit()
    assert [failure.type for failure in bench.failures] == [WriteFailed]
    assert bench.acknowledged == [lsn]
    assert bench.operations.count("sync") == 1


# Space.


def fill_disk(bench: Bench) -> None:
    """Let the disk have no more space than is in use."""
    names = bench.directory.names()
    bench.directory.space = sum(len(bench.directory.read(name)) for name in names)


def full_bench(policy: FsyncPolicy = ALWAYS) -> Bench:
    bench = Bench(policy, is_prepared=False)
    fill_disk(bench)
    return bench


def spares_of(bench: Bench) -> list[str]:
    return [name for name in bench.directory.names() if name.startswith("spare.")]


def test_space_is_made_ready_ahead_one_file_at_a_time_until_there_is_enough() -> None:
    bench = Bench(ALWAYS, is_prepared=False)
    bench.committer.schedule()
    bench.turn()
    counts = []
    while bench.io:
        assert len(bench.io) == 1
        bench.io.step()
        counts.append(len(spares_of(bench)))
    assert counts == list(range(1, len(counts) + 1))
    assert bench.told == [None] * len(counts)
    assert bench.log.budget.wanted(Demand()) is None
    assert "sync" not in bench.operations, "a spare promises nothing"
    assert not bench.clock.getDelayedCalls()


def test_more_that_waits_has_more_made_ready() -> None:
    bench = Bench(ALWAYS)
    bench.wait_for(Demand(jobs=5, waiting=300_000, largest=300_000))
    bench.schedule()
    assert max(len(bench.directory.read(name)) for name in spares_of(bench)) > 300_000
    assert bench.told[-1] is None


def test_who_waits_is_told_of_the_room_of_a_segment_that_another_has_begun() -> None:
    bench = Bench(ALWAYS)
    bench.wait_for(Demand(jobs=1, waiting=1000, largest=1000))
    assert bench.log.budget.wanted(bench.demand) is None
    bench.commit()
    assert bench.told and set(bench.told) == {None}


def test_a_full_disk_is_told_and_tried_again_each_second_until_it_gives_more() -> None:
    bench = full_bench()
    bench.schedule()
    (refusal,) = bench.told
    assert refusal is not None and refusal.type is NoSpace
    assert bench.log.budget.is_short
    for tries in range(2, 5):
        bench.clock.advance(SPACE_RETRY_S - 0.001)
        assert not bench.io
        bench.wait(0.001)
        assert len(bench.told) == tries
    assert bench.operations.count("allocate") == 4
    bench.directory.space = None
    bench.wait(SPACE_RETRY_S)
    assert bench.told[4:] and not any(bench.told[4:])
    assert not bench.log.budget.is_short
    assert not bench.clock.getDelayedCalls() and not bench.failures


@POLICIES
def test_a_batch_that_finds_no_space_waits_and_its_replies_with_it(policy: FsyncPolicy) -> None:
    bench = full_bench(policy)
    lsn = bench.put(b"x" * (1 << 16))
    bench.finish_io()
    before = list(bench.acknowledged)
    later = bench.put()
    for _ in range(3):
        bench.wait(SPACE_RETRY_S)
    assert bench.acknowledged == before and (not before or before[-1] < lsn)
    assert len(space_calls(bench)) == 1
    bench.directory.space = None
    bench.wait(SPACE_RETRY_S)
    assert bench.committer.acknowledgeable_lsn >= later
    assert not bench.failures
    assert jobs_in(bench.directory.after_kill()) == {1, 2}


def space_calls(bench: Bench) -> list[float]:
    """Give when something is to be tried again: all timers but those of marks and intervals."""
    return [call.getTime() for call in bench.clock.getDelayedCalls()
            if call.getTime() - bench.clock.seconds() > max(IDLE_FLUSH_S, INTERVAL_S)]  # fmt: skip


def test_one_timer_waits_for_space_whatever_was_refused() -> None:
    bench = full_bench()
    bench.schedule()
    bench.clock.advance(SPACE_RETRY_S / 2)
    bench.put(b"x" * (1 << 16))
    bench.finish_io()
    assert space_calls(bench) == [SPACE_RETRY_S * 1.5]
    bench.clock.advance(SPACE_RETRY_S / 2)
    assert not bench.io
    bench.clock.advance(SPACE_RETRY_S / 2)
    assert len(bench.io) == 1


def test_space_that_was_freed_is_not_waited_for() -> None:
    bench = full_bench()
    bench.schedule()
    bench.directory.space = None
    bench.committer.space.try_now()
    bench.finish_io()
    assert bench.told[-1] is None
    assert not bench.clock.getDelayedCalls()
    operations = len(bench.operations)
    bench.committer.space.try_now()
    bench.finish_io()
    assert len(bench.operations) == operations, "nobody waits"


def test_no_sync_mark_is_written_on_a_full_disk_but_when_there_is_space_again() -> None:
    bench = full_bench()
    bench.commit()
    bench.wait(IDLE_FLUSH_S * 2)
    assert bench.operations[-2:] == ["write", "sync"]
    bench.directory.space = None
    bench.committer.space.try_now()
    bench.finish_io()
    bench.wait(IDLE_FLUSH_S)
    assert bench.operations[-1] == "write"


def test_a_server_ends_in_order_on_a_full_disk() -> None:
    bench = full_bench()
    bench.commit()
    bench.put()
    ended = bench.committer.finish()
    bench.finish_io()
    assert ended.called
    assert not bench.clock.getDelayedCalls()
    assert read(bench.directory.after_power_loss()).small.is_clean
    assert bench.jobs_after_power_loss() == {1, 2}


def test_an_end_waits_for_the_space_of_what_was_begun() -> None:
    bench = full_bench()
    bench.put(b"x" * (1 << 16))
    bench.finish_io()
    ended = bench.committer.finish()
    bench.finish_io()
    assert not ended.called and not bench.failures
    bench.directory.space = None
    bench.wait(SPACE_RETRY_S)
    assert ended.called
    assert not bench.clock.getDelayedCalls()
    assert bench.jobs_after_power_loss() == {1}


def test_a_disk_that_fails_while_space_is_made_ready_is_a_failed_one() -> None:
    bench = Bench(ALWAYS, is_prepared=False)
    lsn = bench.put()
    bench.fail("allocate")
    bench.finish_io()
    assert [failure.type for failure in bench.failures] == [WriteFailed]
    assert bench.committer.acknowledgeable_lsn < lsn
    assert not bench.log.budget.is_short


# The end.


@POLICIES
def test_an_ordered_end_commits_the_rest_lets_replies_go_and_seals_the_log(
    policy: FsyncPolicy,
) -> None:
    bench = Bench(policy)
    bench.put()
    bench.turn()
    last = bench.put()
    order: list[str] = []
    bench.on_acknowledge = lambda: order.append("acknowledged")
    bench.committer.finish().addCallback(lambda _: order.append("ended"))
    assert not order
    bench.finish_io()
    assert (order[0], order[-1], order.count("ended")) == ("acknowledged", "ended", 1)
    assert bench.io.is_stopped
    assert bench.committer.acknowledgeable_lsn >= last
    assert bench.clock.getDelayedCalls() == []
    assert bench.jobs_after_power_loss() == {1, 2}
    found = read(bench.directory.after_power_loss())
    assert found.small.is_clean and found.survey.torn is None
    segment = bytes(bench.directory.after_power_loss().read(f"{1:020d}.tql"))
    assert segment.endswith(b"TQLEND\r\n")


def test_an_ordered_end_may_fill_the_segment() -> None:
    for size in range(3600, 4200, 8):
        bench = Bench(ALWAYS, MIN_SEGMENT_BYTES)
        bench.put(b"x" * size)
        ended = bench.committer.finish()
        bench.finish_io()
        assert ended.called
        found = read(bench.directory.after_power_loss())
        assert found.small.is_clean, size
        assert bench.jobs_after_power_loss() == {1}


def test_an_end_whose_last_commit_fails_is_not_an_ordered_one_and_says_what_to_do() -> None:
    bench = Bench(ALWAYS)
    bench.put()
    bench.fail("sync")
    ended = bench.committer.finish()
    bench.finish_io()
    assert not ended.called and not bench.acknowledged
    assert not read(bench.directory.after_kill()).small.is_clean
    (failure,) = bench.failures
    message = failure.getErrorMessage()
    assert "00000000000000000001.tql failed: Input/output error" in message
    assert "binlog-inspect check" in message
    assert isinstance(failure.value, WriteFailed)
    assert failure.value.exit_code == 74


# A slow disk.


class SlowBench(Bench):
    """One whose disk takes its time for each sync.

    :ivar takes_s: how long.
    """

    takes_s = 0.0

    def _note(self, operation: str, name: str) -> None:
        super()._note(operation, name)
        if operation == "sync":
            self.clock.rightNow += self.takes_s


@pytest.mark.parametrize(("takes_ms", "is_told"), [(100, False), (101, True)])
def test_replies_that_waited_longer_than_the_limit_are_told(takes_ms: int, is_told: bool) -> None:
    bench = SlowBench(ALWAYS)
    bench.takes_s = takes_ms / 1000
    bench.commit()
    took_ns = takes_ms * 1_000_000
    assert bench.slow == [SlowSync(took_ns, took_ns, 3)] * is_told


def test_a_wait_for_two_syncs_is_told_though_none_of_them_is_slow() -> None:
    bench = SlowBench(ALWAYS)
    bench.takes_s = 0.06
    bench.put()
    bench.turn()
    bench.commit()
    assert bench.slow == [SlowSync(120_000_000, 60_000_000, 3)]


@pytest.mark.parametrize(("takes_us", "is_told"), [(999, False), (1000, True)])
def test_a_wait_for_a_thread_is_not_told_as_one_for_the_disk(takes_us: int, is_told: bool) -> None:
    bench = SlowBench(ALWAYS)
    bench.takes_s = takes_us / 1_000_000
    bench.put()
    bench.turn()
    bench.clock.rightNow += 0.25
    bench.finish_io()
    assert bool(bench.slow) is is_told


def test_a_wait_is_counted_from_the_turn_when_the_disk_had_nothing_to_do() -> None:
    bench = SlowBench(ALWAYS)
    bench.takes_s = 0.06
    for _ in range(3):
        bench.commit()
        bench.wait(5)
    assert bench.slow == []


def test_a_slow_sync_that_no_reply_waits_for_is_told_too() -> None:
    bench = SlowBench(PERIODIC)
    bench.commit()
    bench.takes_s = 0.2
    bench.wait(INTERVAL_S)
    assert [slow.took_ns for slow in bench.slow] == [200_000_000]


def test_a_sync_that_is_wanted_when_nothing_is_open_comes_in_the_next_turn() -> None:
    bench = Bench(NEVER)
    lsn = bench.commit()
    bench.operations.clear()
    durable: list[int] = []
    bench.committer.when_durable(lsn, lambda: durable.append(lsn))
    bench.finish_io()
    assert (bench.operations, durable) == (["sync"], [lsn])
