"""Every finished segment gets into the archive, soon, once, and before it may be deleted."""

from __future__ import annotations

import copy
import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, execute
from twisted.logger import LogEvent, capturedLogs, formatEvent

from beanstalk_twisted.binlog.errors import CannotUse
from beanstalk_twisted.binlog.segments.format import archive_name, segment_name
from beanstalk_twisted.storage.archiver import (
    MANIFEST_SEGMENTS,
    MAX_RETRY_S,
    QUICK_S,
    REMOTE_REST_S,
    RETRY_S,
    ObjectArchive,
)
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.storage.group_commit import IDLE_FLUSH_S
from beanstalk_twisted.storage.io_thread import InlineIo, WatchableIo
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from tests.binlog.archived import check_archive, check_manifest, sequence_numbers
from tests.binlog.independent_reader import Fields
from tests.binlog.memory import MemoryArchive, MemoryDirectory
from tests.binlog.scribe import Files, files_of, segments_of
from tests.crash.test_failed_writes import Disk
from tests.held_io import HeldIo
from tests.object_storage.memory import MemoryStore
from tests.sampling import share

Fault = Callable[[str, str], None]

SEGMENT_BYTES = 8192
AGE_S = 300


class Served:
    """A client of a server with an archive."""

    server: MemoryServer
    client: Client

    def put(self, count: int = 1, body: bytes = b"x" * 500) -> list[int]:
        """:return: their ids."""
        ids = []
        for _ in range(count):
            self.client.send(b"put 1 0 60 %d\r\n%s\r\n" % (len(body), body))
            self.server.advance(0.001)
            reply = self.client.take()
            assert reply.startswith(b"INSERTED "), reply
            ids.append(int(reply.split()[1]))
        return ids

    def pass_through(self, count: int) -> None:
        """So many jobs are put and deleted."""
        for _ in range(count):
            (job_id,) = self.put()
            self.client.send(b"delete %d\r\n" % job_id)
            self.server.advance(0.001)
            assert self.client.take() == b"DELETED\r\n"


def works(operation: str, name: str) -> None:
    """A disk that does what it is told."""


class Archived(Served):
    """One whose archive is a directory."""

    def __init__(
        self, *, can_link: bool = True, age_s: int = 0, fsync: FsyncPolicy = ALWAYS,
        io: Callable[[], WatchableIo] = InlineIo, directory: MemoryDirectory | None = None,
        archive: MemoryArchive | None = None,
    ) -> None:  # fmt: skip
        self.archive = archive or MemoryArchive(can_link)
        self.server = MemoryServer(
            directory=directory or MemoryDirectory(), fsync=fsync, io=io,
            segment_bytes=SEGMENT_BYTES, archive=self.archive, archive_age_s=age_s,
        )  # fmt: skip
        self.client = self.server.connect()

    @property
    def directory(self) -> MemoryDirectory:
        assert isinstance(self.server.directory, MemoryDirectory)
        return self.server.directory

    def archived(self) -> Files:
        files = files_of(self.archive.files)
        return {name: content for name, content in files.items() if ".tqm" not in name}

    def in_manifest(self) -> list[int]:
        return check_manifest(files_of(self.archive.files))

    def archived_seqs(self) -> list[int]:
        return sequence_numbers(self.archived())

    def newest(self) -> int:
        return int(segments_of(self.directory)[-1].split(".")[0])

    def check(self) -> Fields:
        """All that was ever written is in the archive or in the log."""
        return check_archive(files_of(self.archive.files), files_of(self.directory))

    def restart_after_kill(self) -> None:
        """End the process as kill -9 does, with both its disks, and begin another one."""
        self.server.kill()
        self.archive.fault = works
        self.server.start()
        self.client = self.server.connect()

    def kill_both(self) -> None:
        """Kill and start again, and let log and archive share their files as before."""
        self.server.kill()
        self.directory.fault = self.archive.fault = works
        for folder in self.archive.folders.values():
            folder.fault = works
        self.server.directory, self.archive = copy.deepcopy((self.directory, self.archive))
        self.server.archive = self.archive
        self.server.start()
        self.client = self.server.connect()


