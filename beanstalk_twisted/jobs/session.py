"""What the queue knows of one connection."""

from typing import Final

from beanstalk_twisted.jobs.limits.quota import Quota
from beanstalk_twisted.jobs.ordered import OrderedJobs
from beanstalk_twisted.jobs.ready_index import MANY_TUBES, ReadyIndex
from beanstalk_twisted.jobs.tube import Tube, TubeIndex
from beanstalk_twisted.jobs.weighted_index import WeightedIndex

FIFO: Final = b"fifo"
WEIGHTED: Final = b"weighted"
WEIGHTED_FAIR: Final = b"weighted-fair"


class Session:
    """
    One connection's place in the queue.

    :ivar number: from 1 in each run of the server.
    :ivar reserved: ids of the jobs it holds, in the order it got them, with their first deadlines.
    :ivar mode: how a tube is chosen of those that it watches: `FIFO`, `WEIGHTED` or
        `WEIGHTED_FAIR`.
    :ivar is_producer: whether it has put; ``is_worker`` whether it has reserved.
    :ivar is_waiting: whether a `reserve` of it is unanswered.
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
    :ivar wait_serial: tells this wait from earlier ones.
    """

    __slots__ = (
        "_deadlines", "_next_share", "_ready_index", "_weighted", "_weights", "awaited_id",
        "has_answer", "has_ended", "hears_deadlines", "is_busy", "is_doubtful", "is_half_closed",
        "is_producer", "is_waiting", "is_worker", "may_put_into", "may_reserve", "mode", "number",
        "quota", "reserved", "timeout_ns", "using", "wait_serial", "waits_from_ns", "wanted",
        "watching", "watching_order",
    )  # fmt: skip

    def __init__(self, number: int, default: Tube, *, hears_deadlines: bool = True) -> None:
        self.number = number
        self.hears_deadlines = hears_deadlines
        self.using = default
        self.watching_order = [default]
        self.watching = {default: 0}
        self.reserved: dict[int, int] = {}
        self.is_producer = self.is_worker = self.is_waiting = False
        self.is_busy = self.is_half_closed = self.has_answer = False
        self.may_put_into: Tube | None = None
        self.may_reserve = self.is_doubtful = False
        self.quota: Quota | None = None
        self.awaited_id = 0
        self.timeout_ns: int | None = None
        self.wait_serial = self.waits_from_ns = self.wanted = 0
        self.has_ended = False
        self._deadlines = OrderedJobs()
        self._ready_index: TubeIndex | None = None
        self.mode = FIFO
        # The same index if it is one of weights; weights, 1 for others; see `WeightedIndex`.
        self._weighted: WeightedIndex | None = None
        self._weights: dict[Tube, int] | None = None
        self._next_share = 0

    @property
    def is_blocked(self) -> bool:
        """Whether its next command has to wait."""
        return self.is_waiting or self.is_busy or self.has_answer

    def is_waiting_since(self, serial: int) -> bool:
        """Whether it waits, and it is this wait."""
        return self.is_waiting and self.wait_serial == serial

    def watch(self, tube: Tube) -> bool:
        """
        Watch a tube with weight 1.

        :return: whether it was not watched before.
        """
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
        """Give a watched tube a weight, 1 or more."""
        if self._weights is None:
            self._weights = {}
        if weight == self._weights.get(tube, 1):
            return
        self._weights[tube] = weight
        if self._weighted is not None:
            self._weighted.weigh(tube, weight)

    def choose_by(self, mode: bytes) -> None:
        """Choose the tube for a `reserve` like this from now on; see ``mode``."""
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
        """The watched tubes with their weights."""
        weights = self._weights or {}
        return [(tube, weights.get(tube, 1)) for tube in self.watching_order]

    def choose_with(self, mode: bytes, index: WeightedIndex | None) -> None:
        """
        Choose the tube for a `reserve` like this from now on.

        :param index: of all watched tubes; None for `FIFO`.
        """
        self.mode = mode
        if self._ready_index is not None:
            for tube in self.watching:
                tube.unlisten(self._ready_index)
        if self._weighted is not None:
            self._next_share = self._weighted.next_number
        self._ready_index = self._weighted = index

    def best_key(self) -> int | None:
        """
        The key of the job to reserve: the best ready job among the watched tubes that are not
        closed, or with weights the best of the tube whose turn it is.  Whoever does not reserve it
        calls `forgo`.
        """
        if self._ready_index is None and len(self.watching) > MANY_TUBES:
            self._ready_index = ReadyIndex(self.watching)
        if self._ready_index is not None:
            return self._ready_index.first()
        best = None
        for tube in self.watching:
            if tube.ready.count and not tube.is_closed:
                key = tube.ready.first()
                if best is None or (key is not None and key < best):
                    best = key
        return best

    def forgo(self) -> None:
        """The job of the last `best_key` is not reserved: it is still the same tube's turn."""
        if self._weighted is not None:
            self._weighted.forgo()

    def has_open_job(self) -> bool:
        """Whether there is a job to reserve."""
        key = self.best_key()
        self.forgo()
        return key is not None

    @property
    def reserving(self) -> int:
        """The jobs that it holds, and the one that it waits for."""
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
        """Hold a job until its deadline."""
        self.reserved[job_id] = deadline_ns
        if self.quota is not None:
            self.quota.reserved += 1
        self._deadlines.add(deadline_ns, job_id)

    def hold_longer(self, job_id: int, old_ns: int, deadline_ns: int) -> None:
        """Move the deadline of a held job from ``old_ns``; the job keeps its place."""
        self._deadlines.discard(old_ns, job_id)
        self._deadlines.add(deadline_ns, job_id)

    def let_go(self, job_id: int, deadline_ns: int) -> None:
        """Hold a job no longer; its deadline was ``deadline_ns``."""
        del self.reserved[job_id]
        if self.quota is not None:
            self.quota.reserved -= 1
        self._deadlines.discard(deadline_ns, job_id)

    def first_deadline(self) -> tuple[int, int] | None:
        """The earliest deadline among its jobs, ns, and that job's id."""
        return self._deadlines.first_pair()
