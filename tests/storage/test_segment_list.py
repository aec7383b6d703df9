"""The segments of a log at work, and why the oldest is still there."""

from __future__ import annotations

import errno
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred

from beanstalk_twisted.binlog.segments.format import TRAILER_BYTES, segment_name
from beanstalk_twisted.storage.compactor import Kept
from beanstalk_twisted.storage.segment_list import SLICE_HEADERS, SegmentFacts
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.storage.test_archiver import Archived

SEGMENT_BYTES = 8192


def page(server: MemoryServer, after: int = 0, most: int = 100) -> list[SegmentFacts]:
    found: list[Any] = []
    asked = Deferred.fromCoroutine(server.service.log_segments(after, most))
    asked.addCallback(found.append)
    return list(found[0])


def kept(server: MemoryServer) -> Kept:
    figures = server.service.log_figures()
    assert figures is not None
    return figures.oldest_kept


class Filled:
    """A server with a log of several segments in which all jobs live."""

    def __init__(self, jobs: int = 60, **options: Any) -> None:
        self.directory = MemoryDirectory()
        self.server = MemoryServer(directory=self.directory, segment_bytes=SEGMENT_BYTES, **options)
        self.client = self.server.connect()
        for _ in range(jobs):
            self.put()

    def put(self) -> None:
        self.client.send(b"put 1 0 60 500\r\n%s\r\n" % (b"x" * 500))
        self.server.advance(0.001)
        self.client.take()


def test_segments_are_described_from_the_oldest_to_the_newest() -> None:
    filled = Filled()
    rows = page(filled.server)
    assert len(rows) > SLICE_HEADERS // 2
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert [row.name for row in rows] == [segment_name(row.number) for row in rows]
    assert [row.is_sealed for row in rows] == [True] * (len(rows) - 1) + [False]
    assert {row.is_archived for row in rows} == {None}
    assert [row.size for row in rows[:-1]] == [
        len(filled.directory.read(row.name)) - TRAILER_BYTES for row in rows[:-1]
    ]
    state = filled.server.service.queue.state
    assert sum(row.jobs for row in rows) == 60
    assert sum(row.live_bytes for row in rows) == state.live.live_bytes


def test_lsns_of_segments_follow_each_other_and_times_do_not_go_back() -> None:
    filled = Filled()
    filled.server.advance(30)
    rows = page(filled.server)
    assert rows[0].first_lsn == 1
    for row, behind in pairwise(rows):
        assert (row.last_lsn or 0) + 1 == behind.first_lsn
        assert (row.created_ns or 0) <= (behind.created_ns or 0)
    assert (rows[-1].last_lsn or 0) >= (rows[-1].first_lsn or 0)
    assert (rows[-1].created_ns or 0) < filled.server.service.now_ns() - 29_000_000_000


def test_a_page_goes_on_behind_a_segment() -> None:
    server = Filled().server
    rows = page(server)
    assert page(server, most=2) == rows[:2]
    assert page(server, after=2, most=3) == rows[2:5]
    assert page(server, after=rows[-2].number) == rows[-1:]
    assert page(server, after=rows[-1].number) == []
    assert len(page(server, most=len(rows) - 1)) == len(rows) - 1


def test_without_a_log_there_are_none() -> None:
    assert page(MemoryServer()) == []


def test_headers_are_read_a_few_at_a_time_and_those_of_old_segments_once() -> None:
    io = HeldIo()
    filled = Filled(0, io=lambda: io)

    def settle() -> None:
        while io:
            io.step()
            filled.server.advance(0.001)

    settle()
    for _ in range(200):
        filled.put()
        settle()
    filled.server.advance(1)
    settle()
    done: list[Any] = []

    def steps() -> int:
        service = filled.server.service
        Deferred.fromCoroutine(service.log_segments(0, 100)).addCallback(done.append)
        count = 0
        while io:
            io.step()
            count += 1
        return count

    first, second = steps(), steps()
    segments = len(done[0])
    # The disk is asked for its free space never here: `log_figures` does that.
    assert first == -(-segments // SLICE_HEADERS)
    assert (second, done[0]) == (1, done[1])


def test_who_asks_while_another_one_reads_does_not_wait_for_the_disk() -> None:
    io = HeldIo()
    filled = Filled(0, io=lambda: io)
    while io:
        io.step()
        filled.server.advance(0.001)
    done: list[Any] = []
    for _ in range(2):
        asked = Deferred.fromCoroutine(filled.server.service.log_segments(0, 100))
        asked.addCallback(done.append)
    assert len(io) == 1
    assert [row.first_lsn for row in done[0]] == [None]
    io.step()
    assert [row.first_lsn for row in done[1]] == [1]


def test_a_header_that_cannot_be_read_is_left_out() -> None:
    filled = Filled()
    name = segment_name(2)
    filled.directory.remove(name)
    rows = page(filled.server)
    assert (rows[1].first_lsn, rows[1].created_ns, rows[0].last_lsn) == (None, None, None)
    assert rows[2].first_lsn is not None


def test_a_lone_segment_is_being_written() -> None:
    assert kept(Filled(1).server) is Kept.WRITTEN


def test_a_log_in_which_all_lives_is_as_large_as_it_may_be() -> None:
    filled = Filled()
    figures = filled.server.service.log_figures()
    assert figures is not None
    assert (figures.oldest_kept, figures.debt_bytes) == (Kept.SMALL, 0)
    assert figures.oldest_jobs > 0
    assert figures.may_be_bytes > figures.total_bytes


def test_while_it_is_compacted_jobs_are_copied_and_then_it_is_freed() -> None:
    filled = Filled(200)
    for job_id in range(3, 201):
        filled.client.send(b"delete %d\r\n" % job_id)
    assert kept(filled.server) is Kept.COPYING
    filled.server.advance(5)
    assert kept(filled.server) is Kept.SMALL
    assert page(filled.server)[0].number > 1


def test_nothing_lives_in_a_segment_that_is_freed() -> None:
    io = HeldIo()
    filled = Filled(0, io=lambda: io)
    seen = set()

    def settle() -> None:
        for _ in range(50):
            filled.server.advance(0.001)
            figures = filled.server.service.log_figures()
            assert figures is not None
            if figures.oldest_kept is Kept.FREEING:
                seen.add(figures.oldest_jobs)
            if io:
                io.step()

    settle()
    for job_id in range(1, 150):
        filled.put()
        filled.client.send(b"delete %d\r\n" % job_id)
        settle()
    assert seen == {0}


def test_what_the_archive_lacks_is_kept_for_it() -> None:
    run = Archived()
    run.archive.fault = _full
    run.pass_through(100)
    assert kept(run.server) is Kept.ARCHIVE
    assert {row.is_archived for row in page(run.server)} == {False}
    run.archive.fault = lambda operation, name: None
    run.server.advance(60)
    rows = page(run.server)
    assert [row.is_archived for row in rows] == [True] * (len(rows) - 1) + [False]
    assert kept(run.server) is not Kept.ARCHIVE


def _full(operation: str, name: str) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_server_that_stops_compacts_no_more() -> None:
    filled = Filled(200)
    filled.server.stop()
    assert kept(filled.server) is Kept.STOPPED
