"""Checks of bodies that a start leaves: while it loads the jobs, or later in the background."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Thread
from typing import Final, NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.compaction import part_of
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BinlogError, Damaged
from beanstalk_twisted.binlog.reading.survey import Segment
from beanstalk_twisted.binlog.records.jobs import FULL, BodyPlace
from beanstalk_twisted.binlog.records.others import DATA_LEN, DATA_OFF, JOB_ID, TYPE
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer, Damage, Frame
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.body_reads import RETRIES_S, RETRY_S, is_short
from beanstalk_twisted.storage.environment import Environment
from beanstalk_twisted.storage.fail_stop import fail_stop
from beanstalk_twisted.storage.group_commit import GroupCommit
from beanstalk_twisted.storage.io_thread import WatchableIo

CHECK_BYTES: Final = 1 << 20
"""Bytes that are read and checked at once, or one frame if that is larger: a millisecond."""

PACE_S: Final = 0.005
"""From one slice of 1 MiB to the next, seconds: up to 200 MB a second, which leaves the disk free.
"""

CONGESTED_S: Final = 0.1
"""The same while commits are behind."""


class BadHeap(NamedTuple):
    """A frame whose heap is damaged, and the jobs whose bodies are, each with the LSN of its full
    record; none if the damage is elsewhere.
    """

    offset: int
    jobs: list[tuple[int, int]]


class Slice(NamedTuple):
    """``size`` bytes that were looked at, and the damaged frames in them."""

    size: int
    bad: list[BadHeap]


def check_bodies(directory: Directory, segment: Segment) -> Iterator[Slice]:
    """Check all frames of a segment, slice by slice.

    :raise Damaged: what was found sound before, no longer is.
    :raise OSError: the disk cannot read it.
    """
    copy_part = partial(directory.copy_part, segment.name)
    at, end = SEGMENT_HEADER_BYTES, segment.ending.offset
    while at < end:
        part = part_of(copy_part, at, CHECK_BYTES, end, segment.header.salt)
        bad, size = [], 0
        while size < len(part):
            frame = frames.decode_header(part, size, len(part), segment.header.salt)
            if isinstance(frame, Damage):
                raise _damaged(directory, segment, at + size, frame.why)
            if not isinstance(frame, Frame) or frame.end > len(part):
                break
            if not frames.has_sound_records(part, frame):
                why = "the checksum of its records is wrong"
                raise _damaged(directory, segment, at + size, why)
            if not frames.has_sound_heap(part, frame):
                bad.append(BadHeap(at + size, _bad_bodies(part, frame)))
            size = frame.end
        if not size:
            raise _damaged(directory, segment, at, "the segment ends here")
        yield Slice(size, bad)
        at += size


def _bad_bodies(part: Buffer, frame: Frame) -> list[tuple[int, int]]:
    heap, jobs = frames.heap(part, frame), []
    for index, raw in enumerate(frames.raw_records(part, frame)):
        data = bytes(heap[raw[DATA_OFF] : raw[DATA_OFF] + raw[DATA_LEN]])
        if raw[TYPE] in FULL and not frames.has_sound_data(raw, data):
            jobs.append((raw[JOB_ID], frame.base_lsn + index))
    return jobs


def _damaged(directory: Directory, segment: Segment, offset: int, why: str) -> Damaged:
    return Damaged(
        f"{directory.path}/{segment.name}: offset {offset}: {why}. "
        f"Run 'binlog-inspect check {directory.path}'."
    )


class StartCheck:
    def __init__(self, directory: Directory, segments: Sequence[Segment]) -> None:
        self._directory = directory
        self._segments = segments
        self._ended: Callable[[], bool] | None = None
        self._is_left = False
        self._thread: Thread | None = None

    def start(self) -> None:
        if self._segments:
            self._thread = Thread(target=self._run, name="body-check", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                # No memory for a thread: `is_sound` does it.
                self._thread = None

    def leave(self) -> None:
        """Look at no more; the answer is of no use."""
        self._is_left = True

    def is_sound(self) -> bool:
        """Wait until all is looked at; OSError if the disk cannot read it."""
        if self._thread is not None:
            self._thread.join()
        return self._check() if self._ended is None else self._ended()

    def _run(self) -> None:
        try:
            self._ended = partial(bool, self._check())
        except MemoryError:
            # Where there is little, `is_sound` tries again when the thread is gone.
            pass
        except Exception as problem:
            self._ended = partial(_again, problem)

    def _check(self) -> bool:
        try:
            for segment in self._segments:
                for each in check_bodies(self._directory, segment):
                    if each.bad or self._is_left:
                        return False
        except Damaged:
            return False
        return True


def _again(problem: Exception) -> bool:
    raise problem


class BodyCheck:
    """Checks the bodies of segments in the background (``--verify-on-start records``), one slice
    after the other, oldest segment first.  No segment is compacted before it was looked at.

    A damaged body is its job's error alone: it is read back as for a client, which reports it.
    One whose job is gone is needed by nobody, but a start that looks at all bodies refuses it as
    any: its segment is reported.  What no longer is a frame, or cannot be read even when it is
    tried again after `RETRIES_S`, keeps its segment from compaction.

    :ivar left_bytes: of the segments that were not looked at, or cannot be read.
    """

    log = Logger()

    def __init__(
        self, unchecked: Sequence[Segment], environment: Environment,
        make_io: Callable[[], WatchableIo] | None, queue: WorkQueue, committer: GroupCommit,
        checked: Callable[[], None],
    ) -> None:  # fmt: skip
        """:param unchecked: oldest first.
        :param make_io: makes what reads, and nothing else; needed if there are any.
        """
        self.fail_stop = environment.fail_stop
        self._left = {segment.header.seq: segment for segment in unchecked}
        self.left_bytes = self._all_bytes = sum(each.ending.offset for each in unchecked)
        self._directory = environment.directory
        self._reactor = environment.reactor
        self._io = make_io() if unchecked and make_io is not None else None
        self._queue = queue
        self._committer = committer
        self._checked = checked
        self._todo = iter(list(unchecked))
        self._segment: Segment | None = None
        self._tries = 0
        self._slices: Iterator[Slice] = iter(())
        self._next: IDelayedCall | None = None
        self._tenth = 1
        self._damaged = 0
        self._nobodys = self._nobodys_here = 0
        self._is_stopped = False

    def has_checked(self, seq: int) -> bool:
        return seq not in self._left

    def start(self) -> None:
        if self._left:
            self.log.info(
                "the bodies of {segments} segments, {megabytes} MB, are checked in the background",
                event="bodies-unchecked", segments=len(self._left),
                megabytes=self._all_bytes >> 20,
            )  # fmt: skip
            self._begin_next()

    def stop(self) -> None:
        self._is_stopped = True
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def close(self) -> None:
        if self._io is not None:
            self._io.stop()

    def _begin_next(self) -> None:
        self._segment, self._tries = next(self._todo, None), 0
        if self._segment is not None:
            self._slices = check_bodies(self._directory, self._segment)
            self._wait()
        elif not self._left:
            self.log.info(
                "the bodies of all segments are checked: {count} bodies of jobs are damaged, and "
                "{frames} frames that no job needs", event="bodies-checked", count=self._damaged,
                frames=self._nobodys,
            )  # fmt: skip

    def _wait(self) -> None:
        pause_s = CONGESTED_S if self._committer.is_congested else PACE_S
        self._next = self._reactor.callLater(pause_s, self._step)

    @fail_stop
    def _step(self) -> None:
        self._next = None
        if self._committer.is_congested:
            self._wait()
            return
        assert self._io is not None
        reading = self._io.run(partial(next, self._slices, None))
        reading.addCallbacks(self._was_read, self._cannot)

    @fail_stop
    def _was_read(self, found: Slice | None) -> None:
        segment = self._segment
        if self._is_stopped or segment is None:
            return
        if found is not None:
            for bad in found.bad:
                places = [(job_id, BodyPlace(segment.header.seq, lsn)) for job_id, lsn in bad.jobs]
                if not sum([self._is_somebodys(*each) for each in places]):
                    self._nobodys_here += 1
            self._wait()
            return
        self._tell_of_nobodys(segment)
        del self._left[segment.header.seq]
        self.left_bytes -= segment.ending.offset
        self._tell_of_tenth()
        self._begin_next()
        self._checked()

    def _is_somebodys(self, job_id: int, place: BodyPlace) -> bool:
        """Whether a job lives at a damaged place; its body is read back, which tells of it."""
        lives = self._queue.state.jobs.place(job_id) == place
        if lives:
            self._damaged += 1
            self._queue.state.bodies.when_loaded(job_id, lambda now_ns: None)
        return lives

    def _tell_of_nobodys(self, segment: Segment) -> None:
        count, self._nobodys_here = self._nobodys_here, 0
        self._nobodys += count
        if count:
            self.log.warn(
                "{segment}: bodies are damaged of jobs that are gone, or were stated again since, "
                "in so many frames: {frames}. Nobody needs them, but a start with "
                "--verify-on-start full refuses the log until compaction has deleted the segment.",
                event="bodies-damaged", segment=segment.name, frames=count,
            )  # fmt: skip

    @fail_stop
    def _cannot(self, failure: Failure) -> None:
        if self._is_stopped:
            return
        segment, pause_s = self._segment, self._pause_s(failure.value)
        assert segment is not None
        if pause_s is not None:
            self._nobodys_here = 0
            self._slices = check_bodies(self._directory, segment)
            self._next = self._reactor.callLater(pause_s, self._step)
            return
        if not failure.check(BinlogError, OSError):
            failure.raiseException()
        self.log.critical(
            "the bodies in {segment} cannot all be checked: {error} The segment is kept, and the "
            "log is not compacted any more; jobs with sound bodies are served.",
            event="bodies-check-failed", segment=segment.name, error=str(failure.value),
        )  # fmt: skip
        self._tell_of_nobodys(segment)
        self._begin_next()

    def _pause_s(self, error: BaseException | None) -> float | None:
        """:return: seconds until what has failed is tried again; None for not at all."""
        if is_short(error):
            return RETRY_S
        if not isinstance(error, OSError) or self._tries == len(RETRIES_S):
            return None
        self._tries += 1
        return RETRIES_S[self._tries - 1]

    def _tell_of_tenth(self) -> None:
        done = self._all_bytes - self.left_bytes
        if done * 10 >= self._all_bytes * self._tenth and self.left_bytes:
            self._tenth = done * 10 // self._all_bytes + 1
            self.log.info(
                "bodies: {done} of {total} MB checked ({percent} %)", event="bodies-checking",
                done=done >> 20, total=self._all_bytes >> 20,
                percent=done * 100 // self._all_bytes,
            )  # fmt: skip
