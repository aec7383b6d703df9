"""From a directory to a loaded queue and an open log."""

import errno
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.errors import (
    BinlogError,
    CannotUse,
    Damaged,
    Incompatible,
    NoSpace,
)
from beanstalk_twisted.binlog.files import TO_END
from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Pause, Record, Trim, TubeDef
from beanstalk_twisted.binlog.segments.format import (
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.binlog.writer import spare_name
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.opening import WRITER, begin, cannot_use, load
from beanstalk_twisted.wire.replies import DELETED, OUT_OF_MEMORY
from tests.binlog import independent_reader
from tests.binlog.forging import with_record_byte
from tests.binlog.memory import MemoryDirectory, fails_at
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    NS,
    T0,
    UUID,
    Files,
    Scribe,
    delete,
    edited,
    files_of,
    flipped,
    image,
    put,
)

ONE, TWO, THREE = (segment_name(n) for n in (1, 2, 3))


def no_facts() -> NoReturn:
    raise AssertionError


class Quiet:
    """A report that nobody hears."""

    def read(self, done: int, total: int) -> None:
        """See `startup.Report.read`."""

    def loaded(self, jobs: int) -> None:
        """See `startup.Report.loaded`."""


class Started:
    """A queue and its log, from a directory.

    :ivar now_ns: the wall clock.
    """

    def __init__(
        self, directory: MemoryDirectory, now_ns: int = T0 + 10 * NS, segment_bytes: int = 8192
    ) -> None:
        self.directory = directory
        self.now_ns = now_ns
        self.queue = WorkQueue(no_facts, (), 65_535)
        self.clock = LogClock(lambda: self.now_ns, lambda: self.now_ns)
        found = load(directory, self.queue, self.clock, Quiet())
        self.opened = begin(directory, self.queue, self.clock, segment_bytes, found)
        self.log = self.opened.log

    def connect(self) -> Session:
        return self.queue.connect()

    def put(self, session: Session, body: bytes = b"hello", delay_s: int = 0) -> int:
        """Put a job.

        :return: its id.
        """
        now_ns = self.clock.now_ns()
        draft = self.queue.puts.begin(session, now_ns)
        self.queue.puts.put(session, now_ns, draft, 1024, delay_s, 60, body)
        return draft[0]

    def commit(self) -> None:
        while (batch := self.log.take(self.clock.now_ns())) is not None:
            self.opened.writer.write(batch, True)
            self.log.durable(batch.last_lsn)
        self._prepare()

    def _prepare(self) -> None:
        budget = self.log.budget
        while (spare := budget.wanted(self.queue.demand())) is not None:
            try:
                self.opened.writer.prepare(spare)
            except NoSpace:
                budget.is_short = True
                return
            budget.add(spare)

    def jobs_after_restart(self) -> set[int]:
        """What another process finds when this one is killed."""
        left = self.directory.after_kill()
        left.space = None
        return set(Started(left).jobs())

    def segments(self) -> list[str]:
        return [name for name in self.directory.names() if name.endswith(".tql")]

    def spares(self) -> dict[str, int]:
        names = set(self.directory.names()) - set(self.segments())
        return {name: len(self.directory.read(name)) for name in names}

    def stop(self) -> None:
        self.commit()
        self.opened.writer.write(self.log.finish(self.clock.now_ns()), True)

    def jobs(self) -> dict[int, tuple[State, bytes]]:
        table = self.queue.state.jobs
        found = [(job_id, table.look(job_id)) for job_id in table]
        return {job_id: (job.state, job.loaded_body) for job_id, job in found if job is not None}

    def header(self, name: str) -> SegmentHeader:
        found = decode_segment_header(bytes(self.directory.read(name))[:4096])
        assert isinstance(found, SegmentHeader)
        return found


def killed(*batches: list[Record], segment_bytes: int = 8192) -> MemoryDirectory:
    """What a server leaves that wrote these and was killed."""
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=segment_bytes)
    for batch in batches:
        scribe.write(*batch)
    return MemoryDirectory(scribe.files())


# A new log.


