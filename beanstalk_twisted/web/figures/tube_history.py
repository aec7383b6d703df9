"""
The figures of the most active tubes over the last hour, in memory.

Each tube has a ring of numbers, allocated once; a row is written into all rings at the same time.
Which tubes are the most active is found out all the time, some tubes a second: so neither a row nor
the choice costs more with 10,000 tubes than with 1,000.
"""

from array import array
from collections.abc import Callable
from heapq import nlargest
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document
from beanstalk_twisted.web.figures.tube_figures import SLICE_TUBES, activity

KEPT_TUBES: Final = 100
"""Tubes with a history, as many as have metrics of their own by default; all take 1 MB."""

ROW_TICKS: Final = 20
"""Seconds from one row to the next: with `ROWS` an hour is kept."""

ROWS: Final = 180
"""Rows of a tube, on a plot of 400 to 700 pixels."""

FIELDS: Final = ("ready", "reserved", "delayed", "buried", "total_jobs", "deletes", "timeouts")
COUNTED: Final = FIELDS[-3:]
"""The fields that only grow."""

NUMBER_BYTES: Final = 8
MS_NS: Final = 1_000_000


class Ring:
    """
    The rows of one tube.

    :ivar first: the number of its first row.
    """

    __slots__ = ("first", "numbers")

    def __init__(self, first: int) -> None:
        self.first = first
        self.numbers = array("q", [0]) * (len(FIELDS) * ROWS)

    def write(self, row: int, tube: Tube) -> None:
        """Note a tube as it is, over the oldest row."""
        times = tube.times
        at = row % ROWS * len(FIELDS)
        self.numbers[at : at + len(FIELDS)] = array("q", (
            tube.ready_count, tube.reserved, tube.delayed.count, tube.buried.count,
            tube.total_jobs, tube.deletes, 0 if times is None else times.timeouts,
        ))  # fmt: skip

    def read(self, row: int) -> list[int]:
        """The figures of a row that is kept."""
        at = row % ROWS * len(FIELDS)
        return self.numbers[at : at + len(FIELDS)].tolist()


class TubeRings:
    """
    Chooses tubes, and keeps their rows.

    :ivar rows: how many rows were noted.
    """

    def __init__(self, state: QueueState) -> None:
        self.rows = 0
        self._state = state
        self._rings: dict[Tube, Ring] = {}
        self._times = array("q", [0]) * ROWS
        self._at = 0
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
        """
        :return: a tube's rows, oldest first, each with its time before the `FIELDS`; empty if it is
            not among the most active ones.
        """
        ring = self._rings.get(tube)
        if ring is None:
            return []
        first = max(ring.first, self.rows - ROWS)
        return [[self._times[row % ROWS], *ring.read(row)] for row in range(first, self.rows)]

    @property
    def kept_bytes(self) -> int:
        """What the rows take."""
        per_ring = NUMBER_BYTES * len(FIELDS) * ROWS
        return per_ring * len(self._rings) + NUMBER_BYTES * ROWS


class TubeHistory:
    """Keeps `TubeRings` while the endpoint is open, a `site.Part`, and shows them."""

    def __init__(
        self, state: QueueState, wall_ns: Callable[[], int], reactor: IReactorTime
    ) -> None:
        """:param wall_ns: the wall clock."""
        self.rings = TubeRings(state)
        self._state = state
        self._wall_ns = wall_ns
        self._ticks = 0
        self._ticking = LoopingCall(self._tick)
        self._ticking.clock = reactor

    def start(self) -> None:
        """Begin, a second from now: the ports are open before the log is."""
        self._ticking.start(1.0, now=False)

    def stop(self) -> None:
        """Keep no more."""
        if self._ticking.running:
            self._ticking.stop()

    def _tick(self) -> None:
        self.rings.look()
        self._ticks += 1
        if self._ticks % ROW_TICKS == 0:
            self.rings.note(self._wall_ns() // MS_NS)

    def history(self, call: Call) -> Document:
        """
        A tube's rows.

        :raise Refusal: there is no such tube.
        """
        tube = self._state.tubes.find(call.parameters["tube"].encode("ascii", "replace"))
        if tube is None:
            raise Refusal(404, "there is no such tube")
        about: dict[str, Any] = {
            "seconds": ROW_TICKS, "fields": ["at_ms", *FIELDS], "counted": COUNTED,
            "rows": self.rings.of(tube),
        }  # fmt: skip
        return json_document(about)
