"""Keeps the archive of a server complete, in a directory or in object storage."""

import errno
import shlex
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import ClassVar, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.archive import (
    Archive,
    Delivered,
    Gap,
    ManifestWriter,
    RealArchive,
    deliver,
    deliver_rest,
    gap,
    store_uuid,
)
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BinlogError, CannotUse
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.object_storage.store import (
    BadUrl,
    Store,
    again,
    is_url,
    join,
    open_store,
    shown,
)
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.storage.environment import Environment
from beanstalk_twisted.storage.fail_stop import fail_stop
from beanstalk_twisted.storage.group_commit import GroupCommit
from beanstalk_twisted.storage.io_thread import WatchableIo

T = TypeVar("T")

DEFAULT_AGE_S: Final = 300
"""Seconds that a change of a job waits for the archive at most: 288 files on a day without load."""

MAX_AGE_S: Final = 604_800
"""A week: who can wait longer wants 0, never."""

RETRY_S: Final = 10.0
"""Seconds from the first failure to the next attempt; each further wait is twice as long."""

MAX_RETRY_S: Final = 60.0
"""Seconds between attempts at most: soon enough after somebody has made room."""

REMOTE_REST_S: Final = 20.0
"""Seconds after an ordered stop in which the delivery of a further segment to a remote archive is
begun: the next start delivers the others, and who stops a server waits 90 s at most.
"""

_VERIFY: Final = ("binlog-inspect", "archive-verify", "--write-manifest")

MANIFEST_SEGMENTS: Final = 64
"""Segments delivered in a row for which the manifest is written once, after hours without archive.
"""

CHUNK_BYTES: Final = 8 << 20
"""Written, read back and compared at once: 8 requests for a segment, each may take long."""

PAUSES_S: Final = (0.5, 1.0, 2.0)
"""Seconds before a request that was refused is made again: a store that refuses every third one
still takes a segment, for which it is asked some 20 times.
"""

QUICK_S: Final = 5.0
"""Seconds after which a refused request is not made again: the store hangs, and a stop waits."""

MakeArchiver = Callable[[Log, Environment, GroupCommit, Callable[[], None]], "Archiver"]
"""Makes an `Archiver` of what the server has when its log is open: the last four parameters."""


