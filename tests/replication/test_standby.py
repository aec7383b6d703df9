"""Standbys on one stream: they follow, and one of them becomes active."""

from __future__ import annotations

import errno
import gc
import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pytest
from twisted.internet.defer import CancelledError

from beanstalk_twisted.binlog.batches import Batch, Opening, Position
from beanstalk_twisted.binlog.errors import CannotUse, Incompatible, NoSpace, WriteFailed
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.records.others import Trim
from beanstalk_twisted.binlog.segments.format import REHOMED, TRAILER_BYTES, segment_name
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.replication.membership import Identity, note_text
from beanstalk_twisted.replication.promotion import Promoted
from beanstalk_twisted.replication.receiving import FOLLOWS, HEARS_NOTHING
from beanstalk_twisted.replication.standby import MAX_AHEAD_BYTES, Standby
from beanstalk_twisted.replication.stream.messages import (
    Kind,
    Part,
    Write,
    decode,
    encode_note,
    encode_write,
    write_of,
)
from beanstalk_twisted.replication.stream_reading import Behind
from beanstalk_twisted.replication.waits import Node
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.storage.io_thread import InlineIo, Io
from beanstalk_twisted.wire.replies import DELETED
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    T0,
    UUID,
    WRITER,
    Scribe,
    as_read,
    files_of,
    flipped,
    put,
    segment_files,
    segments_of,
)
from tests.held_io import HeldIo
from tests.replication.followed import failing, header_of, loaded, new_queue, seen, writes_of
from tests.replication.stream.memory import TIMEOUT_S, Fate, MemoryLog, MemoryStream
from tests.replication.world import Machine, Process, SlowIo, World

LEASE_S = 2.0


class Host(Machine):
    """A server of a replicated queue: a standby, then perhaps the active one.

    :ivar outcome: of its `Standby.run`, None while it stands by.
    """

    def __init__(
        self, cluster: Cluster, name: str, directory: MemoryDirectory | None = None,
        io: Callable[[Process], Io] | None = None, ahead_s: int = 0, lease_s: float = LEASE_S,
    ) -> None:  # fmt: skip
        """:param ahead_s: by how much its wall clock is."""
        super().__init__(cluster, cluster.log, name, directory, ahead_s)
        self.lease_s = lease_s
        self.queue = new_queue()
        self.outcome: Any = None
        process = self.begin()
        self.clock = LogClock(process.wall_ns, process.now_ns)
        node = Node(
            self.stream, self.directory, self.queue, self.clock, process,
            InlineIo() if io is None else io(process), lease_s, 1 << 20, process.now_ns,
            Identity(name, f"id-{name}"),
        )  # fmt: skip
        self.standby = Standby(node)
        self.standby.run().addBoth(self._ended)

    def _ended(self, outcome: Any) -> None:
        self.outcome = outcome

    @property
    def is_active(self) -> bool:
        return isinstance(self.outcome, Promoted)

    def rotate(self) -> None:
        self.outcome.opened.log.rotate()
        self.commit()

    def put(self, body: bytes = b"hello", delay_s: int = 0) -> int:
        """Put a job and publish it."""
        session = self.queue.connect()
        now_ns = self.clock.now_ns()
        draft = self.queue.puts.begin(session, now_ns)
        self.queue.puts.put(session, now_ns, draft, 1024, delay_s, 60, body)
        self.commit()
        return draft[0]

    def delete(self, job_id: int) -> None:
        """Delete a job and publish that."""
        session = self.queue.connect()
        reply, _ = self.queue.delete(session, self.clock.now_ns(), job_id)
        assert reply == DELETED
        self.commit()

    def commit(self) -> None:
        """Publish and write all that is open."""
        opened, publisher = self.outcome.opened, self.outcome.publisher
        while (batch := opened.log.take(self.clock.now_ns())) is not None:
            for payload in encode_write(write_of(batch, self.clock.now_ns())):
                publisher.append(payload).addErrback(lambda _: None)
            opened.writer.write(batch, True)
            opened.log.durable(batch.last_lsn)
        while (segment := opened.log.budget.wanted(self.queue.demand())) is not None:
            opened.writer.prepare(segment)
            opened.log.budget.add(segment)

    def beat(self) -> None:
        self.note(Kind.HEARTBEAT, expires=True)

    def note(self, kind: Kind, to: str = "", expires: bool = False) -> None:
        text = note_text(Identity(self.name, f"id-{self.name}"), to, self.lease_s)
        lsn, now_ns = self.outcome.opened.log.last_lsn, self.clock.now_ns()
        note = encode_note(kind, lsn, now_ns, text)
        self.outcome.publisher.append(note, expires=expires).addErrback(lambda _: None)

    def bodies(self) -> list[bytes]:
        jobs = self.queue.state.jobs
        return [job.loaded_body for each in jobs if (job := jobs.look(each)) is not None]


