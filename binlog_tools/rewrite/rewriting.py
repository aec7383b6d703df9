"""Making a log of other logs: compact, merge, filter.  Bodies pass through one at a time."""

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.batches import Position
from beanstalk_twisted.binlog.directory import QUARANTINE, Directory, RealDirectory
from beanstalk_twisted.binlog.reading.replay import Replay, read
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import (
    CleanStop,
    Pause,
    Record,
    RememberedKey,
    Start,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.segments.format import (
    DEFAULT_SEGMENT_BYTES,
    MADE_BY_TOOL,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_description,
    segment_name,
)
from beanstalk_twisted.binlog.segments.frames import EncodedRecords
from beanstalk_twisted.binlog.segments.framing import Framing
from beanstalk_twisted.binlog.writer import spare_name
from binlog_tools.logs.new_log import (
    WRITER,
    Floors,
    NewLog,
    Origin,
    OriginSource,
    SharedKey,
    Written,
    origin_stores,
)
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.outputs import PART, NamingDirectory
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.sources import NoLog
from binlog_tools.logs.stored import OF_TUBES, Selection, StoredJob, StoredKey, TubeRecord


class SameStore(ValueError):
    """Two of the logs are copies of one store, whose jobs would be there twice."""


class SameJobs(SameStore):
    """Logs of one origin have jobs of the same ids."""


class Ages(NamedTuple):
    """Bounds of a job's age in nanoseconds; None is any."""

    older_than: int | None = None
    younger_than: int | None = None

    def has(self, job: StoredJob, now_ns: int) -> bool:
        age = now_ns - job.created_ns
        return (self.older_than is None or age > self.older_than) and (
            self.younger_than is None or age < self.younger_than
        )


ANY_AGE: Final = Ages()


class Choice(NamedTuple):
    """Which jobs are kept: the chosen ones, or with ``keeps_chosen`` false the others."""

    selection: Selection
    ages: Ages
    keeps_chosen: bool

    def keeps(self, job: StoredJob, now_ns: int) -> bool:
        is_chosen = self.selection.has_job(job) and self.ages.has(job, now_ns)
        return is_chosen is self.keeps_chosen


EVERYTHING: Final = Choice(Selection(), ANY_AGE, keeps_chosen=True)


class Outcome(NamedTuple):
    written: Written
    dropped: int


def rewrite(
    loaded: Loaded, output: str, tool: str, choice: Choice = EVERYTHING,
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
) -> Outcome:  # fmt: skip
    origin = Origin(tool, [OriginSource.of(loaded.survey)])
    dropped = 0
    with NewLog(
        output, origin, floors=loaded.floors, of_tubes=loaded.tube_records(),
        segment_bytes=segment_bytes,
    ) as log:  # fmt: skip
        for job in loaded.jobs():
            if choice.keeps(job, loaded.now_ns):
                log.add(job)
            else:
                dropped += 1
        log.add_keys(loaded.remembered_keys())
        return Outcome(log.finish(), dropped)


class Renumbered(NamedTuple):
    path: str
    job_id: int
    new_id: int


class OtherPolicy(NamedTuple):
    """A policy that is not in the merged log: one named before has another one of the tube."""

    path: str
    tube: bytes
    rules: Mapping[str, str]


class Merged(NamedTuple):
    written: Written
    shared_keys: Sequence[SharedKey]
    policies: Sequence[OtherPolicy]


def merge(
    logs: Sequence[Loaded], output: str, segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    notice: Callable[[Renumbered], None] = lambda moved: None, accepts_copies: bool = False,
) -> Merged:  # fmt: skip
    """Write the jobs of several logs into one.  A job keeps its id if no log before has one of it;
    else it gets a new one, above all that were ever given.  Of two jobs of a tube with one unique
    key the first keeps it; of two policies of a tube, the first holds.

    :param notice: hears of each job that gets another id.
    :param accepts_copies: whether jobs of one id in logs of one origin are different jobs.
    :raise SameStore: two of them are copies of one store, or have jobs in common.
    """
    _refuse_copies(logs)
    floors = Floors.of(*(log.survey for log in logs))
    of_tubes, others = _merged_tube_records(logs)
    origin = Origin("merge", [OriginSource.of(log.survey) for log in logs])
    before: list[_Relative] = []
    next_id = floors.next_job_id
    with NewLog(
        output, origin, floors=floors, of_tubes=of_tubes, segment_bytes=segment_bytes
    ) as new:
        for log in logs:
            own = _Relative(log.source.path, _stores_of(log), set())
            for job in log.jobs():
                first = next((each for each in before if job.job_id in each.ids), None)
                if first is not None:
                    if not accepts_copies and not own.stores.isdisjoint(first.stores):
                        raise SameJobs(
                            f"{first.path} and {own.path}: one was made from the other, or both "
                            f"from one log, and both have job {job.job_id}: it would be there "
                            "twice; nothing was written. 'binlog-inspect diff' shows what differs. "
                            "If they are different jobs, say --accept-copies."
                        )
                    notice(Renumbered(log.source.path, job.job_id, next_id))
                    new.add(job._replace(job_id=next_id))
                    next_id += 1
                else:
                    own.ids.add(job.job_id)
                    new.add(job)
            before.append(own)
        taken = {job_id for each in before for job_id in each.ids}
        kept = [(log, each.ids) for log, each in zip(logs, before, strict=True)]
        new.add_keys(_merged_keys(kept, taken, next_id))
        return Merged(new.finish(), new.shared_keys, others)


def _merged_tube_records(logs: Sequence[Loaded]) -> tuple[list[TubeRecord], list[OtherPolicy]]:
    """Of a tube's records of one type the first holds; of pauses, the longest."""
    chosen: dict[tuple[type[Record], bytes], TubeRecord] = {}
    others: list[OtherPolicy] = []
    for log in logs:
        for each in log.tube_records():
            key, found = (type(each.record), each.tube), each.record
            first = chosen.setdefault(key, each).record
            if isinstance(found, Pause) and found.until_ns > first.until_ns:
                chosen[key] = each
            elif isinstance(found, TubePolicy) and found.rules != first.rules:
                others.append(OtherPolicy(log.source.path, each.tube, found.rules))
    return list(chosen.values()), others


def _merged_keys(
    logs: Iterable[tuple[Loaded, set[int]]], taken: set[int], next_id: int
) -> Iterator[StoredKey]:
    """Those first that are remembered longest, each with an id of its own.  Of a batch's key it is
    forgotten which jobs it was of, if one of these ids is another job's now.

    :param logs: with each the ids that its jobs have kept.
    """
    keys = [(key, own) for log, own in logs for key in log.remembered_keys()]
    for key, own in sorted(keys, key=lambda each: -each[0].until_ns):
        jobs = range(key.job_id + 1, key.job_id + 1 + key.jobs)
        if key.job_id in taken or any(job in taken and job not in own for job in jobs):
            key = key._replace(jobs=0)
        if key.job_id in taken:
            key, next_id = key._replace(job_id=next_id), next_id + 1
        taken.add(key.job_id)
        yield key


class _Relative(NamedTuple):
    """:ivar stores: its own one, and those that it was made from.
    :ivar ids: of its jobs, those that kept theirs.
    """

    path: str
    stores: frozenset[str]
    ids: set[int]


def _stores_of(log: Loaded) -> frozenset[str]:
    headers = (
        log.source.read(segment.name, 0, SEGMENT_HEADER_BYTES) for segment in log.survey.segments
    )
    made_from = {uuid for raw in headers for uuid in origin_stores(decode_description(bytes(raw)))}
    own = {segment.header.store_uuid.hex() for segment in log.survey.segments[:1]}
    return frozenset(own | made_from)


def _refuse_copies(logs: Sequence[Loaded]) -> None:
    seen: dict[bytes, Loaded] = {}
    for log in logs:
        for segment in log.survey.segments[:1]:
            first = seen.setdefault(segment.header.store_uuid, log)
            if first is not log:
                raise SameStore(
                    f"{first.source.path} and {log.source.path} are copies of one store: each job "
                    f"would be there twice; nothing was written. 'binlog-inspect diff' shows what "
                    f"differs."
                )


class Dropped(NamedTuple):
    """How many ``jobs`` were dropped, and where they are kept; empty if there was none."""

    jobs: int
    left: int
    kept_at: str


def drop_in_place(
    path: str, choice: Choice, progress: Progress = lambda done, total: None
) -> Dropped:
    """Delete jobs of a log that no server has open.

    :raise BinlogError: a server has it, or would refuse it; nothing was changed.
    :raise OSError: it cannot be read or written.
    """
    directory = NamingDirectory(path)
    directory.lock(f"binlog-inspect filter, pid {os.getpid()}, {socket.gethostname()}")
    try:
        found = read(directory, progress)
        if found.is_new:
            raise NoLog(directory.path)
        now_ns = max(time.time_ns(), found.small.time_ns)
        kept_at, images, left, features = _keep(directory, found, choice, now_ns)
        if images:
            append_deletions(directory, found, images, now_ns, features)
        return Dropped(len(images), left, kept_at if images else "")
    finally:
        directory.close()


def free_path(path: str) -> str:
    """The first of ``path-1``, ``path-2`` and so on that does not exist."""
    return next(each for n in count(1) if not os.path.exists(each := f"{path}-{n}"))


def _keep(
    directory: RealDirectory, found: Replay, choice: Choice, now_ns: int
) -> tuple[str, list[JobImage], int, int]:
    """Write the jobs that go, if any, into a log of their own; tell of the others how many there
    are, and which incompat bits they need.
    """
    folder = os.path.join(directory.path, QUARANTINE)
    os.makedirs(folder, 0o700, exist_ok=True)
    kept_at = free_path(os.path.join(folder, "filtered"))
    # We hold the lock, so nobody writes it: a run before was killed, and its jobs are all here.
    shutil.rmtree(kept_at + PART, ignore_errors=True)
    tubes = found.small.tubes
    going: list[JobImage] = []
    left = features = 0
    origin = Origin("filter", [OriginSource.of(found.survey)])
    with NewLog(kept_at, origin, floors=Floors.of(found.survey)) as log:
        for image, _, _ in found.survivors(now_ns):
            job = StoredJob.of(image, tubes[image.tube_id])
            if choice.keeps(job, now_ns):
                left += 1
                features |= 0 if job.tags is None else job.tags.features
            else:
                log.add(job)
                going.append(image._replace(body=b""))
        if going:
            log.finish()
    return kept_at, going, left, features


def append_deletions(
    directory: Directory, found: Replay, images: Sequence[JobImage], now_ns: int,
    features: int = 0,
) -> None:  # fmt: skip
    """Take the same steps as a server that starts, deletes the jobs and stops; the segment gets its
    name when it is durable.

    :param features: the incompat bits that the jobs that stay need.
    """
    found.tidy(directory)
    position = found.position(b"")
    small = found.small
    wall_offset_ns = time.time_ns() - now_ns
    content: list[Record] = [
        *(TubeDef(each, name, now_ns) for each, name in sorted(found.small.tubes.items())),
        *(_restated(other.record, now_ns) for other in found.others(now_ns, OF_TUBES)),
        Start(now_ns, small.next_job_id, small.next_tube_id, wall_offset_ns),
        *(record for image in images for record in _end_of(image, now_ns)),
        CleanStop(now_ns),
    ]
    keys = [other.record for other in found.others(now_ns, [RememberedKey])]
    for record in [*keys, *content]:
        features |= 0 if isinstance(record, JobImage) else record.features
    position = position._replace(incompat=position.incompat | features)
    raw = _segment(position, content, small.next_job_id, now_ns)
    unnamed = spare_name(position.seq)
    found.remove_dead(directory, segments=False)
    write_file(directory, unnamed, raw)
    directory.rename(unnamed, segment_name(position.seq))
    directory.sync()
    found.release(directory)
    found.remove_dead(directory, segments=True)


def _restated(record: Record, now_ns: int) -> Record:
    if isinstance(record, TubePolicy):
        return replace(record, ts_ns=now_ns, reason=Reason.NONE)
    return record


def write_file(directory: Directory, name: str, content: bytes) -> None:
    file = directory.create(name)
    try:
        file.write_at(0, [content])
        file.sync()
    finally:
        file.close()


def _segment(position: Position, content: list[Record], next_job_id: int, now_ns: int) -> bytes:
    salt = int.from_bytes(os.urandom(4), "little")
    header = SegmentHeader(
        position.seq, position.first_lsn, now_ns, position.prev_end, position.trim_seq,
        next_job_id, position.store_uuid, salt, position.flags | MADE_BY_TOOL,
        position.incarnation, WRITER, position.incompat,
    )  # fmt: skip
    chunks = [header.encode(Origin("filter").description(now_ns))]
    framing = Framing(salt)
    lsn = position.next_lsn
    chunks += framing.add_rehomed(position.rehomed)
    chunks += framing.add(_encoded(content), lsn, now_ns)
    chunks += framing.seal(lsn + len(content), now_ns)
    return b"".join(chunks)


def _encoded(content: Sequence[Record]) -> EncodedRecords:
    """Encode records; one frame holds a DELETE and the KEY that follows it."""
    encoded = EncodedRecords()
    for record, following in zip(content, [*content[1:], None], strict=True):
        if isinstance(record, RememberedKey):
            continue
        if isinstance(following, RememberedKey):
            encoded.append_whole([record, following])
        else:
            encoded.append(record)
    return encoded


def _end_of(image: JobImage, now_ns: int) -> Iterator[Record]:
    yield image._replace(
        kind=Kind.DELETE, state=State.GONE, reason=Reason.ADMIN, ts_ns=now_ns, deadline_ns=0,
        connection=0, body=b"", tags=None,
    )  # fmt: skip
    tags = image.tags
    if tags is not None and tags.leaves_key:
        until_ns = now_ns + tags.unique_s * NS
        yield RememberedKey(image.tube_id, tags.unique_key, image.job_id, until_ns, now_ns)
