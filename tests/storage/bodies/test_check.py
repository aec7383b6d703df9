"""`--verify-on-start`: with ``full`` a damaged body refuses the start; with ``records`` it is found
in the background, and its job's own error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator, Sequence

import pytest
from twisted.logger import LogEvent, capturedLogs, formatEvent

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.files import TO_END
from beanstalk_twisted.binlog.segments.format import parse_segment_name, segment_name
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.storage.body_reads import RETRIES_S
from beanstalk_twisted.storage.compactor import Kept
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory

SEGMENT_BYTES = 1 << 16
JOBS = 400


def body(number: int) -> bytes:
    return b"<%06d>" % number * 100


class Left:
    """A server with jobs in several segments, ended, that is to start anew.

    :ivar events: what is logged.
    """

    events: Sequence[LogEvent]

    def __init__(self) -> None:
        self.server = MemoryServer(
            directory=MemoryDirectory(), segment_bytes=SEGMENT_BYTES, body_cache=0
        )
        self.server.settings = self.server.settings._replace(verify=Verify.RECORDS)
        client = self.server.connect()
        for number in range(1, JOBS + 1):
            reply = client.ask(b"put 0 0 600 800\r\n%b\r\n" % body(number))
            assert reply == b"INSERTED %d\r\n" % number
        self.server.kill()

    @property
    def directory(self) -> MemoryDirectory:
        assert isinstance(self.server.directory, MemoryDirectory)
        return self.server.directory

    def damage(self, number: int) -> None:
        for name in self.directory.names():
            content = bytes(self.directory.read(name))
            if body(number) in content:
                self.directory.open(name).write_at(content.index(body(number)) + 9, [b"~"])

    def check(self) -> None:
        for _ in range(200):
            self.server.advance(0.01)

    def said(self, event: str) -> list[str]:
        return [str(formatEvent(each)) for each in self.events if each.get("event") == event]

    @property
    def left_bytes(self) -> int:
        figures = self.server.service.log_figures()
        assert figures is not None
        return figures.unchecked_bytes

    @property
    def kept(self) -> Kept:
        figures = self.server.service.log_figures()
        assert figures is not None
        return figures.oldest_kept

    def drain(self) -> list[int]:
        """Reserve and delete all ready jobs, whose bodies are right."""
        client, got = self.server.connect(), []
        while (reply := client.ask(b"reserve-with-timeout 0\r\n")) != b"TIMED_OUT\r\n":
            number = int(reply.split()[1])
            assert reply == b"RESERVED %d 800\r\n%b\r\n" % (number, body(number))
            assert client.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
            got.append(number)
        return got


@pytest.fixture
def left() -> Iterator[Left]:
    made = Left()
    with capturedLogs() as events:
        made.events = events
        yield made


def test_a_start_reads_no_bodies_of_finished_segments_and_checks_them_later(left: Left) -> None:
    left.server.start()
    jobs = left.server.service.queue.state.jobs
    assert (len(jobs), jobs.loaded_bytes, jobs.absent_bytes) == (JOBS, 0, JOBS * 800)
    all_bytes = left.left_bytes
    assert all_bytes > 4 * SEGMENT_BYTES * 0.9
    left.server.advance(0.03)
    assert 0 < left.left_bytes < all_bytes
    left.check()
    assert left.left_bytes == 0
    (begun,) = left.said("bodies-unchecked")
    assert begun.endswith("are checked in the background")
    assert len(left.said("bodies-checking")) >= 3
    assert left.said("bodies-checked") == [
        "the bodies of all segments are checked: 0 bodies of jobs are damaged, "
        "and 0 frames that no job needs"
    ]
    assert left.drain() == list(range(1, JOBS + 1))


class Noted(MemoryDirectory):
    """Notes which files were read as such with gaps, and which not."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.read_as: dict[str, set[bool]] = {}
        self.with_gaps: Collection[str] = ()

    def expect_gaps(self, names: Collection[str]) -> None:
        self.with_gaps = names

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        self.read_as.setdefault(name, set()).add(name in self.with_gaps)
        return super().read(name, start, end)


@pytest.mark.parametrize("verify", list(Verify))
def test_nothing_is_read_ahead_of_segments_whose_bodies_are_left(
    left: Left, verify: Verify
) -> None:
    files = {name: bytes(left.directory.read(name)) for name in left.directory.names()}
    directory = left.server.directory = Noted(files)
    left.server.settings = left.server.settings._replace(verify=verify)
    left.server.start()
    names = [name for name in files if parse_segment_name(name) is not None]
    has_gaps = {name: verify is Verify.RECORDS and name != names[-1] for name in names}
    # What is checked in the background is read as any file.
    assert {name: max(directory.read_as[name]) for name in names} == has_gaps
    assert not directory.with_gaps


def test_a_damaged_body_refuses_a_full_start(left: Left) -> None:
    left.damage(7)
    left.server.settings = left.server.settings._replace(verify=Verify.FULL)
    with pytest.raises(Damaged, match=rf"{segment_name(1)}: offset \d+: LSN \d+ to \d+ cannot all"):
        left.server.start()
    left.server.settings = left.server.settings._replace(body_cache=None)
    with pytest.raises(Damaged, match="the checksum of its bodies is wrong"):
        left.server.start()