def test_a_new_log_begins_with_segment_1_and_is_durable() -> None:
    directory = MemoryDirectory()
    started = Started(directory)
    assert started.opened.notes == []
    assert started.opened.log.oldest == 1
    assert directory.after_power_loss().names() == [ONE]
    header = started.header(ONE)
    assert (header.seq, header.first_lsn, header.prev_end, header.trim_seq) == (1, 1, 0, 1)
    assert (header.flags, header.incarnation, header.next_job_id) == (0, 1, 1)
    assert header.writer == WRITER
    assert started.log.durable_lsn == started.log.last_lsn


def test_a_start_is_logged_with_the_next_ids_and_the_wall_clock() -> None:
    started = Started(killed([TubeDef(3, b"mail"), put(7, tube_id=3)]), now_ns=T0 - 5 * NS)
    log = independent_reader.read_log(files_of(started.directory))
    start = [record for record in log["records"] if record["type"] == 51][-1]
    assert (start["job_id"], start["aux"]) == (8, 4)
    assert start["deadline_ns"] == T0 - 5 * NS - start["ts_ns"]


# Restarts.


def test_every_start_counts_itself_and_notes_that_the_last_one_has_not_stopped_in_order() -> None:
    directory = MemoryDirectory()
    first = Started(directory)
    first.stop()
    after = Started(directory.after_power_loss())
    assert after.opened.notes == []
    assert after.header(TWO).flags == 0
    again = Started(after.directory.after_kill())
    assert again.opened.notes == ["the last server on this log ended without an ordered stop"]
    assert again.header(THREE).flags & 1
    for count, (started, name) in enumerate([(first, ONE), (after, TWO), (again, THREE)], start=1):
        header = started.header(name)
        assert header.incarnation == count
        assert header.store_uuid == first.header(ONE).store_uuid
    assert after.header(TWO).first_lsn == after.log.durable_lsn - 1, "STATE, START"


def test_what_was_not_known_durable_is_made_durable_in_the_new_segment() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(put(2), sync=False)
    started = Started(scribe.memory)
    header = started.header(TWO)
    assert header.flags == 5
    assert header.first_lsn == 3
    assert set(Started(started.directory.after_power_loss()).jobs()) == {1, 2}
    assert len(started.directory.read(ONE)) == header.prev_end, "the old copy is cut off"


def test_a_power_loss_after_a_kill_may_take_the_last_sync_mark() -> None:
    """A mark is written and not synced.  The next segment must not build on it."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.mark()
    left = power_lost_before(scribe.memory, "cut")
    assert set(Started(left).jobs()) == {1}


def test_a_power_loss_after_a_kill_may_take_the_name_of_the_segment_just_begun() -> None:
    """The kill came between a segment's rename and the sync of the directory."""
    directory = MemoryDirectory()
    directory.fault = crash_before("sync directory")
    scribe = Scribe(directory, opening=[DEFAULT_TUBE])
    with pytest.raises(Crash):
        scribe.write(DEFAULT_TUBE)
    kept = iter([False, False, True, True])  # Of the names 1 and 2, the second.
    left = power_lost_before(directory, "sync directory", lambda: next(kept))
    assert set(Started(left).jobs()) == set()


class Crash(Exception):
    """The process ends here."""


def crash_before(crashing: str) -> Callable[[str, str], None]:
    """A disk on which the process ends before its first operation of this kind."""

    def fault(operation: str, name: str) -> None:
        if operation == crashing:
            raise Crash

    return fault


def power_lost_before(
    directory: MemoryDirectory, crashing: str, keep_name: Callable[[], bool] = lambda: False
) -> MemoryDirectory:
    """What is left when the power fails while a server starts, before its first operation of a
    kind.
    """
    directory.fault = crash_before(crashing)
    with pytest.raises(Crash):
        Started(directory)
    return directory.after_power_loss(keep_name)


def test_a_torn_tail_is_cut_and_kept_in_quarantine() -> None:
    directory = killed([put(1)], [put(2, b"torn")])
    content = bytes(directory.read(ONE))
    torn_at = content.rindex(b"\xb5TQF")
    end = len(content.rstrip(b"\0"))
    directory = MemoryDirectory({ONE: flipped(content, torn_at + 70)})
    started = Started(directory)
    assert set(started.jobs()) == {1}
    assert len(directory.read(ONE)) == torn_at
    ((name, copy),) = directory.quarantined.items()
    assert name == f"{ONE}-{torn_at}-1.torn"
    assert copy == flipped(content, torn_at + 70)[torn_at:end]
    note, unclean = started.opened.notes
    assert note == (
        f"{ONE}: {end - torn_at} bytes from offset {torn_at} on are torn (LSN 3 and later, not "
        f"known to be durable): the checksum of its records is wrong. They were cut off; a copy is "
        f"in (memory)/quarantine/{name}"
    )
    assert "ordered stop" in unclean


