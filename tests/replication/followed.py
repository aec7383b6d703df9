"""Logs as the writes that an active server would have sent, and all that can be seen of a queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    REHOMED,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.jobs.ordered import LEAST, OrderedJobs
from beanstalk_twisted.jobs.tube import DEFAULT, Tube
from beanstalk_twisted.replication.followed_log import FollowedLog, Rejected
from beanstalk_twisted.replication.log_copy import Applying
from beanstalk_twisted.replication.stream.messages import Write
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.opening import load
from tests.binlog.scribe import quiet

EVERY = 1 << 30
"""More jobs than any test has."""


def no_facts() -> NoReturn:
    """Nobody asks for `stats` here."""
    raise AssertionError


def new_queue() -> WorkQueue:
    """A queue without jobs, which nobody is connected to."""
    return WorkQueue(no_facts, (), 1 << 20)


class Quiet:
    """A report that nobody hears."""

    def read(self, done: int, total: int) -> None: ...

    def loaded(self, jobs: int) -> None: ...


def followed(directory: Directory, progress: Callable[[int, int], None]) -> Replay:
    """Read a log all of which is durable, since it is in a stream."""
    survey = Survey(directory, progress, is_whole=False, is_archive=True)
    survey.refuse_if_unsound()
    return Replay(survey)


def loaded(directory: Directory, now_ns: int) -> WorkQueue:
    """The queue that a start makes of a log."""
    queue = new_queue()
    load(directory, queue, LogClock(lambda: now_ns, lambda: now_ns), Quiet(), followed)
    return queue


def writes_of(directory: Directory, together: Callable[[], int] = lambda: 1) -> list[Write]:
    """The writes of a log's segments, from its oldest one on.

    :param together: how many frames the next write has.
    """
    survey = Survey(directory, quiet, is_whole=False, is_archive=True)
    return [write for each in survey.segments for write in _writes(survey, each, together)]


def _writes(survey: Survey, segment: Any, together: Callable[[], int]) -> Iterator[Write]:
    content = bytes(survey.read(segment))
    offsets, end = list(segment.frame_offsets), segment.ending.offset
    start, begins = 0, True
    is_sealed = len(content) == end + 40
    while begins or offsets:
        is_rehomed = begins and segment.header.flags & REHOMED
        count = len(offsets) if is_rehomed else max(together(), 1)
        del offsets[:count]
        stop = offsets[0] if offsets else end
        last = [f for f in _frames(content, start or SEGMENT_HEADER_BYTES, stop)]
        lsn = last[-1].next_lsn - 1 if last else segment.header.first_lsn - 1
        seals = is_sealed and not offsets
        yield Write(
            segment.header.seq, start, content[start : len(content) if seals else stop], lsn,
            last[-1].time_ns if last else segment.header.created_ns, begins, seals,
        )  # fmt: skip
        start, begins = stop, False


def _frames(content: bytes, at: int, stop: int) -> Iterator[frames.Frame]:
    while at < stop:
        frame = frames.known(content, at)
        yield frame
        at = frame.end


def failing(number: int, only: str = "") -> Callable[[str, str], None]:
    """A fault of a disk, in one operation or in all."""

    def fail(operation: str, name: str) -> None:
        if only in ("", operation):
            raise OSError(number, os.strerror(number))

    return fail


def header_of(directory: Directory, seq: int) -> SegmentHeader:
    header = decode_segment_header(bytes(directory.read(segment_name(seq))[:SEGMENT_HEADER_BYTES]))
    assert isinstance(header, SegmentHeader)
    return header


def follow(queue: WorkQueue, writes: list[Write]) -> int:
    """Follow writes.

    :return: how many slices that took.
    """
    slices, log = 0, FollowedLog()
    applying = Applying(queue, log)
    for write in writes:
        piece = log.take(write)
        assert not isinstance(piece, Rejected), piece
        slices += sum(1 for _ in applying.apply(piece))
    return slices


def served(queue: WorkQueue, now_ns: int) -> WorkQueue:
    """The same queue as its new server has it."""
    for _ in queue.following.begin_segment(now_ns):
        pass
    queue.finish_following(now_ns)
    return queue


def keys(jobs: OrderedJobs) -> list[int]:
    return jobs.behind(LEAST, EVERY)


def seen(queue: WorkQueue) -> dict[str, Any]:
    """All that can be seen of a queue that nobody is connected to."""
    state = queue.state
    unique, groups, concurrency = state.unique, state.groups, state.concurrency
    jobs = {job_id: state.jobs.look(job_id) for job_id in state.jobs}
    return {
        "jobs": {
            job_id: _attributes(job)
            for job_id, job in jobs.items() if job is not None
        },
        "count": (len(state.jobs), dict(state.counts), state.urgent, state.tagged, state.ruled),
        "tubes": {tube.name: _of_tube(tube) for tube in state.tubes.in_order},
        "order": [tube.name for tube in state.tubes.in_order],
        "live": (state.live.live_bytes, state.live._segments),
        "unique": (unique._living, unique._remembered, unique._of_jobs, keys(unique._ends)),
        "lasting": unique.lasting,
        "groups": (groups._members, groups._states, sorted(groups.ended)),
        "waiting": {group: keys(jobs) for group, jobs in groups._waiting.items()},
        "concurrency": (concurrency._reserved, {
            (level, tube.name): (line.first, line.is_open, keys(line.others))
            for level, lines in concurrency._lines.items() for tube, line in lines.items()
        }),
        "dead": {name: keys(jobs) for name, jobs in state.dead_letters._by_tube.items()},
        "next": state.next_job_id,
    }  # fmt: skip


def _attributes(job: object) -> dict[str, Any]:
    """Compiled or not: a compiled class has no ``__slots__``."""
    found = {name: getattr(job, name) for name in dir(job) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not callable(value)}


def _of_tube(tube: Tube) -> dict[str, Any]:
    totals = tube.totals
    return {
        "id": 0 if tube.name == DEFAULT else tube.tube_id,
        "queues": [keys(each) for each in (tube.ready, tube.parked, tube.delayed, tube.buried)],
        "counts": (tube.body_bytes, tube.reserved, tube.urgent, tube.remembered),
        "pause": (tube.pause_s, tube.pause_until_ns) if tube.pause_until_ns else None,
        "rules": dict(tube.rules),
        "policy": tube.policy,
        "ages": None if totals is None else keys(totals.ages),
        "closed": tube.is_closed,
    }
