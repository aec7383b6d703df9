"""What a task reads, where it runs: of several copies of a segment one that is not damaged.

A server deletes the oldest segments of its log, so a task opens its local files before it reads.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import (
    REHOMED,
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    decode_segment_header,
)
from beanstalk_twisted.binlog.segments.seals import read_seal
from beanstalk_twisted.object_storage.store import BadUrl, is_url
from binlog_tools.spark.errors import SourceError, bad_url, damaged, unreadable
from binlog_tools.spark.files import BadRange, LocalFile, LogFile, open_file
from binlog_tools.spark.reading.planning import Share, Task, Trouble
from binlog_tools.spark.segments.wanted import Place, Verify, Wanted

HELD_FILES: Final = 256
"""Files that a task holds, the oldest first, each for a file descriptor: a quarter of what a
process may have by default."""

_MISSING: Final = ("BINLOG_TRIMMED", "BINLOG_DAMAGED")


def is_damage(problem: SourceError) -> bool:
    """Return True if ``damage=skip`` makes a row of such a segment."""
    return problem.code in _MISSING or isinstance(problem.__cause__, BadRange)


class Held(contextlib.AbstractContextManager["Held"]):
    """The local files of a task, open.  What it gives stays usable after its end."""

    def __init__(self, task: Task) -> None:
        paths = dict.fromkeys(
            item.place.path
            for item in task
            if isinstance(item, Share) and not is_url(item.place.path)
        )
        self._fds: dict[str, int] = {}
        for path in list(paths)[:HELD_FILES]:
            # Whoever reads it will say why it cannot be.
            with contextlib.suppress(OSError):
                self._fds[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open(self, path: str) -> LogFile:
        """As `open_file`, also if the file is gone meanwhile."""
        if path in self._fds:
            return LocalFile(path, os.dup(self._fds[path]))
        return open_file(path)

    def __exit__(self, *error: object) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


class Opened(NamedTuple):
    """A segment where it is read; ``tubes``: the names that its seal says, if it has one."""

    place: Place
    buffer: memoryview
    tubes: Mapping[int, bytes] | None


def _open_share(
    share: Share, may_be_shorter: bool = False, open_one: Callable[[str], LogFile] = open_file
) -> Opened:
    """Map or fetch what a share needs of the file, which has to be that of the plan."""
    place = share.place
    for path in (place.path, *share.elsewhere):
        try:
            with open_one(path) as file:
                if may_be_shorter:
                    share = share._replace(size=min(share.size, file.size))
                return _opened(file, share._replace(place=place._replace(path=path)))
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise unreadable(problem, path) from problem
        except BadUrl as problem:
            raise bad_url(path, problem) from None
    raise _trimmed(place)


def _opened(file: LogFile, share: Share) -> Opened:
    place = share.place
    if file.size < share.size:
        raise _changed(place)
    buffer = file.view(share.size, *_extent(share))
    header = decode_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
    if isinstance(header, HeaderProblem) and not header.foreign:
        raise damaged(place.path, 0, header.why)
    if header != place.header:
        raise _changed(place)
    seal = read_seal(file.read, file.size, place.header)
    tubes = seal.content.tubes if seal is not None else None
    if tubes is share.tubes is None and not file.is_local:
        # Its tubes have to be searched for, from its beginning.
        buffer = file.view(share.size, 0, share.stretch.end)
    return Opened(place, buffer, tubes)


def _extent(share: Share) -> tuple[int, int]:
    """From where to where a segment is read.  Re-homed frames may need what follows them."""
    stretch = share.stretch
    if share.place.header.flags & REHOMED:
        return 0, share.size
    return 0 if stretch.start == SEGMENT_HEADER_BYTES else stretch.start, stretch.end


def _changed(place: Place) -> SourceError:
    return SourceError(
        "BINLOG_CHANGED",
        f"{place.path}: it is another file than when the query was planned; run it again",
    )


def _trimmed(place: Place) -> SourceError:
    return SourceError(
        "BINLOG_TRIMMED",
        f"{place.path}: segment {place.header.seq} was there when the query was planned and is "
        f"gone: its server has trimmed it, or this machine does not see the same files; run the "
        f"query again, with the server's archive among its paths: load([DIR, ARCHIVE])",
    )


def task_batches(task: Task, wanted: Wanted) -> Iterator[Any]:
    """:raise SourceError: something of the task cannot be read."""
    with Held(task) as held:
        for item in task:
            try:
                yield from _batches_of(item, wanted, held)
            except OSError as problem:
                raise unreadable(problem) from None


def _batches_of(item: Share | Trouble, wanted: Wanted, held: Held) -> Iterator[Any]:
    from binlog_tools.spark.segments.decoding import batches, damage_row

    if isinstance(item, Trouble):
        yield damage_row(wanted.columns, item.place, item.lsn, item.problem, size=item.size)
        return
    try:
        opened = open_soundest(item, wanted.verify, "body" in wanted.columns, held.open)
    except SourceError as problem:
        if wanted.damage == "fail" or not is_damage(problem):
            raise
        lsn = max(item.stretch.first_lsn, item.lsns.low)
        size = item.stretch.end - item.stretch.start
        yield damage_row(wanted.columns, item.place, lsn, problem.what, size=size)
        return
    tubes = item.tubes if opened.tubes is None else opened.tubes
    yield from batches(
        opened.buffer, opened.place, item.stretch, wanted.within(item.lsns), tubes,
        told_before=item.lsns.low,
    )  # fmt: skip


def open_soundest(
    share: Share, verify: Verify, with_bodies: bool,
    open_one: Callable[[str], LogFile] = open_file,
) -> Opened:  # fmt: skip
    """Open the first copy that can be read whole; if there is none, the first one."""
    first: Opened | SourceError | None = None
    for each in (share, *(_of_copy(share, path) for path in share.copies)):
        try:
            opened = _open_share(each, each is not share, open_one)
        except SourceError as problem:
            first = first or problem
            continue
        if verify == "none" or not share.copies or _is_sound(opened, share, verify, with_bodies):
            return opened
        first = opened if first is None or isinstance(first, SourceError) else first
    if isinstance(first, Opened):
        return first
    raise first or _trimmed(share.place)


def _of_copy(share: Share, path: str) -> Share:
    size = max(share.size, share.stretch.end)
    return Share(share.place._replace(path=path), share.stretch, size, tubes=share.tubes)


def _is_sound(opened: Opened, share: Share, verify: Verify, with_bodies: bool) -> bool:
    from binlog_tools.spark.segments.framing import is_intact

    header = share.place.header
    return is_intact(opened.buffer, header, share.stretch, verify, with_bodies)