@contextmanager
def said() -> Iterator[list[str]]:
    lines: list[str] = []
    with capturedLogs() as events:
        yield lines
    lines += [formatEvent(event) for event in cast(list[LogEvent], events) if is_ours(event)]


def is_ours(event: Any) -> bool:
    """Whether it comes from the archiver."""
    return str(event["log_namespace"]).endswith("Archiver")


def timers(run: Archived) -> list[str]:
    return [str(c) for c in run.server.clock.getDelayedCalls() if "Archiver" in str(c)]


# While all goes well.


@pytest.mark.parametrize("can_link", [True, False], ids=["link", "copy"])
@pytest.mark.parametrize("fsync", [ALWAYS, FsyncPolicy(0.05), NEVER])
def test_every_segment_ever_finished_is_archived_and_the_log_stays_small(
    fsync: FsyncPolicy, can_link: bool
) -> None:
    run = Archived(can_link=can_link, fsync=fsync)
    run.put(3)
    run.pass_through(150)
    run.server.advance(5)
    assert run.archived_seqs() == list(range(1, run.newest()))
    assert run.newest() > 8
    assert len(segments_of(run.directory)) < 6
    run.check()


# An archive that hangs.


class SlowArchive:
    """Gives a server's archive an `Io` that waits, and its log one that works at once, or
    another.
    """

    def __init__(self, log_io: WatchableIo | None = None) -> None:
        self.io = HeldIo()
        self._given = 0
        self._log_io = InlineIo() if log_io is None else log_io

    def __call__(self) -> WatchableIo:
        self._given += 1
        return self.io if self._given == 2 else self._log_io


def test_commits_do_not_wait_for_an_archive_that_hangs_and_what_it_takes_is_trimmed() -> None:
    slow = SlowArchive()
    run = Archived(io=slow)
    run.pass_through(150)
    run.server.advance(5)
    assert run.newest() > 8
    assert run.archived_seqs() == []
    assert segments_of(run.directory)[0] == segment_name(1), (
        "nothing is trimmed that is not archived"
    )
    while slow.io:
        assert len(slow.io) == 1, "one thing at a time"
        slow.io.step()
        run.server.advance(1)
        archived = run.archived_seqs()
        oldest = int(segments_of(run.directory)[0].split(".")[0])
        assert archived == list(range(1, len(archived) + 1))
        assert oldest <= len(archived) + 1
    assert run.archived_seqs() == list(range(1, run.newest()))
    assert len(segments_of(run.directory)) < 6
    run.check()


def test_a_segment_is_not_archived_before_the_name_of_its_successor_is_durable() -> None:
    """It might be cut at the next start, and its second name with it."""
    run = Archived()
    seen: list[bool] = []

    def look(operation: str, name: str) -> None:
        if operation == "sync directory":
            seen.append(run.archived_seqs() == list(range(1, run.newest() - 1)))

    run.directory.fault = look
    run.pass_through(60)
    assert len(seen) > 3 and all(seen)


def test_a_segment_that_was_looked_at_too_early_is_looked_at_again_when_it_is_finished() -> None:
    log_io = HeldIo()
    slow = SlowArchive(log_io)
    run = Archived(io=slow)
    slow.io.step()
    run.client.send(b"put 0 0 60 9000\r\n%s\r\n" % (b"x" * 9000))
    while not slow.io:
        run.server.advance(0.001)
        log_io.step()
    assert log_io, "its successor is only being written"
    while log_io:
        log_io.step()
    slow.io.step()
    assert run.archived_seqs() == []
    slow.io.step()
    assert run.archived_seqs() == [1]


# An archive that fails.


