"""The simulated world: one time, and one network to one stream, for machines whose processes have a
reactor of their own each, which stands still while the process does, and of which nothing happens
when it has ended.
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

from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import T0
from tests.replication.stream.memory import Fate, MemoryLog, MemoryStream

T = TypeVar("T")

DISK_S: Final = (0.0, 0.0, 0.001, 0.01)
"""How long a piece of work takes the disk, one of these."""


class Call:
    """An `IDelayedCall`."""

    __slots__ = ("at_s", "call", "process")

    def __init__(self, process: Process, at_s: float, call: Callable[[], object]) -> None:
        self.process = process
        self.at_s = at_s
        self.call: Callable[[], object] | None = call

    def __repr__(self) -> str:
        return f"<{self.call} at {self.at_s} s>"

    def cancel(self) -> None:
        self.call = None

    def active(self) -> bool:
        return self.call is not None

    def getTime(self) -> float:
        return self.at_s


class World:
    """The time, what is going to happen, and the network.

    :ivar now_s: seconds since it began.
    :ivar network: the process whose time is that of what is under way between machines.
    :ivar failures: exceptions that calls of the reactors have raised.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.failures: list[Failure] = []
        self.network = Process(self)
        self._number = 0
        self._calls: list[tuple[float, int, Call]] = []

    def add(self, call: Call) -> None:
        """Let a call come at its time, behind all others of that time."""
        self._number += 1
        heappush(self._calls, (call.at_s, self._number, call))

    def go(self, seconds: float) -> None:
        """Pass time; what is raised is kept."""
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
                if not process.is_dead:
                    self.failures.append(Failure())
        self.now_s = max(self.now_s, end_s)

    def pass_s(self, seconds: float) -> None:
        """Pass time, and raise what is raised meanwhile."""
        self.go(seconds)
        failures, self.failures = self.failures, []
        for failure in failures:
            failure.raiseException()

    def calls_of(self, process: Process | None) -> list[Call]:
        """What is going to happen in a process."""
        return [call for *_, call in self._calls if call.process is process and call.active()]


class Process:
    """What runs on one machine from a start to an end; it is its reactor.

    :ivar stalls: called when the process reads a clock or uses its disk: may let it stand still.
    :ivar held: calls that have become due while it stands still.
    """

    def __init__(self, world: World | None = None, rate: float = 1.0, ahead_s: int = 0) -> None:
        """:param world: None for one that has no other processes.
        :param rate: how fast its monotonic clock runs.
        :param ahead_s: by how much its wall clock is wrong, seconds.
        """
        self.is_dead = False
        self.is_held = 0
        self.stalls: Callable[[], object] = _goes_on
        self.ahead_s = ahead_s
        self.held: list[Call] = []
        self.world = World() if world is None else world
        self._rate = rate

    def hold(self) -> None:
        self.is_held += 1

    def go_on(self) -> None:
        """Do what has become due meanwhile, and what comes."""
        self.is_held -= 1
        if not self.is_held:
            held, self.held = self.held, []
            for call in held:
                self.world.add(call)

    def pass_s(self, seconds: float) -> None:
        self.world.pass_s(seconds)

    def settle(self) -> None:
        """Do all that is due now."""
        self.world.pass_s(0.0)

    # What a reactor does.

    def callLater(self, delay: float, callable: Callable[..., object], *args: Any) -> Any:
        run = partial(callable, *args) if args else callable
        call = Call(self, self.world.now_s + delay, run)
        self.world.add(call)
        return call

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        self.callLater(0.0, callable, *args)

    def seconds(self) -> float:
        return self.world.now_s

    def getDelayedCalls(self) -> list[Call]:
        return self.world.calls_of(self)

    # Clocks.

    def now_ns(self) -> int:
        """The monotonic clock: of leases and of the log."""
        self.stalls()
        return round(self.world.now_s * self._rate * 1e9)

    def wall_ns(self) -> int:
        """The wall clock, which begins at `T0`."""
        return T0 + round((self.world.now_s + self.ahead_s) * 1e9)


def _goes_on() -> None:
    """It does not stand still."""


class Machine:
    """A server's machine: its disk, its way to the stream, and the process that runs there, if one
    does.

    :ivar fate: what becomes of its requests.
    :ivar rate: of its monotonic clock; its wall clock is wrong by ``ahead_s``.
    :ivar stream: the door of its newest process.
    """

    process: Process | None = None

    def __init__(
        self, world: World, log: MemoryLog, name: str, directory: MemoryDirectory | None = None,
        ahead_s: int = 0,
    ) -> None:  # fmt: skip
        self.world = world
        self.log = log
        self.name = name
        self.directory = MemoryDirectory() if directory is None else directory
        self.rate = 1.0
        self.ahead_s = ahead_s
        self.fate: Callable[[str], Fate] = lambda kind: Fate()
        self.can_send = self.can_receive = True

    def begin(self) -> Process:
        self.process = process = Process(self.world, self.rate, self.ahead_s)
        self.stream = self.connected(process)
        self.stream.can_send, self.stream.can_receive = self.can_send, self.can_receive
        return process

    def connected(self, process: Process) -> MemoryStream:
        """Make a process's door to the stream."""
        return MemoryStream(self.log, self.world.network, lambda kind: self.fate(kind))

    def kill(
        self, power: Callable[[MemoryDirectory], MemoryDirectory] | None = None
    ) -> MemoryDirectory:  # fmt: skip
        """End the process, as ``kill -9`` does.

        :param power: what a power loss makes of the disk.
        :return: what is on the disk.
        """
        process, self.process = self.process, None
        if process is not None:
            process.is_dead = True
            # What it does before its call comes back is not seen.
            self.directory.fault = _dead
            left = self.directory.after_kill() if power is None else power(self.directory)
            left.space = self.directory.space
            self.directory = left
            self.stream.cut()
            self.stream.close()
        return self.directory

    def cut(self, sending: bool = True, receiving: bool = True) -> None:
        """Cut it off from the stream."""
        self.can_send, self.can_receive = not sending, not receiving
        if self.process is not None:
            self.stream.can_send, self.stream.can_receive = self.can_send, self.can_receive

    def mend(self) -> None:
        self.cut(False, False)
        if self.process is not None:
            self.stream.mend()


def _dead(operation: str, name: str) -> None:
    raise OSError(5, "the process has ended")


class SlowIo:
    """A `WatchableIo` whose work takes time, one piece after the other."""

    def __init__(self, process: Process, draw: random.Random) -> None:
        self._process = process
        self._draw = draw
        self._todo: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()
        self._under_way = 0

    def run(self, work: Callable[[], T]) -> Deferred[T]:
        result: Deferred[T] = Deferred()
        self._todo.append((work, result))
        self._under_way += 1
        if self._under_way == 1:
            self._process.callLater(self._draw.choice(DISK_S), self._do)
        return result

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
        return not self._under_way

    def call(self, work: Callable[[], T]) -> T:
        return work()

    def stop(self) -> None: ...

    def watch(self, look: Callable[[], None], failed: Callable[[Failure], None]) -> None:
        """It never hangs."""
