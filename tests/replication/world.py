"""Processes that share one time: each has a reactor of its own, which stands still while the
process does, and nothing of it happens when it has ended.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

STARTED_NS: Final = 1_700_000_000 * 10**9
"""The wall clock when a world begins."""

DISK_S: Final = (0.0, 0.0, 0.001, 0.01)
"""How long a piece of work takes the disk, one of these."""


class Call:
    """An `IDelayedCall`."""

    __slots__ = ("at_s", "call", "process")

    def __init__(self, process: Process, at_s: float, call: Callable[[], object]) -> None:
        self.process = process
        self.at_s = at_s
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Let it never come."""
        self.call = None

    def active(self) -> bool:
        """Whether it will come."""
        return self.call is not None

    def getTime(self) -> float:
        """When it comes."""
        return self.at_s


class World:
    """The time, and what is going to happen.

    :ivar now_s: seconds since it began.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._number = 0
        self._calls: list[tuple[float, int, Call]] = []

    def add(self, call: Call) -> None:
        """Let a call come at its time, behind all others of that time."""
        self._number += 1
        heappush(self._calls, (call.at_s, self._number, call))

    def go(self, seconds: float) -> None:
        """Pass time."""
        end_s = self.now_s + seconds
        calls = self._calls
        while calls and calls[0][0] <= end_s:
            at_s, _, call = heappop(calls)
            process, run = call.process, call.call
            if run is None or process.is_dead:
                continue
            if at_s > self.now_s:
                self.now_s = at_s
            if process.is_held:
                process.held.append(call)
                continue
            call.call = None
            try:
                run()
            except Exception:
                process.failures.append(Failure())
        self.now_s = max(self.now_s, end_s)


class Process:
    """What runs on one machine from a start to an end; it is its reactor.

    :ivar stalls: called when the process reads a clock or uses its disk: may let it stand still.
    :ivar failures: exceptions that calls of the reactor have raised.
    :ivar held: calls that have become due while it stands still.
    """

    def __init__(self, world: World, rate: float = 1.0, ahead_s: int = 0) -> None:
        """:param rate: how fast its monotonic clock runs.
        :param ahead_s: by how much its wall clock is wrong, seconds.
        """
        self.is_dead = False
        self.is_held = 0
        self.stalls: Callable[[], object] = _goes_on
        self.failures: list[Failure] = []
        self._world = world
        self._rate = rate
        self._ahead_s = ahead_s
        self.held: list[Call] = []

    def hold(self) -> None:
        """Stand still."""
        self.is_held += 1

    def go_on(self) -> None:
        """Do what has become due meanwhile, and what comes."""
        self.is_held -= 1
        if not self.is_held:
            held, self.held = self.held, []
            for call in held:
                self._world.add(call)

    # What a reactor does.

    def callLater(self, delay: float, callable: Callable[..., object], *args: Any) -> Any:
        """See `IReactorTime.callLater`."""
        run = partial(callable, *args) if args else callable
        call = Call(self, self._world.now_s + delay, run)
        self._world.add(call)
        return call

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        """See `IReactorFromThreads.callFromThread`."""
        self.callLater(0.0, callable, *args)

    def seconds(self) -> float:
        """See `IReactorTime.seconds`."""
        return self._world.now_s

    # Clocks.

    def monotonic_ns(self) -> int:
        """The clock of leases and of the log."""
        self.stalls()
        return int(self._world.now_s * self._rate * 1e9)

    def wall_ns(self) -> int:
        """The wall clock."""
        return STARTED_NS + int((self._world.now_s + self._ahead_s) * 1e9)


def _goes_on() -> None:
    """It does not stand still."""


class SlowIo:
    """A `WatchableIo` whose work takes time, one piece after the other."""

    def __init__(self, process: Process, draw: random.Random) -> None:
        self._process = process
        self._draw = draw
        self._todo: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()
        self._under_way = 0

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        """See `Io.run`."""
        result: Deferred[T] = Deferred()
        self._todo.append((work, result))
        self._under_way += 1
        if self._under_way == 1:
            self._process.callLater(self._draw.choice(DISK_S), self._do)
        return result

    run_brief = run

    def _do(self) -> None:
        work, result = self._todo.popleft()
        try:
            outcome: Any = work()
        except Exception:
            outcome = Failure()
        if self._process.is_dead or self._process.is_held:
            # It stood still, or has ended, in the middle of the work.
            self._process.callLater(0.0, self._tell, result, outcome)
        else:
            self._tell(result, outcome)

    def _tell(self, result: Deferred[Any], outcome: Any) -> None:
        self._under_way -= 1
        if self._todo:
            self._process.callLater(self._draw.choice(DISK_S), self._do)
        result.callback(outcome)

    @property
    def is_free(self) -> bool:
        """See `Io.is_free`."""
        return not self._under_way

    def call(self, work: Callable[[], T]) -> T:
        """See `Io.call`."""
        return work()

    def stop(self) -> None:
        """See `Io.stop`."""

    def watch(self, look: Callable[[], None], failed: Callable[[Failure], None]) -> None:
        """It never hangs."""