def breaks(number: int = errno.ENOSPC, operations: Sequence[str] = ()) -> Fault:
    def fault(operation: str, name: str) -> None:
        if operation in operations or not operations:
            raise OSError(number, os.strerror(number), name)

    return fault


@pytest.mark.one_in(3)
@pytest.mark.parametrize("can_link", [True, False], ids=["link", "copy"])
@pytest.mark.parametrize(
    "operations", [("link", "create"), ("link", "write"), ("sync",), ("rename",),
                   ("sync directory",)]
)  # fmt: skip
def test_an_archive_that_fails_keeps_the_log_from_being_trimmed_until_it_works_again(
    operations: tuple[str, ...], can_link: bool
) -> None:
    run = Archived(can_link=can_link)
    is_in_use = not can_link or operations[0] in ("link", "sync directory")
    run.archive.fault = breaks(operations=operations)
    run.pass_through(150)
    run.server.advance(60)
    if is_in_use:
        assert run.archived_seqs() == []
        assert [int(name.split(".")[0]) for name in segments_of(run.directory)] == list(
            range(1, run.newest() + 1)
        )
    run.archive.fault = works
    run.server.advance(RETRY_S + 5)
    assert run.archived_seqs() == list(range(1, run.newest()))
    assert len(segments_of(run.directory)) < 6
    run.check()


def test_a_failing_archive_is_told_once_with_its_reason_and_when_it_works_again() -> None:
    run = Archived()
    with said() as lines:
        for number in (errno.ENOSPC, errno.EACCES, errno.EACCES):
            run.archive.fault = breaks(number)
            run.pass_through(20)
            run.server.advance(10 * RETRY_S)
        run.archive.fault = works
        run.server.advance(10 * RETRY_S)
        run.pass_through(40)
    path = f"(archive)/{next(iter(run.archive.folders))}"
    first, second, last = lines
    assert first == (
        f"archiving (memory)/{segment_name(1)} in {path} failed: No space left on device; the log "
        f"keeps it, so nothing is lost. Until it is archived no segment is deleted; it is tried "
        f"again at least every 60 seconds."
    )
    assert "failed: Permission denied;" in second, "another reason is told too"
    assert last == f"archive {path} works again"


def test_attempts_come_after_ten_seconds_and_then_ever_later_up_to_a_minute() -> None:
    run = Archived()
    attempts: list[float] = []

    def fault(operation: str, name: str) -> None:
        if operation == "link":
            attempts.append(run.server.clock.seconds())
        raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    run.archive.fault = fault
    run.put(20)
    run.server.advance(attempts[0] + RETRY_S - 0.001 - run.server.clock.seconds())
    assert len(attempts) == 1
    run.server.advance(0.001)
    assert len(attempts) == 2
    run.server.advance(3600)
    waits = [later - one for one, later in pairwise(attempts)]
    assert [round(wait, 6) for wait in waits] == [10, 20, 40, *[MAX_RETRY_S] * (len(waits) - 3)]
    assert len(waits) > 55


def test_other_bytes_in_the_archive_stop_it_until_they_are_moved_away() -> None:
    run = Archived()
    name = archive_name(1, 1)
    run.archive.files.replace(name, b"of another history")
    with said() as lines:
        run.pass_through(100)
        run.server.advance(5 * RETRY_S)
        assert run.archived() == {name: b"of another history"}
        assert segments_of(run.directory)[0] == segment_name(1)
        run.archive.files.remove(name)
        run.server.advance(MAX_RETRY_S + 5)
    assert len(lines) == 2 and "is not overwritten" in lines[0]
    assert run.archived_seqs() == list(range(1, run.newest()))
    run.check()


