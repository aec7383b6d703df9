"""Writing a new log; docs/binlog-format.md, "Logs made by tools"."""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted import __version__
from beanstalk_twisted.binlog.directory import Directory, File, sync_directory
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.records.jobs import JobImage, State
from beanstalk_twisted.binlog.records.others import CleanStop, Record, TubeDef
from beanstalk_twisted.binlog.segments.format import (
    DEFAULT_SEGMENT_BYTES,
    FRAME_TARGET_BYTES,
    MADE_BY_TOOL,
    MAX_BODY_BYTES,
    MAX_FRAME_RECORDS,
    MAX_TUBE_NAME_BYTES,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import EncodedRecords
from beanstalk_twisted.binlog.segments.framing import Framing
from beanstalk_twisted.binlog.tags import NO_TAGS, Tags
from binlog_tools.console.wording import text_of
from binlog_tools.logs.outputs import PART, NamingDirectory
from binlog_tools.logs.stored import StoredJob, StoredKey, TubeRecord


class NewDirectory:
    """A directory that is being filled, as ``PATH.part``.  Leaving the ``with`` block without
    `publish` removes it.

    :ivar path: what it will be called, absolute.
    """

    def __init__(self, path: str) -> None:
        """:param path: must not exist, or be an empty directory.
        :raise OSError: it cannot be made.
        """
        self.path = os.path.abspath(path)
        self._real = os.path.realpath(path)
        if os.path.islink(self.path) and not os.path.lexists(self._real):
            why = f"it is a symbolic link to {self._real}, which is not there"
            why += "; make that, or name it instead"
            raise OSError(errno.ENOENT, why, self.path)
        self._part = self._real + PART
        self._is_published = False
        with contextlib.suppress(FileNotFoundError):
            if os.listdir(self.path):
                why = "it is not empty; name a new directory"
                raise OSError(errno.ENOTEMPTY, why, self.path)
        _make(self._part, self.path)
        self.directory = NamingDirectory(self._part)

    def publish(self) -> None:
        """Give it its name; it is durable then."""
        self.directory.sync()
        os.rename(self._part, self._real)
        self._is_published = True
        sync_directory(os.path.dirname(self._real))

    def discard(self) -> None:
        if not self._is_published:
            shutil.rmtree(self._part, ignore_errors=True)

    def __enter__(self) -> "NewDirectory":
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()


def _make(part: str, path: str) -> None:
    try:
        os.mkdir(part, 0o700)
    except FileNotFoundError:
        why = "the directory that it should be in is not there; make that first"
        raise OSError(errno.ENOENT, why, path) from None
    except FileExistsError:
        why = "it was left behind by a run that did not end; remove it and run again"
        raise OSError(errno.EEXIST, why, part) from None


WRITER: Final = f"beanstalk-twisted/{__version__}"

MAX_ORIGIN_BYTES: Final = 3000
"""Of JSON, in the header: it has 3932 bytes, of which the columns take some 500."""


MIN_ROOM_BYTES: Final = 2 << 10
"""For jobs in a segment, however small it is asked to be."""


class OriginSource(NamedTuple):
    """A log that another was made from; its store is empty if it is no TQL log."""

    path: str
    store_uuid: str
    last_lsn: int

    @classmethod
    def of(cls, survey: Survey) -> "OriginSource":
        newest = survey.segments[-1] if survey.segments else None
        if newest is None:
            return cls(survey.path, "", 0)
        return cls(survey.path, newest.header.store_uuid.hex(), newest.ending.next_lsn - 1)


class Origin(NamedTuple):
    tool: str
    sources: Sequence[OriginSource] = ()

    def description(self, made_ns: int) -> Mapping[str, object]:
        """As JSON, with as many sources as there is room for."""
        named: list[Mapping[str, object]] = []
        room = MAX_ORIGIN_BYTES
        for source in self.sources:
            # Each character takes at most 6 bytes of JSON.
            room -= 120 + 6 * len(source.path)
            if room < 0:
                break
            named.append(source._asdict())
        return {
            "tool": self.tool, "version": __version__, "made_ns": made_ns, "sources": named,
            "more": len(self.sources) - len(named),
        }  # fmt: skip


def origin_stores(description: Mapping[str, object]) -> Iterator[str]:
    """The stores, as 32 hexadecimal digits each, that a header says that the log was made from;
    nothing depends on it, so what is no origin has none.
    """
    origin = description.get("origin")
    sources = origin.get("sources") if isinstance(origin, dict) else None
    for source in sources if isinstance(sources, list) else []:
        uuid = source.get("store_uuid") if isinstance(source, dict) else None
        if isinstance(uuid, str) and uuid:
            yield uuid


class Floors(NamedTuple):
    """What a new log begins above, so that no number means two things.

    :ivar last_lsn: the highest LSN of the logs it was made from.
    :ivar next_job_id: every lower id was given out there.
    """

    last_lsn: int = 0
    next_job_id: int = 1
    time_ns: int = 0

    @classmethod
    def of(cls, *surveys: Survey) -> "Floors":
        return cls(
            max((s.segments[-1].ending.next_lsn - 1 for s in surveys if s.segments), default=0),
            max((s.small.next_job_id for s in surveys), default=1),
            max((s.small.time_ns for s in surveys), default=0),
        )


NO_FLOORS: Final = Floors()


class Written(NamedTuple):
    path: str
    jobs: int
    body_bytes: int
    segments: int
    bytes: int
    first_lsn: int
    last_lsn: int
    next_job_id: int
    store_uuid: str


class SharedKey(NamedTuple):
    """A job that was written without its unique key, since another job of its tube has it."""

    job_id: int
    tube: bytes
    key: bytes
    holder: int


def shared_key_fields(shared: SharedKey) -> Mapping[str, object]:
    """Describe such a job by the names of docs/inspect.md."""
    tube, key = text_of(shared.tube), text_of(shared.key)
    return {"job": shared.job_id, "tube": tube, "key": key, "holder": shared.holder}


class SegmentMaker:
    """Writes the segments of a new log into an empty directory, each sealed and synced before the
    next one exists; it holds no more than one frame.

    :ivar shared_keys: the jobs that have lost their keys to others: a tube has each key once.
    """

    def __init__(
        self, directory: Directory, origin: Origin, *, floors: Floors = NO_FLOORS,
        of_tubes: Iterable[TubeRecord] = (), segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        flags: int = 0, now_ns: int | None = None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:  # fmt: skip
        """:param of_tubes: stated at the head of each segment.
        :param flags: of the headers, beside the one that says that a tool made it.
        :param now_ns: the wall clock; the log's time is not before ``floors.time_ns``.
        """
        self._directory = directory
        self._now_ns = max(time.time_ns() if now_ns is None else now_ns, floors.time_ns)
        self._description = origin.description(self._now_ns)
        self._random = random
        self._flags = flags | MADE_BY_TOOL
        self._segment_bytes = segment_bytes
        self._of_tubes = list(of_tubes)
        self._incompat = 0
        self.shared_keys: list[SharedKey] = []
        self._holders: dict[tuple[bytes, bytes], int] = {}
        self._next_job_id = floors.next_job_id
        self._store_uuid = random(16)
        self._first_lsn = self._lsn = floors.last_lsn + 1
        self._tubes: dict[bytes, int] = {}
        self._jobs = self._body_bytes = self._bytes = 0
        self._seq = self._prev_end = 0
        self._file: File | None = None
        self._open: list[Record] = []
        self._open_bytes = 0
        self._begin()

    def add(self, job: StoredJob) -> None:
        """:raise ValueError: the job cannot stand in a log; the message says why."""
        if job.state is State.GONE or job.job_id < 1:
            raise ValueError(f"job {job.job_id} is gone; only living jobs can be written")
        if len(job.body) > MAX_BODY_BYTES:
            why = f"is larger than {MAX_BODY_BYTES} bytes"
            raise ValueError(f"the body of job {job.job_id} {why}")
        if job.tags is not None and job.tags.holds_key:
            job = self._with_own_key(job, job.tags)
        beside = 0 if job.tags is None else job.tags.encoded_bytes
        self._make_room(RECORD_BYTES + len(job.body) + beside)
        self._append(job.image(self._tube_id(job.tube)))
        self._jobs += 1
        self._body_bytes += len(job.body)
        self._next_job_id = max(self._next_job_id, job.job_id + 1)

    def add_keys(self, keys: Iterable[StoredKey]) -> int:
        """State remembered keys, behind all jobs; one that a job has is that job's.  Give their
        number.
        """
        count = 0
        for key in keys:
            if (key.tube, key.key) not in self._holders:
                self._holders[key.tube, key.key] = key.job_id
                self._make_room(RECORD_BYTES + len(key.key))
                self._append(key.record(self._tube_id(key.tube)))
                self._next_job_id = max(self._next_job_id, key.job_id + 1)
                count += 1
        return count

    def _with_own_key(self, job: StoredJob, tags: Tags) -> StoredJob:
        place = job.tube, tags.unique_key
        holder = self._holders.setdefault(place, job.job_id)
        if holder == job.job_id:
            return job
        self.shared_keys.append(SharedKey(job.job_id, *place, holder))
        tags = tags._replace(unique_key=b"", unique_s=0)
        return job._replace(tags=None if tags == NO_TAGS else tags)

    @property
    def last_lsn(self) -> int:
        """The last LSN if it is finished now: that of the last segment's seal."""
        return self._lsn + len(self._open) + 1

    def finish(self) -> Written:
        """End the log; all of it is durable then, but for the name of its directory."""
        self._append(CleanStop(self._now_ns))
        self._seal()
        self._directory.sync()
        return Written(
            self._directory.path, self._jobs, self._body_bytes, self._seq, self._bytes,
            self._first_lsn, self._lsn - 1, self._next_job_id, self._store_uuid.hex(),
        )  # fmt: skip

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _make_room(self, size: int) -> None:
        """End the frame, and the segment, that another record would make too large."""
        if self._framing.end + self._open_bytes >= self._limit:
            self._seal()
            self._begin()
        elif self._open_bytes + size > FRAME_TARGET_BYTES or len(self._open) >= MAX_FRAME_RECORDS:
            self._flush()

    def _tube_id(self, name: bytes) -> int:
        tube_id = self._tubes.get(name)
        if tube_id is None:
            if not 0 < len(name) <= MAX_TUBE_NAME_BYTES:
                raise ValueError(f"a tube's name has 1 to {MAX_TUBE_NAME_BYTES} bytes: {name!r}")
            tube_id = self._tubes[name] = len(self._tubes) + 1
            self._append(TubeDef(tube_id, name, self._now_ns))
        return tube_id

    def _append(self, record: Record) -> None:
        if not isinstance(record, JobImage):
            self._incompat |= record.features
        elif record.tags is not None:
            self._incompat |= record.tags.features
        self._open.append(record)
        self._open_bytes += RECORD_BYTES + len(record.data)

    def _begin(self) -> None:
        self._seq += 1
        self._salt = int.from_bytes(self._random(4), "little")
        self._framing = Framing(self._salt)
        self._file = self._directory.create(segment_name(self._seq))
        # The header is written last: it carries the final floor of the job ids.
        self._segment_lsn = self._lsn
        for name, tube_id in self._tubes.items():
            self._append(TubeDef(tube_id, name, self._now_ns))
        for each in self._of_tubes:
            self._append(each.restated(self._tube_id(each.tube), self._now_ns))
        # However many tubes there are, a segment takes at least as much in jobs.
        opening = SEGMENT_HEADER_BYTES + self._open_bytes
        self._limit = max(self._segment_bytes, opening + self._open_bytes, opening + MIN_ROOM_BYTES)

    def _flush(self) -> None:
        at = self._framing.end
        encoded = EncodedRecords()
        for record in self._open:
            encoded.append(record)
        chunks = self._framing.add(encoded, self._lsn, self._now_ns)
        self._lsn += len(self._open)
        assert self._file is not None
        self._file.write_at(at, chunks)
        self._open = []
        self._open_bytes = 0

    def _seal(self) -> None:
        self._flush()
        at, lsn = self._framing.end, self._lsn
        self._lsn += 1
        chunks = self._framing.seal(lsn, self._now_ns)
        assert self._file is not None
        self._file.write_at(at, chunks)
        self._bytes += at + sum(map(len, chunks))
        header = SegmentHeader(
            self._seq, self._segment_lsn, self._now_ns, self._prev_end, 1, self._next_job_id,
            self._store_uuid, self._salt, self._flags, 0, WRITER, self._incompat,
        )  # fmt: skip
        self._file.write_at(0, [header.encode(self._description)])
        self._file.sync()
        self.close()
        self._prev_end = self._framing.end


class NewLog(SegmentMaker):
    """A log in a new directory, which has its name when all is durable: a crash never leaves half a
    log.  Leaving the ``with`` block without `finish`, or with an error, removes it.
    """

    def __init__(
        self, path: str, origin: Origin, *, floors: Floors = NO_FLOORS,
        of_tubes: Iterable[TubeRecord] = (), segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        flags: int = 0, now_ns: int | None = None,
    ) -> None:  # fmt: skip
        """:param path: must not exist, or be an empty directory.
        :raise OSError: it cannot be made.
        """
        self._new = NewDirectory(path)
        try:
            super().__init__(
                self._new.directory, origin, floors=floors, of_tubes=of_tubes,
                segment_bytes=segment_bytes, flags=flags, now_ns=now_ns,
            )  # fmt: skip
        except BaseException:
            self._new.discard()
            raise

    def finish(self) -> Written:
        written = super().finish()
        self._new.publish()
        return written._replace(path=self._new.path)

    def __enter__(self) -> "NewLog":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self._new.discard()