def test_a_start_makes_room_ready_so_that_the_first_job_does_not_wait() -> None:
    started = Started(MemoryDirectory())
    session = started.connect()
    queue, now_ns = started.queue, started.clock.now_ns()
    assert started.spares()
    assert started.log.budget.wanted(queue.demand()) is None
    draft = queue.puts.begin(session, now_ns)
    assert queue.puts.put(session, now_ns, draft, 0, 0, 60, b"x") is not None


def trimmed() -> Scribe:
    """A log whose first segment is dead and still there."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"x" * 9000), put(2))
    scribe.write(delete(1), image(Kind.COPY, 2, body=b"copied"), Trim(2, T0))
    return scribe


def test_a_dead_segment_is_not_replayed_and_removed() -> None:
    started = Started(MemoryDirectory(trimmed().files()))
    assert started.jobs() == {2: (State.READY, b"copied")}
    assert started.segments() == [TWO, THREE]
    assert started.opened.log.oldest == 2
    assert started.header(THREE).trim_seq == 2


@pytest.mark.parametrize("crashing", ["sync", "rename", "sync directory", "cut", "remove"])
def test_a_dead_segment_is_kept_until_its_trim_is_durable(crashing: str) -> None:
    """The server was killed before it could sync the TRIM."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE, put(1, b"x" * 4096))
    scribe.write(put(2, b"two"))
    scribe.write(image(Kind.COPY, 1, body=b"x" * 100), Trim(2, T0), sync=False)
    left = power_lost_before(scribe.memory.after_kill(), crashing, lambda: True)
    assert set(Started(left).jobs()) == {1, 2}


def test_a_pause_in_a_dead_segment_is_over() -> None:
    """Of segments 1 and 2, both dead, only the removal of 2, where the pause was ended, is on
    disk.
    """
    scribe = Scribe(opening=[DEFAULT_TUBE])
    # What fills a segment also opens the next one.
    scribe.opening = [DEFAULT_TUBE, Pause(1, 500, T0 + 500 * NS, T0)]
    scribe.write(Pause(1, 500, T0 + 500 * NS, T0), put(1, b"x" * 9000))
    scribe.opening = [DEFAULT_TUBE]
    scribe.write(Pause(1, 0, 0, T0), put(2, b"x" * 9000))
    scribe.write(Trim(3, T0))
    files = scribe.files()
    del files[TWO]
    started = Started(MemoryDirectory(files))
    assert started.queue.state.default().pause_until_ns == 0


# Time.


def test_time_goes_on_from_the_newest_in_the_log_when_the_clock_was_set_back() -> None:
    directory = MemoryDirectory()
    first = Started(directory, now_ns=T0 + 100 * NS)
    first.put(first.connect())
    first.commit()
    second = Started(directory.after_kill(), now_ns=T0)
    assert second.clock.now_ns() >= T0 + 100 * NS
    assert second.clock.wall_offset_ns() == -100 * NS
    assert second.header(TWO).created_ns >= T0 + 100 * NS


# Garbage collection.


