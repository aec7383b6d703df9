"""How the work is cut: many small segments into one task, one large segment into many."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from binlog_tools.spark.definitions.packing import packed
from binlog_tools.spark.reading.measuring import Segment
from binlog_tools.spark.segments.conditions import EVERY, Span
from binlog_tools.spark.segments.framing import Stretch
from binlog_tools.spark.segments.producing import Place

TASK_BYTES: Final = 64 << 20
"""What a task reads: a segment of the usual size, 0.2 s of work."""


class Share(NamedTuple):
    """A part of a segment for a task to read.

    :ivar size: how much of the file may be mapped.
    :ivar copies: other files that have the same.
    :ivar elsewhere: where the file may be by then: a server moves segments on.
    :ivar is_oldest: no other task reads of this segment, nor of earlier ones of its log.
    :ivar tubes: names that were said before; None: they are searched for, unless a seal says them.
    :ivar next_lsn: the LSN behind the segment, None if nothing says that.
    """

    place: Place
    stretch: Stretch
    size: int
    copies: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    tubes: Mapping[int, bytes] | None = None
    is_oldest: bool = False
    next_lsn: int | None = None


class Trouble(NamedTuple):
    """What is known before anything is read: a row that says that something is missing.

    :ivar place: of the segment behind a gap; None: of none that is known.
    :ivar first_seq: of a gap, the first segment that is missing.
    :ivar path: of a file whose header cannot be used.
    """

    place: Place | None
    problem: str
    lsn: int | None
    size: int | None
    first_seq: int | None = None
    path: str = ""


Task = tuple[Share | Trouble, ...]
"""What one task reads, in this order."""


def shares_of(
    segment: Segment, server: str, task_bytes: int = TASK_BYTES, lsns: Span = EVERY,
    logged_ns: Span = EVERY,
) -> Iterator[Share]:  # fmt: skip
    """The parts of a segment, each of one task's size at most as far as its index allows, but for
    those whose LSNs are not wanted, or which were logged at other times.
    """
    place = Place(segment.path, segment.header, server)
    for stretch in _cut(segment, task_bytes, lsns, logged_ns):
        yield Share(
            place, stretch, segment.size, segment.copies, next_lsn=segment.next_lsn
        )  # fmt: skip


def _cut(segment: Segment, task_bytes: int, lsns: Span, logged_ns: Span) -> Iterator[Stretch]:
    whole = segment.stretch
    if whole.end - whole.start <= task_bytes and lsns == logged_ns == EVERY:
        yield whole
        return
    known = segment.seal.indexed if segment.seal is not None else ()
    places = [
        (each.offset, each.base_lsn, each.time_ns) for each in known if each.offset < whole.end
    ]
    if not places or places[0][:2] != (whole.start, whole.first_lsn):
        yield whole
        return
    edges = [*places, (whole.end, segment.next_lsn or EVERY.high, EVERY.high)]
    start: tuple[int, int] | None = None
    for (at, lsn, time_ns), (end, next_lsn, next_ns) in pairwise(edges):
        is_wanted = lsns.meets(lsn, next_lsn - 1) and logged_ns.meets(time_ns, next_ns)
        if start is not None and (not is_wanted or end - start[0] > task_bytes):
            yield Stretch(start[0], at, start[1])
            start = None
        if is_wanted and start is None:
            start = at, lsn
    if start is not None:
        yield Stretch(start[0], whole.end, start[1])


def size_of(item: Share | Trouble) -> int:
    """Bytes that a task reads of it at most."""
    return item.stretch.end - item.stretch.start if isinstance(item, Share) else 0


def tasks_of(items: Iterable[Share | Trouble], task_bytes: int = TASK_BYTES) -> list[Task]:
    """What each task reads."""
    return packed(items, size_of, task_bytes)
