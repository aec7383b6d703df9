"""
Whose turn it is, of the watched tubes, when each has a weight.

Stride scheduling (Waldspurger and Weihl, 1995): each tube is due at a virtual time, the one that is
due first has its turn, and then is due a stride later, which is what its job costs divided by its
weight.  The virtual time is when the last turn was due.  A tube that has been empty or paused is
due now at the earliest: it has its next turn soon, and none of those that it has missed.

So of two tubes that always have jobs, with weights v and w, one that has had m turns and one that
has had n never differ by more than one turn of each: abs(m / v - n / w) <= 1 / v + 1 / w.

A tube begins at a point in its first stride that is spread over connections and tubes: otherwise
all connections would begin with the same tube, and one that reserves only once would never have
another.  Nothing is left to chance: the same commands in the same order have the same answers.

Differs from Tuber: there, each turn is drawn at random.

A turn costs O(log n) of n tubes.  An empty or paused tube leaves the queue when its turn has come,
and enters when it tells that it has jobs.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from beanstalk_twisted.jobs.figures.processing_time import USUAL_NS, ProcessingTime
from beanstalk_twisted.jobs.ready_index import SPARE_OLD
from beanstalk_twisted.jobs.tube import Tube, TubeIndex

MAX_U64: Final = (1 << 64) - 1

SPREAD_BITS: Final = 32


class Share:
    """
    One watched tube's part.

    :ivar number: tells shares that are due at the same time apart; the smaller one is first.
    :ivar due: in virtual nanoseconds.
    :ivar is_queued: whether it is in the queue, since its tube had jobs when last looked at.
    """

    __slots__ = ("due", "is_queued", "number", "tube", "weight")

    def __init__(self, tube: Tube, weight: int, number: int) -> None:
        self.tube = tube
        self.weight = weight
        self.number = number
        self.due = 0
        self.is_queued = False


class WeightedIndex(TubeIndex):
    """
    Watched tubes by the times of their turns.

    :ivar next_number: of the next share.
    """

    __slots__ = (
        "_changed", "_chosen", "_counts_time", "_now", "_queue", "_seed", "_shares", "next_number",
    )  # fmt: skip

    def __init__(
        self, tubes: Iterable[tuple[Tube, int]], *, counts_time: bool, seed: int, first_number: int
    ) -> None:
        """
        :param tubes: with their weights, 1 or more.
        :param counts_time: whether a job costs what the tube's jobs take, or all cost the same.
        :param seed: where tubes begin in their strides follows from it; less than 2**32.
        :param first_number: so many shares were made before with this seed.
        """
        self.next_number = first_number
        self._counts_time = counts_time
        self._seed = seed
        self._now = 0
        self._shares: dict[Tube, Share] = {}
        self._queue: list[tuple[int, int, Share]] = []
        self._changed: set[Tube] = set()
        # Whose turn it is; it counts as over when something else is done, unless `forgo` is called.
        self._chosen: Share | None = None
        for tube, weight in tubes:
            self._enter(tube, weight)

    def enter(self, tubes: Iterable[tuple[Tube, int]]) -> None:
        """These tubes are watched too, with these weights; have them tell when they have jobs."""
        self._end_turn()
        for tube, weight in tubes:
            self._enter(tube, weight)
        self._take_up()

    def close(self) -> None:
        """Let no tube tell any more."""
        for tube in self._shares:
            tube.unlisten(self)

    def watch(self, tube: Tube) -> None:
        """A tube is watched from now on, with weight 1."""
        self._end_turn()
        self._enter(tube, 1)

    def weigh(self, tube: Tube, weight: int) -> None:
        """
        Give a watched tube another weight: what is left of its stride shrinks or grows with it.
        """
        self._end_turn()
        old = self._shares[tube]
        share = self._share(tube, weight)
        share.due = self._now + max(0, old.due - self._now) * old.weight // weight
        if old.is_queued:
            old.is_queued = False
            share.is_queued = True
            heappush(self._queue, (share.due, share.number, share))
            self._tidy()

    def ignore(self, tube: Tube) -> None:
        """A tube is no longer watched."""
        self._end_turn()
        self._changed.discard(tube)
        share = self._shares.pop(tube)
        share.is_queued = False
        self._tidy()
        tube.unlisten(self)

    def note(self, tube: Tube) -> None:
        """A tube may have jobs to hand out again."""
        self._changed.add(tube)

    def first(self) -> int | None:
        """
        The key of the best job of the tube whose turn it is.  The turn is over when this is asked
        again, unless `forgo` was called.
        """
        self._end_turn()
        if self._changed:
            self._take_up()
        queue = self._queue
        while queue:
            share = queue[0][2]
            if share.is_queued:
                key = share.tube.first_open()
                if key is not None:
                    self._chosen = share
                    return key
                share.is_queued = False
                share.tube.listen(self)
            heappop(queue)
        return None

    def forgo(self) -> None:
        """The job that `first` has named is not reserved: it is still that tube's turn."""
        self._chosen = None

    def _enter(self, tube: Tube, weight: int) -> None:
        share = self._share(tube, weight)
        begins = self._stride(share) * spread(self._seed << 32 | share.number) >> SPREAD_BITS
        share.due = self._now + begins
        self._changed.add(tube)

    def _share(self, tube: Tube, weight: int) -> Share:
        share = self._shares[tube] = Share(tube, weight, self.next_number)
        self.next_number += 1
        return share

    def _stride(self, share: Share) -> int:
        times = share.tube.processing_time if self._counts_time else None
        return (USUAL_NS if times is None else times.expected_ns()) // share.weight

    def _end_turn(self) -> None:
        """The tube whose turn it was is due a stride later."""
        share, self._chosen = self._chosen, None
        if share is not None:
            if self._counts_time and share.tube.processing_time is None:
                share.tube.processing_time = ProcessingTime()
            assert self._queue[0][2] is share
            self._now = share.due
            share.due += self._stride(share)
            heapreplace(self._queue, (share.due, share.number, share))

    def _take_up(self) -> None:
        """Queue the changed tubes that have jobs, and have the others tell when they do."""
        changed, self._changed = self._changed, set()
        for tube in changed:
            share = self._shares[tube]
            if share.is_queued:
                continue
            if tube.first_open() is None:
                tube.listen(self)
                continue
            share.is_queued = True
            share.due = max(share.due, self._now)
            heappush(self._queue, (share.due, share.number, share))

    def _tidy(self) -> None:
        """Drop the entries of shares that are no more, if they are many."""
        if len(self._queue) > 2 * len(self._shares) + SPARE_OLD:
            self._queue = [entry for entry in self._queue if entry[2].is_queued]
            heapify(self._queue)


def spread(number: int) -> int:
    """
    Give one of the numbers below 2**32, all alike often, and differently for numbers next to each
    other (splitmix64 by Steele, Lea and Flood).
    """
    mixed = number * 0x9E3779B97F4A7C15 & MAX_U64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MAX_U64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MAX_U64
    return (mixed ^ mixed >> 31) >> 32