class Archiver:
    """Sees that every finished segment gets into the archive, one after the other, oldest first.

    The work is done in a thread of its own, so that neither clients nor commits wait for an archive
    that is slow, or hangs.  While it fails, the log keeps all that the archive lacks.

    One timer may be pending: the age at which the segment in use is finished though it is not full;
    or, while the archive fails, the next attempt.
    """

    log = Logger()

    def __init__(
        self, archive: Archive, age_s: int, io: Callable[[], WatchableIo], log: Log,
        environment: Environment, committer: GroupCommit, compact: Callable[[], None],
    ) -> None:  # fmt: skip
        """:param age_s: how old a change of a job becomes before it is delivered; 0 lets segments
            become full.
        :param io: makes one of its own: it may have to wait for long.
        :param compact: called when the log has grown, or a segment of it was archived.
        """
        self.fail_stop = environment.fail_stop
        self._compact = compact
        self._archive = archive
        self._age_s = age_s
        self._log = log
        self._directory = environment.directory
        self._io = io()
        self._io.watch(lambda: None, self.fail_stop)
        self._committer = committer
        self._clock = environment.reactor
        self._now_ns = environment.clock.now_ns
        self._archived = log.oldest - 1
        self._manifest: ManifestWriter | None = None
        self._manifest_trouble = ""
        self._told_spoilt: set[str] = set()
        self._unwritten = 0
        self._timer: IDelayedCall | None = None
        self._aging = 0
        self._trouble = ""
        self._retry_s = RETRY_S
        self._is_busy = self._is_stopped = False

    def start(self) -> None:
        """Deliver what is finished already: the last server may have been killed before.

        :raise CannotUse: nothing can be put into the archive, and it is not remote.
        """
        if self._archive.is_remote:
            self._run(self._open, self._was_opened)
            return
        try:
            self._open()
        except OSError as problem:
            raise CannotUse(
                f"archive directory {self._archive.path} cannot be used: {problem.strerror}; "
                f"nothing was lost. Look at its permissions and its space, then start again."
            ) from problem
        self._was_opened(None)

    def _open(self) -> None:
        store = store_uuid(self._directory, self._log.oldest)
        self._archive.open(store)
        self._manifest = ManifestWriter(self._archive, store)

    def _was_opened(self, _: None) -> None:
        self.log.info(
            "archive {path}: keeps every finished segment", event="archive-opened",
            path=self._archive.path,
        )  # fmt: skip
        oldest = self._log.oldest
        self._run(lambda: gap(self._archive.names(), oldest), self._note_gap)

    @property
    def lacks(self) -> tuple[int, int]:
        """:return: how many finished segments may not be in the archive, and their bytes."""
        newest_first = reversed(self._log.ends.items())
        sizes = [size for _, size in takewhile(lambda end: not self.has(end[0]), newest_first)]
        return len(sizes), sum(sizes)

    def has(self, seq: int) -> bool:
        return seq <= self._archived

    @fail_stop
    def advanced(self) -> None:
        """The disk has done something: a segment may be finished, or begun."""
        self._consider()
        self._compact()

    def _consider(self) -> None:
        if self._is_stopped or self._trouble:
            return
        self._watch_age()
        if self._is_busy:
            return
        seq, durable_lsn = self._archived + 1, self._log.durable_lsn
        if seq < self._log.segment and self._unwritten < MANIFEST_SEGMENTS:
            work = partial(deliver, self._archive, self._directory, seq, durable_lsn)
            self._run(work, partial(self._was_delivered, durable_lsn))
        else:
            self._write_manifest()

    def stop(self) -> None:
        """Begin nothing more before `finish`."""
        self._is_stopped = True
        self._cancel_timer()

    def finish(self) -> "Deferred[None]":
        """The log has ended in order: deliver what is left; fires when that is done, or has
        failed.
        """
        last_ns = self._now_ns() + int(REMOTE_REST_S * NS)

        def goes_on() -> bool:
            return not self._archive.is_remote or self._now_ns() < last_ns

        def deliver_all() -> None:
            if self._manifest is None:
                self._open()
            first = self._archived + 1
            deliver_rest(self._archive, self._directory, first, goes_on, self._note)

        def write_manifest() -> None:
            if self._manifest is not None and goes_on():
                self._manifest.write()

        rest = self._io.run(deliver_all)
        rest.addErrback(self._report, "It is archived at the next start.")
        ended = self._io.run(write_manifest)
        self._io.stop()
        return ended.addCallbacks(self._has_written_manifest, self._report_manifest)

    # One thing at a time, until it is done.

    def _run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self._is_busy = True
        running = self._io.run(work)
        running.addCallback(self._has_worked, done)
        running.addErrback(self._has_failed, partial(self._run, work, done))

    def _has_worked(self, result: T, done: Callable[[T], None]) -> None:
        self._is_busy = False
        self._retry_s = RETRY_S
        if self._trouble:
            self._trouble = ""
            self.log.warn(
                "archive {path} works again", event="archive-works", path=self._archive.path
            )
        done(result)

    @fail_stop
    def _has_failed(self, failure: Failure, again: Callable[[], None]) -> None:
        trouble = _said(failure)
        if trouble != self._trouble:
            self._trouble = trouble
            self._report(failure, "Until it is archived no segment is deleted; it is tried again "
                         f"at least every {MAX_RETRY_S:g} seconds.")  # fmt: skip
        self._cancel_timer()
        if not self._is_stopped:
            self._timer = self._clock.callLater(self._retry_s, self._retry, again)
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)

    @fail_stop
    def _retry(self, again: Callable[[], None]) -> None:
        self._timer = None
        again()

    def _report(self, failure: Failure, outlook: str) -> None:
        self.log.critical(
            "{error} {outlook}", event="archive-failed", error=_said(failure), outlook=outlook
        )
        if not failure.check(BinlogError, OSError):
            self.log.failure("while archiving", failure, event="archive-failed-of")

    # Segments.

    def _note_gap(self, found: Gap | None) -> None:
        if found is not None:
            self.log.critical(
                "archive {path}: segments {first} to {last} are not in it, and no longer in the "
                "log: it was compacted by a server without --binlog-archive. What follows them is "
                "archived.", event="archive-gap",
                path=self._archive.path, first=found.first, last=found.last,
            )  # fmt: skip
        self._consider()

    def _was_delivered(self, durable_lsn: int, delivered: Delivered | None) -> None:
        if delivered is not None:
            self._archived = delivered.seq
            self._note(delivered)
            self._compact()
            self._consider()
        elif self._log.durable_lsn > durable_lsn:
            # Its successor may have become durable meanwhile; else the disk will call.
            self._consider()
        else:
            self._write_manifest()

    # Its manifest: nothing waits for it.

    def _note(self, delivered: Delivered) -> None:
        self._unwritten += 1
        if self._manifest is not None and delivered.entry is not None:
            self._manifest.note(delivered.entry)

    def _write_manifest(self) -> None:
        if self._manifest is None or not self._unwritten or self._is_stopped:
            return
        self._unwritten = 0
        self._is_busy = True
        writing = self._io.run(self._manifest.write)
        writing.addCallbacks(self._has_written_manifest, self._report_manifest)
        writing.addBoth(self._go_on)

    @fail_stop
    def _has_written_manifest(self, _: None) -> None:
        self._manifest_trouble = ""
        spoilt = self._manifest.spoilt if self._manifest is not None else {}
        for name in sorted(spoilt.keys() - self._told_spoilt):
            self._told_spoilt.add(name)
            self.log.warn(
                "archive {path}: {name} is no manifest of this store: {why}; it is begun anew, and "
                "nothing was lost: readers open each segment that it lacks. To write it of all "
                "segments: {command}", event="archive-manifest-anew", path=self._archive.path,
                name=name, why=spoilt[name],
                command=shlex.join([*_VERIFY, self._archive.path]),
            )  # fmt: skip

    @fail_stop
    def _go_on(self, _: None) -> None:
        self._is_busy = False
        self._consider()

    def _report_manifest(self, failure: Failure) -> None:
        problem = failure.value
        said = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        if said != self._manifest_trouble:
            self._manifest_trouble = said
            self.log.warn(
                "archive {path}: its manifest was not written: {error}; nothing was lost: readers "
                "open each segment that it lacks. It is tried again behind the next segment.",
                event="archive-manifest-failed", path=self._archive.path, error=said,
            )  # fmt: skip

    # Age.

    def _watch_age(self) -> None:
        """From the first change of a job in a segment on, its time runs."""
        if self._aging != self._log.segment:
            self._cancel_timer()
        if self._timer is None and self._age_s and self._log.has_changes:
            self._aging = self._log.segment
            self._timer = self._clock.callLater(self._age_s, self._has_aged)

    @fail_stop
    def _has_aged(self) -> None:
        self._timer = None
        self._log.rotate()
        self._committer.schedule()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


