"""From a directory to a loaded queue and an open log.  The order is the promise: only when the new
segment is durable is anything of the old log cut.  No Twisted: it runs before any port is open.
"""

import errno
import gc
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted import __version__
from beanstalk_twisted.binlog.batches import Batch, Opening, Position
from beanstalk_twisted.binlog.cold import ColdJobs
from beanstalk_twisted.binlog.directory import QUARANTINE, Directory, RealDirectory
from beanstalk_twisted.binlog.errors import (
    MORE_DESCRIPTORS,
    BinlogError,
    CannotUse,
    Damaged,
    NoSpace,
    WriteFailed,
)
from beanstalk_twisted.binlog.files import NotRegular
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.reading.survey import Progress, beanstalkd_file, refuse_beanstalkds
from beanstalk_twisted.binlog.records.others import Start
from beanstalk_twisted.binlog.segments.format import parse_segment_name
from beanstalk_twisted.binlog.space_budget import Demand
from beanstalk_twisted.binlog.writer import NO_SPACE, Writer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.body_checks import StartCheck
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.fail_stop import is_out_of_descriptors

ALL_BYTES: Final = 1 << 63
"""More than a log has."""

WRITER: Final = f"beanstalk-twisted/{__version__}"
"""How segment headers name this server."""

REPORT_JOBS: Final = 100_000
"""How many jobs are loaded between two reports: about half a second."""


class Verify(StrEnum):
    """What a start looks at before anybody is served: docs/durability.md, "What a start checks"."""

    FULL = "full"
    """Every checksum."""

    RECORDS = "records"
    """All but bodies of finished segments, which are looked at later."""


