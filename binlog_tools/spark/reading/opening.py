"""
What a task reads, where it runs; of several copies of a segment one that is not damaged.
"""

import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beanstalk_twisted.binlog.format import SEGMENT_HEADER_BYTES, decode_segment_header
from binlog_tools.spark.definitions.errors import SourceError, unreadable
from binlog_tools.spark.reading.planning import Share, Task, Trouble
from binlog_tools.spark.segments.decoding import Wanted, batches
from binlog_tools.spark.segments.footers import read_footer
from binlog_tools.spark.segments.framing import Verify, is_intact
from binlog_tools.spark.segments.producing import Place, damage_row


class Opened(NamedTuple):
    """
    A segment where it is read.

    :ivar tubes: the names that its seal says, None if it has none.
    """

    buffer: memoryview
    tubes: Mapping[int, bytes] | None


def open_share(share: Share) -> Opened:
    """
    Map the file, which has to be the one that was planned with.

    :raise SourceError: it is gone, another one, or shorter.
    """
    place = share.place
    try:
        fd = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _trimmed(place) from None
    except OSError as problem:
        raise unreadable(problem) from None
    try:
        size = os.fstat(fd).st_size
        if decode_segment_header(os.pread(fd, SEGMENT_HEADER_BYTES, 0)) != place.header or (
            size < share.size
        ):
            raise SourceError(
                "BINLOG_CHANGED",
                f"{place.path}: it is another file than when the query was planned; run it again",
            )
        footer = read_footer(fd, size, place.header)
        mapped = mmap.mmap(fd, share.size, prot=mmap.PROT_READ)
        return Opened(memoryview(mapped), footer.tubes if footer is not None else None)
    finally:
        os.close(fd)


def _trimmed(place: Place) -> SourceError:
    return SourceError(
        "BINLOG_TRIMMED",
        f"{place.path}: segment {place.header.seq} was there when the query was planned and is "
        f"gone now: the server has trimmed it, or this machine does not see the same files; run "
        f"the query again, with the archive among its paths if there is one",
    )


def task_batches(task: Task, wanted: Wanted) -> Iterator[Any]:
    """
    :raise SourceError: something of the task cannot be read.
    """
    for item in task:
        try:
            yield from _batches_of(item, wanted)
        except OSError as problem:
            raise unreadable(problem) from None


def _batches_of(item: Share | Trouble, wanted: Wanted) -> Iterator[Any]:
    if isinstance(item, Trouble):
        yield damage_row(wanted.columns, item.place, item.lsn, item.problem, size=item.size)
        return
    share = soundest(_located(item), wanted.verify, "body" in wanted.columns)
    opened = open_share(share)
    tubes = share.tubes if opened.tubes is None else opened.tubes
    yield from batches(opened.buffer, share.place, share.stretch, wanted, tubes)


def _located(share: Share) -> Share:
    for path in (share.place.path, *share.elsewhere):
        if os.path.exists(path):
            return share._replace(place=share.place._replace(path=path))
    return share


def soundest(share: Share, verify: Verify, with_bodies: bool) -> Share:
    """
    The same part of the first copy in which it can be read whole; of the first one if there is
    none, whose damage then is that of the log.

    :param verify: ``none``: damage is not looked for, so the first copy it is.
    """
    if not share.copies or verify == "none":
        return share
    shares = (share, *(_of_copy(share, path) for path in share.copies))
    return next((each for each in shares if _is_sound(each, verify, with_bodies)), share)


def _of_copy(share: Share, path: str) -> Share:
    try:
        size = os.path.getsize(path)
    except OSError:
        size = share.size
    end = max(share.size, share.stretch.end)
    return Share(share.place._replace(path=path), share.stretch, min(size, end))


def _is_sound(share: Share, verify: Verify, with_bodies: bool) -> bool:
    try:
        buffer = open_share(share).buffer
        return is_intact(buffer, share.place.header, share.stretch, verify, with_bodies)
    except SourceError:
        return False
