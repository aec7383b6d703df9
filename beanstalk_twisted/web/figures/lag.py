"""How late the reactor calls: what every client waits for, beside the disk."""

from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from beanstalk_twisted.jobs.figures.histogram import Histogram

PERIOD_S: Final = 0.1
"""Seconds between two measurements: ten calls a second cost nothing that could be measured."""

MS: Final = 1_000_000

LAG_BOUNDS_NS: Final = tuple(
    ms * MS for ms in (1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 5000)
)  # fmt: skip


class ReactorLag:
    """
    Measures by how much a timer is late, all the time.

    :ivar lags: nanoseconds.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        self.lags = Histogram(LAG_BOUNDS_NS)
        self._reactor = reactor
        self._call: IDelayedCall | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._due_s = self._reactor.seconds() + PERIOD_S
        self._call = self._reactor.callLater(PERIOD_S, self._measure)

    def stop(self) -> None:
        """Measure no more."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _measure(self) -> None:
        late_s = self._reactor.seconds() - self._due_s
        self.lags.note(max(0, round(late_s * 1e9)))
        self.start()
