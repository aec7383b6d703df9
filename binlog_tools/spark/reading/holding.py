"""What a server trims between planning and reading.

A server deletes the oldest segments of its log, one after the other.  A task opens all its local
files before it gives a row, and so holds what it reads.  If segments are gone by then, and they are
the oldest of what the query reads of that log, and no other task reads of them, the task goes on
without them: this is the result of a query that was planned a moment later.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from types import TracebackType
from typing import Final

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.spark.definitions.addresses import name_of, split, within
from binlog_tools.spark.files.listing import files_at
from binlog_tools.spark.files.opening import LocalFile, LogFile, open_file
from binlog_tools.spark.reading.planning import Share, Task, Trouble

HELD_FILES: Final = 256
"""Files that a task holds, the oldest first, each for a file descriptor: a quarter of what a
process may have by default."""


class Held:
    """The local files of a task, open.  What it gives stays usable behind its end."""

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

    def __contains__(self, path: str) -> bool:
        return path in self._fds

    def __enter__(self) -> "Held":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def oldest_marked(tasks: Iterable[Task]) -> Iterator[Task]:
    """The tasks; in the first one of each log the shares of segments of which it reads all are
    marked ``is_oldest``.
    """
    every = list(tasks)
    begun: set[bytes] = set()
    for task, following in zip_longest(every, every[1:], fillvalue=()):
        continued = {_key(item) for item in following if isinstance(item, Share)}
        stores = {item.place.header.store_uuid for item in task if isinstance(item, Share)}
        yield tuple(
            item._replace(is_oldest=True)
            if isinstance(item, Share)
            and item.place.header.store_uuid not in begun
            and _key(item) not in continued
            and parse_segment_name(name_of(item.place.path)) is not None
            else item
            for item in task
        )
        begun |= stores


def _key(share: Share) -> tuple[bytes, int]:
    return share.place.header.store_uuid, share.place.header.seq


def standing(task: Task, held: Held) -> Iterator[Share | Trouble]:
    """What is left of a task without the segments that were trimmed before it began."""
    kept: set[bytes] = set()
    for item in task:
        if isinstance(item, Share):
            store = item.place.header.store_uuid
            if store not in kept and _is_trimmed(item, held):
                continue
            kept.add(store)
        yield item


def _is_trimmed(share: Share, held: Held) -> bool:
    """Whether a segment is gone since its log now begins behind it."""
    path = share.place.path
    is_there = path in held or not share.is_oldest or is_url(path)
    if is_there or any(map(_exists, (*share.copies, *share.elsewhere))):
        return False
    first = _first_header(split(path)[0])
    header = share.place.header
    return first is not None and first.store_uuid == header.store_uuid and first.seq > header.seq


def _exists(address: str) -> bool:
    try:
        open_file(address).close()
    except FileNotFoundError:
        return False
    except OSError:
        # Whoever reads it will say why it cannot be.
        return True
    return True


def _first_header(folder: str) -> SegmentHeader | None:
    """Of the oldest segment in a server's directory; None if it cannot be read."""
    names = [name for name in files_at(folder) if parse_segment_name(name) is not None]
    if not names:
        return None
    try:
        with open_file(within(folder, min(names))) as file:
            header = decode_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
    except FileNotFoundError:
        return None
    return header if isinstance(header, SegmentHeader) else None
