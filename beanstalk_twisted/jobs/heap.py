"""
Priority queues that anything can leave.

Leaving is lazy: an entry stays until it comes to the top or until most entries are dead.  Whether
one is alive is asked of the owner, so nothing has to be found in the middle; heapq in C with
integer keys is 5 to 10 times faster than an indexed heap in Python.

Most queues are used first in, first out.  So entries that come in order wait in a row, without a
heap; the first key is remembered until it leaves; and as long as there are no more entries than
jobs, all are alive and nobody is asked.  A turn of `add`, `first` and `discard` then takes 0.5 us
instead of 1.05.

A key is ``major << 64 | job_id``: jobs with equal major come in order of their ids.
"""

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

ID_MASK: Final = (1 << 64) - 1

MAX_LANES: Final = 16
"""Priorities of a tube that have a lane of their own: few tubes use more (docs/architecture.md)."""

SPARE_DEAD: Final = 1024
"""Dead entries that are never worth a rebuild."""

FEW: Final = 64
"""So many jobs are pushed on a heap one by one; it is made anew for more."""

NOT_KNOWN: Final = -1
"""In place of the first key: it has to be looked for."""

IsAlive = Callable[[int, int], bool]
"""Asked with (major, job_id): does this entry still stand for a job here?"""


class LazyHeap:
    """
    Job ids ordered by (major, id).

    Entries that come in order, as those of equal delays and TTRs do, wait in ``_run`` from ``_at``
    on; the others in a heap.

    :ivar count: how many are alive.
    """

    __slots__ = ("_at", "_first", "_heap", "_is_alive", "_run", "count")

    def __init__(self, is_alive: IsAlive) -> None:
        self.count = 0
        self._first = NOT_KNOWN
        self._run: list[int] = []
        self._at = 0
        self._heap: list[int] = []
        self._is_alive = is_alive

    def add(self, major: int, job_id: int) -> None:
        """
        A job enters.
        """
        self.count += 1
        key = major << 64 | job_id
        run = self._run
        if not run or key > run[-1]:
            run.append(key)
        else:
            heappush(self._heap, key)
        if key < self._first or self.count == 1:
            self._first = key

    def discard(self, major: int, job_id: int) -> None:
        """
        A job has left; `is_alive` already says so.
        """
        self.count -= 1
        if not self.count:
            self._run.clear()
            self._heap.clear()
            self._at = 0
            return
        if major << 64 | job_id == self._first:
            self._first = NOT_KNOWN
            self._take(major << 64 | job_id)
        elif len(self._run) - self._at + len(self._heap) > 2 * self.count + SPARE_DEAD:
            self._rebuild()

    def first(self) -> int | None:
        """
        The key of the first job that is alive.
        """
        if not self.count:
            return None
        if self._first == NOT_KNOWN:
            if len(self._run) - self._at + len(self._heap) != self.count:
                self._drop_dead()
            self._first = self._top()
        return self._first

    def _top(self) -> int:
        run, heap = self._run, self._heap
        if not heap:
            return run[self._at]
        return heap[0] if not run else min(run[self._at], heap[0])

    def _take(self, key: int) -> None:
        """
        Take an entry away that is on top.
        """
        # A first key that is known is on top: nothing before it was there when it became known.
        run = self._run
        if not run or run[self._at] != key:
            heappop(self._heap)
            return
        run[self._at] = 0
        self._at += 1
        if self._at == len(run):
            run.clear()
            self._at = 0
        elif self._at > SPARE_DEAD and 2 * self._at > len(run):
            del run[: self._at]
            self._at = 0

    def _drop_dead(self) -> None:
        while not self._is_alive((key := self._top()) >> 64, key & ID_MASK):
            self._take(key)

    def _rebuild(self) -> None:
        entries = self._run[self._at :] + self._heap
        alive = {key for key in entries if self._is_alive(key >> 64, key & ID_MASK)}
        self._run, self._at, self._heap = sorted(alive), 0, []