@pytest.fixture
def collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_collection_is_afterwards_as_it_was(collector: None, is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()
    Started(MemoryDirectory())
    assert gc.isenabled() is is_enabled
    with pytest.raises(Incompatible):
        Started(MemoryDirectory({"binlog.1": b""}))
    assert gc.isenabled() is is_enabled


# Refusals.


def damaged() -> Files:
    directory = killed([put(1)], [put(2)], [put(3)])
    return edited(files_of(directory), ONE, lambda raw: flipped(raw, 4096 + 70))


@pytest.mark.parametrize(
    ("files", "error", "exit_code"),
    [
        (damaged(), Damaged, 65),
        ({"binlog.7": b""}, Incompatible, 78),
        ({ONE: b"\x89TQL\r\n\x1a\n"}, Damaged, 65),
        (killed([put(1), image(Kind.BURY, 2)]).after_kill(), Damaged, 65),
        (killed([put(1, tube_id=9)]).after_kill(), Damaged, 65),
    ],
    ids=["damage", "a C beanstalkd's", "half a header", "a job without its body", "no tube"],
)
def test_a_refused_directory_is_left_as_it_is(
    files: Files | MemoryDirectory, error: type[BinlogError], exit_code: int
) -> None:
    directory = files if isinstance(files, MemoryDirectory) else MemoryDirectory(files)
    before = files_of(directory)
    with pytest.raises(error) as caught:
        Started(directory)
    assert caught.value.exit_code == exit_code
    assert "nothing was changed" in str(caught.value)
    assert directory.operations == 0
    assert files_of(directory) == before


@pytest.mark.parametrize("has_copies", [False, True])
def test_on_a_full_disk_copies_are_named_only_if_there_are_any(
    has_copies: bool, tmp_path: Path
) -> None:
    if has_copies:
        (tmp_path / "quarantine").mkdir()
    said = str(cannot_use(RealDirectory(str(tmp_path)), OSError(errno.ENOSPC, "full")))
    assert "Free some space" in said
    assert (f"{tmp_path}/quarantine" in said) == has_copies


def start_with_fault(directory: MemoryDirectory, nth: int) -> bool:
    """:return: whether the start got by without its nth operation, which fails."""

    directory.fault = fails_at(nth)
    try:
        Started(directory)
    except CannotUse as problem:
        assert problem.exit_code == 73
        assert "nothing was lost" in str(problem)
        assert os.strerror(errno.EIO) in str(problem)
        return False
    finally:
        directory.fault = lambda operation, name: None
    return True


def test_whatever_the_disk_refuses_at_a_start_nothing_is_lost() -> None:
    nth = 0
    while True:
        nth += 1
        directory = killed([put(1)], [put(2)], [put(3, b"torn")])
        content = bytes(directory.read(ONE))
        directory = MemoryDirectory(
            {ONE: flipped(content, content.rindex(b"torn")), spare_name(2): b"half"}
        )
        if start_with_fault(directory, nth):
            break
        assert set(Started(directory.after_kill()).jobs()) == {1, 2}, nth
        assert set(Started(directory.after_power_loss()).jobs()) == {1, 2}, nth
    assert nth >= 10, "quarantine, remove, the six of a new segment, cut, and none"


def test_a_log_that_cannot_be_read_is_not_called_damaged() -> None:
    class Unreadable(MemoryDirectory):
        """Its files cannot be read."""

        def read(self, name: str, start: int = 0, end: int = TO_END) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(CannotUse) as caught:
        Started(Unreadable({ONE: b""}))
    assert caught.value.exit_code == 73


# Records of another version.


def unknown_type(kind: int) -> Files:
    """A log with a record of this type, and all checksums right."""

    class Foreign(Trim):
        """A record with another type."""

    Foreign.kind = kind
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1), Foreign(0, T0))
    scribe.write(put(2))
    return scribe.files()


@pytest.mark.parametrize("kind", [128, 200, 255])
def test_records_that_may_be_skipped_are_skipped(kind: int) -> None:
    assert set(Started(MemoryDirectory(unknown_type(kind))).jobs()) == {1, 2}


@pytest.mark.parametrize("kind", [0, 13, 15, 17, 47, 127])
def test_records_that_must_be_understood_are_refused(kind: int) -> None:
    directory = MemoryDirectory(unknown_type(kind))
    with pytest.raises(Incompatible, match=f"record type {kind} is unknown") as caught:
        Started(directory)
    assert caught.value.exit_code == 78
    assert directory.operations == 0


@pytest.mark.parametrize(
    ("offset", "value"), [(1, 9), (66, 1)], ids=["an unknown state", "data outside its frame"]
)
def test_a_job_that_is_not_understood_is_refused_by_name(offset: int, value: int) -> None:
    files = with_record_byte(killed([put(1)], [put(2)]).after_kill(), offset, value)
    with pytest.raises(Incompatible, match="job 2: ") as caught:
        Started(MemoryDirectory(files))
    assert f"{ONE}: offset 4" in str(caught.value)


# Tubes.


