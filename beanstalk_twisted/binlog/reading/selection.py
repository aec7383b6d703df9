"""Which records of a log say how its jobs are now, chosen newest-first: dead jobs and old states
are never decoded.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.survey import Segment
from beanstalk_twisted.binlog.records.jobs import FULL, Kind
from beanstalk_twisted.binlog.records.others import JOB_KINDS
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.frames import Buffer, Frame

_PAGE_BITS: Final = 8
_PAGE_SIZE: Final = 1 << _PAGE_BITS
_PAGE_MASK: Final = _PAGE_SIZE - 1
_BITS: Final = tuple(1 << at for at in range(_PAGE_SIZE))

_FULL_KINDS: Final = bytes(sorted(FULL))
_DELETE: Final = int(Kind.DELETE)


class Place(NamedTuple):
    """A frame with full records of surviving jobs.

    :ivar start: where the part of the segment begins that was read; ``end`` where it ends.
    :ivar frame: as it lies in that part.
    :ivar home: the segment that holds them, once what is not durable has moved.
    """

    segment: Segment
    start: int
    end: int
    frame: Frame
    home: int


Found = tuple[int, int, Place, bytes | None]
"""A surviving job: its id, where its full record is in which frame, and its newest record if that
is another one.  A plain tuple, since there may be millions.
"""


class Pick(NamedTuple):
    """Full records of one frame that nothing newer is known of.

    :ivar indexes: ascending, at least one; ``job_ids`` likewise.
    :ivar newest: the newest records of these jobs, if they are others: then something newer is.
    """

    buffer: Buffer
    place: Place
    indexes: Sequence[int]
    job_ids: Sequence[int]
    newest: Sequence[bytes] = ()

    def found(self) -> Iterator[Found]:
        newest = self.newest or repeat(None)
        return zip(self.job_ids, self.indexes, repeat(self.place), newest)


def picks_of(changed: list[tuple[int, int, Place, bytes]], buffer: Buffer) -> Iterator[Pick]:
    """The same of jobs whose newest records are others, those of a frame one after the other."""
    for _, group in groupby(changed, key=lambda found: found[2].frame.offset):
        job_ids, indexes, places, newest = zip(*sorted(group, key=itemgetter(1)), strict=True)
        yield Pick(buffer, places[0], indexes, job_ids, newest)


class JobIds:
    """A set of job ids, a bit for each, in pages: a set would take 60 to 100 bytes for each of
    millions.  Ids are dense, so that most pages are full.
    """

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}

    def __contains__(self, job_id: int) -> bool:
        return bool(self._pages.get(job_id >> _PAGE_BITS, 0) >> (job_id & _PAGE_MASK) & 1)

    def add(self, job_id: int) -> None:
        number = job_id >> _PAGE_BITS
        self._pages[number] = self._pages.get(number, 0) | 1 << (job_id & _PAGE_MASK)

    def add_run(self, first: int, count: int) -> bool:
        """Add ids one after the other, if none of them is there; return whether it did."""
        pages, masks = self._pages, list(_masks(first, count))
        if any(pages.get(number, 0) & mask for number, mask in masks):
            return False
        for number, mask in masks:
            pages[number] = pages.get(number, 0) | mask
        return True

    def add_all(self, job_ids: Sequence[int]) -> list[int]:
        """Add ids, at least one; return the indexes of those that were not there."""
        pages, new = self._pages, []
        number = job_ids[0] >> _PAGE_BITS
        page = pages.get(number, 0)
        for at, job_id in enumerate(job_ids):
            if job_id >> _PAGE_BITS != number:
                pages[number] = page
                number = job_id >> _PAGE_BITS
                page = pages.get(number, 0)
            bit = _BITS[job_id & _PAGE_MASK]
            if not page & bit:
                page |= bit
                new.append(at)
        pages[number] = page
        return new


def _masks(first: int, count: int) -> Iterator[tuple[int, int]]:
    end = first + count
    while first < end:
        at = first & _PAGE_MASK
        here = min(_PAGE_SIZE - at, end - first)
        yield first >> _PAGE_BITS, (1 << here) - 1 << at
        first += here


class Selection:
    """What has been met of each job; frames are shown to it newest-first.  The newest record of a
    job says all but its body, which is in its newest full record.

    :ivar changed: the surviving jobs whose newest record is not their full one, for the caller to
        take out.
    """

    def __init__(self) -> None:
        self.changed: list[tuple[int, int, Place, bytes]] = []
        self._finished = JobIds()
        self._newest: dict[int, bytes] = {}

    @property
    def without_body(self) -> Collection[int]:
        """The jobs that have state, but no full record yet."""
        return self._newest

    def pick(self, buffer: Buffer, place: Place) -> tuple[Sequence[int], Sequence[int]]:
        """Look at a frame: the first record met of a job is its state, the first full one its body.

        :return: the full records that nothing newer is known of, ascending, and their jobs.
        """
        job_ids = frames.ids_if_all(buffer, place.frame, _FULL_KINDS)
        if not job_ids:
            return self._pick_each(buffer, place)
        first, count = job_ids[0], len(job_ids)
        is_run = job_ids == list(range(first, first + count))
        if not is_run and len(set(job_ids)) < count:
            return self._pick_each(buffer, place)
        if is_run and self._finished.add_run(first, count):
            indexes: Sequence[int] = range(count)
        else:
            indexes = self._finished.add_all(job_ids)
        if self._newest and not self._newest.keys().isdisjoint(job_ids):
            indexes = [at for at in indexes if not self._is_changed(job_ids[at], at, place)]
        if len(indexes) == count:
            return range(count), job_ids
        return indexes, [job_ids[at] for at in indexes]

    def _is_changed(self, job_id: int, index: int, place: Place) -> bool:
        newest = self._newest.pop(job_id, None)
        if newest is not None:
            self.changed.append((job_id, index, place, newest))
        return newest is not None

    def _pick_each(self, buffer: Buffer, place: Place) -> tuple[Sequence[int], Sequence[int]]:
        finished, newest = self._finished, self._newest
        indexes: list[int] = []
        job_ids: list[int] = []
        kinds = list(frames.kinds_and_ids(buffer, place.frame))
        for index in range(len(kinds) - 1, -1, -1):
            kind, job_id = kinds[index]
            if kind not in JOB_KINDS or job_id in finished:
                continue
            if kind in FULL:
                finished.add(job_id)
                if job_id in newest:
                    self.changed.append((job_id, index, place, newest.pop(job_id)))
                else:
                    indexes.append(index)
                    job_ids.append(job_id)
            elif kind == _DELETE:
                finished.add(job_id)
            elif job_id not in newest:
                newest[job_id] = frames.record_bytes(buffer, place.frame, index)
        return indexes[::-1], job_ids[::-1]