class Cluster(World):
    """A stream and its servers."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog()

    def start(self, name: str, directory: MemoryDirectory | None = None, **options: Any) -> Host:
        return Host(self, name, directory, **options)

    def pass_s(self, seconds: float, beats: Host | None = None) -> None:
        """Pass time.

        :param beats: who sends a heartbeat every 0.1 s.
        """
        for _ in range(max(1, round(seconds / 0.1))):
            if beats is not None:
                beats.beat()
            super().pass_s(0.1)

    def append(self, *payloads: bytes) -> int:
        """Whoever it is writes to the stream.

        :return: the position of the last message.
        """
        for payload in payloads:
            self.log.append(payload, self.log.last)
        return self.log.last

    def active(self, name: str = "a") -> Host:
        host = self.start(name)
        self.pass_s(LEASE_S + 1)
        assert host.is_active, host.outcome
        return host


def alone() -> tuple[Cluster, Host]:
    """An active server."""
    cluster = Cluster()
    return cluster, cluster.active()


def pair() -> tuple[Cluster, Host, Host]:
    """An active server and a standby."""
    cluster, active = alone()
    return cluster, active, cluster.start("b")


def test_of_two_first_servers_one_becomes_active_after_a_lease() -> None:
    cluster = Cluster()
    hosts = [cluster.start("a"), cluster.start("b")]
    cluster.pass_s(LEASE_S - 0.2)
    assert not any(host.is_active for host in hosts)
    cluster.pass_s(0.7)
    assert [host.is_active for host in hosts].count(True) == 1
    assert all(host.is_active or host.outcome is None for host in hosts)


def test_of_two_first_servers_that_with_a_log_becomes_active() -> None:
    cluster = Cluster()
    scribe = with_jobs(b"there before")
    cluster.start("without")
    cluster.pass_s(LEASE_S / 2)
    host = cluster.start("with", MemoryDirectory(scribe.files()))
    cluster.pass_s(0.5)
    assert host.is_active
    assert host.bodies() == [b"there before"]


def test_a_standby_waits_for_the_lease_of_the_active_server_if_that_is_longer() -> None:
    cluster, active, standby = pair()
    cluster.pass_s(1, active)
    text = note_text(Identity("a", "id-a"), lease_s=3 * LEASE_S)
    note = encode_note(Kind.HEARTBEAT, active.outcome.opened.log.last_lsn, 0, text)
    active.outcome.publisher.append(note)
    cluster.pass_s(3 * LEASE_S - 0.5)
    assert standby.outcome is None
    cluster.pass_s(1.5)
    assert standby.is_active
    succession: Any = standby.outcome
    assert succession.why == f"a was silent for {3 * LEASE_S:g} s"


def test_a_standby_that_gets_nothing_of_what_is_there_asks_anew() -> None:
    cluster, active, standby = pair()
    cluster.pass_s(1, active)
    following = standby.standby._buffer.following
    assert following is not None
    following.stop()
    active.put(b"unheard")
    cluster.pass_s(LEASE_S + 1, active)
    assert standby.bodies() == [b"unheard"] and standby.outcome is None


def test_a_standby_says_that_it_hears_nothing() -> None:
    cluster, active, standby = pair()
    cluster.pass_s(1, active)
    standby.stream.cut()
    cluster.pass_s(LEASE_S + TIMEOUT_S + 1, active)
    assert standby.standby.figures().doing == HEARS_NOTHING
    standby.stream.mend()
    cluster.pass_s(TIMEOUT_S, active)
    assert standby.standby.figures().doing == FOLLOWS


@pytest.mark.parametrize("ahead_s", [3600, -3600])
@pytest.mark.parametrize("keeps_log", [False, True])
def test_who_becomes_active_goes_on_with_the_log_time_of_the_other(
    ahead_s: int, keeps_log: bool
) -> None:
    """The wall clock of one of them is wrong."""
    cluster, active = alone()
    active.put(delay_s=600)
    active.queue.pause_tube(active.queue.connect(), active.clock.now_ns(), b"default", 600)
    active.commit()
    standby = cluster.start("b", ahead_s=ahead_s)
    cluster.pass_s(1, active)
    if keeps_log:
        standby.standby.stop()
        standby = cluster.start("b", standby.directory, ahead_s=ahead_s)
        cluster.pass_s(1, active)
    cluster.pass_s(LEASE_S + 0.5)
    assert standby.is_active
    gone_ns = standby.clock.now_ns() - active.clock.now_ns()
    assert abs(gone_ns) < NS
    assert standby.clock.wall_offset_ns() // NS in (ahead_s - 1, ahead_s)
    tube = standby.queue.state.default()
    assert [tube.delayed.count, tube.pause_until_ns // NS] == [1, T0 // NS + 603]


def test_who_hears_no_active_server_goes_on_by_its_own_wall_clock() -> None:
    """All were down."""
    cluster, active = alone()
    active.put(delay_s=600)
    active.beat()
    cluster.pass_s(1)
    standby = cluster.start("b", ahead_s=3600)
    cluster.pass_s(LEASE_S + 1)
    assert standby.is_active
    assert standby.clock.wall_offset_ns() == 0


def test_nobody_takes_over_while_the_stream_is_filled() -> None:
    cluster = Cluster()
    cluster.append(encode_note(Kind.FILL_BEGINS, 0, T0))
    cluster.append(*messages_of(writes_of(with_jobs(b"one", b"two").directory)))
    standby = cluster.start("b")
    cluster.pass_s(2 * LEASE_S)
    assert standby.outcome is None
    assert standby.bodies() == [b"one", b"two"]
    cluster.append(encode_note(Kind.FILL_ENDS, 0, T0))
    cluster.pass_s(2 * LEASE_S)
    # Records that were not known durable come with the segment that begins behind.
    assert standby.outcome is None


def test_what_a_fenced_server_has_left_in_the_stream_is_not_written_by_one_that_joins() -> None:
    cluster, fenced = alone()
    fenced.put(b"one")
    cluster.pass_s(0.2)
    standby = cluster.start("b")
    cluster.pass_s(LEASE_S + 1)
    assert standby.is_active
    before = written(standby.directory)
    # As it comes when the message that it expects is lost, and a START takes its place.
    come_late(cluster, late_batch(fenced))
    again = cluster.start("c", standby.directory.after_kill())
    cluster.pass_s(0.5)
    assert again.bodies() == [b"one"]
    assert written(again.directory) == before


def test_a_fenced_server_joins_the_log_of_the_active_one_not_what_it_has_left_there() -> None:
    cluster, fenced = alone()
    fenced.put(b"one")
    cluster.pass_s(0.2)
    standby = cluster.start("b")
    cluster.pass_s(LEASE_S + 1)
    standby.put(b"two")
    cluster.pass_s(0.2)
    # It goes on for a while on its own disk; its next segment begins in the stream too, too late.
    for _ in range(10):
        batch = late_batch(fenced)
        keep_here(fenced, batch)
    begin_late(cluster, fenced)
    again = cluster.start("a", fenced.directory.after_kill())
    cluster.pass_s(0.5)
    assert again.bodies() == [b"one", b"two"]
    assert "unacknowledged" in " ".join(again.standby.notes)


def begin_late(cluster: Cluster, host: Host) -> None:
    """A server's next segment begins on its own disk; in the stream only that comes, behind
    whatever is there by now.
    """
    opened = host.outcome.opened
    opened.log.rotate()
    while (batch := opened.log.take(T0)) is not None:
        keep_here(host, batch)
        if batch.begins:
            come_late(cluster, batch)


def keep_here(host: Host, batch: Batch) -> None:
    """A server writes a batch to its own disk."""
    host.outcome.opened.writer.write(batch, True)
    host.outcome.opened.log.durable(batch.last_lsn)


def come_late(cluster: Cluster, batch: Batch) -> None:
    """A batch comes into the stream behind whatever is there by now."""
    cluster.append(*encode_write(write_of(batch, T0)))


def test_a_late_segment_is_not_what_both_have_where_the_stream_begins_with_its_fence() -> None:
    cluster, fenced = alone()
    fenced.put(b"one")
    cluster.pass_s(0.2)
    standby = cluster.start("b")
    cluster.pass_s(LEASE_S + 1)
    late = late_batch(fenced)
    keep_here(fenced, late)
    come_late(cluster, late)
    begin_late(cluster, fenced)
    start, position = max(standby.outcome.publisher.segments.first_positions.items())
    for job_id in list(standby.queue.state.jobs):
        standby.delete(job_id)
    standby.outcome.opened.log.append(Trim(start, standby.clock.now_ns()))
    standby.put(b"two")
    cluster.pass_s(0.2, standby)
    cluster.log.purge(position)
    again = cluster.start("a", fenced.kill())
    cluster.pass_s(0.5, standby)
    assert again.outcome is None
    assert segments_of(again.directory) == segments_of(standby.directory)[-1:]
    assert again.bodies() == [b"two"]
    assert "unacknowledged" in " ".join(again.standby.notes)


@pytest.mark.parametrize("others", [0, 40])
def test_a_segment_whose_predecessor_was_refused_is_not_what_both_have(others: int) -> None:
    cluster, active, standby = pair()
    for n in range(others):
        active.put(b"%d" % n)
    active.rotate()
    active.put(b"one")
    cluster.pass_s(0.2, active)
    # Both were under way; the place of the first one was taken by another's, and nothing is sent
    # again, since the server ends.
    keep_here(active, late_batch(active))
    begin_late(cluster, active)
    left = active.kill()
    cluster.pass_s(LEASE_S + 1)
    standby.put(b"two")
    cluster.pass_s(0.2, standby)
    again = cluster.start("a", left)
    cluster.pass_s(0.5, standby)
    check_same(standby, again)
    assert again.bodies()[-2:] == [b"one", b"two"]
    assert "unacknowledged" in " ".join(again.standby.notes)


def test_nobody_fills_from_a_copy_of_a_part() -> None:
    cluster = Cluster()
    whole = with_jobs(b"one", b"two")
    [first, *_] = writes_of(whole.directory)
    cluster.append(encode_note(Kind.FILL_BEGINS, 1000, T0))
    cluster.append(*encode_write(first))
    standby = cluster.start("b")
    cluster.pass_s(0.5)
    last = cluster.log.last
    again = cluster.start("c", standby.directory.after_kill())
    cluster.pass_s(2 * LEASE_S)
    assert again.outcome is None and standby.outcome is None
    assert cluster.log.last == last


def test_a_filling_of_which_only_a_part_is_shown_is_gone_on_with() -> None:
    cluster = Cluster()
    directory = thirty_jobs(1000)
    names = segment_files(directory).keys()
    assert len(names) > 3
    cluster.append(encode_note(Kind.FILL_BEGINS, 0, T0))
    cluster.append(*messages_of(writes_of(directory)[:3]))
    host = cluster.start("a", directory)
    # The ends are asked of one that knows them, all else of one that is behind.
    host.stream.fate = lambda kind: is_behind(host.stream, kind)
    cluster.pass_s(0.5)
    assert host.outcome.check(Behind), host.outcome
    assert segment_files(directory).keys() == names
    again = cluster.start("a", host.kill())
    cluster.pass_s(1)
    assert again.is_active, again.outcome
    assert len(again.bodies()) == 30
    # What was filled before is purged, now or later.
    assert again.outcome.purge_below == 5


def test_a_filling_of_which_only_the_beginning_is_shown_is_read_from_there_on() -> None:
    cluster = Cluster()
    directory = thirty_jobs(1000)
    writes = list(writes_of(directory))
    cluster.append(encode_note(Kind.FILL_BEGINS, writes[-1].last_lsn, T0))
    cluster.append(*messages_of(writes))
    standby = cluster.start("b")
    standby.stream.fate = lambda kind: is_behind(standby.stream, kind, cluster.log.last - 1)
    cluster.pass_s(0.5)
    assert standby.standby.figures().doing.startswith("waits until")
    standby.stream.fate = lambda kind: is_behind(standby.stream, kind, 0)
    cluster.append(encode_note(Kind.FILL_ENDS, writes[-1].last_lsn, T0))
    cluster.pass_s(0.5)
    assert standby.outcome is None
    assert len(standby.bodies()) == 30


def is_behind(stream: MemoryStream, kind: str, count: int = 1) -> Fate:
    """Reads are answered by who does not know the newest messages."""
    stream.behind = count if kind == "read" else 0
    return Fate()


# Where the log here and the stream are not the same: docs/replication-log.md, "A start".


def messages_of(writes: Iterable[Write]) -> Iterator[bytes]:
    """What is sent of them."""
    return chain.from_iterable(map(encode_write, writes))


def thirty_jobs(size: int = 900) -> MemoryDirectory:
    """A log of several segments that was there before replication."""
    return MemoryDirectory(with_jobs(*(b"%d" % n + bytes(size) for n in range(30))).files())


def with_jobs(*bodies: bytes) -> Scribe:
    """A log that was there before replication."""
    scribe = Scribe(segment_bytes=8192)
    scribe.write(DEFAULT_TUBE)
    for job_id, body in enumerate(bodies, start=1):
        scribe.write(put(job_id, body))
    return scribe


def long_running(jobs: int = 60) -> tuple[Cluster, Host, Host]:
    """An active server and a standby, with several segments."""
    cluster, active, standby = pair()
    for n in range(jobs):
        active.put(b"%d " % n + bytes(1000))
        if n % 15 == 14:
            active.rotate()
    for n in range(1, jobs, 3):
        active.delete(n)
    cluster.pass_s(0.5, active)
    assert len(segment_files(active.directory)) > 3
    assert sorted(standby.bodies()) == sorted(active.bodies())
    return cluster, active, standby


def restarted(cluster: Cluster, host: Host, directory: MemoryDirectory, beats: Host) -> Host:
    host.standby.stop()
    again = cluster.start("again", directory)
    cluster.pass_s(1, beats)
    assert again.outcome is None, again.outcome
    return again


def written(directory: MemoryDirectory) -> dict[str, bytes]:
    """The segments, without what is allocated ahead."""
    files = segment_files(directory).items()
    return {name: content.rstrip(b"\0") for name, content in files}


def check_same(active: Host, standby: Host) -> None:
    assert sorted(standby.bodies()) == sorted(active.bodies())
    assert written(standby.directory) == written(active.directory)


def test_zeros_as_long_as_a_trailer_do_not_end_a_segment() -> None:
    cluster, active, standby = long_running()
    directory = standby.directory.after_kill()
    name, content = sorted(segment_files(active.directory).items())[-1]
    size = -(-len(content.rstrip(b"\0")) // 8) * 8
    directory.cut(name, size)
    file = directory.open(name)
    file.write_at(size, [bytes(TRAILER_BYTES)])
    file.close()
    active.put(b"meanwhile")
    again = restarted(cluster, standby, directory, active)
    check_same(active, again)


def test_a_standby_that_is_stopped_while_it_joins_leaves_nothing_behind() -> None:
    cluster, _, standby = long_running()
    standby.standby.stop()
    again = cluster.start("again", standby.directory.after_kill())
    again.stream.fate = lambda kind: Fate(back=0.001)
    for _ in range(1000):
        if "message" in again.standby.figures().doing:
            break
        World.pass_s(cluster, 0.001)
    assert again.standby._waits.count == 1
    doing = again.standby.figures().doing
    assert re.fullmatch(r"catches up with the stream: message \d+ of \d+", doing)
    again.standby.stop()
    assert again.outcome.check(CancelledError)
    cluster.pass_s(0.05)
    # What nobody waits for any more would be told of as a failure when it is collected.
    gc.collect()


@pytest.mark.parametrize(("count", "size"), [(1, 0), (20, 1000)], ids=["part", "segments"])
def test_what_the_stream_lacks_or_has_otherwise_is_kept_aside_and_cut(
    count: int, size: int
) -> None:
    cluster, active, standby = long_running()
    active.stream.cut()
    put_some(active, b"never acknowledged", count, size)
    cluster.pass_s(LEASE_S + 0.5)
    assert standby.is_active
    put_some(standby, b"of the new one", count, size)
    cluster.pass_s(0.2)
    again = restarted(cluster, active, active.directory.after_kill(), standby)
    check_same(standby, again)
    kept = b"".join(again.directory.quarantined.values())
    assert b"never acknowledged %d" % (count - 1) in kept
    assert "was never acknowledged" in again.standby.notes[0]


def put_some(host: Host, body: bytes, count: int, size: int) -> None:
    """Put jobs, of which the eleventh ends a segment."""
    for n in range(count):
        host.put(b"%b %d" % (body, n) + bytes(size))
        if n == 10:
            host.rotate()


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("at", [10, 4300, 6000])
def test_what_follows_damage_is_kept_aside_and_read_from_the_stream(which: int, at: int) -> None:
    cluster, active, standby = long_running()
    directory = standby.directory.after_kill()
    name = segments_of(directory)[which]
    directory.replace(name, flipped(bytes(directory.read(name)), at))
    again = restarted(cluster, standby, directory, active)
    check_same(active, again)
    assert name in "".join(directory.quarantined)
    assert again.standby.notes


def test_a_missing_segment_is_read_from_the_stream() -> None:
    cluster, active, standby = long_running()
    directory = standby.directory.after_kill()
    directory.remove(segments_of(directory)[2])
    check_same(active, restarted(cluster, standby, directory, active))


@pytest.mark.parametrize("interrupted_after", [None, 20])
def test_a_stream_without_a_whole_log_is_filled_from_the_one_that_is_here(
    interrupted_after: int | None,
) -> None:
    cluster, directory = Cluster(), thirty_jobs()
    if interrupted_after is not None:
        cluster.append(encode_note(Kind.FILL_BEGINS, 0, T0))
        cluster.append(*messages_of(writes_of(directory)[:interrupted_after]))
    host = cluster.start("a", directory)
    cluster.pass_s(0.5)
    assert host.is_active, host.outcome
    standby = cluster.start("b")
    host.put(b"new")
    cluster.pass_s(0.5, host)
    check_same(host, standby)
    assert len(standby.bodies()) == 31
    firsts = host.outcome.publisher.segments.first_positions
    assert sorted(firsts) == list(range(1, max(firsts) + 1))


def test_what_a_foreign_message_has_displaced_is_not_missed_by_who_joins_behind_it() -> None:
    cluster, active, standby = long_running()
    active.kill()
    segment, lsn = active.outcome.opened.log.segment, standby.standby.figures().lsn
    under_way = [
        b"rubbish",
        next(encode_write(Write(segment, 1 << 16, bytes(64), lsn + 2, T0, False, False))),
        encode_note(Kind.HEARTBEAT, lsn, T0),
        next(encode_write(Write(segment, 1 << 17, bytes(64), lsn + 3, T0, False, False))),
    ]
    cluster.append(*under_way)
    cluster.log.expire(cluster.log.last - 1)
    again = cluster.start("again", standby.kill())
    cluster.pass_s(2 * LEASE_S + 1)
    assert again.is_active, again.outcome


@pytest.mark.parametrize("displaced", [0, 1, 3, 6])
@pytest.mark.parametrize("is_there", [False, True], ids=["joins later", "follows it"])
def test_a_filling_whose_first_copy_is_displaced_is_taken_from_its_first_segment_on(
    displaced: int, is_there: bool
) -> None:
    """A foreign message takes the place of one write, and all that were under way come again."""
    cluster = Cluster()
    whole = thirty_jobs()
    all_of_it = list(writes_of(whole))
    lsn = all_of_it[-1].last_lsn
    writes = [[*encode_write(write)] for write in all_of_it]
    cluster.append(encode_note(Kind.FILL_BEGINS, lsn, T0, b"", all_of_it[0].segment))
    standby = cluster.start("b") if is_there else None
    ends = encode_note(Kind.FILL_ENDS, lsn, T0)
    before, behind = writes[:displaced], writes[displaced:]
    for payload in [*chain(*before), b"rubbish", *chain(*behind[1:]), ends, *chain(*behind)]:
        cluster.append(payload)
        cluster.pass_s(0.01)
    standby = standby or cluster.start("b")
    cluster.pass_s(1)
    assert standby.standby.figures().doing.startswith("waits until")
    cluster.log.append(ends, cluster.log.last)
    cluster.pass_s(0.5)
    assert standby.outcome is None
    assert sorted(standby.bodies()) == sorted(b"%d" % n + bytes(900) for n in range(30))
    assert segments_of(standby.directory) == segments_of(whole)


@pytest.mark.parametrize("before", [0, 3, 11])
def test_a_filling_begun_anew_is_where_segments_are(before: int) -> None:
    cluster = Cluster()
    directory = thirty_jobs()
    cluster.append(encode_note(Kind.FILL_BEGINS, 1000, T0))
    cluster.append(*messages_of(writes_of(directory)[:20]))
    copy = cluster.start("b")
    cluster.pass_s(0.5)
    kept = copy.kill()
    again = cluster.append(encode_note(Kind.FILL_BEGINS, 1000, T0))
    writes = list(writes_of(directory))
    for at, write in enumerate(writes):
        if at == before:
            standby = cluster.start("b", kept)
            cluster.pass_s(0.5)
        cluster.append(*encode_write(write))
    cluster.pass_s(0.5)
    assert standby.outcome is None
    assert standby.standby.first_in_use > again


def test_what_is_behind_a_gap_is_not_known_until_a_write_goes_on() -> None:
    cluster, active, standby = long_running()
    assert standby.standby.known_to == cluster.log.last
    last = cluster.log.last
    standby.stream.cut(sending=False)
    active.beat()
    active.beat()
    cluster.pass_s(0.1)
    cluster.log.expire(last + 1)
    standby.stream.mend()
    cluster.pass_s(0.1)
    assert standby.standby.figures().position == last + 2
    assert standby.standby.known_to == last
    active.put(b"on")
    cluster.pass_s(0.1)
    assert standby.standby.known_to == cluster.log.last


def slow_io(process: Process) -> SlowIo:
    """A disk that takes some time for what it does."""
    return SlowIo(process, random.Random(1))


def test_who_reads_two_fillings_begins_anew_but_once() -> None:
    cluster = Cluster()
    directory = thirty_jobs()
    for kind, writes in ((Kind.FILL_BEGINS, writes_of(directory)), (Kind.FILL_ENDS, [])):
        cluster.append(encode_note(kind, 0, T0))
        cluster.append(*messages_of(writes))
    host = cluster.start("a", directory)
    host.stream.fate = lambda kind: Fate(there=None if kind == "purge" else 0.0)
    cluster.pass_s(5)
    assert host.is_active and cluster.log.ends.first == 1
    standby = cluster.start("b", io=slow_io)
    cluster.pass_s(1, host)
    assert standby.outcome.check(Behind), standby.outcome
    again = cluster.start("b", standby.kill(), io=slow_io)
    cluster.pass_s(1, host)
    check_same(host, again)
    assert len(again.bodies()) == 30
    assert again.standby.figures().is_in_sync
    host.kill()
    cluster.pass_s(5)
    assert again.is_active and len(again.bodies()) == 30


def test_a_log_of_another_store_is_refused() -> None:
    cluster, active = alone()
    directory = MemoryDirectory(with_jobs(b"theirs").files())
    host = cluster.start("b", directory)
    cluster.pass_s(0.5, active)
    assert host.outcome.check(Incompatible)
    said = str(host.outcome.value)
    ours = header_of(active.directory, 1).store_uuid.hex()
    assert UUID.hex() in said and ours in said and "--replicate" in said
    assert "'nats stream purge log'" in said and "move away the logs that were begun" in said
    assert files_of(directory) == with_jobs(b"theirs").files()


def test_a_standby_that_falls_behind_a_purge_in_a_gap_begins_anew() -> None:
    cluster, active, standby = long_running()
    standby.stream.cut(sending=False)
    active.beat()
    cluster.pass_s(0.1)
    cluster.log.expire(cluster.log.last)
    active.beat()
    standby.stream.mend()
    cluster.pass_s(0.1)
    # It has seen a gap, and that nothing was purged.
    assert standby.standby.figures().is_in_sync
    standby.stream.cut(sending=False)
    for n in list(active.queue.state.jobs):
        active.delete(n)
    active.rotate()
    log = active.outcome.opened.log
    log.append(Trim(log.segment, active.clock.now_ns()))
    active.commit()
    cluster.pass_s(0.3)
    cluster.log.purge(cluster.log.last)
    standby.stream.mend()
    cluster.pass_s(LEASE_S, active)
    assert standby.outcome.check(Behind), standby.standby.figures()
    assert "purged" in standby.outcome.getErrorMessage()


@pytest.mark.parametrize("name", [b"idle", b"default"])
def test_a_tube_without_jobs_is_known_to_a_standby_that_starts_again(name: bytes) -> None:
    cluster, active, standby = long_running()
    worker = active.queue.connect()
    active.queue.watching.use(worker, active.clock.now_ns(), name)
    active.queue.watching.watch(worker, active.clock.now_ns(), name)
    for job_id in list(active.queue.state.jobs):
        active.delete(job_id)
    put_to(active, worker, b"gone soon")
    active.delete(max(active.queue.state.jobs))
    cluster.pass_s(0.2, active)
    again = cluster.start("b", standby.kill())
    cluster.pass_s(0.5, active)
    assert again.standby.figures().is_in_sync
    put_to(active, worker, b"there")
    cluster.pass_s(0.5, active)
    assert again.outcome is None and again.bodies() == [b"there"]
    (job_id,) = again.queue.state.jobs
    job = again.queue.state.jobs.look(job_id)
    assert job is not None and again.queue.state.tubes.by_id(job.tube_id).name == name
    cluster.pass_s(LEASE_S + 1)
    assert again.is_active and again.bodies() == [b"there"]


def put_to(host: Host, session: Session, body: bytes) -> None:
    """Put a job into the tube that a session uses."""
    now_ns = host.clock.now_ns()
    host.queue.puts.put(session, now_ns, host.queue.puts.begin(session, now_ns), 1, 0, 60, body)
    host.commit()


@pytest.mark.parametrize("has_log", [True, False])
def test_messages_of_a_later_version_end_who_joins_and_who_follows(has_log: bool) -> None:
    cluster, active, standby = long_running()
    newer = b"BTR2" + encode_note(Kind.HEARTBEAT, 1, T0)[4:]
    directory = standby.directory.after_kill() if has_log else None
    active.outcome.publisher.append(newer)
    cluster.pass_s(0.5)
    assert standby.outcome.check(Incompatible)
    joining = cluster.start("c", directory)
    cluster.pass_s(LEASE_S + 1)
    said = joining.outcome.getErrorMessage()
    assert joining.outcome.check(Incompatible) and "begins with b'BTR2'" in said
    assert "Install the version of the active server" in said


def purged_past(
    *, is_told: bool, takes_over: bool = False
) -> tuple[Cluster, Host, MemoryDirectory]:  # fmt: skip
    """An active server whose stream begins behind the log of another one that has ended.

    :param is_told: whether the log says that what was purged is dead.
    :param takes_over: whether the other one was active before.
    """
    cluster, active, standby = long_running(6 * 8)
    if takes_over:
        active, standby = standby, active
    directory = standby.kill()
    if takes_over:
        cluster.pass_s(LEASE_S + 1)
    newest = max(active.outcome.publisher.segments.first_positions)
    old = list(active.queue.state.jobs)
    for n in range(80):
        active.put(b"new %d" % n + bytes(1000))
        if n % 20 == 19:
            active.rotate()
    cluster.pass_s(0.5, active)
    firsts = {w.write.segment: at for at, p in cluster.log.messages.items()
              if isinstance(w := decode(p), Part) and w.write.begins}  # fmt: skip
    kept = max(firsts) - 1
    assert newest < kept
    if is_told:
        for n in old:
            active.delete(n)
        active.outcome.opened.log.append(Trim(kept, active.clock.now_ns()))
        active.commit()
    cluster.pass_s(0.5, active)
    cluster.log.purge(firsts[kept])
    return cluster, active, directory


def test_a_log_older_than_the_stream_begins_anew() -> None:
    cluster, active, directory = purged_past(is_told=True)
    again = cluster.start("again", directory)
    cluster.pass_s(0.5, active)
    assert again.outcome is None
    assert segments_of(directory) == segments_of(active.directory)[-2:]
    assert set(again.bodies()) < set(active.bodies())
    assert b"new 79" + bytes(1000) in again.bodies()
    # Whether what is here was in the stream nobody can see any more.
    assert directory.quarantined
    assert all("were removed: no whole segment here is" in note for note in again.standby.notes)
    cluster.pass_s(LEASE_S + 1)
    assert again.is_active


def test_a_log_gone_on_with_alone_is_kept_when_the_stream_has_forgotten_where_it_parted() -> None:
    cluster, active, directory = purged_past(is_told=True, takes_over=True)
    # Both terms have the same incarnation.
    alone = run_alone(directory, b"acknowledged here alone")
    again = cluster.start("again", alone)
    cluster.pass_s(0.5, active)
    assert again.outcome is None
    assert set(again.bodies()) < set(active.bodies())
    assert any(b"acknowledged here alone" in kept for kept in alone.quarantined.values())


def test_nothing_is_removed_of_a_log_when_the_stream_was_purged_of_what_lives() -> None:
    cluster, active, directory = purged_past(is_told=False)
    for each in (directory, active.directory.after_kill()):
        whole = segment_files(each)
        again = cluster.start("again", each)
        cluster.pass_s(0.5, active)
        assert again.outcome.check(Incompatible)
        said = str(again.outcome.value)
        assert "nothing was changed" in said and "nats stream purge" in said
        assert segment_files(each) == whole


@pytest.mark.parametrize("is_mended", [False, True])
def test_who_has_part_of_a_log_says_why_and_does_not_take_over(is_mended: bool) -> None:
    cluster, active, _ = purged_past(is_told=False)
    oldest = min(w.write.segment for p in cluster.log.messages.values()
                 if isinstance(w := decode(p), Part) and w.write.begins)  # fmt: skip
    empty = cluster.start("empty")
    cluster.pass_s(0.5, active)
    figures = empty.standby.figures()
    assert not figures.is_in_sync and figures.position == cluster.log.last
    why = f"lacks what is in use before {segment_name(oldest)}: somebody has purged the stream"
    assert figures.doing == why
    if not is_mended:
        last = cluster.log.last
        cluster.pass_s(LEASE_S + 1)
        assert empty.outcome.check(Incompatible)
        assert "purged" in str(empty.outcome.value)
        assert cluster.log.last == last
        return
    # Once the log says that what is missing is dead nothing is.
    active.outcome.opened.log.append(Trim(oldest, active.clock.now_ns()))
    active.commit()
    cluster.pass_s(0.5, active)
    assert empty.standby.figures().is_in_sync and empty.standby.figures().doing == FOLLOWS


def test_a_stream_that_was_purged_of_all_beginnings_is_told_from_no_log_of_a_queue() -> None:
    cluster, active, standby = pair()
    for _ in range(3):
        active.put()
    cluster.pass_s(0.5, active)
    directories = MemoryDirectory(), standby.directory.after_kill(), active.directory.after_kill()
    cluster.log.purge(3)
    for each in directories:
        before = segment_files(each)
        again = cluster.start("again", each)
        cluster.pass_s(0.5, active)
        assert again.outcome.check(Incompatible)
        said = str(again.outcome.value)
        assert "somebody has purged it; nothing was changed. End all servers" in said
        assert "nats stream purge" in said and "another stream" not in said
        assert segment_files(each) == before
    foreign = Cluster()
    foreign.log.append(b"of somebody else", 0)
    host = foreign.start("a")
    foreign.pass_s(0.5)
    assert host.outcome.check(Incompatible)
    assert "Name another stream with --replicate" in str(host.outcome.value)


def run_alone(directory: MemoryDirectory, body: bytes) -> MemoryDirectory:
    """What is left when a server without this stream has gone on with a log."""
    other = Cluster()
    host = other.start("alone", directory)
    other.pass_s(0.5)
    assert host.is_active, host.outcome
    host.put(body)
    return host.directory.after_kill()


@pytest.mark.parametrize(
    ("has_successor", "has_common"), [(False, True), (True, True), (False, False)]
)
def test_a_log_that_was_gone_on_with_without_the_stream_is_refused(
    has_successor: bool, has_common: bool
) -> None:
    cluster, active, standby = long_running()
    if has_successor:
        # Both incarnations have the same number.
        cluster.pass_s(LEASE_S + 0.5)
        assert standby.is_active
    directory = run_alone(active.directory.after_kill(), b"acknowledged")
    for name in [] if has_common else segments_of(directory)[:-1]:
        directory.remove(name)
    before = segment_files(directory)
    again = cluster.start("again", directory)
    cluster.pass_s(0.5, standby if has_successor else active)
    assert again.outcome.check(Incompatible)
    said = str(again.outcome.value)
    assert "written without --replicate" in said
    assert ("binlog-inspect diff" in said) or not has_common
    assert segment_files(directory) == before and not directory.quarantined


def test_a_standby_that_falls_behind_a_purge_says_so() -> None:
    cluster, active, standby = long_running()
    standby.stream.cut(sending=False)
    for _ in range(30):
        active.put(bytes(1000))
    cluster.pass_s(0.1)
    cluster.log.purge(cluster.log.last - 1)
    standby.stream.mend()
    cluster.pass_s(0.5, active)
    assert standby.outcome.check(Behind)


# Heartbeats that have expired.


EXPIRE_S = 1.0


def idle_and_busy() -> tuple[Cluster, Host, Host]:
    """An active server and a standby, most of whose heartbeats have expired between the writes."""
    cluster = Cluster()
    cluster.log.expire_s = EXPIRE_S
    active, standby = cluster.active(), cluster.start("b")
    for n in range(12):
        active.put(b"%d " % n + bytes(1000))
        if n % 5 == 4:
            active.rotate()
        cluster.pass_s(0.6, active)
    assert cluster.log.last > 3 * len(cluster.log.messages)
    return cluster, active, standby


def test_however_soon_heartbeats_expire_who_is_silent_is_not_told_by_them() -> None:
    cluster = Cluster()
    cluster.log.expire_s = 0.05
    active = cluster.active()
    standby = cluster.start("b")
    for _ in range(5):
        cluster.pass_s(LEASE_S, active)
        assert standby.outcome is None
        assert cluster.log.newest < cluster.log.last
    cluster.pass_s(LEASE_S - 0.3)
    assert standby.outcome is None
    cluster.pass_s(2 * LEASE_S + 1)
    assert standby.is_active


@pytest.mark.parametrize("keeps_log", [True, False])
def test_a_standby_that_starts_reads_over_heartbeats_that_have_expired(keeps_log: bool) -> None:
    cluster, active, standby = idle_and_busy()
    directory = standby.kill()
    active.put(b"meanwhile")
    cluster.pass_s(2 * EXPIRE_S, active)
    again = cluster.start("again", directory if keeps_log else None)
    cluster.pass_s(LEASE_S, active)
    assert again.outcome is None
    check_same(active, again)
    assert not directory.quarantined
    active.put(b"behind")
    cluster.pass_s(0.5, active)
    check_same(active, again)


@pytest.mark.parametrize("keeps_log", [True, False])
def test_when_the_end_of_the_stream_has_expired_a_server_becomes_active_behind_it(
    keeps_log: bool,
) -> None:
    cluster, active, standby = idle_and_busy()
    jobs = active.bodies()
    standby.kill()
    directory = active.kill()
    cluster.pass_s(2 * EXPIRE_S)
    last = cluster.log.last
    assert cluster.log.newest < last
    again = cluster.start("again", directory if keeps_log else None)
    other = cluster.start("other")
    cluster.pass_s(LEASE_S + 0.5)
    # One message that does not expire, and no more.
    assert cluster.log.last == last + 1 == cluster.log.newest
    assert (again.outcome, other.outcome) == (None, None)
    assert {each.standby.figures().active for each in (again, other)} == {"a"}
    cluster.pass_s(LEASE_S)
    [new] = [each for each in (again, other) if each.is_active]
    assert sorted(new.bodies()) == sorted(jobs)
    assert new.put() == len(jobs) + 1


@pytest.mark.parametrize("keeps_log", [True, False])
def test_what_was_sent_again_behind_an_expired_heartbeat_tells_of_no_loss(keeps_log: bool) -> None:
    cluster, active, standby = idle_and_busy()
    jobs = active.bodies()
    writes = [payload for payload in cluster.log.messages.values()
              if isinstance(part := decode(payload), Part) and not part.write.begins]  # fmt: skip
    standby.kill()
    directory = active.kill()
    cluster.append(*writes[-2:])
    cluster.pass_s(2 * EXPIRE_S)
    again = cluster.start("again", directory if keeps_log else None)
    cluster.pass_s(LEASE_S + 0.5)
    assert again.is_active, again.outcome
    assert sorted(again.bodies()) == sorted(jobs)


def is_late(stream: MemoryStream, kind: str) -> Fate:
    """Deliveries take long, and reads are answered by who does not know the newest messages."""
    stream.behind = 3 if kind == "read" else 0
    return Fate(back=LEASE_S + 1) if kind == "deliver" else Fate()


def test_what_is_on_its_way_is_not_taken_for_expired_whoever_says_so() -> None:
    cluster, active, standby = pair()
    cluster.pass_s(0.5, active)
    standby.stream.fate = lambda kind: is_late(standby.stream, kind)
    for number in range(3):
        active.put(b"%d" % number)
    cluster.pass_s(0.1)
    last = cluster.log.last
    cluster.pass_s(LEASE_S - 0.1)
    assert cluster.log.last == last + 1
    standby.stream.fate = lambda kind: Fate()
    standby.stream.behind = 0
    cluster.pass_s(3 * LEASE_S)
    assert standby.is_active
    assert standby.bodies() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("keeps_log", [True, False])
def test_who_reads_that_more_than_heartbeats_is_missing_does_not_go_on(keeps_log: bool) -> None:
    cluster, active, standby = idle_and_busy()
    cluster.pass_s(2 * EXPIRE_S, active)
    writes = [at for at, payload in cluster.log.messages.items()
              if isinstance(part := decode(payload), Part) and not part.write.begins]  # fmt: skip
    directory = standby.kill()
    cluster.log.expire(writes[-2])
    last = cluster.log.last
    again = cluster.start("again", directory if keeps_log else None)
    cluster.pass_s(LEASE_S - 0.5)
    if not keeps_log:
        assert again.standby.figures().doing.startswith("misses what was behind message ")
        assert not again.standby.figures().is_in_sync
    cluster.pass_s(1.5)
    if not keeps_log:
        assert again.outcome.check(Behind)
        assert "are missing" in again.outcome.getErrorMessage()
        again = cluster.start("again", again.kill())
        cluster.pass_s(1)
    assert again.outcome.check(Incompatible), again.outcome
    said = again.outcome.getErrorMessage()
    assert "some are missing that were more than heartbeats" in said
    assert "nats stream purge" in said
    assert cluster.log.last == last


def test_who_lacks_what_was_acknowledged_does_not_take_over() -> None:
    cluster, active, standby = long_running()
    assert standby.standby.figures().is_in_sync
    # As a server of NATS shows it that has lost what the others have.
    lsn = standby.standby.figures().lsn + 1
    said = note_text(Identity(active.name, f"id-{active.name}"), "", LEASE_S)
    active.outcome.publisher.append(encode_note(Kind.HEARTBEAT, lsn, T0, said))
    cluster.pass_s(0.1)
    figures = standby.standby.figures()
    assert figures.doing == f"misses what was behind message {figures.position}"
    assert not figures.is_in_sync
    last = cluster.log.last
    cluster.pass_s(LEASE_S + 1)
    assert standby.outcome.check(Behind)
    assert cluster.log.last == last


# Faults.


def test_a_server_that_dies_while_it_takes_over_leaves_no_hole() -> None:
    cluster, active, standby = long_running()
    cluster.pass_s(LEASE_S - 0.3)
    standby.directory.fault = failing(errno.EIO, "rename")
    third = cluster.start("c")
    cluster.pass_s(1)
    assert standby.outcome.check(CannotUse)
    standby.stream.cut()
    cluster.pass_s(LEASE_S + 1)
    assert third.is_active
    assert sorted(third.bodies()) == sorted(active.bodies())
    again = restarted(cluster, standby, standby.directory.after_kill(), third)
    check_same(third, again)


def test_a_server_that_begins_anew_and_has_no_space_for_copies_ends_and_removes_nothing() -> None:
    cluster, active, directory = purged_past(is_told=True)
    before = segment_files(directory)
    directory.fault = failing(errno.ENOSPC, "quarantine")
    again = cluster.start("again", directory)
    cluster.pass_s(0.5, active)
    assert again.outcome.check(CannotUse)
    assert str(again.outcome.value) == (
        f"binlog directory {directory.path} cannot be used: No space left on device; nothing was "
        "lost. Free some space, then start again."
    )
    assert segment_files(directory) == before


@pytest.mark.parametrize(
    ("number", "error", "said"),
    [
        (
            errno.ENOSPC, NoSpace,
            "no space for the newest changes: No space left on device; nothing was lost. "
            "Free some space, then start it again.",
        ),
        (errno.EIO, WriteFailed, ""),
    ],
)  # fmt: skip
def test_a_standby_whose_disk_is_full_or_fails_ends_and_does_not_say_that_it_tries_again(
    number: int, error: type[Exception], said: str
) -> None:
    cluster, active, standby = pair()
    cluster.pass_s(0.5, active)
    standby.directory.fault = failing(number, "write")
    active.put()
    cluster.pass_s(0.5, active)
    assert standby.outcome.check(error)
    assert str(standby.outcome.value).endswith(said)


def test_what_does_not_go_on_is_no_lag() -> None:
    cluster, active, standby = long_running()
    write = write_of(late_batch(active), T0)
    # Of a segment that a fenced server has begun, whose beginning did not come in.
    late = write._replace(segment=write.segment + 1, last_lsn=write.last_lsn + 40)
    for payload in encode_write(late):
        active.outcome.publisher.append(payload)
    cluster.pass_s(0.1)
    figures = standby.standby.figures()
    assert (figures.lag_records, figures.lag_bytes, figures.lag_s) == (0, 0, 0.0)
    assert figures.is_in_sync


def late_batch(host: Host) -> Batch:
    session = host.queue.connect()
    draft = host.queue.puts.begin(session, host.clock.now_ns())
    host.queue.puts.put(session, host.clock.now_ns(), draft, 1, 0, 60, b"late")
    batch = host.outcome.opened.log.take(host.clock.now_ns())
    assert isinstance(batch, Batch)
    return batch


def test_a_segment_that_takes_the_place_of_one_that_failed_is_followed() -> None:
    """Earlier versions went on in a new segment after a failed write."""
    cluster, active, standby = long_running()
    late = late_batch(active)
    lost, before = as_read(late.chunks), header_of(active.directory, late.seq)
    position = Position(
        late.seq + 1, lost[0].base_lsn, late.offset, 1, before.store_uuid, REHOMED,
        before.incarnation, T0, lost, incompat=before.incompat,
    )  # fmt: skip
    queue, now_ns = active.queue, active.clock.now_ns()
    opening = Opening(*queue.opening(late.seq + 1, now_ns))
    moved = Log(position, 1 << 20, lambda *at: opening, lambda: 7, WRITER).take(now_ns)
    assert isinstance(moved, Batch)
    for batch in (late, moved):
        for payload in encode_write(write_of(batch, T0)):
            active.outcome.publisher.append(payload)
    cluster.pass_s(0.5)
    [late_id] = [job_id for job_id in queue.state.jobs if job_id > 60]
    queue.state.move_home(late_id, moved.seq)
    assert sorted(standby.bodies()) == sorted(active.bodies())
    # A start on the files of the standby would have them too.
    there = loaded(standby.directory, active.clock.now_ns())
    assert seen(there)["jobs"] == seen(standby.queue)["jobs"]
    assert b"late" in standby.bodies()
    lives = [queue.state.live.of(seq) for seq in range(20)]
    assert [standby.queue.state.live.of(seq) for seq in range(20)] == lives


def test_dead_segments_are_removed() -> None:
    cluster, active, standby = long_running()
    log = active.outcome.opened.log
    for n in list(active.queue.state.jobs):
        active.delete(n)
    active.rotate()
    log.append(Trim(log.segment, active.clock.now_ns()))
    active.commit()
    cluster.pass_s(0.5, active)
    assert segments_of(standby.directory) == segments_of(active.directory)[-1:]
    cluster.pass_s(LEASE_S + 1)
    assert list(standby.outcome.publisher.segments.first_positions) == [
        log.segment,
        log.segment + 1,
    ]


def test_no_more_is_received_than_the_disk_can_take() -> None:
    cluster, active = alone()
    io = HeldIo()
    host = cluster.start("slow", io=lambda process: io)
    for _ in range(9):
        cluster.pass_s(0.1, active)
        while len(io):
            io.step()
    for n in range(90):
        active.put(b"%d" % n + bytes(500_000))
        cluster.pass_s(0.1, active)
    figures = host.standby.figures()
    assert len(active.bodies()) > 80
    assert MAX_AHEAD_BYTES < figures.lag_bytes < 2 * MAX_AHEAD_BYTES
    for _ in range(40):
        while len(io):
            io.step()
        cluster.pass_s(0.1, active)
    assert sorted(host.bodies()) == sorted(active.bodies())
