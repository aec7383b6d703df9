"""
How long jobs wait for a worker, and run, by tube and in all; and what happens to them, by tube.

Nothing is measured unless somebody wants to know: then a job that is put, reserved and deleted
costs 1 to 3 us more.
"""

from bisect import bisect_left
from typing import Final

from beanstalk_twisted.jobs.figures.histogram import Histogram
from beanstalk_twisted.jobs.tube import Tube

MS: Final = 1_000_000
S: Final = 1000 * MS

BOUNDS_NS: Final = (
    1 * MS, 10 * MS, 100 * MS, 500 * MS, 1 * S, 5 * S, 15 * S, 60 * S, 300 * S, 900 * S, 3600 * S,
    21_600 * S, 86_400 * S,
)  # fmt: skip
"""From what a quick worker takes to what nobody would wait for; each costs a series for a tube."""


class TubeTimes:
    """
    What was measured of a tube's jobs.

    :ivar waits: from the end of their delay to their first reservation; nanoseconds.
    :ivar runs: from the reservation to the deletion, of jobs that were reserved when deleted.
    :ivar reserves: how often one was reserved; ``releases``, ``buries`` and ``kicks`` likewise.
    :ivar timeouts: how often the TTR of one has ended.
    :ivar deaths: how many became dead letters.
    :ivar duplicates: how many were not put, since another has their unique key.
    :ivar refusals: how often its policy refused jobs.
    """

    __slots__ = (
        "buries", "deaths", "duplicates", "kicks", "refusals", "releases", "reserves", "runs",
        "timeouts", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waits = Histogram(BOUNDS_NS)
        self.runs = Histogram(BOUNDS_NS)
        self.reserves = self.releases = self.buries = self.kicks = self.timeouts = 0
        self.deaths = self.duplicates = self.refusals = 0


class JobTimes:
    """
    Measures the jobs of all tubes.

    :ivar total: of all jobs, those of tubes that are gone too.
    """

    def __init__(self) -> None:
        self.total = TubeTimes()

    def of(self, tube: Tube) -> TubeTimes:
        """What was measured of a tube, to be changed."""
        if tube.times is None:
            tube.times = TubeTimes()
        return tube.times

    def note_wait(self, tube: Tube, took_ns: int) -> None:
        """A job of a tube has been reserved for the first time."""
        # As `note_run`, and `Histogram.note` twice, without a call: this is on every job's way.
        times = tube.times
        if times is None:
            times = tube.times = TubeTimes()
        if took_ns < 0:
            took_ns = 0
        at = bisect_left(BOUNDS_NS, took_ns)
        times.reserves += 1
        waits = times.waits
        waits.counts[at] += 1
        waits.total += took_ns
        waits = self.total.waits
        waits.counts[at] += 1
        waits.total += took_ns

    def note_run(self, tube: Tube, took_ns: int) -> None:
        """A reserved job of a tube has been deleted."""
        times = tube.times
        if times is None:
            times = tube.times = TubeTimes()
        if took_ns < 0:
            took_ns = 0
        at = bisect_left(BOUNDS_NS, took_ns)
        runs = times.runs
        runs.counts[at] += 1
        runs.total += took_ns
        runs = self.total.runs
        runs.counts[at] += 1
        runs.total += took_ns