def test_damage_that_a_start_has_left_is_told_and_costs_that_job_alone(left: Left) -> None:
    for number in (7, 8, 150):
        left.damage(number)
    left.server.start()
    left.check()
    assert [line.split(":")[0] for line in left.said("body-lost")] == ["job 7", "job 8", "job 150"]
    assert left.said("bodies-checked")[0].endswith(
        ": 3 bodies of jobs are damaged, and 0 frames that no job needs"
    )
    assert left.said("bodies-damaged") == []
    assert left.drain() == [n for n in range(1, JOBS + 1) if n not in (7, 8, 150)]
    client = left.server.connect()
    assert b"\nstate: buried\n" in client.ask(b"stats-job 150\r\n")
    assert len(left.said("body-lost")) == 3
    assert left.server.failures == []


def test_damage_of_a_job_that_is_gone_is_nobodys_and_is_told(left: Left) -> None:
    left.damage(7)
    left.damage(8)
    left.server.start()
    assert left.server.connect().ask(b"delete 7\r\n") == b"DELETED\r\n"
    left.check()
    assert [line.split(":")[0] for line in left.said("body-lost")] == ["job 8"]
    (line,) = left.said("bodies-damaged")
    assert line.startswith(f"{segment_name(1)}: ") and "in so many frames: 1. " in line
    assert left.said("bodies-checked")[0].endswith(
        ": 1 bodies of jobs are damaged, and 1 frames that no job needs"
    )


def test_compaction_deletes_a_segment_with_damage_that_is_nobodys(left: Left) -> None:
    """Then a start with `full` takes the log again."""
    left.damage(7)
    left.server.start()
    client = left.server.connect()
    client.ask(b"delete 7\r\n")
    left.check()
    for number in range(100, JOBS):
        assert client.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
    left.check()
    assert segment_name(1) not in left.directory.names()
    left.server.settings = left.server.settings._replace(verify=Verify.FULL)
    left.server.kill_and_restart()
    assert left.drain() == [*range(1, 7), *range(8, 100), JOBS]
    assert left.said("compaction-failed") == []


def test_compaction_goes_on_past_a_lost_body_when_its_job_is_deleted(left: Left) -> None:
    left.damage(7)
    left.damage(60)
    left.server.start()
    client = left.server.connect()
    left.check()
    for number in range(100, JOBS):
        client.ask(b"delete %d\r\n" % number)
    left.check()
    (line,) = left.said("compaction-failed")
    assert f"lost live in {segment_name(1)}: " in line
    assert left.kept is Kept.STOPPED
    jobs = left.server.service.queue.state.jobs
    found = {number: jobs.look(number) for number in range(1, 100)}
    homes = {number for number, job in found.items() if job is not None and job.segment == 1}
    assert homes <= {7, 60} and 7 in homes
    for number in (7, 60):
        assert client.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
        left.check()
    assert segment_name(1) not in left.directory.names()
    assert left.kept is not Kept.STOPPED
    assert len(left.said("compaction-failed")) in (1, 2)
    assert left.server.failures == []


def test_no_segment_is_compacted_before_it_was_checked(left: Left) -> None:
    left.server.start()
    assert left.kept is Kept.UNCHECKED
    left.server.service._store.body_check.stop()  # type: ignore[union-attr]
    left.drain()
    left.check()
    assert left.kept is Kept.UNCHECKED
    assert segment_name(1) in left.directory.names()
    left.server.kill_and_restart()
    left.check()
    left.server.connect().ask(b"put 0 0 600 1\r\nx\r\n")
    left.check()
    assert segment_name(1) not in left.directory.names()
    assert left.server.failures == []


def test_a_server_killed_in_the_middle_of_a_check_begins_anew(left: Left) -> None:
    left.damage(330)
    left.server.start()
    all_bytes = left.left_bytes
    left.server.advance(0.03)
    assert 0 < left.left_bytes < all_bytes
    assert left.said("body-lost") == []
    left.server.kill_and_restart()
    assert left.left_bytes > all_bytes
    left.check()
    assert left.left_bytes == 0
    assert [line.split(":")[0] for line in left.said("body-lost")] == ["job 330"]


def test_what_cannot_be_read_keeps_its_segment_and_the_others_are_checked(left: Left) -> None:
    tries: list[str] = []

    def fail(name: str) -> None:
        if name == segment_name(2):
            tries.append(name)
            raise OSError(errno.EIO, "Input/output error", name)

    left.damage(330)
    left.server.start()
    left.directory.read_fault = fail
    left.check()
    left.check()
    assert len(tries) == 1 + len(RETRIES_S)
    (line,) = left.said("bodies-check-failed")
    assert segment_name(2) in line and "Input/output error" in line
    assert 0 < left.left_bytes <= SEGMENT_BYTES
    assert not left.server.service._store.body_check.has_checked(2)  # type: ignore[union-attr]
    assert left.server.service._store.body_check.has_checked(1)  # type: ignore[union-attr]
    assert len(left.said("body-lost")) == 1
    assert left.server.failures == []


@pytest.mark.parametrize(
    ("error", "tries"), [(errno.EIO, 1), (errno.EIO, len(RETRIES_S)), (errno.EMFILE, 5)]
)
def test_a_disk_that_is_away_for_a_moment_keeps_no_segment_from_compaction(
    left: Left, error: int, tries: int
) -> None:
    def fail(name: str) -> None:
        nonlocal tries
        if name == segment_name(2) and tries:
            tries -= 1
            raise OSError(error, os.strerror(error), name)

    left.server.start()
    left.directory.read_fault = fail
    for _ in range(8):
        left.server.advance(1.0)
    left.check()
    assert (left.said("bodies-check-failed"), left.left_bytes, tries) == ([], 0, 0)
