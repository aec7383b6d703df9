"""Bodies between memory and the log: a thread of its own reads them back, and what is durable
leaves memory slice by slice; docs/operations.md, "Bodies in the log".
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.records.jobs import BodyPlace
from beanstalk_twisted.jobs.body_room import Unread
from beanstalk_twisted.jobs.figures import Histogram
from beanstalk_twisted.jobs.job import NS
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Clock, WatchableIo
from beanstalk_twisted.storage.repeats import Repeats, times

RETRY_S: Final = 1.0
"""Seconds until a read is tried again that had no memory or no file descriptor."""

RETRIES_S: Final = (1.0, 2.0)
"""The same until each further try of one that has failed otherwise: a disk may be away for 2 s."""

SEGMENT_S: Final = 60
"""Seconds from the first failed read of a segment until its bodies are lost, if others could be
read: no less than a body has that fails alone (`body_room.PAUSES_S`).  Its jobs are left alone
as long, each once: however many there are, workers pass over them twice.
"""

PROBE_S: Final = 1.0
"""Seconds between tries of a segment that alone cannot be read; other reads of it fail meanwhile.
"""

REFUSED_JOBS: Final = 32
"""Bodies given up in one slice: a millisecond or two, with what workers do then."""

SHORT: Final = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EAGAIN})
"""What says nothing of the body."""

WANTED_READS: Final = 16
"""Bodies read in one piece of work: twice as many are little cheaper each, and the first one waits.
"""

AHEAD_READS: Final = 64
"""The same of those that no client waits for: 0.4 ms, from the page cache.  Next to a busy reactor
a piece of work costs as much as some tens of bodies: the thread has to get the interpreter back.
"""

PIECE_BYTES: Final = 4 << 20
"""Bytes of bodies after which a piece of work ends: 64 of the default largest size."""

ROOM_S: Final = 0.02
"""Seconds until it is looked again whether there is memory for a body that waits for it."""

LEAST_MEMORY_BYTES: Final = 4 << 20
"""What the process has to have left to read more bodies: half of what connections leave."""

US: Final = 1000
MS: Final = 1000 * US

READ_BOUNDS_NS: Final = (
    50 * US, 100 * US, 200 * US, 500 * US, 1 * MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS,
    100 * MS, 500 * MS, 1000 * MS,
)  # fmt: skip
"""From the page cache to a disk that hangs."""


class _Asked(NamedTuple):
    """A body to read, when it was asked for, and how often that has failed."""

    place: BodyPlace
    job_id: int
    asked_ns: int
    tries: int = 0


class _Failing(NamedTuple):
    """A segment of which the last read has failed.

    :ivar read: how many bodies had been read when the first one did, at ``since_ns``, log time.
    :ivar is_alone: whether others could be read between that and the last one, or its file is gone.
    :ivar tried_ns: when the last one failed, uptime; ``error`` how.
    """

    read: int
    since_ns: int
    is_alone: bool
    tried_ns: int
    error: Exception


class BodyReads:
    """Reads bodies back for a queue, and has them leave memory.

    :ivar times: how long reads took, from when they were asked for, nanoseconds.
    :ivar failed_reads: how many have failed, and said nothing of the body.
    """

    log = Logger()

    def __init__(
        self, reader: LogBodyReader, io: WatchableIo, log: Log, queue: WorkQueue, reactor: Clock,
        clock: LogClock, fail_stop: FailStop, ended: Callable[[], None],
        when_durable: Callable[[int, Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """:param io: runs the reads, and nothing else.
        :param ended: called when a read has ended, and its job was seen to.
        """
        self.times = Histogram(READ_BOUNDS_NS)
        self._reader = reader
        self._io = io
        self._binlog = log
        self._queue = queue
        self._bodies = queue.state.bodies
        self._reactor = reactor
        self._clock = clock
        self.fail_stop = fail_stop
        self._ended = ended
        self._when_durable = when_durable
        self.failed_reads = 0
        self._failing: dict[int, _Failing] = {}
        self._failures: Repeats[tuple[int, Exception]] = Repeats(reactor, self._tell_of_failure)
        self._bodies.say_lost = self._tell_of_loss
        self._is_stopped = False
        self._asking = 0
        self._wanted: dict[int, _Asked] = {}
        self._ahead: dict[int, _Asked] = {}
        self._refused: dict[int, _Asked] = {}
        self._under_way: set[int] = set()
        self._is_reading = self._is_syncing = False
        self._next_look: IDelayedCall | None = None
        self._next_drop: IDelayedCall | None = None
        self._next_refusals: IDelayedCall | None = None

    def start(self, most_bytes: int) -> None:
        self._bodies.begin(most_bytes, self._ask)
        self.drop()

    def stop(self) -> None:
        """Read nothing more; clients that wait for a body get no answer."""
        self._is_stopped = True
        self._failures.stop()
        for call in (self._next_drop, self._next_refusals, self._next_look):
            if call is not None:
                call.cancel()
        self._next_drop = self._next_refusals = self._next_look = None

    def close(self) -> None:
        self._io.stop()

    def drop(self) -> None:
        """Leave a slice of bodies to the log, and go on later if there is more to do."""
        if self._bodies.is_noting and self._next_drop is None and not self._is_stopped:
            self._drop_slice()

    @fail_stop
    def _drop_slice(self) -> None:
        self._next_drop = None
        if self._bodies.drop_slice(self._binlog.durable_lsn, self._clock.now_ns()):
            self._next_drop = self._reactor.callLater(0, self._drop_slice)
            return
        lsn = self._bodies.undurable_lsn
        if lsn and not self._is_syncing:
            self._is_syncing = True
            self._when_durable(lsn, self._end_sync)

    def _end_sync(self) -> None:
        self._is_syncing = False

    def _ask(self, bodies: Sequence[tuple[BodyPlace, int]], is_wanted: bool) -> None:
        if self._is_stopped:
            return
        now_ns = self._clock.uptime_ns()
        for place, job_id in bodies:
            if job_id not in self._under_way and job_id not in self._refused:
                self._line_up(_Asked(place, job_id, now_ns), is_wanted)
        self._asking += 1
        self._read_next()
        self._asking -= 1

    def _line_up(self, new: _Asked, is_wanted: bool) -> None:
        job_id = new.job_id
        asked = self._ahead.pop(job_id, None) or self._wanted.get(job_id, new)
        failing = self._failing.get(new.place.segment)
        if (
            failing is not None
            and failing.is_alone
            and self._clock.uptime_ns() < failing.tried_ns + int(PROBE_S * NS)
        ):
            # It alone cannot be read, and that was tried a moment ago.
            self._wanted.pop(job_id, None)
            self._refused[job_id] = asked
            self._plan_refusals()
        else:
            (self._wanted if is_wanted else self._ahead)[job_id] = asked

    def _plan_refusals(self) -> None:
        """Give bodies up, but not immediately: very many may come one after the other."""
        if self._refused and self._next_refusals is None:
            self._next_refusals = self._reactor.callLater(0, self._refuse_slice)

    @fail_stop
    def _refuse_slice(self) -> None:
        self._next_refusals = None
        for job_id in list(islice(self._refused, REFUSED_JOBS)):
            asked = self._refused.pop(job_id)
            failing = self._failing.get(asked.place.segment)
            if failing is None:
                self._ask_again(asked)
            else:
                self._arrives(asked, failing.error)
        self._plan_refusals()
        self._ended()
        self.drop()

    def _read_next(self) -> None:
        """Read some bodies, unless others are being read; first those that clients wait for."""
        if self._is_reading:
            return
        batch, size = self._next_piece(self._wanted, WANTED_READS)
        if not batch and not self._bodies.is_starved:
            batch, size = self._next_piece(self._ahead, AHEAD_READS)
        if not batch:
            return
        self._bodies.room.taken_bytes += size
        self._under_way.update([each.job_id for each in batch])
        self._is_reading = True
        reading = self._io.run(
            partial(self._reader.read_all, [(each.place, each.job_id) for each in batch])
        )
        reading.addCallbacks(partial(self._took, batch, size), partial(self._failed, batch, size))

    def _next_piece(self, waiting: dict[int, _Asked], most: int) -> tuple[list[_Asked], int]:
        """Take bodies that may be read together, and count their bytes; none if there is no
        memory.
        """
        jobs, room = self._queue.state.jobs, self._bodies.room
        batch: list[_Asked] = []
        size = 0
        for job_id in waiting:
            more = jobs.weigh(job_id)[0] if job_id in jobs else 0
            if (batch and size + more > PIECE_BYTES) or len(batch) == most:
                break
            if room.takes(more) or not more:
                batch.append(waiting[job_id])
                size += more
        self._bodies.is_starved = bool(batch) and not room.has_memory(LEAST_MEMORY_BYTES + size)
        if self._bodies.is_starved:
            batch.clear()
        for each in batch:
            del waiting[each.job_id]
        if waiting and not batch and self._next_look is None:
            self._next_look = self._reactor.callLater(ROOM_S, self._look_again)
        return batch, size

    @fail_stop
    def _look_again(self) -> None:
        self._next_look = None
        self.drop()
        self._read_next()

    @fail_stop
    def _failed(self, batch: Sequence[_Asked], size: int, failure: Failure) -> None:
        assert isinstance(failure.value, Exception)
        self._took(batch, size, [failure.value] * len(batch))

    @fail_stop
    def _took(
        self, batch: Sequence[_Asked], size: int, bodies: Sequence[bytes | Exception]
    ) -> None:
        self._is_reading = False
        if self._is_stopped:
            return
        for asked in batch[len(bodies) :]:
            self._under_way.discard(asked.job_id)
            self._line_up(asked, is_wanted=True)
        # The thread goes on while this one sees to what has come.
        self._read_next()
        uptime_ns, now_ns = self._clock.uptime_ns(), self._clock.now_ns()
        for asked, body in zip(batch, bodies, strict=False):
            if isinstance(body, Exception) and self._is_tried_again(asked, body):
                continue
            self._under_way.discard(asked.job_id)
            if isinstance(body, bytes):
                self.times.note(uptime_ns - asked.asked_ns)
                self._failing.pop(asked.place.segment, None)
                self._bodies.arrived(asked.job_id, body, now_ns)
            else:
                self._arrives(asked, body)
        # Until here they were in memory in any case; a reply that was not read yet counts itself.
        self._bodies.room.taken_bytes -= size
        self._read_next()
        if self._asking:
            # Read at once: a command or a timer is under way, and what it leaves is seen to behind.
            return
        self._ended()
        self.drop()

    def _arrives(self, asked: _Asked, error: Exception) -> None:
        now_ns, failing = self._clock.now_ns(), self._failing.get(asked.place.segment)
        is_lost, until_ns = not isinstance(error, OSError), 0
        if not is_lost and failing is not None and failing.is_alone:
            ends_ns = failing.since_ns + SEGMENT_S * NS
            is_lost = now_ns >= ends_ns and self._bodies.read > failing.read
            until_ns = ends_ns if now_ns < ends_ns else now_ns + SEGMENT_S * NS
        self._bodies.arrived(asked.job_id, Unread(_in_words(error), is_lost, until_ns), now_ns)

    def _is_tried_again(self, asked: _Asked, error: Exception) -> bool:
        """Have a failed read tried again after a pause, unless the body is given up."""
        if not is_short(error) and not isinstance(error, OSError):
            return False
        self.failed_reads += 1
        self._failures.note((asked.job_id, error))
        pause_s = RETRY_S
        if not is_short(error):
            failing = self._failing_now(asked.place.segment, error)
            # As of this body before, or of all of its segment, and of that alone.
            is_known = failing.is_alone or self._bodies.has_failed(asked.job_id)
            if is_known or asked.tries == len(RETRIES_S):
                self._failing[asked.place.segment] = failing
                return False
            pause_s = RETRIES_S[asked.tries]
            asked = asked._replace(tries=asked.tries + 1)
        self._reactor.callLater(pause_s, self._ask_again, asked)
        return True

    def _failing_now(self, segment: int, error: Exception) -> _Failing:
        before, read = self._failing.get(segment), self._bodies.read
        first, since_ns = before[:2] if before is not None else (read, self._clock.now_ns())
        is_alone = read > first or isinstance(error, FileNotFoundError)
        return _Failing(first, since_ns, is_alone, self._clock.uptime_ns(), error)

    @fail_stop
    def _ask_again(self, asked: _Asked) -> None:
        if self._is_stopped:
            return
        self._under_way.discard(asked.job_id)
        self._wanted[asked.job_id] = asked
        self._read_next()

    def _tell_of_failure(self, count: int, failed: tuple[int, Exception]) -> None:
        job_id, error = failed
        self.log.warn(
            "job {job}: its body cannot be read now: {error} It is tried again, and all jobs whose "
            "bodies can be read are served{times}.", event="body-read-failed", job=job_id,
            error=_in_words(error), times=times(count), count=count,
        )  # fmt: skip

    def _tell_of_loss(self, job_id: int, why: str) -> None:
        self.log.critical(
            "job {job}: its body cannot be read: {error} It is buried when a worker reserves it; "
            "all other jobs are served.", event="body-lost", job=job_id, error=why,
        )  # fmt: skip


def is_short(error: BaseException | None) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORT)


def _in_words(error: BaseException) -> str:
    said = str(error)
    return said if said.endswith(".") else f"{said}."
