"""The figures of tubes for monitoring, gathered in slices: there may be very many."""

from array import array
from collections.abc import Callable, Container, Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from twisted.internet.interfaces import IReactorTime

from beanstalk_twisted.binlog.records.jobs import WITHHELD_NS
from beanstalk_twisted.jobs.figures import MS, TubeTimes
from beanstalk_twisted.jobs.ordered import ID_MASK
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules import statistics
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document
from beanstalk_twisted.web.site import Ticking
from beanstalk_twisted.wire.layouts import Values

SLICE_TUBES: Final = 500
"""Tubes that one slice looks at: about a millisecond."""

SHOWN_SLICE: Final = 50
"""Tubes that one slice describes: about a millisecond too."""

LOOK_PRIORITIES: Final = 16
"""Priorities among which the oldest ready job of a tube is looked for."""

NO_JOB: Final = ID_MASK
"""An id that no job has, above all others."""


KEPT_TUBES: Final = 100
"""Tubes with a history, as many as have metrics of their own by default; all take 1 MB."""

ROW_TICKS: Final = 20
"""Seconds from one row to the next: with `ROWS` an hour is kept."""

ROWS: Final = 180
"""Rows of a tube, on a plot of 400 to 700 pixels."""

FIELDS: Final = ("ready", "reserved", "delayed", "buried", "total_jobs", "deletes", "timeouts")
COUNTED: Final = FIELDS[-3:]
"""The fields that only grow."""


class TubeFigures(NamedTuple):
    """A tube as it was.

    :ivar stats: what `stats-tube` says.
    :ivar oldest_ns: how long ago its oldest ready job was put; 0 if there is none.
    :ivar next_delayed_ns: until its next delayed job is ready; None if none will be by itself.
    :ivar pause_ns: until its pause ends.
    """

    stats: Values
    pause_ns: int
    oldest_ns: int
    next_delayed_ns: int | None
    times: TubeTimes | None

    @property
    def name(self) -> str:
        return str(self.stats["name"])


class Rest(NamedTuple):
    """Sums over the tubes that are not shown one by one."""

    tubes: int = 0
    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0
    waiting: int = 0


