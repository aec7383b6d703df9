"""
What a task reads, where it runs; of several copies of a segment one that is not damaged.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beanstalk_twisted.binlog.format import REHOMED, SEGMENT_HEADER_BYTES, decode_segment_header
from beanstalk_twisted.object_storage.store import BadUrl
from binlog_tools.spark.definitions.errors import SourceError, bad_url, unreadable
from binlog_tools.spark.files.opening import LogFile, open_file
from binlog_tools.spark.reading.planning import Share, Task, Trouble
from binlog_tools.spark.segments.decoding import Wanted, batches
from binlog_tools.spark.segments.footers import read_footer
from binlog_tools.spark.segments.framing import Verify, is_intact
from binlog_tools.spark.segments.producing import Place, damage_row


class Opened(NamedTuple):
    """
    A segment where it is read.

    :ivar place: with the path of the file that was there.
    :ivar buffer: the stretch of the share is in it, and what is needed to read that.
    :ivar tubes: the names that its seal says, None if it has none.
    :ivar is_mapped: the file is shown, and not a copy of it.
    """

    place: Place
    buffer: memoryview
    tubes: Mapping[int, bytes] | None
    is_mapped: bool


def open_share(share: Share, may_be_shorter: bool = False) -> Opened:
    """
    Map or fetch what a share needs of the file, which has to be the one that was planned with.

    :param may_be_shorter: it is a copy, which may have been made while the segment grew.
    :raise SourceError: it is gone, another one, or shorter.
    """
    place = share.place
    for path in (place.path, *share.elsewhere):
        try:
            with open_file(path) as file:
                if may_be_shorter:
                    share = share._replace(size=min(share.size, file.size))
                return _opened(file, share._replace(place=place._replace(path=path)))
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise unreadable(problem, path) from None
        except BadUrl as problem:
            raise bad_url(path, problem) from None
    raise _trimmed(place)


def _opened(file: LogFile, share: Share) -> Opened:
    place = share.place
    if file.size < share.size:
        raise _changed(place)
    buffer = file.view(share.size, *_extent(file, share))
    if decode_segment_header(file.read(0, SEGMENT_HEADER_BYTES)) != place.header:
        raise _changed(place)
    footer = read_footer(file.read, file.size, place.header)
    tubes = footer.tubes if footer is not None else None
    if tubes is share.tubes is None and not file.is_local:
        # Its tubes have to be searched for, from its beginning.
        buffer = file.view(share.size, 0, share.stretch.end)
    return Opened(place, buffer, tubes, file.is_local)


def _extent(file: LogFile, share: Share) -> tuple[int, int]:
    """
    From where to where a segment is read.  Re-homed frames may need what stands behind them.
    """
    stretch = share.stretch
    if share.place.header.flags & REHOMED:
        return 0, share.size
    start = 0 if stretch.start == SEGMENT_HEADER_BYTES else stretch.start
    return start, stretch.end


def _changed(place: Place) -> SourceError:
    return SourceError(
        "BINLOG_CHANGED",
        f"{place.path}: it is another file than when the query was planned; run it again",
    )


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
    opened = open_soundest(item, wanted.verify, "body" in wanted.columns)
    tubes = item.tubes if opened.tubes is None else opened.tubes
    yield from batches(opened.buffer, opened.place, item.stretch, wanted, tubes)


def open_soundest(share: Share, verify: Verify, with_bodies: bool) -> Opened:
    """
    The first copy of a segment in which a share can be read whole; the first one that is there if
    there is none, whose damage then is that of the log.

    :param verify: ``none``: damage is not looked for.
    :raise SourceError: no copy can be opened.
    """
    first: Opened | SourceError | None = None
    for each in (share, *(_of_copy(share, path) for path in share.copies)):
        try:
            opened = open_share(each, may_be_shorter=each is not share)
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
    header = share.place.header
    return is_intact(opened.buffer, header, share.stretch, verify, with_bodies)
