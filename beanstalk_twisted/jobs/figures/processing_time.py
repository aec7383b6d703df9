"""How long a tube's jobs take."""

from typing import Final

NS: Final = 1_000_000_000

USUAL_NS: Final = 1 * NS
"""What a job is taken to take as long as too few have been measured."""

MIN_SAMPLES: Final = 10
"""So many jobs are measured before their mean says anything (Tuber, FAIR_MIN_SAMPLES)."""

SMOOTHING: Final = 10
"""The newest job counts for a tenth of the mean (Tuber, EWMA_ALPHA)."""

MIN_NS: Final = NS // 100
"""
A job counts for no less (Tuber, FAIR_EWMA_FLOOR): otherwise a tube of very quick jobs would have
nearly all turns.
"""

MAX_NS: Final = 3600 * NS
"""A job counts for no more, so that a tube waits for a known number of other tubes' jobs."""


class ProcessingTime:
    """
    The mean time from a reservation of a tube's jobs to their deletion, newer ones counting more.

    Differs from Tuber: there, all jobs are measured; here, those of a tube from which a connection
    has reserved by time, from then on.
    """

    __slots__ = ("_mean_ns", "_samples")

    def __init__(self) -> None:
        self._mean_ns = self._samples = 0

    def note(self, elapsed_ns: int) -> None:
        """A job has been deleted so long after its reservation."""
        elapsed_ns = min(max(MIN_NS, elapsed_ns), MAX_NS)
        if self._samples:
            self._mean_ns += (elapsed_ns - self._mean_ns) // SMOOTHING
        else:
            self._mean_ns = elapsed_ns
        self._samples += 1

    def expected_ns(self) -> int:
        """How long the next job is taken to take: `MIN_NS` to `MAX_NS`."""
        return self._mean_ns if self._samples >= MIN_SAMPLES else USUAL_NS
