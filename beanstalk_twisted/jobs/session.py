"""What the queue knows of one connection."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from beanstalk_twisted.jobs.figures import USUAL_NS, ProcessingTime
from beanstalk_twisted.jobs.ordered import ID_MASK, OrderedJobs
from beanstalk_twisted.jobs.quota import Quota
from beanstalk_twisted.jobs.tube import MANY_TUBES, SPARE_OLD, ReadyIndex, Tube, TubeIndex, Waiter

FEW_JOBS: Final = 16
"""A session that holds more keeps their deadlines in order: a look at so many takes 1 us."""

MAX_U64: Final = (1 << 64) - 1

SPREAD_BITS: Final = 32

FIFO: Final = b"fifo"

WEIGHTED: Final = b"weighted"

WEIGHTED_FAIR: Final = b"weighted-fair"


class Share:
    """One watched tube's part.

    :ivar number: of shares that are due at the same time the smallest one is first.
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
    """Watched tubes by the times of their turns."""

    __slots__ = (
        "_chosen", "_counts_time", "_now", "_queue", "_seed", "_shares", "next_number",
    )  # fmt: skip

    def __init__(
        self, tubes: Iterable[tuple[Tube, int]], *, counts_time: bool, seed: int, first_number: int
    ) -> None:
        """:param tubes: with their weights, 1 or more.
        :param counts_time: whether a job costs what the tube's jobs take, or all cost the same.
        :param seed: where tubes begin in their strides follows from it; less than 2**32.
        :param first_number: so many shares were made before with this seed.
        """
        super().__init__(())
        self.next_number = first_number
        self._counts_time = counts_time
        self._seed = seed
        self._now = 0
        self._shares: dict[Tube, Share] = {}
        self._queue: list[tuple[int, int, Share]] = []
        # Whose turn it is; it counts as over when something else is done, unless `forgo` is called.
        self._chosen: Share | None = None
        for tube, weight in tubes:
            self._enter(tube, weight)

    def enter(self, tubes: Iterable[tuple[Tube, int]]) -> None:
        """These tubes are watched too, with these weights."""
        self._end_turn()
        for tube, weight in tubes:
            self._enter(tube, weight)
        self._take_up()

    def close(self) -> None:
        for tube in self._shares:
            tube.unlisten(self)

    def watch(self, tube: Tube) -> None:
        self._end_turn()
        self._enter(tube, 1)

    def weigh(self, tube: Tube, weight: int) -> None:
        """Give a watched tube another weight: what is left of its stride changes with it."""
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
        self._end_turn()
        self._changed.discard(tube)
        share = self._shares.pop(tube)
        share.is_queued = False
        self._tidy()
        tube.unlisten(self)

    def first(self) -> int | None:
        """The key of the best job of the tube whose turn it is.  The turn is over when this is
        asked again, unless `forgo` was called.
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
        if len(self._queue) > 2 * len(self._shares) + SPARE_OLD:
            self._queue = [entry for entry in self._queue if entry[2].is_queued]
            heapify(self._queue)


def spread(number: int) -> int:
    """Give one of the numbers below 2**32, all alike often, and differently for numbers next to
    each other (splitmix64 by Steele, Lea and Flood).
    """
    mixed = number * 0x9E3779B97F4A7C15 & MAX_U64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MAX_U64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MAX_U64
    return (mixed ^ mixed >> 31) >> 32


class Session(Waiter):
    """One connection's place in the queue.

    :ivar number: from 1 in each run of the server.
    :ivar reserved: ids of the jobs it holds, in the order it got them, with their deadlines.
    :ivar mode: how a tube is chosen of those that it watches: `FIFO`, `WEIGHTED` or
        `WEIGHTED_FAIR`.
    :ivar is_producer: whether it has put; ``is_worker`` whether it has reserved.
    :ivar is_busy: whether a command of it is carried out in slices, or waits for room, or for the
        end of a job.
    :ivar awaited_id: the job whose end it waits for, 0 for none.
    :ivar has_answer: whether an answer for it is in `WorkQueue.outbox`; who delivers it says so.
    :ivar has_ended: whether its connection has ended; its jobs may still be given back, in slices.
    :ivar is_half_closed: whether the peer will send no more.
    :ivar hears_deadlines: whether its `reserve` ends when a TTR of its jobs is about to; otherwise
        it goes on waiting.
    :ivar timeout_ns: when its `reserve` or `wait-job` gives up, None for never.
    :ivar waits_from_ns: when its newest wait for a job, or for the end of one, began.
    :ivar may_put_into: where rights are asked for, the tube that it was last allowed to put into.
    :ivar may_reserve: likewise, whether it was allowed to reserve from all that it watches.
    :ivar is_doubtful: likewise, whether its rights have changed while it held jobs or waited for
        one.
    :ivar quota: what its identity may take; None for any amount.
    :ivar wanted: while it waits by `reserve-batch`, how many jobs it wants; otherwise 0.
    """

    __slots__ = (
        "_deadlines", "_firsts", "_next_share", "_ready_index", "_weighted", "_weights",
        "awaited_id", "has_answer", "has_ended", "hears_deadlines", "is_busy", "is_doubtful",
        "is_half_closed", "is_producer", "is_worker", "may_put_into", "may_reserve", "mode",
        "number", "quota", "reserved", "timeout_ns", "using", "waits_from_ns", "wanted", "watching",
        "watching_order",
    )  # fmt: skip

    def __init__(self, number: int, default: Tube, *, hears_deadlines: bool = True) -> None:
        super().__init__()
        self.number = number
        self.hears_deadlines = hears_deadlines
        self.using = default
        self.watching_order = [default]
        self.watching = {default: 0}
        self.reserved: dict[int, int] = {}
        self.is_producer = self.is_worker = False
        self.is_busy = self.is_half_closed = self.has_answer = False
        self.may_put_into: Tube | None = None
        self.may_reserve = self.is_doubtful = False
        self.quota: Quota | None = None
        self.awaited_id = 0
        self.timeout_ns: int | None = None
        self.waits_from_ns = self.wanted = 0
        self.has_ended = False
        # A heap of the deadlines of all its jobs, and of stale ones.  None while it holds few jobs:
        # to keep those in order takes longer than to look at all.
        self._deadlines: list[tuple[int, int]] | None = None
        # Of jobs with longer deadlines than at first, the first ones.
        self._firsts: dict[int, int] = {}
        self._ready_index: TubeIndex | None = None
        self.mode = FIFO
        # The same index if it is one of weights; weights, 1 for others; see `WeightedIndex`.
        self._weighted: WeightedIndex | None = None
        self._weights: dict[Tube, int] | None = None
        self._next_share = 0

    @property
    def is_blocked(self) -> bool:
        return self.is_waiting or self.is_busy or self.has_answer

    def watch(self, tube: Tube) -> bool:
        """:return: whether the tube was not watched before; its weight is 1 now."""
        if tube in self.watching:
            if self._weights is not None:
                self.weigh(tube, 1)
            return False
        if self.quota is not None:
            self.quota.watched += 1
        self.watching[tube] = len(self.watching_order)
        self.watching_order.append(tube)
        if self._ready_index is not None:
            self._ready_index.watch(tube)
        return True

    def ignore(self, tube: Tube) -> None:
        """Stop watching; the last tube of the list takes the place, as in beanstalkd (ms.c)."""
        if self._ready_index is not None:
            self._ready_index.ignore(tube)
        if self._weights is not None:
            self._weights.pop(tube, None)
        if self.quota is not None:
            self.quota.watched -= 1
        place = self.watching.pop(tube)
        last = self.watching_order.pop()
        if last is not tube:
            self.watching_order[place] = last
            self.watching[last] = place

    def weigh(self, tube: Tube, weight: int) -> None:
        if self._weights is None:
            self._weights = {}
        if weight == self._weights.get(tube, 1):
            return
        self._weights[tube] = weight
        if self._weighted is not None:
            self._weighted.weigh(tube, weight)

    def choose_by(self, mode: bytes) -> None:
        if mode == self.mode:
            return
        index = None
        if mode != FIFO:
            index = self.new_index(mode)
            index.enter(self.weighted_tubes())
        self.choose_with(mode, index)

    def new_index(self, mode: bytes) -> WeightedIndex:
        """An index for a mode of weights; the `weighted_tubes` are to enter it."""
        number = self._next_share if self._weighted is None else self._weighted.next_number
        return WeightedIndex(
            (), counts_time=mode == WEIGHTED_FAIR, seed=self.number, first_number=number
        )

    def weighted_tubes(self) -> list[tuple[Tube, int]]:
        weights = self._weights or {}
        return [(tube, weights.get(tube, 1)) for tube in self.watching_order]

    def choose_with(self, mode: bytes, index: WeightedIndex | None) -> None:
        """:param index: of all watched tubes; None for `FIFO`."""
        self.mode = mode
        if self._ready_index is not None:
            for tube in self.watching:
                tube.unlisten(self._ready_index)
        if self._weighted is not None:
            self._next_share = self._weighted.next_number
        self._ready_index = self._weighted = index

    def best_id(self) -> int | None:
        """The best ready job among the watched tubes that are open, with weights of the tube whose
        turn it is.  Whoever does not reserve it calls `forgo`.
        """
        if self._ready_index is None and len(self.watching_order) > MANY_TUBES:
            self._ready_index = ReadyIndex(self.watching)
        if self._ready_index is not None:
            key = self._ready_index.first()
            return None if key is None else key & ID_MASK
        best: OrderedJobs | None = None
        for tube in self.watching_order:
            ready = tube.ready
            if ready.count and not tube.is_closed and (best is None or ready.is_before(best)):
                best = ready
        return None if best is None else best.first_id()

    def forgo(self) -> None:
        """The job of the last `best_id` is not reserved: it is still the same tube's turn."""
        if self._weighted is not None:
            self._weighted.forgo()

    def has_open_job(self) -> bool:
        job_id = self.best_id()
        self.forgo()
        return job_id is not None

    @property
    def reserving(self) -> int:
        """How many jobs it holds, and waits for."""
        return len(self.reserved) + self.is_waiting

    def belong_to(self, quota: Quota | None) -> None:
        """What it takes counts for this identity from now on; None: for nobody."""
        if self.quota is not None:
            self.quota.disconnect(len(self.watching), self.reserving)
        if quota is not None:
            quota.connect(len(self.watching), self.reserving)
        self.quota = quota

    def stop_watching(self, tube: Tube) -> None:
        """Count one less in a watched tube, and do not hear of its jobs: the session ends."""
        tube.watching -= 1
        if self._ready_index is not None:
            self._ready_index.ignore(tube)

    def hold(self, job_id: int, deadline_ns: int) -> None:
        self.reserved[job_id] = deadline_ns
        if self.quota is not None:
            self.quota.reserved += 1
        if len(self.reserved) > FEW_JOBS or self._deadlines is not None:
            self._plan(job_id, deadline_ns)

    def hold_longer(self, job_id: int, deadline_ns: int) -> None:
        """Move the deadline of a held job; the job keeps its place."""
        old_ns = self.reserved[job_id]
        self._firsts.setdefault(job_id, old_ns)
        self.reserved[job_id] = deadline_ns
        if self._deadlines is not None:
            self._plan(job_id, deadline_ns)

    def _plan(self, job_id: int, deadline_ns: int) -> None:
        """Take up the newest deadline of a held job."""
        heap, count = self._deadlines, len(self.reserved)
        if heap is not None and len(heap) < 2 * count + SPARE_OLD:
            heappush(heap, (deadline_ns, job_id))
        elif count > FEW_JOBS:
            self._deadlines = [(each_ns, each) for each, each_ns in self.reserved.items()]
            heapify(self._deadlines)
        else:
            self._deadlines = None

    def let_go(self, job_id: int) -> None:
        del self.reserved[job_id]
        if self.quota is not None:
            self.quota.reserved -= 1
        if self._firsts:
            self._firsts.pop(job_id, None)
        if not self.reserved:
            self._deadlines = None

    def was_given_until(self, job_id: int) -> int:
        """:return: the first deadline of a job that it holds."""
        return self._firsts.get(job_id, self.reserved[job_id])

    def first_deadline(self) -> tuple[int, int] | None:
        """The earliest deadline among its jobs, ns, and that job's id."""
        heap = self._deadlines
        while heap:
            deadline_ns, job_id = heap[0]
            if self.reserved.get(job_id) == deadline_ns:
                return deadline_ns, job_id
            heappop(heap)
        if not self.reserved:
            return None
        return min(zip(self.reserved.values(), self.reserved, strict=True))