def test_tubes_appear_in_the_order_they_were_created_and_default_first() -> None:
    scribe = Scribe()
    scribe.write(TubeDef(9, b"nine"), TubeDef(2, b"two"), TubeDef(5, b"five"))
    scribe.write(*(put(n, tube_id=t) for n, t in enumerate((5, 9, 2), start=1)))
    queue = Started(MemoryDirectory(scribe.files())).queue
    assert [tube.name for tube in queue.state.tubes.in_order] == [
        b"default", b"two", b"five", b"nine",
    ]  # fmt: skip


def test_a_tube_that_nothing_refers_to_is_forgotten() -> None:
    started = Started(killed([TubeDef(2, b"mail"), put(1, tube_id=2)], [delete(1, tube_id=2)]))
    assert [tube.name for tube in started.queue.state.tubes.in_order] == [b"default"]
    assert started.queue.state.tubes.next_tube_id == 3, "no id is given twice"


def test_a_pause_keeps_its_tube() -> None:
    pause = Pause(2, 100, T0 + 100 * NS, T0, Reason.CLIENT)
    started = Started(killed([TubeDef(2, b"mail"), pause]))
    tube = started.queue.state.tubes.find(b"mail")
    assert tube is not None
    assert (tube.pause_s, tube.pause_until_ns) == (100, T0 + 100 * NS)
    started.now_ns = T0 + 101 * NS
    started.queue.tick(started.clock.now_ns())
    assert started.queue.state.tubes.find(b"mail") is None


def test_a_log_may_give_number_1_to_another_tube() -> None:
    """Tools number tubes as they find them."""
    scribe = Scribe(position=FIRST._replace(store_uuid=UUID))
    scribe.write(TubeDef(1, b"mail"), put(1, b"mail", tube_id=1))
    started = Started(MemoryDirectory(scribe.files()))
    started.put(started.connect(), b"default")
    started.commit()
    queue = Started(started.directory.after_kill()).queue
    names = {}
    for job_id in (1, 2):
        job = queue.state.jobs.look(job_id)
        assert job is not None
        names[job.body] = queue.state.tubes.by_id(job.tube_id).name
    assert names == {b"mail": b"mail", b"default": b"default"}


# A full disk.


def used(directory: MemoryDirectory) -> int:
    return sum(len(directory.read(name)) for name in directory.names())


def test_a_start_on_a_full_disk_uses_the_space_that_was_never_written_and_takes_no_more() -> None:
    directory = killed([put(1), put(2)], segment_bytes=1 << 16).after_kill()
    before = directory.space = used(directory)
    started = Started(directory, segment_bytes=1 << 16)
    assert set(started.jobs()) == {1, 2}
    assert started.log.budget.is_short
    assert len(directory.read(TWO)) == 1 << 15, "half of what was asked for"
    assert used(directory) <= before
    session, now_ns, queue = started.connect(), started.clock.now_ns(), started.queue
    draft = queue.puts.begin(session, now_ns)
    assert queue.puts.put(session, now_ns, draft, 0, 0, 60, b"x") == (OUT_OF_MEMORY, 0)
    assert queue.delete(session, now_ns, 1)[0] == DELETED
    started.commit()
    assert started.jobs_after_restart() == {2}


def test_a_disk_without_space_for_even_a_small_segment_ends_the_start_and_loses_nothing() -> None:
    directory = killed([put(1)]).after_kill()
    full = directory.after_kill()
    content = sum(len(bytes(full.read(name)).rstrip(b"\0")) for name in full.names())
    full.space = content + 4096
    with pytest.raises(CannotUse) as caught:
        Started(full)
    assert caught.value.exit_code == 73
    assert "No space left on device; nothing was lost" in str(caught.value)
    assert [name for name in full.names() if name != ONE] == []
    full.space = None
    assert set(Started(full).jobs()) == {1}


@pytest.mark.parametrize("free", [0, 1000, 5000, 8192, 10_000, 20_000, 40_000])
def test_whatever_space_there_is_a_start_either_works_or_changes_nothing_it_needs(
    free: int,
) -> None:
    directory = killed([put(1), put(2, b"x" * 3000)]).after_kill()
    directory.space = used(directory) + free
    try:
        started = Started(directory)
    except CannotUse:
        directory.space = None
        started = Started(directory)
    assert set(started.jobs()) == {1, 2}