def test_a_fault_that_nobody_has_thought_of_is_told_and_does_not_end_the_archive(
    clean_reactor: list[Any],
) -> None:
    run = Archived()

    def fault(operation: str, name: str) -> None:
        raise ZeroDivisionError("surprise")

    run.archive.fault = fault
    run.pass_through(30)
    run.server.advance(3 * RETRY_S)
    assert [failure.type for failure in clean_reactor] == [ZeroDivisionError]
    clean_reactor.clear()
    run.archive.fault = works
    run.server.advance(MAX_RETRY_S)
    assert run.archived_seqs() == list(range(1, run.newest()))


# Age.


def test_the_time_runs_from_the_first_change_of_a_job_in_a_segment() -> None:
    run = Archived(age_s=AGE_S)
    run.server.advance(10_000)
    run.client.ask(b"put 0 0 60 1\r\nx\r\n")
    run.server.advance(AGE_S - 1)
    run.client.ask(b"put 0 0 60 1\r\ny\r\n")
    run.server.advance(0.999)
    assert run.archived_seqs() == []
    run.server.advance(0.001)
    assert run.archived_seqs() == [1]
    run.server.advance(10_000)
    assert run.archived_seqs() == [1], "there was nothing new"


def test_the_time_begins_anew_when_a_segment_was_full_before() -> None:
    run = Archived(age_s=AGE_S)
    run.put()
    run.server.advance(AGE_S - 1)
    while run.newest() == 1:
        run.put()
    run.put()
    run.server.advance(AGE_S - 1)
    assert run.archived_seqs() == [1]
    run.server.advance(1)
    assert run.archived_seqs() == [1, 2]


@pytest.mark.parametrize(
    "command",
    [b"reserve\r\n", b"delete 1\r\n", b"release 1 0 0\r\n", b"bury 1 0\r\n", b"touch 1\r\n"],
)
def test_every_change_of_a_job_counts(command: bytes) -> None:
    run = Archived(age_s=AGE_S)
    run.client.ask(b"put 0 0 9999 1\r\nx\r\n")
    if command != b"reserve\r\n":
        run.client.ask(b"reserve\r\n")
    run.server.advance(2 * AGE_S)
    assert run.archived_seqs() == [1]
    assert not run.client.ask(command).endswith(b"FOUND\r\n")
    run.server.advance(IDLE_FLUSH_S)
    run.server.advance(AGE_S)
    assert run.archived_seqs() == [1, 2]


def test_an_idle_server_delivers_nothing_whatever_it_has() -> None:
    run = Archived(age_s=AGE_S)
    run.put(3)
    run.client.ask(b"pause-tube default 4000000\r\n")
    run.server.advance(AGE_S)
    assert run.archived_seqs() == [1]
    run.server.advance(1)
    operations = run.directory.operations
    run.server.advance(10 * AGE_S)
    assert run.archived_seqs() == [1]
    assert run.directory.operations == operations
    assert timers(run) == []


def test_a_server_that_is_started_again_and_again_delivers_no_empty_segments_by_age() -> None:
    run = Archived(age_s=AGE_S)
    for _ in range(3):
        run.server.advance(3 * AGE_S)
        run.restart_after_kill()
    assert run.archived_seqs() == [1, 2, 3], "one for each start, and none for its age"
    run.server.advance(3 * AGE_S)
    assert run.archived_seqs() == [1, 2, 3]


@pytest.mark.exhaustive
def test_copies_do_not_count_so_that_compaction_does_not_keep_an_idle_server_busy() -> None:
    """One job lives in each segment: when there are too many small ones, it is copied to the
    newest.
    """
    run = Archived(age_s=AGE_S)
    for _ in range(130):
        run.put(1, b"x")
        run.server.advance(AGE_S)
    run.server.advance(5 * AGE_S)
    copies = run.server.service.queue.tally.copies
    assert copies > 0
    assert len(segments_of(run.directory)) <= 102
    archived = run.archived_seqs()
    run.server.advance(100 * AGE_S)
    assert run.server.service.queue.tally.copies == copies
    assert run.archived_seqs() == archived
    run.check()


