"""A tube: its jobs by state, the sessions that wait for them, and how many refer to it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.jobs.figures import ProcessingTime, TubeTimes
from beanstalk_twisted.jobs.ordered import ID_MASK, OrderedJobs
from beanstalk_twisted.jobs.policy import Limiter, Policy, TubeTotals
from beanstalk_twisted.jobs.quota import Quota

DEFAULT: Final = b"default"

URGENT_BELOW: Final = 1024
"""Ready jobs with a smaller priority count as urgent (protocol.txt, "stats")."""

NO_JOBS: Final = OrderedJobs()
"""Of all who have no parked jobs, and never changed."""

NO_RULES: Final[Mapping[str, str]] = MappingProxyType({})

SPARE_WAITERS: Final = 64
"""Entries of sessions that no longer wait that are never worth a rebuild."""

MANY_TUBES: Final = 256
"""A session that watches more has an index: looking at so many takes about 20 us, which a put that
has to tell hundreds of such sessions would cost too.
"""

SPARE_OLD: Final = 64
"""Entries that no longer hold that are never worth a rebuild."""

TRIES: Final = 32
"""Old entries at the top of the heap, and one more for as many tubes, after which all tubes are
looked at: 10,000 that have closed together take 5 ms so, and 30 one by one.
"""


class TubeIndex:
    """Finds the ready job that a session is to reserve, of the tubes that it watches."""

    __slots__ = ("_changed",)

    def __init__(self, tubes: "Iterable[Tube]") -> None:
        self._changed = set(tubes)

    def watch(self, tube: "Tube") -> None:
        raise NotImplementedError

    def ignore(self, tube: "Tube") -> None:
        raise NotImplementedError

    def note(self, tube: "Tube") -> None:
        """A tube may have a better first job, or may hand it out again."""
        self._changed.add(tube)

    def first(self) -> int | None:
        """The key of the job to reserve."""
        raise NotImplementedError


class Waiter:
    """What a tube knows of a session.

    :ivar is_waiting: whether a `reserve` of it is unanswered.
    :ivar wait_serial: tells this wait from earlier ones.
    """

    __slots__ = ("is_waiting", "wait_serial")

    def __init__(self) -> None:
        self.is_waiting = False
        self.wait_serial = 0

    def is_waiting_since(self, serial: int) -> bool:
        return self.is_waiting and self.wait_serial == serial


class Tube:
    """A tube.

    :ivar tube_id: number of its creation; its name in the log.
    :ivar ready: its ready jobs that may be handed out; ``parked`` those that may not: see
        `ConcurrencyKeys`.
    :ivar reserved: how many of its jobs are reserved, ``urgent`` how many are urgent.
    :ivar pause_until_ns: when its pause ends, 0 if it is not paused; ``pause_s`` as asked for.
    :ivar using: how many sessions use it; ``watching`` and ``waiting`` likewise.
    :ivar defined_in: the newest log segment that says its name.
    :ivar place: its index in `TubeList`.
    :ivar rules: its policy as commands have set it; the file's is not among them.
    :ivar policy: what holds of both, None for nothing; ``limiter`` and ``totals`` are there if the
        policy needs them.
    :ivar is_closed: whether it hands out no job now: it is paused, or its limiter shut.
    :ivar keys: how many unique keys are taken; ``remembered`` how many of them by deleted jobs.
    :ivar listeners: indexes to tell, once, that its first job may have changed for the better.
    :ivar processing_time: how long its jobs take, if a reserve by time wants to know.
    :ivar quotas: of those whose tube it is, None for nobody.
    :ivar until_look: how many jobs are taken until it is time to read ahead.
    """

    __slots__ = (
        "body_bytes", "buried", "defined_in", "delayed", "deletes", "is_closed", "keys", "limiter",
        "listeners", "name", "parked", "pause_s", "pause_until_ns", "pauses", "place", "policy",
        "processing_time", "quotas", "ready", "remembered", "reserved", "rules", "times",
        "total_jobs", "totals", "tube_id", "until_look", "urgent", "using", "waiters", "waiting",
        "watching",
    )  # fmt: skip

    def __init__(self, tube_id: int, name: bytes) -> None:
        self.tube_id = tube_id
        self.name = name
        self.ready = OrderedJobs()
        self.parked = NO_JOBS
        self.delayed = OrderedJobs()
        self.buried = OrderedJobs()
        self.body_bytes = self.reserved = self.urgent = 0
        self.total_jobs = self.deletes = self.pauses = 0
        self.pause_s = self.pause_until_ns = self.keys = self.remembered = 0
        self.rules: Mapping[str, str] = NO_RULES
        self.policy: Policy | None = None
        self.limiter: Limiter | None = None
        self.totals: TubeTotals | None = None
        self.is_closed = False
        self.using = self.watching = self.waiting = 0
        # Made when it is needed: an empty one takes as much memory as the rest of a tube.
        self.waiters: deque[tuple[Waiter, int]] | None = None
        self.defined_in = self.place = self.until_look = 0
        self.listeners: set[TubeIndex] | None = None
        self.processing_time: ProcessingTime | None = None
        self.quotas: Sequence[Quota] | None = None
        self.times: TubeTimes | None = None

    @property
    def job_count(self) -> int:
        return self.ready_count + self.reserved + self.delayed.count + self.buried.count

    @property
    def ready_count(self) -> int:
        """Its ready jobs, parked ones too."""
        return self.ready.count + self.parked.count

    def count(self, jobs: int, body_bytes: int) -> None:
        self.body_bytes += body_bytes
        if self.quotas is not None:
            self.count_for_quotas(jobs, body_bytes)

    def count_for_quotas(self, jobs: int, body_bytes: int) -> None:
        for quota in self.quotas or ():
            quota.count(jobs, body_bytes)

    def count_keys_for_quotas(self, change: int) -> None:
        for quota in self.quotas or ():
            quota.keys += change

    def count_for(self, quotas: Sequence[Quota] | None) -> None:
        """It is the tube of these from now on; None: of nobody."""
        for change, each in ((-1, self.quotas), (1, quotas)):
            for quota in each or ():
                quota.count_tube(change, self.job_count, self.body_bytes, self.keys)
        self.quotas = quotas or None

    def queue(self, state: State) -> "OrderedJobs | ReadyJobs":
        if state is State.READY:
            return ReadyJobs(self)
        return self.delayed if state is State.DELAYED else self.buried

    @property
    def is_referred_to(self) -> bool:
        return bool(
            self.using or self.watching or self.job_count or self.is_kept or self.name == DEFAULT
        )

    @property
    def is_kept(self) -> bool:
        """Whether it has what outlives its jobs: a policy, or remembered keys."""
        return bool(self.rules or self.remembered)

    def first_open(self) -> int | None:
        """The key of its first ready job, if it hands out any."""
        return None if self.is_closed else self.ready.first()

    def set_closed(self, now_ns: int) -> None:
        """Find out whether it hands out jobs, and tell if it does again."""
        was_closed = self.is_closed
        # Asked in a pause too: else it would want to be asked again, at once.
        is_shut = self.limiter is not None and self.limiter.is_shut(self.reserved, now_ns)
        self.is_closed = is_shut or self.pause_until_ns > 0
        if was_closed and not self.is_closed:
            self.tell()

    def first_ready(self) -> int | None:
        """The key of its first ready job that may be handed out; if there is none, of the first."""
        return self.ready.first() if self.ready.count else self.parked.first()

    def show(self, key: int) -> None:
        if self.ready.add(key >> 64, key & ID_MASK) and self.listeners:
            self.tell()

    def hide(self, key: int) -> None:
        self.ready.discard(key >> 64, key & ID_MASK)

    def park(self, key: int) -> None:
        if self.parked is NO_JOBS:
            self.parked = OrderedJobs()
        self.parked.add(key >> 64, key & ID_MASK)

    def listen(self, who: TubeIndex) -> None:
        """Tell an index once when there may be a better first job."""
        if self.listeners is None:
            self.listeners = set()
        self.listeners.add(who)

    def unlisten(self, who: TubeIndex) -> None:
        if self.listeners is not None:
            self.listeners.discard(who)

    def tell(self) -> None:
        """Tell the listeners: there may be a better first job, or it may be handed out again."""
        listeners, self.listeners = self.listeners, None
        for who in listeners or ():
            who.note(self)

    def counts(self) -> dict[str, int]:
        return {
            "total-jobs": self.total_jobs, "cmd-delete": self.deletes,
            "cmd-pause-tube": self.pauses,
        }  # fmt: skip

    def add_waiter(self, session: Waiter) -> bool:
        """:return: whether the session is the first one ever; it waits behind all others."""
        self.waiting += 1
        is_first = self.waiters is None
        if self.waiters is None:
            self.waiters = deque()
        self.waiters.append((session, session.wait_serial))
        return is_first

    def drop_waiter(self) -> None:
        """Count one session less; it no longer says that it waits."""
        self.waiting -= 1
        if self.waiters is not None and len(self.waiters) > 2 * self.waiting + SPARE_WAITERS:
            alive = [entry for entry in self.waiters if entry[0].is_waiting_since(entry[1])]
            self.waiters = deque(alive)

    def first_waiter(self) -> Waiter | None:
        """The session that has waited longest.

        Differs from beanstalkd: strictly first come, first served; its order is only nearly so.
        """
        while self.waiters:
            session, serial = self.waiters[0]
            if session.is_waiting_since(serial):
                return session
            self.waiters.popleft()
        return None


class ReadyJobs:
    """All ready jobs of a tube in order, parked or not."""

    __slots__ = ("_tube",)

    def __init__(self, tube: Tube) -> None:
        self._tube = tube

    def last(self) -> int | None:
        last, parked = self._tube.ready.last(), self._tube.parked.last()
        return parked if last is None or (parked is not None and parked > last) else last

    def behind(self, key: int, most: int) -> list[int]:
        keys = self._tube.ready.behind(key, most)
        if self._tube.parked.count:
            keys = sorted(keys + self._tube.parked.behind(key, most))[:most]
        return keys


class TubeList:
    """All tubes, by name, by id and in the order that `list-tubes` shows.

    :ivar ids: the tubes by their ids; for reading only.  `by_id` gives one that is there.
    :ivar with_waiters: how many tubes sessions have waited for.
    :ivar made: called with each new tube.
    :ivar quotas_of: says whose tube one with a name is, before it is made; None: nobody's.
    """

    def __init__(self) -> None:
        self._by_name: dict[bytes, Tube] = {}
        self.ids: dict[int, Tube] = {}
        self.by_id = self.ids.__getitem__
        self.in_order: list[Tube] = []
        self.next_tube_id = 1
        self.with_waiters = 0
        self.made: Callable[[Tube], object] | None = None
        self.quotas_of: Callable[[bytes], Sequence[Quota]] | None = None

    def __len__(self) -> int:
        return len(self.in_order)

    def find(self, name: bytes) -> Tube | None:
        return self._by_name.get(name)

    def has_id(self, tube_id: int) -> bool:
        return tube_id in self.ids

    def is_defined(self, tube_id: int, segment: int) -> bool:
        tube = self.ids.get(tube_id)
        return tube is not None and tube.defined_in == segment

    def clear(self) -> None:
        for tube in self.in_order:
            tube.count_for(None)
        self.with_waiters = 0
        self._by_name.clear()
        self.ids.clear()
        self.in_order.clear()
        self.next_tube_id = 1

    def restore_order(self, first: Tube) -> None:
        """List the tubes as they were made, but one before all others."""
        self.in_order.sort(key=lambda tube: (tube is not first, tube.tube_id))
        for place, tube in enumerate(self.in_order):
            tube.place = place

    def get_or_make(self, name: bytes) -> Tube:
        tube = self._by_name.get(name)
        return tube if tube is not None else self.make(self._take_id(), name)

    def make(self, tube_id: int, name: bytes) -> Tube:
        tube = self._by_name[name] = self.ids[tube_id] = Tube(tube_id, name)
        tube.place = len(self.in_order)
        self.in_order.append(tube)
        if self.quotas_of is not None:
            tube.count_for(self.quotas_of(name))
        self.next_tube_id = max(self.next_tube_id, tube_id + 1)
        if self.made is not None:
            self.made(tube)
        return tube

    def drop(self, tube: Tube) -> None:
        """Forget a tube.  The last one of the list takes its place, as in beanstalkd (ms.c)."""
        del self._by_name[tube.name]
        del self.ids[tube.tube_id]
        self.with_waiters -= tube.waiters is not None
        if tube.quotas is not None:
            tube.count_for(None)
        last = self.in_order.pop()
        if last is not tube:
            self.in_order[tube.place] = last
            last.place = tube.place

    def _take_id(self) -> int:
        """The next id; after 2**32 tubes the ids of those that are gone are used again."""
        if self.next_tube_id >= 1 << 32:
            self.next_tube_id = 1
        while self.next_tube_id in self.ids:
            self.next_tube_id += 1
        return self.next_tube_id


class ReadyIndex(TubeIndex):
    """Watched tubes by their first ready jobs."""

    __slots__ = ("_heap", "_keys")

    def __init__(self, tubes: Iterable[Tube]) -> None:
        super().__init__(tubes)
        self._keys: dict[Tube, int] = {}
        self._heap: list[tuple[int, Tube]] = []

    def watch(self, tube: Tube) -> None:
        self._changed.add(tube)

    def ignore(self, tube: Tube) -> None:
        self._changed.discard(tube)
        self._keys.pop(tube, None)
        tube.unlisten(self)

    def first(self) -> int | None:
        if self._changed:
            self._take_up()
        tries = TRIES + len(self._keys) // TRIES
        while self._heap:
            # Entries of the same key are of the same tube, so tubes are never compared.
            key, tube = self._heap[0]
            tries -= 1
            if not tries:
                self._look_at_all()
                continue
            if self._keys.get(tube) != key:
                heappop(self._heap)
            elif tube.first_open() == key:
                return key
            else:
                heappop(self._heap)
                del self._keys[tube]
                self._enter(tube)
        return None

    def _look_at_all(self) -> None:
        """So many first jobs have gone that to look at all tubes is quicker than one by one."""
        firsts = [(tube.first_open(), tube) for tube in self._keys]
        self._keys = {tube: key for key, tube in firsts if key is not None}
        self._heap = [(key, tube) for tube, key in self._keys.items()]
        heapify(self._heap)

    def _take_up(self) -> None:
        changed, self._changed = self._changed, set()
        for tube in changed:
            tube.listen(self)
            self._enter(tube)
        if len(self._heap) > 2 * len(self._keys) + SPARE_OLD:
            self._heap = [(key, tube) for tube, key in self._keys.items()]
            heapify(self._heap)

    def _enter(self, tube: Tube) -> None:
        key = tube.first_open()
        if key is not None and self._keys.get(tube) != key:
            self._keys[tube] = key
            heappush(self._heap, (key, tube))
