"""
Job ids in order, any of which may leave at any time.

A sorted list in blocks, each a sorted list of its own: a key is found by bisection among the blocks
and then in its block, and is removed at once.  So each call for one job costs two bisections and
moving the pointers of one block (at most 4 kB), and now and then, when a block becomes full or
empty, those to the blocks (32 kB for a million jobs): with a million jobs less than 0.1 ms.

Keys that come in order are appended, and the first one needs no search: `add`, `first` and
`discard` take 0.25 us together.  Random keys take 1.6 us each, with 200,000 of them; 2.4 with
`heapq` and entries that are removed late.

A key is ``major << 64 | job_id``: jobs with equal major come in order of their ids.
"""

from bisect import bisect_left, bisect_right, insort
from itertools import chain, islice
from typing import Final

ID_MASK: Final = (1 << 64) - 1

BLOCK_KEYS: Final = 512
"""A block with more is cut in two: with 128 or 1024 a turn is no quicker."""

FEW: Final = 16
"""So many keys for one block are inserted one by one; with more it is sorted anew, in 10 us."""

LEAST: Final = -1 << 127
"""Less than all keys, whose majors may be times before 1970."""

_NO_BLOCKS: Final[list[list[int]]] = [[]]
_NO_STARTS: Final = [LEAST]
"""Of all queues that no job has entered yet, and never changed: most of a tube's three."""


class OrderedJobs:
    """
    Jobs ordered by (major, id), each at most once: ready ones by priority, others by time.

    No block is empty, but for the only one of an empty queue.  ``_starts[n]`` is no more than the
    keys of ``_blocks[n]``, and more than all those before it; a block's first key may leave
    without it.

    :ivar count: how many there are.
    """

    __slots__ = ("_blocks", "_starts", "count")

    def __init__(self) -> None:
        self.count = 0
        self._blocks = _NO_BLOCKS
        self._starts = _NO_STARTS

    def add(self, major: int, job_id: int) -> bool:
        """
        A job enters.

        :return: whether it is the first now.
        """
        self.count += 1
        key = major << 64 | job_id
        blocks = self._blocks
        last = blocks[-1]
        if not last:
            self._own()
            self._blocks[0].append(key)
            return True
        if key < last[-1]:
            self._insert(key)
        elif len(last) < BLOCK_KEYS:
            last.append(key)
        else:
            blocks.append([key])
            self._starts.append(key)
        return blocks[0][0] == key

    def add_all(self, keys: list[int]) -> bool:
        """
        Jobs enter: a tenth of the time of one by one.

        :param keys: at least one, each once, ascending.
        :return: whether one of them is the first now.
        """
        self.count += len(keys)
        self._own()
        at = 0
        while at < len(keys):
            place = bisect_right(self._starts, keys[at]) - 1
            end = len(keys)
            if place + 1 < len(self._starts):
                end = bisect_left(keys, self._starts[place + 1], at)
            self._merge(place, keys[at:end])
            at = end
        return self._blocks[0][0] == keys[0]

    def discard(self, major: int, job_id: int) -> None:
        """
        A job leaves, which is here.
        """
        self.count -= 1
        key = major << 64 | job_id
        place = 0
        block = self._blocks[0]
        if block[0] == key:
            del block[0]
        else:
            place = bisect_right(self._starts, key) - 1
            block = self._blocks[place]
            at = bisect_left(block, key)
            assert block[at] == key
            del block[at]
        if not block and self.count:
            self._drop(place, place + 1)

    def discard_firsts(self, most: int) -> None:
        """
        Remove so many of the first jobs; there are as many.
        """
        self.count -= most
        gone = 0
        for block in self._blocks:
            if len(block) > most:
                del block[:most]
                break
            most -= len(block)
            gone += 1
        self._drop(0, gone)

    def add_key(self, key: int) -> bool:
        """
        As `add`, for the job of this key.
        """
        return self.add(key >> 64, key & ID_MASK)

    def discard_key(self, key: int) -> None:
        """
        As `discard`, for the job of this key.
        """
        self.discard(key >> 64, key & ID_MASK)

    def first(self) -> int | None:
        """
        The key of the first job.
        """
        return self._blocks[0][0] if self.count else None

    def last(self) -> int | None:
        """
        The key of the last job.
        """
        return self._blocks[-1][-1] if self.count else None

    def behind(self, key: int, most: int) -> list[int]:
        """
        The keys of so many of the jobs behind a key, in order; fewer if there are not as many.

        :param key: of a job that is here, or was, or `LEAST`.
        """
        keys: list[int] = []
        place = max(0, bisect_right(self._starts, key) - 1)
        at = bisect_right(self._blocks[place], key)
        while len(keys) < most and place < len(self._blocks):
            keys += self._blocks[place][at : at + most - len(keys)]
            place, at = place + 1, 0
        return keys

    def firsts(self, most: int) -> list[int]:
        """
        The keys of so many of the first jobs, in order; fewer if there are not as many.
        """
        return list(islice(chain.from_iterable(self._blocks), most))

    def _own(self) -> None:
        """
        Leave the shared empty lists, before the first jobs enter.
        """
        if self._blocks is _NO_BLOCKS:
            self._blocks, self._starts = [[]], [LEAST]

    def _insert(self, key: int) -> None:
        place = bisect_right(self._starts, key) - 1
        block = self._blocks[place]
        insort(block, key)
        if len(block) > BLOCK_KEYS:
            self._cut(place)

    def _merge(self, place: int, keys: list[int]) -> None:
        """
        These keys, ascending, belong into this block.
        """
        block = self._blocks[place]
        if len(keys) < FEW:
            for key in keys:
                insort(block, key)
        else:
            block += keys
            block.sort()  # Of two runs in order this makes one, without sorting them.
        if len(block) > BLOCK_KEYS:
            self._cut(place)

    def _cut(self, place: int) -> None:
        """
        Make blocks of one size out of this one, which is too large.
        """
        block = self._blocks[place]
        size = len(block) // (len(block) // BLOCK_KEYS + 1) + 1
        others = [block[at : at + size] for at in range(size, len(block), size)]
        del block[size:]
        self._blocks[place + 1 : place + 1] = others
        self._starts[place + 1 : place + 1] = [other[0] for other in others]

    def _drop(self, start: int, end: int) -> None:
        """
        Remove these blocks, which are empty or no longer needed.
        """
        del self._blocks[start:end]
        del self._starts[start:end]
        if not self._blocks:
            self._blocks.append([])
            self._starts.append(LEAST)
        self._starts[0] = LEAST
