"""A reactor whose time the test passes, for what hears from other threads."""

from collections.abc import Callable

from twisted.internet.task import Clock


class SimulatedReactor(Clock):
    """A `Clock` that can be called from threads, of which there are none."""

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        """See `IReactorFromThreads.callFromThread`."""
        self.callLater(0, callable, *args)

    def now_ns(self) -> int:
        """Its time."""
        return round(self.seconds() * 1e9)

    def pass_s(self, seconds: float, step_s: float = 0.05) -> None:
        """Pass time in steps, and in each all turns that are due."""
        for _ in range(max(1, round(seconds / step_s))):
            self.advance(step_s)
            self.settle()

    def settle(self) -> None:
        """Do all that is due now."""
        for _ in range(10_000):
            due = [call for call in self.getDelayedCalls() if call.getTime() <= self.seconds()]
            if not due:
                return
            self.advance(0)
        raise AssertionError("turns without an end")