class TubeSurvey:
    """One look at all tubes.

    :ivar shown: tubes in trouble, up to half of them, and the most active ones; by name.
    :ivar rest: sums over all others.
    :ivar unwatched: how many tubes have ready jobs and no connection that watches them.
    """

    def __init__(
        self, state: QueueState, now_ns: int, most: int, old: Container[Tube] = ()
    ) -> None:
        """:param most: how many tubes are shown one by one.
        :param old: tubes whose ready jobs wait too long.
        """
        self.shown: list[TubeFigures] = []
        self.rest = Rest()
        self.unwatched = 0
        self._state = state
        self._now_ns = now_ns
        self._most = most
        self._old = old
        self._all = list(state.tubes.in_order)

    def slices(self) -> Iterator[None]:
        """Look at all tubes, a slice a step."""
        active: list[tuple[int, int, Tube]] = []
        troubled: list[tuple[int, int, int, Tube]] = []
        most_troubled = -(-self._most // 2)
        for at in range(0, len(self._all), SLICE_TUBES):
            some = self._all[at : at + SLICE_TUBES]
            ranked = [(activity(tube), -tube.tube_id, tube) for tube in some]
            active = nlargest(self._most, active + ranked)
            levels = [(self._trouble(rank[2]), *rank) for rank in ranked]
            troubled = nlargest(most_troubled, troubled + [each for each in levels if each[0]])
            yield
        first = [*[each[3] for each in troubled], *[each[2] for each in active]]
        chosen = sorted(list(dict.fromkeys(first))[: self._most], key=lambda tube: tube.name)
        yield from self._sum_rest(set(chosen))
        for at in range(0, len(chosen), SHOWN_SLICE):
            some = chosen[at : at + SHOWN_SLICE]
            self.shown += [figures_of(tube, self._state, self._now_ns) for tube in some]
            yield

    def _trouble(self, tube: Tube) -> int:
        """Rank the trouble of a tube, and count it for the server.

        :return: 2 if its ready jobs have no worker or wait too long, 1 if jobs are buried, else 0.
        """
        buried = int(tube.buried.count > 0)
        if not tube.ready_count:
            return buried
        is_unwatched = not tube.watching
        self.unwatched += is_unwatched
        return 2 if is_unwatched or tube in self._old else buried

    def _sum_rest(self, shown: set[Tube]) -> Iterator[None]:
        sums = [0] * len(Rest._fields)
        for at in range(0, len(self._all), SLICE_TUBES):
            for tube in self._all[at : at + SLICE_TUBES]:
                if tube not in shown:
                    sums[0] += 1
                    sums[1] += tube.ready_count
                    sums[2] += tube.reserved
                    sums[3] += tube.delayed.count
                    sums[4] += tube.buried.count
                    sums[5] += tube.waiting
            yield
        self.rest = Rest(*sums)


def figures_of(tube: Tube, state: QueueState, now_ns: int) -> TubeFigures:
    pause_ns = max(0, tube.pause_until_ns - now_ns) if tube.pause_until_ns else 0
    return TubeFigures(
        statistics.tube(tube, now_ns), pause_ns, age_ns(oldest_ready_id(tube), state, now_ns),
        next_delayed_ns(tube, now_ns), tube.times,
    )  # fmt: skip


def activity(tube: Tube) -> int:
    """Return how busy a tube is and was: its jobs, and those that were put and deleted since the
    start.  It mostly grows, so the tubes that are shown mostly stay.
    """
    return tube.total_jobs + tube.deletes + tube.job_count


def oldest_ready_id(tube: Tube) -> int:
    """Find the oldest ready job of a tube; `NO_JOB` if there is none.

    Ids grow with time, and of each priority the job with the smallest id stands first: so a few
    looks are enough.  Of more than `LOOK_PRIORITIES` priorities the later ones are left out, unless
    there are no more jobs than that.
    """
    oldest = NO_JOB
    for queue in (tube.ready, tube.parked):
        if 1 < queue.count <= LOOK_PRIORITIES:
            oldest = min(oldest, *queue.first_ids(LOOK_PRIORITIES))
            continue
        key = queue.first()
        for _ in range(LOOK_PRIORITIES):
            if key is None:
                break
            oldest = min(oldest, key & ID_MASK)
            behind = queue.behind(key | ID_MASK, 1) if queue.count > 1 else None
            key = behind[0] if behind else None
    return oldest


def age_ns(job_id: int, state: QueueState, now_ns: int) -> int:
    """Return how long ago a job was put; 0 of `NO_JOB`, and of one that is gone."""
    job = state.jobs.look(job_id)
    return 0 if job is None else max(0, now_ns - job.created_ns)


def next_delayed_ns(tube: Tube, now_ns: int) -> int | None:
    """Return how long until the next delayed job is ready; None if none will be by itself."""
    key = tube.delayed.first()
    if key is None or key >> 64 >= WITHHELD_NS:
        return None
    return max(0, (key >> 64) - now_ns)


class Ring:
    """The rows of one tube.  :ivar first: the number of its first row."""

    __slots__ = ("first", "numbers")

    def __init__(self, first: int) -> None:
        self.first = first
        self.numbers = array("q", [0]) * (len(FIELDS) * ROWS)

    def write(self, row: int, tube: Tube) -> None:
        """Note a tube over the oldest row."""
        times = tube.times
        at = row % ROWS * len(FIELDS)
        self.numbers[at : at + len(FIELDS)] = array("q", (
            tube.ready_count, tube.reserved, tube.delayed.count, tube.buried.count,
            tube.total_jobs, tube.deletes, 0 if times is None else times.timeouts,
        ))  # fmt: skip

    def read(self, row: int) -> list[int]:
        at = row % ROWS * len(FIELDS)
        return self.numbers[at : at + len(FIELDS)].tolist()


class TubeHistory(Ticking):
    """Chooses tubes, and keeps and shows their rows, while the endpoint is open.

    :ivar rows: how many rows were noted.
    """

    def __init__(
        self, state: QueueState, wall_ns: Callable[[], int], reactor: IReactorTime
    ) -> None:
        """:param wall_ns: the wall clock."""
        super().__init__(reactor)
        self.rows = 0
        self._state = state
        self._wall_ns = wall_ns
        self._rings: dict[Tube, Ring] = {}
        self._times = array("q", [0]) * ROWS
        self._at = self._ticks = 0
        self._active: list[tuple[int, int, Tube]] = []

    def look(self) -> None:
        """Look at the next tubes; when all were looked at, those chosen are kept, and no others."""
        tubes = self._state.tubes.in_order
        some = tubes[self._at : self._at + SLICE_TUBES]
        ranked = [(activity(tube), -tube.tube_id, tube) for tube in some]
        self._active = nlargest(KEPT_TUBES, self._active + ranked)
        self._at += SLICE_TUBES
        if self._at >= len(tubes):
            chosen, self._active, self._at = self._active, [], 0
            rings = self._rings
            self._rings = {
                tube: rings[tube] if tube in rings else Ring(self.rows) for _, _, tube in chosen
            }

    def note(self, at_ms: int) -> None:
        """Write a row of each chosen tube."""
        self._times[self.rows % ROWS] = at_ms
        for tube, ring in self._rings.items():
            ring.write(self.rows, tube)
        self.rows += 1

    def of(self, tube: Tube) -> list[list[int]]:
        """Return a tube's rows, oldest first, each with its time before the `FIELDS`; empty if it
        is not among the most active ones.
        """
        ring = self._rings.get(tube)
        if ring is None:
            return []
        first = max(ring.first, self.rows - ROWS)
        return [[self._times[row % ROWS], *ring.read(row)] for row in range(first, self.rows)]

    @property
    def kept_bytes(self) -> int:
        """What the rows take."""
        rings = [ring.numbers for ring in self._rings.values()]
        return sum(len(each) * each.itemsize for each in (self._times, *rings))

    def _tick(self) -> None:
        self.look()
        self._ticks += 1
        if self._ticks % ROW_TICKS == 0:
            self.note(self._wall_ns() // MS)

    def get_tube_history(self, call: Call) -> Document:
        """:raise Refusal: there is no such tube."""
        tube = self._state.tubes.find(call.parameters["tube"].encode("ascii", "replace"))
        if tube is None:
            raise Refusal(404, "there is no such tube")
        return json_document({
            "seconds": ROW_TICKS, "fields": ["at_ms", *FIELDS], "counted": COUNTED,
            "rows": self.of(tube),
        })  # fmt: skip