class Report(Protocol):
    def read(self, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of the log are read."""

    def loaded(self, jobs: int) -> None: ...


class Predecessor(Protocol):
    """A log that a new segment continues: read (`replay.Replay`), or followed
    (`replication.followed_log.FollowedLog`).
    """

    @property
    def tubes(self) -> Mapping[int, bytes]:
        """The names of the tubes of its records."""

    def position(self, store_uuid: bytes) -> Position:
        """:param store_uuid: names the store if it is a new one."""

    def tidy(self, directory: Directory) -> str:
        """Make durable what the new segment builds on, before that is written; keep a copy of what
        it cuts off, and return where, or an empty string.
        """

    def notes(self, kept_at: str) -> list[str]:
        """Return sentences for the server's log; ``kept_at`` is what `tidy` has returned."""

    def give_space(self, directory: Directory) -> None:
        """The disk is full: give back space that was never written."""

    def remove_dead(self, directory: Directory, segments: bool) -> None:
        """Remove what was being made, before the new segment is; dead segments after it."""

    def release(self, directory: Directory) -> None:
        """Cut what the new segment has taken over; it is durable."""


class Beginning(NamedTuple):
    """A log that goes on, and its first batch, which is not written yet."""

    log: Log
    batch: Batch
    found: Predecessor
    demand: Demand


class OpenLog(NamedTuple):
    """A log that is open for appending, and sentences for the server's log."""

    log: Log
    writer: Writer
    notes: list[str]


class _Filling(NamedTuple):
    queue: WorkQueue
    clock: LogClock
    report: Report
    body_cache: int | None
    is_followed: bool


def load(
    directory: Directory, queue: WorkQueue, clock: LogClock, report: Report,
    read: Callable[[Directory, Progress], replay.Replay] = replay.read_records,
    body_cache: int | None = None, is_followed: bool = False, verify: Verify = Verify.FULL,
) -> replay.Replay:  # fmt: skip
    """Load a queue from a directory; nothing there is changed.

    :param directory: locked.
    :param read: see `replay.read_records`.
    :param body_cache: bytes of bodies that are kept in memory; the others are left to the log as
        they are loaded.  None for all.
    :param is_followed: see `WorkQueue.finish_loading`.
    :param verify: with all bodies in memory it is always full.
    :raise Damaged: durable records cannot be read.
    :raise Incompatible: it is a log of another version, kind or store.
    :raise CannotUse: it cannot be read.
    """
    leaves_bodies = verify is Verify.RECORDS and body_cache is not None
    filling = _Filling(queue, clock, report, body_cache, is_followed)
    try:
        with _without_garbage_collection():
            return _filled(filling, directory, read, leaves_bodies)
    except (OSError, MemoryError) as problem:
        raise cannot_use(directory, problem) from problem


def _filled(
    filling: _Filling, directory: Directory,
    read: Callable[[Directory, Progress], replay.Replay], leaves_bodies: bool,
) -> replay.Replay:  # fmt: skip
    segments = [name for name in directory.names() if parse_segment_name(name) is not None]
    for newest in segments[-1:]:
        # After a failed write-back the cache may show what the disk never got, in the segment that
        # was being written.
        directory.forget_cached(newest)
    directory.expect_gaps(segments[:-1] if leaves_bodies else ())
    found = read(directory, filling.report.read)
    filling.clock.not_before(found.small.time_ns)
    if leaves_bodies:
        _load(filling, found, 0)
    else:
        _load_and_check(filling, found, directory)
    directory.expect_gaps(())
    return found


def _load_and_check(filling: _Filling, found: replay.Replay, directory: Directory) -> None:
    """Have bodies looked at that were left, while the jobs are loaded.

    :raise Damaged: one is damaged; what else is found counts only if none is.
    """
    cache = filling.body_cache
    check = StartCheck(directory, found.unchecked)
    check.start()
    try:
        try:
            _load(filling, found, ALL_BYTES if cache is None else cache)
        except BinlogError:
            if check.is_sound():
                raise
    except BaseException:
        check.leave()
        raise
    if not check.is_sound():
        # What is wrong, and with what else, in the words of a reader of all of it.
        replay.read(directory, filling.report.read)
        raise Damaged(
            f"damaged binlog: {directory.path}; nothing was changed. A body was read that is "
            f"damaged, and then not again: see whether the machine's memory or its disk fails."
        )
    found.unchecked.clear()


def begin(
    directory: Directory, queue: WorkQueue, clock: LogClock, segment_bytes: int,
    found: Predecessor, most_bytes: int = 0, chance: Callable[[int], bytes] = os.urandom,
) -> OpenLog:  # fmt: skip
    """Open the log that was loaded for appending, in a new segment.

    :param most_bytes: that its files may have together; 0 for no limit.
    :param chance: gives random bytes: a new store's UUID, and the salt of each segment.
    :raise CannotUse: it cannot be written.
    """
    notes = tidied(directory, found)
    try:
        beginning = prepare(queue, clock, segment_bytes, found, most_bytes, chance)
    except OSError as problem:
        raise cannot_use(directory, problem) from problem
    return write_beginning(directory, beginning, notes)


def tidied(directory: Directory, found: Predecessor) -> list[str]:
    """Make what is there durable, and keep a torn tail aside; return what the start has to say.

    :raise CannotUse: it cannot be written.
    """
    try:
        return found.notes(found.tidy(directory))
    except OSError as problem:
        raise cannot_use(directory, problem) from problem


def prepare(
    queue: WorkQueue, clock: LogClock, segment_bytes: int, found: Predecessor,
    most_bytes: int = 0, chance: Callable[[int], bytes] = os.urandom,
) -> Beginning:  # fmt: skip
    """Begin the new segment in memory: the queue's changes go there from now on.  Nothing is
    written; of a `Replay` what is not known durable is read.
    """
    position = found.position(chance(16))._replace(time_ns=clock.now_ns())

    log = Log(
        position, segment_bytes, lambda seq, now_ns: Opening(*queue.opening(seq, now_ns)),
        lambda: int.from_bytes(chance(4), "little"), WRITER,
    )  # fmt: skip
    log.most_bytes = most_bytes
    queue.keep_in(log)
    # A segment names all tubes of its records, also those that have ended since.
    known = found.tubes
    log.name_tubes({
        tube_id: known[tube_id]
        for tube_id in position.rehomed_tubes & known.keys()
        if not queue.state.tubes.is_defined(tube_id, log.segment)
    })  # fmt: skip
    start = Start(
        clock.now_ns(), queue.state.next_job_id, queue.state.tubes.next_tube_id,
        clock.wall_offset_ns(),
    )  # fmt: skip
    log.append(start)
    batch = log.take(clock.now_ns())
    assert batch is not None
    return Beginning(log, batch, found, queue.demand())


def write_beginning(
    directory: Directory, beginning: Beginning, notes: list[str], is_witnessed: bool = False
) -> OpenLog:  # fmt: skip
    """Write the new segment, then cut what it takes the place of.  Nobody else uses the log
    meanwhile.

    :param notes: what `tidied` has given, which comes before this.
    :param is_witnessed: whether something else says that the first batch is durable.
    :raise CannotUse: it cannot be written.
    """
    try:
        return _write_beginning(directory, beginning, notes, is_witnessed)
    except WriteFailed as problem:
        raise cannot_use(directory, problem.__cause__) from problem
    except OSError as problem:
        raise cannot_use(directory, problem) from problem


def _write_beginning(
    directory: Directory, beginning: Beginning, notes: list[str], is_witnessed: bool
) -> OpenLog:  # fmt: skip
    log, batch, found, demand = beginning
    writer = Writer(directory)
    found.remove_dead(directory, segments=False)
    try:
        writer.write(batch, sync=True)
    except NoSpace:
        found.give_space(directory)
        batch = _write_where_it_fits(writer, log, batch)
    log.durable(batch.last_lsn)
    if not (log.has_open or is_witnessed):
        # A witness that this batch is durable, before any commit is.
        writer.write(log.mark(), sync=False)
    found.release(directory)
    found.remove_dead(directory, segments=True)
    _allocate(writer, log, demand)
    return OpenLog(log, writer, notes)


def refuse_beanstalkd(directory: RealDirectory) -> None:
    """Look for a log of the C beanstalkd, before even a lock is put there.

    :raise LockHeld: there is one, in use.
    :raise Incompatible: there is one.
    :raise CannotUse: that cannot be determined.
    """
    try:
        names = directory.names()
    except OSError as problem:
        raise cannot_use(directory, problem) from problem
    if beanstalkd_file(names):
        directory.refuse_if_beanstalkd_runs()
        refuse_beanstalkds(directory.path, names)


def cannot_use(directory: Directory, problem: BaseException | None) -> CannotUse:
    why = problem.strerror if isinstance(problem, OSError) else str(problem)
    return CannotUse(
        f"binlog directory {directory.path} cannot be used: {why or type(problem).__name__}; "
        f"nothing was lost. {_advice(directory.path, problem)}, then start again."
    )


def _advice(path: str, problem: BaseException | None) -> str:
    number = problem.errno if isinstance(problem, OSError) else None
    if number == errno.ENOMEM or isinstance(problem, MemoryError):
        return (
            "All jobs are loaded into memory, and before that segment by segment is looked at: "
            "give it more (ulimit -v, the limit of a container)"
        )
    if is_out_of_descriptors(problem):
        return MORE_DESCRIPTORS
    if isinstance(problem, NotRegular):
        return problem.hint.capitalize()
    if number in NO_SPACE:
        kept = os.path.join(path, QUARANTINE)
        more = f" (no server reads {kept}: look, then remove it)" if os.path.isdir(kept) else ""
        return f"Free some space{more}"
    return "Look at its space, its permissions and its file system"


class _without_garbage_collection:
    """A million new objects would be looked at again and again, and none is garbage."""

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *ignored: object) -> None:
        if self._was_enabled:
            gc.enable()
            gc.freeze()


