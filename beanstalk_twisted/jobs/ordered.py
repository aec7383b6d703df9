"""Job ids in order, any of which may leave at any time.

A key is ``major << 64 | job_id``: jobs with equal major come in order of their ids.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, TypeAlias

ID_MASK: Final = (1 << 64) - 1

BLOCK_KEYS: Final = 512
"""A block with more is cut in two: with 128 or 1024 a turn is no quicker."""

FEW: Final = 16
"""So many keys for one block are inserted one by one; with more it is sorted anew, in 100 us."""

LEAST: Final = (-1 << 127) - 1
"""Less than all keys, whose majors may be times before 1970."""

Majors: TypeAlias = "array[int]"
Ids: TypeAlias = "array[int]"

_NO_MAJORS: Final[list[Majors]] = [array("q")]
_NO_IDS: Final[list[Ids]] = [array("Q")]
_NO_STARTS: Final = [LEAST]
"""Of all queues that no job has entered yet, and never changed: most of a tube's three."""


class OrderedJobs:
    """Jobs ordered by (major, id), each at most once: ready ones by priority, others by time.

    A sorted list in blocks: 16 bytes for a job, and nothing that is an object of its own.  A call
    for one job costs four bisections, among the blocks and in one, and moving what stands behind it
    in the block (at most 8 kB), and now and then the pointers to the blocks (32 kB for a million
    jobs): with a million jobs less than 0.1 ms.  Keys that come in order are appended, and the
    first one needs no search: `add`, `first` and `discard` take 0.4 us together.  Random keys take
    2.5 us each, with 200,000 of them.

    A block is an array of ``_majors`` and that of ``_ids`` at the same place.  None is empty, but
    for the only one of an empty queue.  ``_starts[n]`` is no more than the keys of block n, and
    more than all those before it; a block's first key may leave without it.

    None that is here comes after ``_last_major`` and ``_last_id``, whether that is here or not.

    :ivar count: how many there are.
    """

    __slots__ = ("_ids", "_last_id", "_last_major", "_majors", "_starts", "count")

    def __init__(self) -> None:
        self.count = self._last_id = self._last_major = 0
        self._majors = _NO_MAJORS
        self._ids = _NO_IDS
        self._starts = _NO_STARTS

    def add(self, major: int, job_id: int) -> bool:
        """:return: whether the job is the first now."""
        count = self.count
        self.count = count + 1
        if not count:
            if self._ids is _NO_IDS:
                self._own()
            self._majors[0].append(major)
            self._ids[0].append(job_id)
            self._last_major, self._last_id = major, job_id
            return True
        last = self._last_major
        if major < last or (major == last and job_id < self._last_id):
            place = bisect_right(self._starts, major << 64 | job_id) - 1
            at = self._insert_in(place, major, job_id)
            if len(self._ids[place]) > BLOCK_KEYS:
                self._cut(place)
            return place == at == 0
        self._last_major, self._last_id = major, job_id
        ids = self._ids[-1]
        if count < BLOCK_KEYS or len(ids) < BLOCK_KEYS:
            self._majors[-1].append(major)
            ids.append(job_id)
        else:
            self._majors.append(array("q", (major,)))
            self._ids.append(array("Q", (job_id,)))
            self._starts.append(major << 64 | job_id)
        return False

    def add_run(self, major: int, job_ids: list[int]) -> bool:
        """Jobs of one major enter: a tenth of the time of one by one.

        :param job_ids: at least one, each once, ascending.
        :return: whether one of them is the first now.
        """
        return self.add_all(array("q", (major,)) * len(job_ids), array("Q", job_ids))

    def add_all(self, majors: Majors, ids: Ids) -> bool:
        """As `add_run`, for jobs of any majors.

        :param majors: of ``ids``; at least one, ascending by both, each once.
        """
        count = len(ids)
        last = majors[-1], ids[-1]
        if not self.count or last > (self._last_major, self._last_id):
            self._last_major, self._last_id = last
        self.count += count
        self._own()
        at = 0
        while at < count:
            place = bisect_right(self._starts, majors[at] << 64 | ids[at]) - 1
            end = count
            if place + 1 < len(self._starts):
                start = self._starts[place + 1]
                end = _find(majors, ids, start >> 64, start & ID_MASK)
            self._merge(place, majors[at:end], ids[at:end])
            at = end
        return self._ids[0][0] == ids[0] and self._majors[0][0] == majors[0]

    def discard(self, major: int, job_id: int) -> None:
        """A job leaves, which is here."""
        self.count -= 1
        place = at = 0
        majors, ids = self._majors[0], self._ids[0]
        if ids[0] != job_id or majors[0] != major:
            place = bisect_right(self._starts, major << 64 | job_id) - 1
            majors, ids = self._majors[place], self._ids[place]
            at = _find(majors, ids, major, job_id)
            assert ids[at] == job_id and majors[at] == major
        del majors[at]
        del ids[at]
        if not ids and self.count:
            self._drop(place, place + 1)

    def discard_firsts(self, most: int) -> None:
        self.count -= most
        gone = 0
        for ids in self._ids:
            if len(ids) > most:
                del ids[:most]
                del self._majors[gone][:most]
                break
            most -= len(ids)
            gone += 1
        self._drop(0, gone)

    def discard_key(self, key: int) -> None:
        self.discard(key >> 64, key & ID_MASK)

    def first(self) -> int | None:
        return self._majors[0][0] << 64 | self._ids[0][0] if self.count else None

    def first_id(self) -> int:
        """The id of the first job; there is one."""
        return self._ids[0][0]

    def is_before(self, other: "OrderedJobs") -> bool:
        """Whether its first job comes before the other's; there are both."""
        first = self._majors[0][0], self._ids[0][0]
        return first < (other._majors[0][0], other._ids[0][0])

    def last(self) -> int | None:
        return self._majors[-1][-1] << 64 | self._ids[-1][-1] if self.count else None

    def behind(self, key: int, most: int) -> list[int]:
        """The keys of so many of the jobs behind a key, in order; fewer if there are not as many.

        :param key: of a job that is here, or was, or `LEAST`.
        """
        place = max(0, bisect_right(self._starts, key) - 1)
        majors, ids = self._majors[place], self._ids[place]
        low = bisect_left(majors, key >> 64)
        at = bisect_right(ids, key & ID_MASK, low, bisect_right(majors, key >> 64, low))
        keys: list[int] = []
        while len(keys) < most and place < len(self._ids):
            keys += self._keys(place, at, at + most - len(keys))
            place, at = place + 1, 0
        return keys

    def first_ids(self, most: int) -> list[int]:
        """The ids of so many of the first jobs; fewer if there are not as many."""
        first: list[int] = []
        for ids in self._ids:
            first += ids[: most - len(first)].tolist()
            if len(first) == most:
                break
        return first

    def _keys(self, place: int, start: int, end: int) -> list[int]:
        majors, ids = self._majors[place][start:end], self._ids[place][start:end]
        return [major << 64 | job_id for major, job_id in zip(majors, ids, strict=True)]

    def _own(self) -> None:
        """Leave the shared empty lists, before the first jobs enter."""
        if self._ids is _NO_IDS:
            self._majors, self._ids, self._starts = [array("q")], [array("Q")], [LEAST]

    def _insert_in(self, place: int, major: int, job_id: int) -> int:
        """:return: where in its block the job is."""
        majors, ids = self._majors[place], self._ids[place]
        at = _find(majors, ids, major, job_id)
        majors.insert(at, major)
        ids.insert(at, job_id)
        return at

    def _merge(self, place: int, majors: Majors, ids: Ids) -> None:
        old_majors, before = self._majors[place], self._ids[place]
        if not before or (old_majors[-1], before[-1]) < (majors[0], ids[0]):
            old_majors.extend(majors)
            before.extend(ids)
        elif (majors[-1], ids[-1]) < (old_majors[0], before[0]):
            self._majors[place] = majors + old_majors
            self._ids[place] = ids + before
        elif len(ids) < FEW:
            for major, job_id in zip(majors, ids, strict=True):
                self._insert_in(place, major, job_id)
        else:
            self._sort(place, majors, ids)
        if len(self._ids[place]) > BLOCK_KEYS:
            self._cut(place)

    def _sort(self, place: int, majors: Majors, ids: Ids) -> None:
        jobs = [*zip(self._majors[place], self._ids[place], strict=True)]
        jobs += zip(majors, ids, strict=True)
        jobs.sort()  # Of two runs in order this makes one, without sorting them.
        self._majors[place] = array("q", [major for major, _ in jobs])
        self._ids[place] = array("Q", [job_id for _, job_id in jobs])

    def _cut(self, place: int) -> None:
        """Make blocks of one size out of this one, which is too large."""
        majors, ids = self._majors[place], self._ids[place]
        count = len(ids)
        size = count // (count // BLOCK_KEYS + 1) + 1
        starts = range(0, count, size)
        self._majors[place : place + 1] = [majors[at : at + size] for at in starts]
        self._ids[place : place + 1] = [ids[at : at + size] for at in starts]
        self._starts[place + 1 : place + 1] = [majors[at] << 64 | ids[at] for at in starts[1:]]

    def _drop(self, start: int, end: int) -> None:
        del self._majors[start:end]
        del self._ids[start:end]
        del self._starts[start:end]
        if not self._ids:
            self._majors.append(array("q"))
            self._ids.append(array("Q"))
            self._starts.append(LEAST)
        self._starts[0] = LEAST


def _find(majors: Majors, ids: Ids, major: int, job_id: int) -> int:
    """:return: where a job is in a block, or is to be."""
    # Most jobs of a block have one major, or each another.
    low = 0
    if majors[0] != major:
        low = bisect_left(majors, major)
        if low == len(ids) or majors[low] != major or ids[low] >= job_id:
            return low
    end = len(ids) if majors[-1] == major else bisect_right(majors, major, low)
    return bisect_left(ids, job_id, low, end)