def _said(failure: Failure) -> str:
    """Return its words, never none: a MemoryError has none."""
    problem = failure.value
    if isinstance(problem, OSError) and problem.strerror:
        where = f"{problem.filename}: " if problem.filename else ""
        return f"archive {where}{problem.strerror}; the log keeps all, so nothing is lost."
    return str(failure.value) or type(failure.value).__name__


def archive_at(place: str) -> Archive:
    if is_url(place):
        return ObjectArchive(shown(place), partial(open_store, place))
    return RealArchive(place)


class ObjectArchive(Archive):
    """An `Archive` in object storage.  Nothing is asked of the store before `open`.

    An upload is complete before it has its final name: objects get the name of an unfinished copy,
    are read back and compared, and only then renamed, which in a bucket is a copy within the store.
    """

    is_remote: ClassVar[bool] = True

    def __init__(
        self, url: str, connect: Callable[[], Store],
        sleep: Callable[[float], None] = time.sleep, now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """:param url: as it may be shown.
        :param connect: opens the store; called until it has once returned.
        :param sleep: waits a number of seconds; all methods may block.
        """
        self._sleep = sleep
        self._now_s = now_s
        self.path = self._root = url
        self._connect = connect
        self._store: Store | None = None
        self._folder = ""

    def refuse_unusable(self) -> None:
        """:raise CannotUse: there is no way to the store, which may be away for a while."""
        try:
            self._store = self._connect()
        except (OSError, BadUrl) as problem:
            said = getattr(problem, "strerror", None) or problem
            raise CannotUse(f"archive {self._root}: {said}; nothing was changed.") from problem

    @property
    def _there(self) -> Store:
        if self._store is None:
            self._store = self._connect()
        return self._store

    def _tried(self, request: Callable[[], T]) -> T:
        begun_s = self._now_s()

        def attempt() -> T:
            nonlocal begun_s
            begun_s = self._now_s()
            return request()

        def was_quick(problem: OSError) -> bool:
            is_answer = isinstance(problem, FileNotFoundError | FileExistsError)
            return not is_answer and self._now_s() - begun_s <= QUICK_S

        return again(attempt, PAUSES_S, self._sleep, was_quick)

    def open(self, store_uuid: bytes) -> None:
        """See that there is something to write into: a folder needs no making."""
        self._tried(lambda: self._there.check())
        self._folder = store_uuid.hex()
        self.path = join(self._root, self._folder)

    def _name(self, name: str) -> str:
        return join(self._folder, name)

    def _size(self, name: str) -> int:
        return self._tried(lambda: self._there.size(self._name(name)))

    def _read(self, name: str, start: int, end: int) -> bytes:
        return self._tried(lambda: self._there.read(self._name(name), start, end))

    def names(self) -> list[str]:
        listed = self._tried(lambda: self._there.listing(self._folder))
        return [entry.name for entry in listed.entries]

    def has(self, name: str) -> bool:
        try:
            self._size(name)
        except FileNotFoundError:
            return False
        return True

    def holds(self, name: str, source: Directory, source_name: str, size: int) -> bool:
        if self._size(name) != size:
            return False
        return all(
            self._read(name, at, at + len(chunk)) == chunk
            for at, chunk in _chunks(source, source_name, size)
        )

    def link(self, name: str, source: Directory, source_name: str) -> None:
        raise OSError(errno.EXDEV, "an object is no file of the log", self._name(name))

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        """What was written is read back: a store that says it has it may have something else."""

        def write() -> None:
            chunks = (chunk for _, chunk in _chunks(source, source_name, size))
            self._there.write(self._name(name), chunks)

        self._tried(write)
        if not self.holds(name, source, source_name, size):
            raise OSError(errno.EIO, "what was uploaded reads back as other bytes", name)

    def rename(self, old: str, new: str) -> None:
        """Only one server delivers the segments of a store, so nothing comes in between."""
        if self.has(new):
            raise FileExistsError(errno.EEXIST, "there is one of this name", self._name(new))
        self._tried(lambda: self._there.move(self._name(old), self._name(new)))

    def remove(self, name: str) -> None:
        self._tried(lambda: self._there.remove(self._name(name)))

    def content(self, name: str) -> bytes:
        return self._read(name, 0, self._size(name))

    def replace(self, name: str, content: bytes) -> None:
        self._tried(lambda: self._there.write(self._name(name), [content]))

    def sync(self) -> None:
        """Do nothing: an object that was written is durable."""


def _chunks(source: Directory, name: str, size: int) -> Iterator[tuple[int, bytes]]:
    """Read the first ``size`` bytes of a file of the log, with offsets; OSError if it is
    shorter.
    """
    for at in range(0, size, CHUNK_BYTES):
        end = min(at + CHUNK_BYTES, size)
        chunk = bytes(source.read(name, at, end))
        if len(chunk) < end - at:
            raise OSError(errno.EIO, f"it ends at offset {at + len(chunk)}", name)
        yield at, chunk
