"""
Taking jobs out of a log where it is, while no server runs: one segment is appended, in which they
are deleted.

The jobs are first written to a log of their own in the quarantine, from which ``merge`` or
``replay`` brings them back.  Else only what a start of the server does is done.
"""

import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from beanstalk_twisted.binlog.batches import Position
from beanstalk_twisted.binlog.directory import QUARANTINE, Directory, RealDirectory
from beanstalk_twisted.binlog.reading.replay import Replay, read
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.records.decoding import Record
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import CleanStop, RememberedKey, Start, TubeDef
from beanstalk_twisted.binlog.segments.format import (
    EXTENSIONS,
    MADE_BY_TOOL,
    SegmentHeader,
    segment_name,
)
from beanstalk_twisted.binlog.segments.framing import Framing
from beanstalk_twisted.binlog.writer import spare_name
from binlog_tools.logs.new_log import WRITER, Floors, NewLog, Origin, OriginSource
from binlog_tools.logs.outputs import PART, NamingDirectory
from binlog_tools.logs.sources import NoLog
from binlog_tools.logs.stored import NS, StoredJob
from binlog_tools.rewrite.rewriting import Choice


class Dropped(NamedTuple):
    """
    What was done.

    :ivar jobs: how many were dropped, ``left`` how many were not.
    :ivar kept_at: where they are kept; empty if there was none to drop.
    """

    jobs: int
    left: int
    kept_at: str


def drop_in_place(
    path: str, choice: Choice, progress: Progress = lambda done, total: None
) -> Dropped:
    """
    Delete jobs of a log that no server has open.

    :raise BinlogError: a server has it, or would refuse it; nothing was changed.
    :raise OSError: it cannot be read or written.
    """
    directory = NamingDirectory(path)
    directory.lock(f"binlog-inspect filter, pid {os.getpid()}, {socket.gethostname()}")
    try:
        return _drop(directory, choice, progress)
    finally:
        directory.close()


def _drop(directory: RealDirectory, choice: Choice, progress: Progress) -> Dropped:
    found = read(directory, progress)
    if found.is_new:
        raise NoLog(directory.path)
    now_ns = max(time.time_ns(), found.small.time_ns)
    kept_at, images, left = _keep(directory, found, choice, now_ns)
    if images:
        append_deletions(directory, found, images, now_ns, left.tagged > 0)
    return Dropped(len(images), left.jobs, kept_at if images else "")


class _Left(NamedTuple):
    """How many jobs stay, and of those how many have tags."""

    jobs: int
    tagged: int


def free_path(path: str) -> str:
    """The first of ``path-1``, ``path-2`` and so on that does not exist."""
    return next(each for n in count(1) if not os.path.exists(each := f"{path}-{n}"))


def _keep(
    directory: RealDirectory, found: Replay, choice: Choice, now_ns: int
) -> tuple[str, list[JobImage], _Left]:
    """Write the jobs that go into a log of their own; nothing of that if there are none."""
    folder = os.path.join(directory.path, QUARANTINE)
    os.makedirs(folder, 0o700, exist_ok=True)
    kept_at = free_path(os.path.join(folder, "filtered"))
    # We hold the lock, so nobody writes it: a run before was killed, and its jobs are all here.
    shutil.rmtree(kept_at + PART, ignore_errors=True)
    tubes = found.small.tubes
    going: list[JobImage] = []
    left = tagged = 0
    origin = Origin("filter", [OriginSource.of(found.survey)])
    with NewLog(kept_at, origin, floors=Floors.of(found.survey)) as log:
        for image, _, _ in found.survivors(now_ns):
            job = StoredJob.of(image, tubes[image.tube_id])
            if choice.keeps(job, now_ns):
                left += 1
                tagged += job.tags is not None
            else:
                log.add(job)
                going.append(image._replace(body=b""))
        if going:
            log.finish()
    return kept_at, going, _Left(left, tagged)


def append_deletions(
    directory: Directory, found: Replay, images: Sequence[JobImage], now_ns: int,
    has_tags: bool = False,
) -> None:  # fmt: skip
    """
    The same steps as those of a server that starts, deletes the jobs and stops; the segment gets
    its name when it is durable.

    :param has_tags: whether some of the jobs that stay have any.
    """
    found.tidy(directory)
    position = found.position(b"")
    small = found.small
    wall_offset_ns = time.time_ns() - now_ns
    policies = [
        replace(policy, ts_ns=now_ns, reason=Reason.NONE)
        for tube_id, policy in sorted(small.policies.items())
        if policy.rules and tube_id in small.tubes
    ]
    content: list[Record] = [
        *(TubeDef(each, name, now_ns) for each, name in sorted(found.small.tubes.items())),
        *found.pauses(now_ns),
        *policies,
        Start(now_ns, small.next_job_id, small.next_tube_id, wall_offset_ns),
        *(record for image in images for record in _end_of(image, now_ns)),
        CleanStop(now_ns),
    ]
    is_extended = has_tags or policies or any(found.keys(now_ns)) or _keys_in(content)
    incompat = position.incompat | (EXTENSIONS if is_extended else 0)
    raw = _segment(position._replace(incompat=incompat), content, small.next_job_id, now_ns)
    unnamed = spare_name(position.seq)
    found.remove_dead(directory, segments=False)
    write_file(directory, unnamed, raw)
    directory.rename(unnamed, segment_name(position.seq))
    directory.sync()
    found.release(directory)
    found.remove_dead(directory, segments=True)


def write_file(directory: Directory, name: str, content: bytes) -> None:
    """Make a file, which is durable then, but for its name."""
    file = directory.create(name)
    try:
        file.write_at(0, [content])
        file.sync()
    finally:
        file.close()


def _segment(position: Position, content: list[Record], next_job_id: int, now_ns: int) -> bytes:
    """A whole segment: what has to move there, these records, the seal."""
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
    chunks += framing.add(content, lsn, now_ns, whole=_keys_in(content))
    chunks += framing.seal(lsn + len(content), now_ns)
    return b"".join(chunks)


def _keys_in(content: Sequence[Record]) -> list[tuple[int, int]]:
    """Where a DELETE and the KEY behind it stand, which one frame has to hold."""
    keys = (at for at, record in enumerate(content) if isinstance(record, RememberedKey))
    return [(at - 1, at + 1) for at in keys]


def _end_of(image: JobImage, now_ns: int) -> Iterator[Record]:
    """The deletion of a job, and the key that it leaves."""
    yield _deletion(image, now_ns)
    tags = image.tags
    if tags is not None and tags.leaves_key:
        until_ns = now_ns + tags.unique_s * NS
        yield RememberedKey(
            image.tube_id, tags.unique_key, image.job_id, until_ns, now_ns
        )  # fmt: skip


def _deletion(image: JobImage, now_ns: int) -> JobImage:
    return image._replace(
        kind=Kind.DELETE, state=State.GONE, reason=Reason.ADMIN, ts_ns=now_ns, deadline_ns=0,
        connection=0, body=b"", tags=None,
    )  # fmt: skip
