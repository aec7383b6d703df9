"""
Priority queues that anything can leave.

Leaving is lazy: an entry stays until it comes to the top or until most entries are dead.  Whether
one is alive is asked of the owner, so nothing has to be found in the middle; heapq in C with
integer keys is 5 to 10 times faster than an indexed heap in Python.

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

IsAlive = Callable[[int, int], bool]
"""Asked with (major, job_id): does this entry still stand for a job here?"""


class LazyHeap:
    """
    Job ids ordered by (major, id).

    :ivar count: how many are alive.
    """

    __slots__ = ("_heap", "_is_alive", "count")

    def __init__(self, is_alive: IsAlive) -> None:
        self.count = 0
        self._heap: list[int] = []
        self._is_alive = is_alive

    def add(self, major: int, job_id: int) -> None:
        """
        A job enters.
        """
        self.count += 1
        heappush(self._heap, major << 64 | job_id)

    def discard(self) -> None:
        """
        A job has left; `is_alive` already says so.
        """
        self.count -= 1
        if len(self._heap) > 2 * self.count + SPARE_DEAD:
            self._rebuild()

    def first(self) -> int | None:
        """
        The key of the first job that is alive.
        """
        return _first_alive(self._heap, self._is_alive)

    def _rebuild(self) -> None:
        self._heap = _only_alive(self._heap, self._is_alive)


class ReadyQueue:
    """
    The ready jobs of a tube, ordered by (priority, id).

    Jobs that come with ascending ids, as new ones do, wait in one lane for each priority; released
    jobs and rarer priorities go to a heap.

    :ivar count: how many are alive.
    """

    __slots__ = ("_heap", "_is_alive", "_lanes", "count")

    def __init__(self, is_alive: IsAlive) -> None:
        self.count = 0
        self._lanes: dict[int, deque[int]] = {}
        self._heap: list[int] = []
        self._is_alive = is_alive

    def add(self, priority: int, job_id: int) -> None:
        """
        A job enters.
        """
        self.count += 1
        lane = self._lanes.get(priority)
        if lane is None and len(self._lanes) < MAX_LANES:
            lane = self._lanes[priority] = deque()
        if lane is not None and (not lane or lane[-1] < job_id):
            lane.append(job_id)
        else:
            heappush(self._heap, priority << 64 | job_id)

    def discard(self) -> None:
        """
        A job has left; `is_alive` already says so.
        """
        self.count -= 1
        entries = len(self._heap) + sum(map(len, self._lanes.values()))
        if entries > 2 * self.count + SPARE_DEAD:
            self._rebuild()

    def first(self) -> int | None:
        """
        The key of the first job that is alive.
        """
        if not self.count:
            return None
        best = _first_alive(self._heap, self._is_alive)
        for priority in list(self._lanes):
            if best is None or priority << 64 < best:
                job_id = self._first_of_lane(priority)
                if job_id is not None:
                    key = priority << 64 | job_id
                    best = key if best is None else min(best, key)
        return best

    def _first_of_lane(self, priority: int) -> int | None:
        lane = self._lanes[priority]
        while lane:
            if self._is_alive(priority, lane[0]):
                return lane[0]
            lane.popleft()
        del self._lanes[priority]
        return None

    def _rebuild(self) -> None:
        for priority, lane in list(self._lanes.items()):
            alive = deque(job_id for job_id in lane if self._is_alive(priority, job_id))
            if alive:
                self._lanes[priority] = alive
            else:
                del self._lanes[priority]
        self._heap = _only_alive(self._heap, self._is_alive)


def _first_alive(heap: list[int], is_alive: IsAlive) -> int | None:
    """
    The first key that is alive; dead ones before it are dropped.
    """
    while heap:
        key = heap[0]
        if is_alive(key >> 64, key & ID_MASK):
            return key
        heappop(heap)
    return None


def _only_alive(heap: list[int], is_alive: IsAlive) -> list[int]:
    """
    A new heap of the keys that are alive, each once.
    """
    alive = list({key for key in heap if is_alive(key >> 64, key & ID_MASK)})
    heapify(alive)
    return alive
