"""What one identity may take of a server, and takes: docs/access.md, "Limits"."""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

NS: Final = 1_000_000_000

NO_LIMIT: Final = 1 << 62
"""More than there can be of anything."""


class Limits(NamedTuple):
    """The most that an identity may take.

    :ivar jobs: that are in its tubes; ``bytes`` of their bodies; ``keys`` unique ones taken there.
    :ivar put_rate: new jobs in a second, and at once after a pause.
    :ivar tubes: that are there of its tubes.
    :ivar watched: tubes that its connections watch, each counted for each connection.
    :ivar reserved: jobs that its connections hold, and reserves of theirs that wait.
    """

    jobs: int = NO_LIMIT
    bytes: int = NO_LIMIT
    keys: int = NO_LIMIT
    put_rate: int = NO_LIMIT
    tubes: int = NO_LIMIT
    watched: int = NO_LIMIT
    connections: int = NO_LIMIT
    reserved: int = NO_LIMIT

    @property
    def are_of_tubes(self) -> bool:
        return min(self.jobs, self.bytes, self.keys, self.tubes) < NO_LIMIT


class Quota:
    """What an identity takes, and whether it may take more.  What it takes already when a limit is
    lowered stays.

    Jobs, bytes, keys and tubes are counted over the tubes of an identity, whoever has put or made
    them, as they come and go.  So they hold after a restart too, and no log has to say who has put
    a job.  All else is counted over its connections.

    :ivar jobs: in its tubes; ``body_bytes`` of their bodies; ``keys``, ``tubes``, ``watched``,
        ``connections`` and ``reserved`` as the limits that are called so.
    :ivar refusals: how often each limit was reached.
    :ivar tell: called with a session's number, the name of a limit and its value, when it has
        refused something of that session.
    """

    __slots__ = (
        "_content", "_filled_ns", "body_bytes", "connections", "jobs", "keys", "limits", "name",
        "refusals", "reserved", "tell", "tubes", "watched",
    )  # fmt: skip

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.jobs = self.body_bytes = self.keys = self.tubes = 0
        self.connections = self.watched = self.reserved = 0
        self.refusals: Counter[str] = Counter()
        self.tell: Callable[[int, str, int], None] = lambda number, limit, most: None
        # Of the bucket: jobs per second times nanoseconds, so that it is exact.
        self._content = limits.put_rate * NS
        self._filled_ns = 0

    @property
    def used(self) -> Limits:
        """What it takes now; of the rate nothing."""
        return Limits(
            self.jobs, self.body_bytes, self.keys, 0, self.tubes, self.watched, self.connections,
            self.reserved,
        )  # fmt: skip

    def change(self, limits: Limits) -> None:
        if limits.put_rate != self.limits.put_rate:
            self._content = limits.put_rate * NS
        self.limits = limits

    def refuses(self, number: int, limit: str) -> None:
        """:param limit: one of the fields of `Limits`, which has refused something of a session."""
        self.refusals[limit] += 1
        self.tell(number, limit, getattr(self.limits, limit))

    def count(self, jobs: int, body_bytes: int) -> None:
        self.jobs += jobs
        self.body_bytes += body_bytes

    def count_tube(self, change: int, jobs: int, body_bytes: int, keys: int) -> None:
        """A tube with so many jobs and keys becomes one of its tubes, or ceases to be one.

        :param change: 1 or -1.
        """
        self.tubes += change
        self.keys += change * keys
        self.count(change * jobs, change * body_bytes)

    def lacks(self, jobs: int, body_bytes: int, now_ns: int) -> str:
        """:param jobs: that are to be put now, perhaps none.
        :return: the limit that does not let them; empty if they may be put.
        """
        limits = self.limits
        if self.jobs + jobs > limits.jobs and jobs:
            return "jobs"
        if self.body_bytes + body_bytes > limits.bytes and body_bytes > 0:
            return "bytes"
        if limits.put_rate < NO_LIMIT and jobs:
            self._fill(now_ns)
            if self._content < jobs * NS:
                return "put_rate"
        return ""

    def spend(self, jobs: int) -> None:
        if self.limits.put_rate < NO_LIMIT:
            self._content -= jobs * NS

    def _fill(self, now_ns: int) -> None:
        rate = self.limits.put_rate
        if now_ns > self._filled_ns:
            more = (now_ns - self._filled_ns) * rate
            self._content = min(rate * NS, self._content + more)
            self._filled_ns = now_ns

    @property
    def room_to_reserve(self) -> int:
        """How many more jobs its connections may reserve; 0 or less for none."""
        return self.limits.reserved - self.reserved

    def connect(self, watched: int, reserved: int) -> None:
        self.connections += 1
        self.watched += watched
        self.reserved += reserved

    def disconnect(self, watched: int, reserved: int) -> None:
        self.connections -= 1
        self.watched -= watched
        self.reserved -= reserved
