"""
Priority queues that anything can leave.

Leaving is lazy: an entry stays until it comes to the top or until most entries are dead, and then
some are looked through each time that a job leaves.  Whether one is alive is asked of the owner, so
nothing has to be found in the middle; heapq in C with integer keys is 5 to 10 times faster than an
indexed heap in Python.  Those that stand dead right behind the first go when it does, all in one
go: no more than there are living ones, 0.4 µs each in a row or lane and 2 in a heap.

Most queues are used first in, first out.  So entries that come in order wait in a row, without a
heap; the first key is remembered until it leaves; and as long as there are no more entries than
jobs, all are alive and nobody is asked.  A turn of `add`, `first` and `discard` then takes 0.5 us
instead of 1.05.

A key is ``major << 64 | job_id``: jobs with equal major come in order of their ids.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

ID_MASK: Final = (1 << 64) - 1

MAX_LANES: Final = 16
"""Priorities of a tube that have a lane of their own: few tubes use more (docs/architecture.md)."""

SPARE_DEAD: Final = 1024
"""Dead entries that are never worth a sweep."""

SWEPT_AT_ONCE: Final = 1024
"""Entries that are asked about in one go when most are dead: 0.5 ms, 1 ms in a heap."""

FEW: Final = 64
"""So many jobs, and an eighth of a heap, are pushed on it one by one; it is made anew for more."""

NOT_KNOWN: Final = -1
"""In place of the first key: it has to be looked for."""

IsAlive = Callable[[int, int], bool]
"""Asked with (major, job_id): does this entry still stand for a job here?"""


class Sweep:
    """
    Dropping the dead of a queue, piece by piece: all 200,000 at once would take 50 to 200 ms.

    :ivar old: what is still to be looked at of the heap; a heap too.
    :ivar lanes: those that are still to be looked at, the last one from ``at`` on.
    """

    __slots__ = ("_seen", "at", "lanes", "old")

    def __init__(self, old: list[int], lanes: list[int]) -> None:
        self.old = old
        self.lanes = lanes
        self.at = 0
        self._seen: set[int] = set()

    def sift(self, heap: list[int], is_alive: IsAlive) -> int:
        """
        Move some of the old entries that are alive into ``heap``, each once.

        :return: how many were dropped.
        """
        # The last ones are leaves: without them it is still a heap.
        entries = self.old[-SWEPT_AT_ONCE:]
        del self.old[-SWEPT_AT_ONCE:]
        dropped = 0
        for key in entries:
            if key not in self._seen and is_alive(key >> 64, key & ID_MASK):
                self._seen.add(key)
                heappush(heap, key)
            else:
                dropped += 1
        if not self.old:
            self._seen.clear()
        return dropped


class LazyHeap:
    """
    Job ids ordered by (major, id).

    Entries that come in order, as those of equal delays and TTRs do, wait in ``_run`` from ``_at``
    on; the others in a heap.

    :ivar count: how many are alive.
    """

    __slots__ = ("_at", "_first", "_heap", "_is_alive", "_run", "_sweep", "count")

    def __init__(self, is_alive: IsAlive) -> None:
        self.count = 0
        self._first = NOT_KNOWN
        self._run: list[int] = []
        self._at = 0
        self._heap: list[int] = []
        self._sweep: Sweep | None = None
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
            self._sweep = None
            return
        if major << 64 | job_id == self._first:
            self._first = NOT_KNOWN
            self._take(major << 64 | job_id)
            return
        entries = len(self._run) - self._at + len(self._heap)
        if entries > 2 * self.count + SPARE_DEAD or self._sweep is not None:
            self._drop_some()

    def first(self) -> int | None:
        """
        The key of the first job that is alive.
        """
        if not self.count:
            return None
        if self._first == NOT_KNOWN:
            if self._sweep is not None or len(self._run) - self._at + len(self._heap) != self.count:
                self._drop_dead()
            self._first = self._top()
        return self._first

    def firsts(self, most: int) -> list[int]:
        """
        The keys of the first jobs, in order, for `discard_firsts`: at least one, if there is one.

        :param most: how many are wanted, at least 1.
        """
        if not self.count:
            return []
        self._end_sweep()
        if self._heap:
            self._line_up(most)
        if len(self._run) - self._at + len(self._heap) == self.count:
            return self._run[self._at : self._at + most]
        return self._living_firsts(most)

    def discard_firsts(self, taken: int) -> None:
        """
        All jobs have left that `firsts` gave, so many, and nothing has changed since.
        """
        self.count -= taken
        self._first = NOT_KNOWN
        if not self.count:
            self._run.clear()
            self._heap.clear()
            self._at = 0
            return
        self._run[self._at : self._at + taken] = [0] * taken
        self._at += taken
        self._cut()

    def _line_up(self, most: int) -> None:
        """
        So many entries, if there are, are the least of all and stand in the row.
        """
        run, heap, at = self._run, self._heap, self._at
        most = min(most, len(heap) + len(run) - at)
        last = at + most - 1
        taken: list[int] = []
        while heap and len(taken) < most and (last >= len(run) or heap[0] < run[last]):
            taken.append(heappop(heap))
        if taken:
            end = min(last + 1, len(run))
            run[at:end] = sorted(taken + run[at:end])

    def _living_firsts(self, most: int) -> list[int]:
        """
        The same where some entries are dead: those that stand in the way are dropped.
        """
        while True:
            end = self._at + most
            entries = self._run[self._at : end]
            # One that left and came back may stand there twice.
            alive = [key for key in dict.fromkeys(entries)
                     if self._is_alive(key >> 64, key & ID_MASK)]  # fmt: skip
            if alive:
                self._run[self._at : end] = alive
                return alive
            del self._run[self._at : end]
            self._line_up(most)

    def _top(self) -> int:
        run, heap = self._run, self._heap
        if self._sweep is not None and self._sweep.old:
            # Whichever of the two has the least.
            heap = self._sweep.old if not heap else min(heap, self._sweep.old)
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
            _pop(key, self._heap, self._sweep)
            return
        run[self._at] = 0
        self._at += 1
        self._cut()

    def _cut(self) -> None:
        """
        Forget the places in the row that are used up, now and then.
        """
        run = self._run
        if self._at == len(run):
            run.clear()
            self._at = 0
        elif self._at > SPARE_DEAD and 2 * self._at > len(run):
            del run[: self._at]
            self._at = 0

    def _drop_dead(self) -> None:
        while not self._is_alive((key := self._top()) >> 64, key & ID_MASK):
            self._take(key)

    def _drop_some(self) -> None:
        """
        Drop what is dead among some entries; the next ones' turn comes when the next job leaves.
        """
        sweep = self._sweep
        if sweep is None:
            sweep = self._sweep = Sweep(self._heap, [])
            self._heap = []
        entries = len(self._run) - self._at + len(self._heap) + len(sweep.old)
        if entries <= 2 * self.count + SPARE_DEAD:
            return
        if sweep.old:
            sweep.sift(self._heap, self._is_alive)
            return
        start = self._at + sweep.at
        some = self._run[start : start + SWEPT_AT_ONCE]
        alive = [key for key in some if self._is_alive(key >> 64, key & ID_MASK)]
        self._run[start : start + SWEPT_AT_ONCE] = alive
        sweep.at += len(alive)
        self._cut()
        if not some:
            self._sweep = None

    def _end_sweep(self) -> None:
        """
        Leave the rest to a later one.
        """
        if self._sweep is not None and self._sweep.old:
            self._heap += self._sweep.old
            heapify(self._heap)
        self._sweep = None


class ReadyQueue:
    """
    The ready jobs of a tube, ordered by (priority, id).

    Jobs that come with ascending ids, as new ones do, wait in one lane for each priority; released
    jobs and rarer priorities go to a heap.

    :ivar count: how many are alive.
    """

    __slots__ = ("_entries", "_first", "_heap", "_is_alive", "_lanes", "_sweep", "count")

    def __init__(self, is_alive: IsAlive) -> None:
        self.count = 0
        self._entries = 0
        self._first = NOT_KNOWN
        self._lanes: dict[int, deque[int]] = {}
        self._heap: list[int] = []
        self._sweep: Sweep | None = None
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

    def add_all(self, priority: int, job_ids: list[int]) -> bool:
        """
        Jobs enter, all of one priority: a tenth of the time of one by one.

        :param job_ids: at least one, each once, ascending.
        :return: whether one of them may be the first now.
        """
        was_empty = not self.count
        self.count += len(job_ids)
        self._entries += len(job_ids)
        lane = self._lanes.get(priority)
        major = priority << 64
        if lane is not None:
            fitting = bisect_right(job_ids, lane[-1])
            lane.extend(job_ids[fitting:])
            self._push(major, job_ids[:fitting])
        elif len(self._lanes) < MAX_LANES:
            self._lanes[priority] = deque(job_ids)
        else:
            self._push(major, job_ids)
        if major | job_ids[0] < self._first or was_empty:
            self._first = major | job_ids[0]
            return True
        return self._first == NOT_KNOWN

    def add_before(self, priority: int, job_ids: list[int]) -> bool:
        """
        Jobs enter, if all come before those of their priority that are known.

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
        self.count += len(job_ids)
        self._entries += len(job_ids)
        self._first = NOT_KNOWN
        return True

    def _push(self, major: int, job_ids: list[int]) -> None:
        heap = self._heap
        if len(job_ids) < FEW + len(heap) // 8:
            for job_id in job_ids:
                heappush(heap, major | job_id)
        else:
            heap += [major | job_id for job_id in job_ids]
            heapify(heap)

    def discard(self, priority: int, job_id: int) -> None:
        """
        A job has left; `is_alive` already says so.
        """
        self.count -= 1
        if not self.count:
            self._entries = 0
            self._lanes.clear()
            self._heap.clear()
            self._sweep = None
        elif priority << 64 | job_id == self._first:
            self._first = NOT_KNOWN
            self._take(priority, job_id)
        elif self._entries > 2 * self.count + SPARE_DEAD:
            self._drop_some()

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
        heap = self._heap
        if self._sweep is not None and self._sweep.old:
            # Whichever of the two has the least.
            heap = self._sweep.old if not heap else min(heap, self._sweep.old)
        if not lanes:
            return heap[0]
        priority = next(iter(lanes)) if len(lanes) == 1 else min(lanes)
        key = priority << 64 | lanes[priority][0]
        return min(key, heap[0]) if heap else key

    def _take(self, priority: int, job_id: int) -> None:
        """
        Take an entry away that is on top.
        """
        self._entries -= 1
        lane = self._lanes.get(priority)
        if lane is None or lane[0] != job_id:
            _pop(priority << 64 | job_id, self._heap, self._sweep)
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

    def _drop_some(self) -> None:
        """
        Drop what is dead among some entries; the next ones' turn comes when the next job leaves.
        """
        sweep = self._sweep
        if sweep is None:
            sweep = self._sweep = Sweep(self._heap, list(self._lanes))
            self._heap = []
        if sweep.old:
            self._entries -= sweep.sift(self._heap, self._is_alive)
        elif sweep.lanes:
            self._sweep_lane(sweep, sweep.lanes[-1])
        else:
            self._sweep = None

    def _sweep_lane(self, sweep: Sweep, priority: int) -> None:
        lane = self._lanes.get(priority)
        if lane is None or sweep.at >= len(lane):
            sweep.lanes.pop()
            sweep.at = 0
            return
        # Turned so that these entries are in front, and back again: memory is moved, no more.
        lane.rotate(-sweep.at)
        entries = [lane.popleft() for _ in range(min(SWEPT_AT_ONCE, len(lane) - sweep.at))]
        alive = [job_id for job_id in entries if self._is_alive(priority, job_id)]
        lane.extend(alive)
        sweep.at += len(alive)
        lane.rotate(sweep.at)
        self._entries -= len(entries) - len(alive)
        if not lane:
            del self._lanes[priority]


def _pop(key: int, heap: list[int], sweep: Sweep | None) -> None:
    """
    Take an entry away that is on top of a heap, or of the part of it that is being swept.
    """
    if heap and heap[0] == key:
        heappop(heap)
    else:
        assert sweep is not None
        heappop(sweep.old)
