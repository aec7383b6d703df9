"""What a task reads, where it runs; of several copies of a segment one that is not damaged."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import (
    REHOMED,
    SEGMENT_HEADER_BYTES,
    HeaderProblem,
    decode_segment_header,
)
from beanstalk_twisted.binlog.segments.seals import read_seal
from beanstalk_twisted.object_storage.store import BadUrl
from binlog_tools.spark.definitions.errors import SourceError, bad_url, damaged, unreadable
from binlog_tools.spark.files.opening import BadRange, LogFile, open_file
from binlog_tools.spark.reading.holding import Held, standing
from binlog_tools.spark.reading.planning import Share, Task, Trouble
from binlog_tools.spark.segments.decoding import Wanted, batches
from binlog_tools.spark.segments.framing import Verify, is_intact
from binlog_tools.spark.segments.producing import Place, damage_row

_MISSING: Final = ("BINLOG_TRIMMED", "BINLOG_DAMAGED")


def is_damage(problem: SourceError) -> bool:
    """Whether a segment that cannot be opened because of this is a row of damage with
    ``damage=skip``.
    """
    return problem.code in _MISSING or isinstance(problem.__cause__, BadRange)


class Opened(NamedTuple):
    """A segment where it is read.

    :ivar place: with the path of the file that was there.
    :ivar buffer: the stretch of the share is in it, and what is needed to read that.
    :ivar tubes: the names that its seal says, None if it has none.
    """

    place: Place
    buffer: memoryview
    tubes: Mapping[int, bytes] | None


def _open_share(
    share: Share, may_be_shorter: bool = False, open_one: Callable[[str], LogFile] = open_file
) -> Opened:
    """Map or fetch what a share needs of the file, which has to be the one that was planned with.

    :param may_be_shorter: it is a copy, which may have been made while the segment grew.
    :param open_one: opens a file by its address.
    :raise SourceError: it is gone, another one, or shorter.
    """
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
    buffer = file.view(share.size, *_extent(file, share))
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


def _extent(file: LogFile, share: Share) -> tuple[int, int]:
    """From where to where a segment is read.  Re-homed frames may need what stands behind them."""
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
        f"gone: its server has trimmed it, or this machine does not see the same files; run the "
        f"query again, with the server's archive among its paths: load([DIR, ARCHIVE])",
    )


def task_batches(task: Task, wanted: Wanted) -> Iterator[Any]:
    """:raise SourceError: something of the task cannot be read."""
    with Held(task) as held:
        for item in standing(task, held):
            try:
                yield from _batches_of(item, wanted, held)
            except OSError as problem:
                raise unreadable(problem) from None


def _batches_of(item: Share | Trouble, wanted: Wanted, held: Held) -> Iterator[Any]:
    if isinstance(item, Trouble):
        yield damage_row(wanted.columns, item.place, item.lsn, item.problem, size=item.size)
        return
    try:
        opened = open_soundest(item, wanted.verify, "body" in wanted.columns, held.open)
    except SourceError as problem:
        if wanted.damage == "fail" or not is_damage(problem):
            raise
        size = item.stretch.end - item.stretch.start
        yield damage_row(
            wanted.columns, item.place, item.stretch.first_lsn, problem.what, size=size
        )
        return
    tubes = item.tubes if opened.tubes is None else opened.tubes
    yield from batches(opened.buffer, opened.place, item.stretch, wanted, tubes)


def open_soundest(
    share: Share, verify: Verify, with_bodies: bool,
    open_one: Callable[[str], LogFile] = open_file,
) -> Opened:  # fmt: skip
    """The first copy of a segment in which a share can be read whole; the first one that is there
    if there is none, whose damage then is that of the log.

    :param verify: ``none``: damage is not looked for.
    :raise SourceError: no copy can be opened.
    """
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
    header = share.place.header
    return is_intact(opened.buffer, header, share.stretch, verify, with_bodies)