class ReadyQueue:
    """
    The ready jobs of a tube, ordered by (priority, id).

    Jobs that come with ascending ids, as new ones do, wait in one lane for each priority; released
    jobs and rarer priorities go to a heap.

    :ivar count: how many are alive.
    """

    __slots__ = ("_entries", "_first", "_heap", "_is_alive", "_lanes", "count")

    def __init__(self, is_alive: IsAlive) -> None:
        self.count = 0
        self._entries = 0
        self._first = NOT_KNOWN
        self._lanes: dict[int, deque[int]] = {}
        self._heap: list[int] = []
        self._is_alive = is_alive

    def add(self, priority: int, job_id: int) -> bool:
        """
        A job enters.

        :return: whether it may be the first now.
        """
        self.count += 1
        self._entries += 1
        key = priority << 64 | job_id
        lane = self._lanes.get(priority)
        if lane is None and len(self._lanes) < MAX_LANES:
            self._lanes[priority] = deque((job_id,))
        elif lane is not None and lane[-1] < job_id:
            lane.append(job_id)
        else:
            heappush(self._heap, key)
        if key < self._first or self.count == 1:
            self._first = key
            return True
        return self._first == NOT_KNOWN

    def add_before(self, priority: int, job_ids: list[int]) -> bool:
        """
        The same for each of these jobs, if all come before those of their priority that are known.

        :param job_ids: ascending, at least one.
        :return: whether it is so; otherwise nothing has changed.
        """
        lane = self._lanes.get(priority)
        if lane is None:
            if len(self._lanes) >= MAX_LANES:
                return False
            self._lanes[priority] = deque(job_ids)
        elif job_ids[-1] < lane[0]:
            lane.extendleft(reversed(job_ids))
        else:
            return False
        self._added(len(job_ids))
        return True

    def add_all(self, priority: int, job_ids: list[int]) -> None:
        """
        The same for each of these jobs, in any order.
        """
        lane = self._lanes.get(priority)
        if lane is not None:
            self._lanes[priority] = deque(sorted([*lane, *job_ids]))
        elif len(self._lanes) < MAX_LANES:
            self._lanes[priority] = deque(sorted(job_ids))
        elif len(job_ids) < FEW:
            for job_id in job_ids:
                heappush(self._heap, priority << 64 | job_id)
        else:
            self._heap += [priority << 64 | job_id for job_id in job_ids]
            heapify(self._heap)
        self._added(len(job_ids))

    def _added(self, count: int) -> None:
        self.count += count
        self._entries += count
        self._first = NOT_KNOWN

    def discard(self, priority: int, job_id: int) -> None:
        """
        A job has left; `is_alive` already says so.
        """
        self.count -= 1
        if not self.count:
            self._entries = 0
            self._lanes.clear()
            self._heap.clear()
        elif priority << 64 | job_id == self._first:
            self._first = NOT_KNOWN
            self._take(priority, job_id)
        elif self._entries > 2 * self.count + SPARE_DEAD:
            self._rebuild()

    def first(self) -> int | None:
        """
        The key of the first job that is alive.
        """
        if not self.count:
            return None
        if self._first == NOT_KNOWN:
            if self._entries != self.count:
                self._drop_dead()
            self._first = self._top()
        return self._first

    def _top(self) -> int:
        """
        The least key of all entries.
        """
        lanes = self._lanes
        if not lanes:
            return self._heap[0]
        priority = next(iter(lanes)) if len(lanes) == 1 else min(lanes)
        key = priority << 64 | lanes[priority][0]
        return min(key, self._heap[0]) if self._heap else key

    def _take(self, priority: int, job_id: int) -> None:
        """
        Take an entry away that is on top.
        """
        self._entries -= 1
        lane = self._lanes.get(priority)
        if lane is None or lane[0] != job_id:
            heappop(self._heap)
            return
        lane.popleft()
        if not lane:
            del self._lanes[priority]

    def _drop_dead(self) -> None:
        while True:
            key = self._top()
            priority, job_id = key >> 64, key & ID_MASK
            if self._is_alive(priority, job_id):
                return
            self._take(priority, job_id)

    def _rebuild(self) -> None:
        for priority, lane in list(self._lanes.items()):
            alive = deque(job_id for job_id in lane if self._is_alive(priority, job_id))
            if alive:
                self._lanes[priority] = alive
            else:
                del self._lanes[priority]
        keys = {key for key in self._heap if self._is_alive(key >> 64, key & ID_MASK)}
        self._heap = sorted(keys)
        self._entries = len(self._heap) + sum(map(len, self._lanes.values()))
