"""`--body-cache`: who asks for a job whose body is in the log only waits for it, and nobody else
does.  The log is simulated; where reads are held, each ends when the test lets it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from beanstalk_twisted.binlog.records.others import JOB_ID, REASON, TYPE
from beanstalk_twisted.binlog.segments.format import (
    RECORD,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    segment_name,
)
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.storage.body_reads import (
    AHEAD_READS,
    PROBE_S,
    REFUSED_JOBS,
    RETRIES_S,
    SEGMENT_S,
    WANTED_READS,
)
from beanstalk_twisted.storage.fsync import ALWAYS, FsyncPolicy
from beanstalk_twisted.storage.io_thread import InlineIo, WatchableIo
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo


def damage(directory: MemoryDirectory, body: bytes) -> None:
    name = segment_name(1)
    sound = bytes(directory.read(name))
    assert sound.count(body) == 1
    directory.open(name).write_at(sound.index(body), [b"~"])


@pytest.fixture
def heard() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []

    def hear(event: LogEvent) -> None:
        events.append(event)

    globalLogPublisher.addObserver(hear)  # type: ignore[arg-type]
    yield events
    globalLogPublisher.removeObserver(hear)  # type: ignore[arg-type]


class Kept:
    """A server that keeps so many bytes of bodies in memory, and reads when the test says so."""

    def __init__(self, body_cache: int | None = 0, segment_bytes: int = 1 << 20) -> None:
        self.reads = HeldIo()
        ios: list[WatchableIo] = [InlineIo(), self.reads]
        self.directory = MemoryDirectory()
        self.server = MemoryServer(
            directory=self.directory, io=lambda: ios.pop(0), segment_bytes=segment_bytes,
            body_cache=body_cache,
        )  # fmt: skip
        self.client = self.server.connect()
        self.other = self.server.connect()

    def put(self, *bodies: bytes) -> None:
        for body in bodies:
            reply = self.client.ask(b"put 0 0 60 %d\r\n%b\r\n" % (len(body), body))
            assert reply.startswith(b"INSERTED ")
        self.server.advance()

    def step(self) -> None:
        self.reads.step()
        self.server.advance()

    def finish(self) -> None:
        self.server.advance()
        while self.reads:
            self.step()

    def job(self, job_id: int) -> Job:
        job = self.server.service.queue.state.jobs.look(job_id)
        assert job is not None
        return job


def test_without_the_option_all_bodies_stay_and_nothing_is_read() -> None:
    kept = Kept(None)
    kept.put(b"hello")
    assert kept.job(1).body == b"hello"
    assert kept.client.ask(b"reserve\r\n") == b"RESERVED 1 5\r\nhello\r\n"
    assert kept.server.service.body_reads is None


def test_a_durable_body_leaves_memory_and_comes_back_for_who_asks() -> None:
    kept = Kept()
    kept.put(b"hello")
    assert (kept.job(1).body, kept.job(1).body_bytes) == (None, 5)
    assert kept.client.ask(b"reserve\r\n") == b""
    assert len(kept.reads) == 1
    kept.step()
    assert kept.client.take() == b"RESERVED 1 5\r\nhello\r\n"
    assert kept.client.ask(b"delete 1\r\n") == b"DELETED\r\n"


def test_replies_keep_their_order_and_others_are_served_meanwhile() -> None:
    kept = Kept()
    kept.put(b"hello")
    assert kept.client.ask(b"use a\r\npeek 1\r\nuse b\r\n") == b"USING a\r\n"
    assert kept.other.ask(b"put 0 0 60 1\r\nx\r\nstats-job 1\r\nuse c\r\n").endswith(b"USING c\r\n")
    kept.step()
    assert kept.client.take() == b"FOUND 1 5\r\nhello\r\nUSING b\r\n"


@pytest.mark.parametrize(
    "command", [b"peek 1", b"peek-ready", b"reserve-job 1", b"reserve-with-timeout 0"]
)
def test_each_command_that_shows_a_job_reads_it_back(command: bytes) -> None:
    kept = Kept()
    kept.put(b"hello")
    assert kept.client.ask(command + b"\r\n") == b""
    kept.step()
    word = b"FOUND" if command.startswith(b"peek") else b"RESERVED"
    assert kept.client.take() == word + b" 1 5\r\nhello\r\n"


@pytest.mark.parametrize("body_cache", [0, 1000])
def test_a_body_that_was_read_for_a_reserve_leaves_memory_with_the_reply(body_cache: int) -> None:
    kept = Kept(body_cache)
    kept.put(*[b"%0600d" % at for at in range(2)])
    assert kept.job(2).body is None
    kept.client.send(b"reserve-job 2\r\n")
    kept.step()
    assert kept.client.take() == b"RESERVED 2 600\r\n%0600d\r\n" % 1
    assert kept.job(2).state is State.RESERVED
    assert kept.job(2).body is None


@pytest.mark.parametrize("command", [b"peek 1", b"move-job 1 b", b"update-job 1 5 0 60"])
def test_what_asks_for_the_body_of_a_reserved_job_reads_it_again(command: bytes) -> None:
    kept = Kept()
    kept.put(b"hello")
    kept.client.send(b"reserve\r\n")
    kept.step()
    kept.client.take()
    assert kept.client.ask(command + b"\r\n") == b""
    kept.step()
    words = {b"FOUND 1 5\r\nhello\r\n", b"MOVED\r\n", b"UPDATED\r\n"}
    assert kept.client.take() in words
    if command.startswith(b"peek"):
        assert kept.client.ask(b"release 1 0 0\r\n") == b"RELEASED\r\n"
    kept.server.advance()
    kept.other.send(b"peek 1\r\n")
    kept.finish()
    assert kept.other.take() == b"FOUND 1 5\r\nhello\r\n"


@pytest.mark.parametrize("way", ["release", "ttr", "end"])
def test_a_dead_letter_whose_body_is_in_the_log_only_is_not_handed_out_in_between(
    way: str,
) -> None:
    kept = Kept()
    kept.client.ask(b"tube-policy default max-reserves=1 dead-letter=dead\r\n")
    kept.put(b"hello")
    worker = kept.server.connect()
    worker.send(b"reserve\r\n")
    kept.step()
    assert worker.take() == b"RESERVED 1 5\r\nhello\r\n"
    kept.other.send(b"reserve\r\n")
    if way == "release":
        assert worker.ask(b"release 1 0 0\r\n") == b"RELEASED\r\n"
    elif way == "ttr":
        kept.server.advance(61)
    else:
        worker.hang_up()
    kept.server.advance(1)
    assert (kept.job(1).state, kept.job(1).reserves) == (State.DELAYED, 1)
    kept.finish()
    kept.server.advance(1)
    assert kept.job(1).state is State.BURIED
    assert b'name: "dead"' in kept.client.ask(b"stats-tube dead\r\n")
    assert kept.other.take() == b""


def test_a_job_whose_ttr_ends_while_it_is_read_is_reserved_again_or_goes_to_another() -> None:
    kept = Kept()
    kept.put(b"hello")
    kept.client.ask(b"reserve-with-timeout 100\r\n")
    kept.server.advance(61)
    assert kept.job(1).timeouts == 1
    kept.finish()
    assert kept.client.take() == b"RESERVED 1 5\r\nhello\r\n"
    assert (kept.job(1).state, kept.job(1).reserves) == (State.RESERVED, 2)


def ahead(most_bytes: int = 16_000) -> Kept:
    """Nine jobs of 500 bytes and a short one in the log only, of a queue that may read ahead."""
    kept = Kept()
    kept.client.ask(b"use some\r\n")
    kept.put(*[b"%d" % at * 500 for at in range(1, 10)], b"wanted")
    kept.server.service.queue.state.bodies.most_bytes = most_bytes
    return kept


def test_a_tube_that_somebody_watches_has_its_next_jobs_read() -> None:
    kept = ahead()
    assert len(kept.reads) == 0, "nobody watches it"
    assert kept.other.ask(b"watch some\r\n") == b"WATCHING 2\r\n"
    kept.finish()
    assert kept.server.service.queue.state.bodies.read == 8, "a quarter of the cache"
    for at in range(1, 9):
        assert kept.other.ask(b"reserve\r\n").startswith(b"RESERVED %d 500\r\n" % at)


def test_a_worker_who_waits_for_a_body_does_not_wait_for_those_read_ahead() -> None:
    kept, jobs = Kept(), 2 * AHEAD_READS
    kept.client.ask(b"use some\r\n")
    kept.put(*[b"%d" % at for at in range(1, jobs + 1)])
    kept.server.service.queue.state.bodies.most_bytes = 16_000
    kept.client.ask(b"watch some\r\npeek %d\r\n" % jobs)
    kept.step()
    assert kept.client.take() == b"", "those were begun before"
    kept.step()
    assert kept.client.take() == b"FOUND %d 3\r\n%d\r\n" % (jobs, jobs)
    assert kept.reads, "the others come behind"


def test_what_is_read_ahead_already_is_read_once() -> None:
    kept = ahead()
    assert kept.other.ask(b"watch some\r\n") == b"WATCHING 2\r\n"
    assert kept.other.ask(b"reserve-batch 8\r\n") == b""
    kept.finish()
    assert kept.other.take().startswith(b"RESERVED_BATCH 8\r\n")
    assert kept.server.service.queue.state.bodies.read == 10, "those behind, too"


@pytest.mark.parametrize("jobs", [WANTED_READS + 1, WANTED_READS + 2])
def test_no_more_are_read_together_than_may_be(jobs: int) -> None:
    kept = Kept()
    kept.put(*[b"%d" % at for at in range(jobs)])
    kept.client.ask(b"reserve-batch %d\r\n" % jobs)
    kept.step()
    kept.step()
    assert bool(kept.reads) == (jobs > WANTED_READS + 1)


@pytest.mark.parametrize("jobs", [AHEAD_READS, AHEAD_READS + 1])
def test_no_more_are_read_ahead_together_than_may_be(jobs: int) -> None:
    kept = Kept()
    kept.client.ask(b"use some\r\n")
    kept.put(*[b"%d" % at for at in range(jobs)])
    kept.server.service.queue.state.bodies.most_bytes = 16_000
    kept.other.ask(b"watch some\r\n")
    kept.step()
    assert kept.server.service.queue.state.bodies.read == AHEAD_READS
    assert bool(kept.reads) == (jobs > AHEAD_READS)


def test_behind_a_body_that_the_disk_cannot_read_others_wait_for_no_more_of_it() -> None:
    kept = ahead()

    def fault(name: str) -> None:
        tries.append(name)
        raise OSError(errno.EIO, "Input/output error", name)

    tries: list[str] = []
    kept.directory.read_fault = fault
    kept.other.ask(b"watch some\r\n")
    kept.step()
    assert len(tries) <= 2, "a piece, and a part of it"
    kept.client.ask(b"peek 10\r\n")
    kept.directory.read_fault = lambda name: None
    kept.step()
    kept.step()
    assert kept.client.take() == b"FOUND 10 6\r\nwanted\r\n"
    kept.finish()
    assert kept.server.service.queue.state.bodies.read == 8
    kept.server.advance(RETRIES_S[0])
    kept.finish()
    assert kept.server.service.queue.state.bodies.read == 9


def test_a_damaged_body_buries_its_job_and_the_worker_gets_the_next_one() -> None:
    kept = Kept()
    kept.put(b"damaged", b"sound")
    damage(kept.directory, b"damaged")
    assert kept.client.ask(b"reserve\r\n") == b""
    kept.finish()
    assert kept.client.take() == b"RESERVED 2 5\r\nsound\r\n"
    assert (kept.job(1).state, kept.job(1).buries) == (State.BURIED, 1)
    assert b"current-jobs-buried: 1" in kept.client.ask(b"stats\r\n")


def test_the_record_of_a_damaged_job_says_why_it_is_buried() -> None:
    kept = Kept()
    kept.put(b"damaged")
    damage(kept.directory, b"damaged")
    kept.client.ask(b"reserve-with-timeout 0\r\n")
    kept.step()
    assert kept.client.take() == b"TIMED_OUT\r\n"
    content = bytes(kept.directory.read(segment_name(1)))
    burials = [
        raw for at in range(SEGMENT_HEADER_BYTES, len(content) - RECORD_BYTES, 8)
        if (raw := RECORD.unpack_from(content, at))[TYPE] == Kind.BURY and raw[JOB_ID] == 1
    ]  # fmt: skip
    assert [raw[REASON] for raw in burials] == [Reason.DAMAGED]


def test_a_batch_has_the_jobs_that_can_be_read() -> None:
    kept = Kept()
    kept.put(b"one", b"damaged", b"three")
    damage(kept.directory, b"damaged")
    kept.client.ask(b"reserve-batch 5\r\n")
    kept.finish()
    assert kept.client.take() == (
        b"RESERVED_BATCH 2\r\nRESERVED 1 3\r\none\r\nRESERVED 3 5\r\nthree\r\n"
    )


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_read_that_lacks_descriptors_or_memory_is_tried_again(number: int) -> None:
    kept = Kept()
    kept.put(b"hello")
    faults = [OSError(number, "short")]

    def fail(name: str) -> None:
        if faults:
            raise faults.pop()

    kept.directory.read_fault = fail
    assert kept.client.ask(b"reserve\r\n") == b""
    kept.step()
    assert kept.client.take() == b""
    kept.server.advance(1)
    kept.step()
    assert kept.client.take() == b"RESERVED 1 5\r\nhello\r\n"
    assert kept.server.service.queue.state.bodies.lost == 0


def fail(name: str) -> None:
    raise OSError(errno.EIO, "Input/output error", name)


def fail_in_the_second(name: str) -> None:
    if name == segment_name(2):
        fail(name)


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_disk_that_is_away_for_a_moment_is_waited_for(seconds: float) -> None:
    kept = Kept()
    kept.put(b"hello")
    kept.directory.read_fault = fail
    kept.client.ask(b"reserve-with-timeout 0\r\n")
    kept.step()
    kept.server.advance(seconds)
    kept.finish()
    kept.directory.read_fault = lambda name: None
    kept.server.advance(sum(RETRIES_S))
    kept.step()
    assert kept.client.take() == b"RESERVED 1 5\r\nhello\r\n"
    reads = kept.server.service.body_reads
    assert reads is not None and reads.failed_reads == 1 + (seconds > 1)
    assert kept.server.service.queue.state.bodies.lost == 0


def test_a_disk_that_is_away_for_longer_costs_a_worker_a_wait_and_nobody_a_job(
    heard: list[LogEvent],
) -> None:
    kept = Kept()
    kept.put(b"one", b"two")
    kept.directory.read_fault = fail
    kept.client.ask(b"reserve-with-timeout 5\r\n")
    for _ in range(200):
        kept.finish()
        kept.server.advance(1)
    assert kept.client.take() == b"TIMED_OUT\r\n"
    assert kept.job(1).state in (State.DELAYED, State.READY)
    assert kept.server.service.queue.state.counts[State.BURIED] == 0
    kept.directory.read_fault = lambda name: None
    kept.client.send(b"reserve-batch 2\r\n")
    kept.finish()
    assert kept.client.take().startswith(b"RESERVED_BATCH 2\r\n")
    lines = [str(formatEvent(each)) for each in heard if each["event"] == "body-read-failed"]
    assert [line.split(":")[0] for line in lines] == ["job 1", "job 2"]
    assert lines[1].endswith("of 5 since the last such line.")
    assert kept.server.failures == []


def test_nobody_waits_for_more_bodies_of_a_segment_that_alone_cannot_be_read() -> None:
    kept = Kept(segment_bytes=8192)
    kept.put(*[b"%d" % at * 500 for at in range(1, 20)])
    lost = [at for at in range(1, 20) if kept.job(at).segment == 2]

    kept.directory.read_fault = fail_in_the_second

    def peek(job_id: int, seconds: int = 0) -> bytes:
        kept.client.send(b"peek %d\r\n" % job_id)
        kept.step()
        for _ in range(seconds):
            kept.server.advance(1)
            kept.finish()
        return kept.client.take()

    assert peek(lost[0], 3) == b"INTERNAL_ERROR\r\n"
    assert peek(lost[1], 2) == b"", "nothing was read meanwhile"
    kept.server.advance(1)
    kept.step()
    assert kept.client.take() == b"INTERNAL_ERROR\r\n"
    assert peek(1).startswith(b"FOUND 1 ")
    assert peek(lost[2]) == b"INTERNAL_ERROR\r\n"
    kept.directory.read_fault = lambda name: None
    assert kept.other.ask(b"peek %d\r\n" % lost[2]) == b"INTERNAL_ERROR\r\n"
    assert not kept.reads, "it was tried just now"
    kept.server.advance(PROBE_S)
    assert peek(lost[2]).startswith(b"FOUND ")
    assert peek(lost[3]).startswith(b"FOUND ")


class Gone(Kept):
    """The second segment of several is not there any more."""

    def __init__(self, jobs: int = 40) -> None:
        super().__init__(segment_bytes=8192 if jobs < 100 else 1 << 16)
        self.put(*[b"%d" % at + bytes(300) for at in range(1, jobs + 1)])
        self.lost = [at for at in range(1, jobs + 1) if self.job(at).segment == 2]
        self.others = [at for at in range(1, jobs + 1) if self.job(at).segment != 2]
        self.tries = 0
        self.directory.read_fault = self._fault

    def _fault(self, name: str) -> None:
        if name == segment_name(2):
            self.tries += 1
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)

    def buried(self) -> int:
        return self.server.service.queue.state.counts[State.BURIED]


def test_a_segment_that_is_gone_has_its_jobs_passed_over_once_and_then_buried() -> None:
    gone = Gone()
    got = []
    for _ in gone.others:
        gone.client.send(b"reserve-with-timeout 0\r\n")
        gone.finish()
        got.append(int(gone.client.take().split()[1]))
        gone.client.ask(b"delete %d\r\n" % got[-1])
    assert got == gone.others
    assert gone.tries <= WANTED_READS, "those that were asked for before the first one failed"
    assert {gone.job(at).state for at in gone.lost} == {State.DELAYED}
    gone.server.advance(SEGMENT_S - 1)
    gone.client.send(b"reserve-with-timeout 0\r\n")
    gone.finish()
    assert (gone.client.take(), gone.buried()) == (b"TIMED_OUT\r\n", 0)
    before = gone.tries
    gone.server.advance(1)
    gone.client.send(b"reserve-with-timeout 0\r\n")
    gone.finish()
    assert (gone.client.take(), gone.buried()) == (b"TIMED_OUT\r\n", len(gone.lost))
    assert gone.tries - before <= WANTED_READS
    assert gone.server.failures == []


def test_a_segment_that_is_gone_loses_nothing_as_long_as_nothing_else_can_be_read() -> None:
    gone = Gone()

    def peek(job_id: int) -> bytes:
        gone.client.send(b"peek %d\r\n" % job_id)
        gone.finish()
        return gone.client.take()

    for _ in range(3):
        assert peek(gone.lost[0]) == b"INTERNAL_ERROR\r\n"
        gone.server.advance(SEGMENT_S)
    bodies = gone.server.service.queue.state.bodies
    assert bodies.lost == 0
    assert peek(gone.others[0]).startswith(b"FOUND ")
    assert peek(gone.lost[0]) == b"INTERNAL_ERROR\r\n"
    assert bodies.lost == 1


def test_a_segment_that_comes_back_has_its_jobs_delivered() -> None:
    gone = Gone()
    gone.client.send(b"reserve-with-timeout 0\r\n" * len(gone.others))
    gone.finish()
    gone.client.take()
    gone.directory.read_fault = lambda name: None
    gone.server.advance(SEGMENT_S)
    gone.other.send(b"reserve-with-timeout 0\r\n" * len(gone.lost))
    gone.finish()
    assert gone.other.take().count(b"RESERVED ") == len(gone.lost)
    assert gone.buried() == 0


def test_very_many_who_ask_for_what_cannot_be_read_are_told_slice_by_slice() -> None:
    gone = Gone(500)
    assert len(gone.lost) > REFUSED_JOBS + 1
    bodies = gone.server.service.queue.state.bodies
    gone.client.send(b"peek %d\r\n" % gone.lost[0])
    gone.finish()
    told: list[int] = []
    for job_id in gone.lost[1:]:
        bodies.look_at(job_id, lambda body, job_id=job_id: told.append(job_id))  # type: ignore[misc]
    counts = [len(told)]
    gone.server.clock.callLater(0, lambda: counts.append(len(told)))
    gone.finish()
    assert counts == [0, REFUSED_JOBS]
    assert told == gone.lost[1:]
    assert gone.tries == 1


def test_a_reader_that_stops_tries_nothing_again() -> None:
    kept = Kept()
    kept.put(b"hello")
    kept.directory.read_fault = fail
    kept.client.ask(b"reserve\r\n")
    kept.step()
    kept.server.service.stopService()
    kept.server.advance(5)
    assert not kept.reads


def test_compaction_reads_back_what_it_writes_again() -> None:
    kept = Kept(segment_bytes=8192)
    kept.put(b"x" * 500)
    body = b"y" * 3000
    for _ in range(30):
        assert kept.client.ask(b"use gone\r\nput 0 0 60 3000\r\n%b\r\n" % body)
        kept.client.ask(b"watch gone\r\nignore default\r\n")
        kept.finish()
        kept.client.send(b"reserve\r\n")
        kept.finish()
        number = int(kept.client.take().split()[1])
        kept.client.ask(b"delete %d\r\n" % number)
        kept.server.advance(1)
        kept.finish()
    assert kept.job(1).segment > 1
    assert segment_name(1) not in kept.directory.names()
    kept.other.send(b"reserve\r\n")
    kept.finish()
    assert kept.other.take() == b"RESERVED 1 500\r\n" + b"x" * 500 + b"\r\n"


def test_a_server_that_stops_waits_for_no_body() -> None:
    kept = Kept()
    kept.put(b"hello")
    kept.client.ask(b"reserve\r\n")
    done: list[object] = []
    kept.server.service.stopService().addCallback(done.append)
    kept.server.advance()
    assert done == [None]
    kept.step()
    assert kept.client.take() == b""


@pytest.mark.parametrize("body_cache", [0, 1, 200])
@pytest.mark.parametrize("is_synced", [True, False])
def test_after_a_restart_bodies_are_where_the_log_says(body_cache: int, is_synced: bool) -> None:
    """Jobs in all states, in several segments, some stated again; what was not synced has moved."""
    server = MemoryServer(
        directory=MemoryDirectory(), segment_bytes=8192, body_cache=body_cache,
        fsync=ALWAYS if is_synced else FsyncPolicy(1000.0),
    )  # fmt: skip
    client = server.connect()
    for at in range(60):
        body = b"%03d" % at * (1 + at % 40)
        client.ask(b"put %d %d 60 %d\r\n%b\r\n" % (at % 3, 50 * (at % 2), len(body), body))
    for command in (b"reserve", b"bury 1 0", b"reserve", b"move-job 5 there", b"delete 7"):
        client.ask(command + b"\r\n")
    expected = {at: client.ask(b"peek %d\r\n" % at) for at in range(1, 61)}
    for _ in range(2):
        server.kill_and_restart()
        server.advance()
        state = server.service.queue.state
        assert state.jobs.loaded_bytes <= body_cache
        client = server.connect()
        assert {at: client.ask(b"peek %d\r\n" % at) for at in range(1, 61)} == expected
    assert state.bodies.lost == 0


def test_a_start_leaves_bodies_to_the_log_as_it_loads_them() -> None:
    """At no time has it more of them in memory than the cache and a part of the log."""
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=1 << 20, body_cache=50_000)
    client = server.connect()
    for _ in range(200):
        client.ask(b"put 0 0 60 1000\r\n%b\r\n" % (b"x" * 1000) * 20)
    server.kill_and_restart()
    jobs, bodies = server.service.queue.state.jobs, server.service.queue.state.bodies
    assert (jobs.loaded_bytes, jobs.absent_bytes) == (50_000, 3_950_000)
    assert bodies.dropped < 1 << 10
    assert [job_id for job_id in jobs if jobs.has_body(job_id)] == list(range(1, 51))
    assert bodies.noted == 50


def test_a_full_disk_refuses_puts_and_gives_all_bodies_back() -> None:
    directory = MemoryDirectory()
    server = MemoryServer(directory=directory, segment_bytes=1 << 16, body_cache=0)
    directory.space = 8 << 16
    client, count = server.connect(), 0
    body = b"%06d" * 500
    while client.ask(b"put 0 0 60 3000\r\n%b\r\n" % (body % ((count,) * 500)))[:8] == b"INSERTED":
        count += 1
    assert count > 20
    for at in range(count):
        expected = b"RESERVED %d 3000\r\n%b\r\n" % (at + 1, body % ((at,) * 500))
        assert client.ask(b"reserve-with-timeout 0\r\n") == expected
        assert client.ask(b"delete %d\r\n" % (at + 1)) == b"DELETED\r\n"
    server.advance(5)
    assert client.ask(b"put 0 0 60 1\r\nx\r\n").startswith(b"INSERTED ")
    assert (server.failures, server.service.queue.state.bodies.lost) == ([], 0)


class FailsOnce:
    """A fault of one read: of a piece of a file, and of what is tried then, a part of it."""

    def __init__(self, at: int) -> None:
        self.is_over = False
        self._left = at

    def __call__(self, name: str) -> None:
        self._left -= 1
        if self._left in (0, -1):
            self.is_over = True
            raise OSError(errno.EIO, "Input/output error", name)


def test_a_fault_at_any_read_costs_nobody_a_job() -> None:
    """Each read fails once; whatever a worker then hears, all jobs are there afterwards,
    and so are their bodies.
    """
    at, failed, fault = 0, 0, FailsOnce(1)
    bodies = [b"one", b"two", b"three", b"four", b"five", b"six", b"seven"]
    while at == 0 or fault.is_over:
        at += 1
        fault, directory = FailsOnce(at), MemoryDirectory()
        server = MemoryServer(directory=directory, segment_bytes=1 << 16, body_cache=0)
        client, worker = server.connect(), server.connect()
        for body in bodies:
            client.ask(b"put 0 0 600 %d\r\n%b\r\n" % (len(body), body))
        directory.read_fault = fault
        looks = [b"peek %d" % job_id for job_id in range(1, len(bodies) + 1)]
        for command in (*looks, b"reserve-batch 2", b"move-job 4 there", b"reserve"):
            worker.send(command + b"\r\n")
            for seconds in RETRIES_S:
                server.advance(seconds)
            assert worker.take() or command == b"reserve"
        worker.hang_up()
        directory.read_fault = lambda name: None
        server.advance()
        assert server.service.queue.state.bodies.lost == 0
        assert server.service.body_reads is not None
        failed += server.service.body_reads.failed_reads
        client.ask(b"watch there\r\nkick 10\r\nuse there\r\nkick 10\r\n")
        got = client.ask(b"reserve-batch 10\r\n").split(b"\r\n")
        assert sorted(got[2::2]) == sorted(bodies)
        assert server.failures == []
    assert (at > 12, failed > 6) == (True, True)


def test_a_worker_of_several_tubes_reads_each_body_once() -> None:
    """What is read ahead of one does not drive out what was read ahead of the others."""
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=1 << 20, body_cache=16_000)
    client, jobs = server.connect(), 240
    for at in range(jobs):
        client.ask(b"use t%d\r\nput 0 0 60 500\r\n%b\r\n" % (at % 6, b"%03d" % at + bytes(497)))
    for at in range(6):
        client.ask(b"watch t%d\r\n" % at)
    for at in range(jobs):
        got = client.ask(b"reserve-with-timeout 0\r\n")
        assert got == b"RESERVED %d 500\r\n%b\r\n" % (at + 1, b"%03d" % at + bytes(497))
        assert client.ask(b"delete %d\r\n" % (at + 1)) == b"DELETED\r\n"
    assert server.service.queue.state.bodies.read <= jobs