def test_with_an_age_of_0_a_segment_waits_until_it_is_full() -> None:
    run = Archived(age_s=0)
    run.put()
    run.server.advance(10 * AGE_S)
    assert run.archived_seqs() == []


def test_no_segment_is_finished_for_its_age_while_the_archive_fails() -> None:
    run = Archived(age_s=AGE_S)
    run.archive.fault = breaks()
    run.put()
    run.server.advance(AGE_S)
    assert run.newest() == 2
    run.put()
    run.server.advance(10 * AGE_S)
    assert run.newest() == 2
    run.archive.fault = works
    run.server.advance(RETRY_S + AGE_S)
    assert run.archived_seqs() == [1, 2]


def test_the_time_of_a_segment_runs_again_when_the_archive_that_failed_meanwhile_works() -> None:
    slow = SlowArchive()
    run = Archived(age_s=AGE_S, io=slow)
    slow.io.step()
    while run.newest() == 1:
        run.put()
    run.put()
    run.archive.fault = breaks()
    slow.io.step()
    assert len(timers(run)) == 1
    run.archive.fault = works
    run.server.advance(RETRY_S)
    while slow.io:
        slow.io.step()
    assert run.archived_seqs() == [1]
    run.server.advance(AGE_S)
    while slow.io:
        slow.io.step()
    assert run.archived_seqs() == [1, 2]


ACTIONS: dict[str, Callable[[Archived], object]] = {
    "put": lambda run: run.put(1),
    "put many": lambda run: run.put(20),
    "break": lambda run: setattr(run.archive, "fault", breaks()),
    "mend": lambda run: setattr(run.archive, "fault", works),
    "soon": lambda run: run.server.advance(1),
    "later": lambda run: run.server.advance(AGE_S / 2),
    "kill": Archived.restart_after_kill,
}


@settings(deadline=None, max_examples=share(60))
@given(st.lists(st.sampled_from(sorted(ACTIONS)), max_size=25), st.booleans())
def test_at_most_one_timer_of_the_archive_is_pending_and_in_the_end_all_is_there(
    actions: list[str], can_link: bool
) -> None:
    run = Archived(can_link=can_link, age_s=AGE_S)
    for action in actions:
        ACTIONS[action](run)
        assert len(timers(run)) <= 1
    run.archive.fault = works
    run.server.advance(RETRY_S + 2 * AGE_S)
    assert timers(run) == []
    assert run.archived_seqs() == list(range(1, run.newest()))
    kinds = {record["type"] for record in run.check()["records"]}
    assert (1 in kinds) == any(action.startswith("put") for action in actions)


# Start.


def test_the_segment_that_a_killed_server_was_writing_is_delivered_up_to_where_it_was_cut() -> None:
    run = Archived(fsync=NEVER)
    ids = run.put(5)
    run.restart_after_kill()
    assert run.archived_seqs() == [1]
    records = run.check()["records"]
    assert [r["job_id"] for r in records if r["type"] == 1] == ids
    assert run.archived()[archive_name(1, 1)] == bytes(run.directory.read(segment_name(1)))


def test_a_gap_that_a_server_without_the_archive_has_made_is_told() -> None:
    run = Archived()
    run.pass_through(50)
    run.server.advance(5)
    last = run.archived_seqs()[-1]
    run.server.stop()
    run.server.archive = None
    run.server.start()
    run.client = run.server.connect()
    run.pass_through(100)
    run.server.advance(5)
    run.server.kill()
    run.server.archive = run.archive
    first_left = int(segments_of(run.directory)[0].split(".")[0])
    with said() as lines:
        run.server.start()
    path = f"(archive)/{next(iter(run.archive.folders))}"
    assert lines == [
        f"archive {path}: keeps every finished segment",
        f"archive {path}: segments {last + 2} to {first_left - 1} are not in it, and no longer in "
        f"the log: it was compacted by a server without --binlog-archive. What follows them is "
        f"archived.",
    ]
    assert run.archived_seqs()[-1] == run.newest() - 1


