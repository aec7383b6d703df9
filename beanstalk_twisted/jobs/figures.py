"""What is counted of jobs: how long they wait and run, where the living ones are, their memory."""

from bisect import bisect_left
from typing import Final

from beanstalk_twisted.binlog.records.jobs import RECORD_BYTES
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import NS

MS: Final = 1_000_000

S: Final = NS

BOUNDS_NS: Final = (
    1 * MS, 10 * MS, 100 * MS, 500 * MS, 1 * S, 5 * S, 15 * S, 60 * S, 300 * S, 900 * S, 3600 * S,
    21_600 * S, 86_400 * S,
)  # fmt: skip
"""From what a quick worker takes to what nobody would wait for; each costs a series for a tube."""

Home = tuple[int, int]
"""A segment's living jobs: how many, and the bytes of their full records."""

EMPTY: Final = (0, 0)

RESTING_JOB_BYTES: Final = 140
"""What a resting job takes of memory beside its body, its place in its tube's queue included, and
that its body is an object.  This and what follows was measured (CPython 3.11;
tests/jobs/figures/test_memory_use.py compares it).
"""

BODY_OBJECT_BYTES: Final = 30
"""What a body takes of that, which is not in memory."""

HOT_JOB_BYTES: Final = 512
"""What a `Job` takes; 400 to 500, and 380 where this is compiled."""

HELD_BYTES: Final = HOT_JOB_BYTES - RESTING_JOB_BYTES
"""How much more a job takes as a `Job`."""

TAGS_BYTES: Final = 100
"""What tags take beside the job, with `TAG_BYTES` for each byte that they take in the log."""

TAG_BYTES: Final = 8
"""A key of 19 bytes is kept twice, with entries of two to four dictionaries."""

TUBE_BYTES: Final = 950
"""What a tube takes of memory beside its jobs; measured as the others."""

WATCH_BYTES: Final = 300
"""The same of a tube that a session watches beside its first, with what it takes when that
reserves: 100 to be watched, and of many, or by weights, 200 more to be found.
"""

WAITERS_BYTES: Final = 700
"""The same of a tube's queue of sessions that wait, which stays when it is empty."""

KEY_BYTES: Final = 600
"""The same of a unique key of 20 bytes that is remembered."""

USUAL_NS: Final = 1 * NS
"""What a job is taken to take as long as too few have been measured."""

MIN_SAMPLES: Final = 10
"""So many jobs are measured before their mean says anything (Tuber, FAIR_MIN_SAMPLES)."""

SMOOTHING: Final = 10
"""The newest job counts for a tenth of the mean (Tuber, EWMA_ALPHA)."""

MIN_NS: Final = NS // 100
"""A job counts for no less (Tuber, FAIR_EWMA_FLOOR): otherwise a tube of very quick jobs would have
nearly all turns.
"""

MAX_NS: Final = 3600 * NS
"""A job counts for no more, so that a tube waits for a known number of other tubes' jobs."""


class Histogram:
    """How many values were at most each bound.

    :ivar bounds: ascending; a value beyond the last is counted too.
    :ivar counts: of the values up to each bound that are above the one before it; one more than
        there are bounds.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def note(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class TubeTimes:
    """What was measured of a tube's jobs.

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


class LiveBytes:
    """Living jobs by the segment of their newest full record.

    :ivar live_bytes: what the log would take if it held nothing but the living jobs.
    """

    def __init__(self) -> None:
        self.live_bytes = 0
        self._segments: dict[int, Home] = {}

    def of(self, segment: int) -> Home:
        return self._segments.get(segment, EMPTY)

    def enter(self, segment: int, body_bytes: int, count: int = 1) -> None:
        """The newest full record of a job is in this segment; of so many, with all their bodies."""
        if segment:
            size = RECORD_BYTES * count + body_bytes
            self.live_bytes += size
            known, total = self._segments.get(segment, EMPTY)
            self._segments[segment] = (known + count, total + size)

    def leave(self, segment: int, body_bytes: int) -> None:
        if segment:
            size = RECORD_BYTES + body_bytes
            self.live_bytes -= size
            count, total = self._segments[segment]
            if count > 1:
                self._segments[segment] = (count - 1, total - size)
            else:
                del self._segments[segment]


def tags_memory_bytes(tags: Tags | None) -> int:
    return 0 if tags is None else TAGS_BYTES + TAG_BYTES * tags.encoded_bytes


def data_memory_bytes(body_bytes: int, tags: Tags | None) -> int:
    """What a job takes of memory beside itself.

    :param body_bytes: of its body, as far as that is in memory.
    """
    return body_bytes + tags_memory_bytes(tags)


class ProcessingTime:
    """The mean time from a reservation of a tube's jobs to their deletion, newer ones counting
    more.

    Differs from Tuber: there, all jobs are measured; here, those of a tube from which a connection
    has reserved by time, from then on.
    """

    __slots__ = ("_mean_ns", "_samples")

    def __init__(self) -> None:
        self._mean_ns = self._samples = 0

    def note(self, elapsed_ns: int) -> None:
        elapsed_ns = min(max(MIN_NS, elapsed_ns), MAX_NS)
        if self._samples:
            self._mean_ns += (elapsed_ns - self._mean_ns) // SMOOTHING
        else:
            self._mean_ns = elapsed_ns
        self._samples += 1

    def expected_ns(self) -> int:
        """How long the next job is taken to take: `MIN_NS` to `MAX_NS`."""
        return self._mean_ns if self._samples >= MIN_SAMPLES else USUAL_NS
