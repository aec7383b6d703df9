"""
A tube: its jobs by state, the sessions that wait for them, and how many refer to it.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from beanstalk_twisted.binlog.records import State
from beanstalk_twisted.jobs.ordered import OrderedJobs

if TYPE_CHECKING:
    # By name, not as Protocols: what is compiled calls methods of a class of its own directly.
    from beanstalk_twisted.jobs.ready_index import ReadyIndex
    from beanstalk_twisted.jobs.session import Session

DEFAULT: Final = b"default"

URGENT_BELOW: Final = 1024
"""Ready jobs with a smaller priority count as urgent (protocol.txt, "stats")."""

SPARE_WAITERS: Final = 64
"""Entries of sessions that no longer wait that are never worth a rebuild."""


class Tube:
    """
    A tube.

    :ivar tube_id: number of its creation; its name in the log.
    :ivar reserved: how many of its jobs are reserved, ``urgent`` how many are urgent.
    :ivar pause_until_ns: when its pause ends, 0 if it is not paused; ``pause_s`` as asked for.
    :ivar using: how many sessions use it; ``watching`` and ``waiting`` likewise.
    :ivar defined_in: the newest log segment that says its name.
    :ivar place: its index in `TubeList`.
    :ivar listeners: indexes to tell, once, that its first job may have changed for the better.
    """

    __slots__ = (
        "buried", "defined_in", "delayed", "deletes", "listeners", "name", "pause_s",
        "pause_until_ns", "pauses", "place", "ready", "reserved", "total_jobs", "tube_id",
        "urgent", "using", "waiters", "waiting", "watching",
    )  # fmt: skip

    def __init__(self, tube_id: int, name: bytes) -> None:
        self.tube_id = tube_id
        self.name = name
        self.ready = OrderedJobs()
        self.delayed = OrderedJobs()
        self.buried = OrderedJobs()
        self.reserved = self.urgent = 0
        self.total_jobs = self.deletes = self.pauses = 0
        self.pause_s = self.pause_until_ns = 0
        self.using = self.watching = self.waiting = 0
        # Made when it is needed: an empty one takes as much memory as the rest of a tube.
        self.waiters: deque[tuple[Session, int]] | None = None
        self.defined_in = self.place = 0
        self.listeners: set[ReadyIndex] | None = None

    @property
    def job_count(self) -> int:
        """
        Its jobs in all states.
        """
        return self.ready.count + self.reserved + self.delayed.count + self.buried.count

    def queue(self, state: State) -> OrderedJobs:
        """
        Its ready, delayed or buried jobs.
        """
        if state is State.READY:
            return self.ready
        return self.delayed if state is State.DELAYED else self.buried

    @property
    def is_referred_to(self) -> bool:
        """
        Whether it goes on existing.
        """
        return bool(self.using or self.watching or self.job_count or self.name == DEFAULT)

    def first_open(self) -> int | None:
        """
        The key of its first ready job, if it hands out any.
        """
        return None if self.pause_until_ns else self.ready.first()

    def listen(self, who: "ReadyIndex") -> None:
        """
        Tell an index once when there may be a better first job.
        """
        if self.listeners is None:
            self.listeners = set()
        self.listeners.add(who)

    def unlisten(self, who: "ReadyIndex") -> None:
        """
        Do not tell an index.
        """
        if self.listeners is not None:
            self.listeners.discard(who)

    def tell(self) -> None:
        """
        Tell the listeners: there may be a better first job, or it may be handed out again.
        """
        listeners, self.listeners = self.listeners, None
        for who in listeners or ():
            who.note(self)

    def counts(self) -> dict[str, int]:
        """
        Its counters, for the log.
        """
        return {
            "total-jobs": self.total_jobs,
            "cmd-delete": self.deletes,
            "cmd-pause-tube": self.pauses,
        }

    def add_waiter(self, session: "Session") -> None:
        """
        Let ``session`` wait for a job of this tube, behind all others.
        """
        self.waiting += 1
        if self.waiters is None:
            self.waiters = deque()
        self.waiters.append((session, session.wait_serial))

    def drop_waiter(self) -> None:
        """
        Count one session less; it no longer says that it waits.
        """
        self.waiting -= 1
        if self.waiters is not None and len(self.waiters) > 2 * self.waiting + SPARE_WAITERS:
            alive = [entry for entry in self.waiters if entry[0].is_waiting_since(entry[1])]
            self.waiters = deque(alive)

    def first_waiter(self) -> "Session | None":
        """
        The session that has waited longest.

        Differs from beanstalkd: strictly first come, first served; its order is only nearly so.
        """
        while self.waiters:
            session, serial = self.waiters[0]
            if session.is_waiting_since(serial):
                return session
            self.waiters.popleft()
        return None


class TubeList:
    """
    All tubes, by name, by id and in the order that `list-tubes` shows.

    :ivar by_id: gives the tube with an id that there is.
    """

    def __init__(self) -> None:
        self._by_name: dict[bytes, Tube] = {}
        self._by_id: dict[int, Tube] = {}
        self.by_id = self._by_id.__getitem__
        self.in_order: list[Tube] = []
        self.next_tube_id = 1

    def __len__(self) -> int:
        return len(self.in_order)

    def find(self, name: bytes) -> Tube | None:
        """
        The tube of that name, if there is one.
        """
        return self._by_name.get(name)

    def has_id(self, tube_id: int) -> bool:
        """
        Whether a tube with that id is there.
        """
        return tube_id in self._by_id

    def is_defined(self, tube_id: int, segment: int) -> bool:
        """
        Whether that log segment says the tube's name.
        """
        tube = self._by_id.get(tube_id)
        return tube is not None and tube.defined_in == segment

    def clear(self) -> None:
        """
        Forget all tubes, before others are loaded.
        """
        self._by_name.clear()
        self._by_id.clear()
        self.in_order.clear()
        self.next_tube_id = 1

    def restore_order(self, first: Tube) -> None:
        """
        List the tubes as they were made, but one before all others.
        """
        self.in_order.sort(key=lambda tube: (tube is not first, tube.tube_id))
        for place, tube in enumerate(self.in_order):
            tube.place = place

    def get_or_make(self, name: bytes) -> Tube:
        """
        The tube of that name, made if need be.
        """
        tube = self._by_name.get(name)
        return tube if tube is not None else self.make(self._take_id(), name)

    def make(self, tube_id: int, name: bytes) -> Tube:
        """
        A new tube with this id and name.
        """
        tube = self._by_name[name] = self._by_id[tube_id] = Tube(tube_id, name)
        tube.place = len(self.in_order)
        self.in_order.append(tube)
        self.next_tube_id = max(self.next_tube_id, tube_id + 1)
        return tube

    def drop(self, tube: Tube) -> None:
        """
        Forget a tube.  The last one of the list takes its place, as in beanstalkd (ms.c).
        """
        del self._by_name[tube.name]
        del self._by_id[tube.tube_id]
        last = self.in_order.pop()
        if last is not tube:
            self.in_order[tube.place] = last
            last.place = tube.place

    def _take_id(self) -> int:
        """
        The next id; after 2**32 tubes the ids of those that are gone are used again.
        """
        if self.next_tube_id >= 1 << 32:
            self.next_tube_id = 1
        while self.next_tube_id in self._by_id:
            self.next_tube_id += 1
        return self.next_tube_id