def _load(filling: _Filling, found: replay.Replay, bodies_below: int) -> None:
    """:param bodies_below: see `Replay.survivors_in_bulk`."""
    queue, clock, report, body_cache, is_followed = filling
    small, state, told = found.small, queue.state, 0
    # What another server goes on with ends by its clock, whatever the one here says.
    now_ns = small.time_ns if is_followed else clock.now_ns()
    state.load_tubes(found.small.tubes, small.next_tube_id, small.next_job_id)
    keeps_places = state.jobs.keeps_places
    for each in found.survivors_in_bulk(now_ns, keeps_places, bodies_below):
        if isinstance(each, ColdJobs):
            job_ids = [] if each.are_left else each.job_ids
            state.apply_cold(each)
        else:
            job_ids = [each.image.job_id]
            state.apply(each.image, each.lsn if keeps_places else 0, each.segment_seq)
        del each  # It may keep a part of the log mapped, and the next one is about to be.
        if body_cache is not None:
            state.bodies.loaded(job_ids, body_cache)
        if len(state.jobs) >= told + REPORT_JOBS:
            told = len(state.jobs)
            report.loaded(told)
    queue.finish_loading(found.others(now_ns), now_ns, is_followed)


def _write_where_it_fits(writer: Writer, log: Log, batch: Batch) -> Batch:
    while True:
        try:
            writer.write(batch, sync=True)
            return batch
        except NoSpace:
            smaller = log.shrink(batch)
            if smaller is None:
                raise
            batch = smaller


def _allocate(writer: Writer, log: Log, demand: Demand) -> None:
    while (segment := log.budget.wanted(demand)) is not None:
        # What is not given, the committer asks for again, and tells of it.
        log.budget.is_short = not log.may_allocate(segment.size)
        if log.budget.is_short:
            return
        try:
            writer.prepare(segment)
        except NoSpace:
            log.budget.is_short = True
            return
        log.budget.add(segment)