def test_an_archive_whose_folder_cannot_be_made_is_refused() -> None:
    archive = MemoryArchive()
    archive.fault = breaks(errno.EACCES, ("open",))
    with pytest.raises(CannotUse, match=r"archive directory .* cannot be used: Perm") as caught:
        Archived(archive=archive)
    assert caught.value.exit_code == 73


# Stop.


@pytest.mark.parametrize("can_link", [True, False], ids=["link", "copy"])
def test_after_an_ordered_stop_the_archive_is_complete(can_link: bool) -> None:
    run = Archived(can_link=can_link)
    run.put(30)
    newest = run.newest()
    stopped: list[object] = []
    run.server.stop().addBoth(stopped.append)
    assert stopped == [None]
    assert run.archived_seqs() == list(range(1, newest + 1))
    assert run.check()["records"][-2]["type"] == 52, "the clean stop"
    run.server.advance()
    assert run.server.clock.getDelayedCalls() == []


def test_an_archive_that_fails_does_not_hold_up_a_stop_and_the_next_start_delivers() -> None:
    run = Archived()
    run.archive.fault = breaks()
    run.put(30)
    stopped: list[object] = []
    with said() as lines:
        run.server.stop().addBoth(stopped.append)
    assert stopped == [None]
    assert len(lines) == 1 and lines[0].endswith("It is archived at the next start.")
    run.server.advance()
    assert run.server.clock.getDelayedCalls() == []
    run.restart_after_kill()
    assert run.archived_seqs() == list(range(1, run.newest()))
    run.check()


def test_a_stop_waits_for_what_is_being_archived() -> None:
    slow = SlowArchive()
    run = Archived(io=slow)
    run.put(30)
    assert len(slow.io) == 1
    stopped: list[object] = []
    run.server.stop().addBoth(stopped.append)
    run.server.advance()
    assert run.client.is_closed, "clients do not wait for the archive"
    assert stopped == []
    while slow.io:
        slow.io.step()
    assert stopped == [None]
    run.check()


# A disk of the log that fails.


@pytest.mark.parametrize("at", [2, 5, 17])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_segment_whose_write_failed_is_archived_up_to_where_its_successor_goes_on(
    operation: str, at: int
) -> None:
    archive = MemoryArchive()
    server = MemoryServer(directory=MemoryDirectory(), segment_bytes=SEGMENT_BYTES, archive=archive)
    disk = Disk(server)
    disk.fail(operation, at)
    disk.work()
    assert len(server.failures) == 1
    server.kill_and_restart()
    assert server.directory is not None
    newest = int(segments_of(server.directory)[-1].split(".")[0])
    archived = files_of(archive.files)
    assert sequence_numbers(archived) == list(range(1, newest))
    check_archive(archived, files_of(server.directory))
    server.directory = server.directory.after_power_loss()
    server.start()
    disk.check()
    check_archive(files_of(archive.files), files_of(server.directory))


# What was archived is never changed.


def test_an_archived_segment_is_never_written_again_whatever_becomes_of_its_log() -> None:
    """A link is the log's own file: cutting the one would cut the other."""
    run = Archived(age_s=AGE_S)
    seen: Files = {}
    for round_ in range(12):
        run.pass_through(10)
        run.put(2)
        if round_ % 3 == 0:
            run.server.advance(AGE_S)
        if round_ % 4 == 3:
            run.server.stop()
        run.kill_both()
        now = run.archived()
        assert {name: now[name] for name in seen} == seen
        seen = now
    assert len(seen) > 20
    run.check()


# The manifest.


def test_the_manifest_speaks_of_every_segment_that_is_archived() -> None:
    run = Archived()
    while run.newest() < 4:
        run.put()
    assert run.in_manifest() == run.archived_seqs() == [1, 2, 3]
    run.server.stop()
    assert run.in_manifest() == run.archived_seqs() == [1, 2, 3, 4]
    run.restart_after_kill()
    run.put(30)
    assert run.in_manifest() == run.archived_seqs()


def test_a_manifest_that_cannot_be_written_holds_up_nothing_and_is_told_once() -> None:
    run = Archived()

    def fault(operation: str, name: str) -> None:
        if ".tqm" in name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    with said() as lines:
        run.archive.fault = fault
        run.pass_through(100)
        assert run.archived_seqs() == list(range(1, run.newest()))
        assert run.in_manifest() == []
        run.archive.fault = works
        run.pass_through(20)
    assert run.in_manifest() == run.archived_seqs()
    path = f"(archive)/{next(iter(run.archive.folders))}"
    assert lines == [
        f"archive {path}: its manifest was not written: No space left on device; nothing was lost: "
        f"readers open each segment that it lacks. It is tried again behind the next segment."
    ]


def test_a_manifest_that_is_damaged_is_begun_anew_and_told_once() -> None:
    run = Archived()
    run.pass_through(20)
    (store,) = run.archive.folders
    run.archive.replace("manifest.tqm", b"something else")
    with said() as lines:
        run.restart_after_kill()
        run.pass_through(40)
        run.server.stop()
    path = f"(archive)/{store}"
    assert [line for line in lines if "manifest" in line] == [
        f"archive {path}: manifest.tqm is no manifest of this store: it does not begin as a "
        f"manifest does; it is begun anew, and nothing was lost: readers open each segment that "
        f"it lacks. To write it of all segments: binlog-inspect archive-verify --write-manifest "
        f"'{path}'"
    ]


@pytest.mark.exhaustive
def test_a_long_log_that_is_caught_up_with_writes_it_after_every_sixty_four() -> None:
    slow = SlowArchive()
    run = Archived(io=slow)
    run.put(2 * MANIFEST_SEGMENTS + 10, b"x" * 7000)
    names: list[str] = []

    def fault(operation: str, name: str) -> None:
        if operation == "rename":
            names.append(name)

    run.archive.fault = fault
    while slow.io:
        slow.io.step()
    assert run.archived_seqs() == list(range(1, run.newest()))
    assert run.newest() // MANIFEST_SEGMENTS == 2 and names == ["manifest-recent.tqm"] * 3


# In object storage.


AWAY = OSError(errno.EIO, "AWS Error NETWORK_CONNECTION", "s3://b")


def away(operation: str, name: str) -> None:
    raise AWAY


class Remote(Served):
    """One whose archive is in a simulated store."""

    def __init__(self, is_away: bool = False, io: Callable[[], WatchableIo] = InlineIo) -> None:
        self.store = MemoryStore("s3://b")
        if is_away:
            self.store.fault = away
        self.archive = ObjectArchive("s3://b", lambda: self.store, sleep=lambda seconds: None)
        self.server = MemoryServer(
            directory=MemoryDirectory(), segment_bytes=SEGMENT_BYTES, archive=self.archive, io=io,
        )  # fmt: skip
        self.client = self.server.connect()

    @property
    def lacks(self) -> tuple[int, int] | None:
        figures = self.server.service.log_figures()
        assert figures is not None
        return figures.unarchived

    def files(self) -> Files:
        return {name.partition("/")[2]: body for name, body in self.store.objects.items()}

    def segments(self) -> list[str]:
        return sorted(name for name in self.files() if name.endswith(".tql"))

    def check_archive(self) -> None:
        """Each object is complete, and they are all that there is."""
        assert isinstance(self.server.directory, MemoryDirectory)
        check_archive(self.files(), files_of(self.server.directory))


def test_a_server_starts_without_its_store_and_catches_up_when_it_is_there_again() -> None:
    with said() as lines:
        run = Remote(is_away=True)
        run.pass_through(100)
        run.server.advance(3600)
        assert run.store.objects == {}
        count, size = run.lacks or (0, 0)
        assert count > 5 and size > 5 * SEGMENT_BYTES // 2
        run.store.fault = works
        run.server.advance(MAX_RETRY_S)
    assert run.lacks == (0, 0)
    assert lines == [
        "archive s3://b: AWS Error NETWORK_CONNECTION; the log keeps all, so nothing is lost. "
        "Until it is archived no segment is deleted; it is tried again at least every 60 seconds.",
        f"archive {run.archive.path} works again",
        f"archive {run.archive.path}: keeps every finished segment",
    ]
    assert check_manifest(run.files()) == list(range(1, len(run.segments()) + 1))
    run.server.stop()
    run.check_archive()


def test_a_server_stops_without_its_store_and_the_next_one_delivers() -> None:
    run = Remote(is_away=True)
    run.pass_through(100)
    run.server.stop()
    assert run.store.objects == {}
    run.store.fault = works
    again = MemoryServer(
        directory=run.server.directory, segment_bytes=SEGMENT_BYTES, archive=run.archive
    )
    again.stop()
    assert len(run.segments()) > 5
    run.check_archive()


@pytest.mark.parametrize("nth", range(1, 14))
def test_whatever_fails_in_a_store_no_part_of_a_segment_has_a_final_name(nth: int) -> None:
    run = Remote()
    seen = 0

    def fault(operation: str, name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            raise AWAY

    run.store.fault = fault
    run.pass_through(60)
    assert seen >= nth
    run.server.advance(MAX_RETRY_S)
    run.server.stop()
    run.check_archive()


class LateIo(InlineIo):
    """Takes a while for each piece of work, on the clock of the test.

    :ivar seconds: how long the work that is being done takes.
    """

    def __init__(self) -> None:
        self.later: Callable[..., object] | None = None
        self.seconds = 0.0

    def run(self, work: Callable[[], Any]) -> Deferred[Any]:
        self.seconds = 0.0
        done, result = execute(work), Deferred[Any]()
        if self.later is None:
            return done
        self.later(self.seconds, done.addBoth, result.callback)
        return result


LATENCY_S = 0.2


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(4))
def test_a_slow_store_that_refuses_every_third_request_is_caught_up_with(seed: int) -> None:
    """Clients have their replies meanwhile as if it were not there."""
    late = LateIo()
    ios = [InlineIo(), late]
    run = Remote(io=lambda: ios.pop(0))
    late.later = run.server.clock.callLater
    chance = random.Random(seed)
    refused = 0

    def fault(operation: str, name: str) -> None:
        nonlocal refused
        late.seconds += LATENCY_S
        if chance.random() < 0.3:
            refused += 1
            raise AWAY

    run.store.fault = fault
    run.pass_through(100)
    behind = (run.lacks or (0, 0))[0]
    run.server.advance(600)
    assert behind > 3 and refused > 20
    assert run.lacks == (0, 0)
    run.check_archive()


def test_what_a_slow_request_was_refused_is_not_asked_again_at_once() -> None:
    store, now_s, asked = MemoryStore("s3://b"), [0.0], []

    def fault(operation: str, name: str) -> None:
        asked.append(operation)
        now_s[0] += QUICK_S + (len(asked) > 1)
        raise AWAY

    store.fault = fault
    archive = ObjectArchive("s3://b", lambda: store, lambda seconds: None, lambda: now_s[0])
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        archive.names()
    assert len(asked) == 2


def test_an_ordered_stop_gives_a_slow_store_its_time_and_no_more() -> None:
    run = Remote(is_away=True)
    run.pass_through(100)

    def slow(operation: str, name: str) -> None:
        if operation == "write":
            run.server.clock.rightNow += REMOTE_REST_S / 3

    run.store.fault = slow
    run.server.stop()
    assert len(run.segments()) == 3
    run.check_archive()
