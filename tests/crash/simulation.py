"""The real server on a simulated disk.

`Server` is the whole service with its protocol, committer and compactor, on a clock that stands
still until it is told to go on.  Its I/O thread does one piece of work when it is told to, and the
reactor hears of the outcome when it is told to: whatever may happen in between may happen here.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.reading.replay import Replay, read
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES
from beanstalk_twisted.server.execution_context import Methods, methods_of
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.compactor import Compactor
from beanstalk_twisted.storage.fsync import FsyncPolicy
from beanstalk_twisted.storage.io_thread import InlineIo, WatchableIo
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.commands import COUNTERS
from tests.binlog.memory import MemoryDirectory
from tests.crash.promises import Promises, WatchedQueue

T = TypeVar("T")

SEGMENT_BYTES: Final = MIN_SEGMENT_BYTES


class Parts(NamedTuple):
    """What a server is built of; each flaw that must be found replaces one.

    :ivar disk: what the server is given as its directory.
    :ivar read: how a start reads the log.
    :ivar compactor: keeps the log small.
    :ivar methods: what commands do, of those that a server has.
    :ivar fsync: the policy that is in force, if not the one that is promised.
    """

    disk: Callable[[MemoryDirectory], Directory] = lambda directory: directory
    read: Callable[[Directory, Progress], Replay] = read
    compactor: type[Compactor] = Compactor
    methods: Callable[[Methods], Methods] = lambda methods: methods
    fsync: FsyncPolicy | None = None


SOUND: Final = Parts()


class SteppedIo:
    """A `WatchableIo` of which each piece of work, and then the news of its outcome, waits until
    the test lets it happen; but for work that is to be done at once.

    :ivar heres: how many pieces were.
    """

    def __init__(self) -> None:
        self.heres = 0
        self._todo: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()
        self._done: deque[tuple[Any, Deferred[Any]]] = deque()

    @property
    def has_work(self) -> bool:
        """Whether a piece of work waits."""
        return bool(self._todo)

    @property
    def has_news(self) -> bool:
        """Whether an outcome waits to be told."""
        return bool(self._done)

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        result: Deferred[T] = Deferred()
        self._todo.append((work, result))
        return result

    @property
    def is_free(self) -> bool:
        return not (self.has_work or self.has_news)

    def call(self, work: Callable[[], T]) -> T:
        self.heres += 1
        return work()

    def stop(self) -> None:
        """See `Io.stop`."""

    def watch(self, look: Callable[[], None], failed: Callable[[Failure], None]) -> None:
        """No work is ever done in the thread that gave it."""

    def work(self) -> None:
        """Do the oldest piece of work."""
        work, result = self._todo.popleft()
        self._done.append((self._outcome(work), result))

    @staticmethod
    def _outcome(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception:
            return Failure()

    def tell(self) -> None:
        """Tell the oldest outcome."""
        outcome, result = self._done.popleft()
        result.callback(outcome)


class Server(MemoryServer):
    """A server, and the ones after it on the same disk.

    :ivar directory: the disk.
    :ivar thread: the I/O of the process that runs; ``reads`` that of bodies.
    """

    directory: MemoryDirectory

    def __init__(
        self, promises: Promises, parts: Parts, draw: random.Random, body_cache: int | None = None,
        verify: Verify = Verify.FULL,
    ) -> None:  # fmt: skip
        """:param draw: what chance is; logs are the same each time, byte for byte."""
        self.promises = promises
        self._parts = parts
        self._ios = 0
        self.reads = SteppedIo()
        super().__init__(
            directory=MemoryDirectory(), io=self._make_io, fsync=parts.fsync or promises.policy,
            segment_bytes=SEGMENT_BYTES, is_started=False, chance=draw.randbytes,
            body_cache=body_cache,
        )  # fmt: skip
        self.settings = self.settings._replace(verify=verify)

    def _make_io(self) -> WatchableIo:
        """The log's, then the one that reads bodies, then the one that checks them."""
        self._ios += 1
        if self._ios > 2:
            return InlineIo()
        io = SteppedIo()
        if self._ios == 1:
            self.thread = io
        else:
            self.reads = io
        return io

    def make_service(self, log_clock: LogClock) -> BeanstalkService:
        disk = self._parts.disk(self.directory)
        service = BeanstalkService(
            self.settings, self.clock, log_clock, disk, self.io, chance=self.chance
        )
        service.queue = service.context.queue = WatchedQueue(
            service.process.facts, COUNTERS, service.settings.max_job_bytes
        )  # fmt: skip
        service.queue.promises = self.promises
        service.context.methods = self._parts.methods(methods_of(service.queue))
        service.compactor = self._parts.compactor
        return service

    def start(self) -> None:
        self.failures.clear()
        self.reads, self._ios = SteppedIo(), 0
        self.promises.reader = LogBodyReader(self.directory)
        super().start()

    def now_s(self) -> float:
        """The reactor's time."""
        return self.clock.seconds()

    @property
    def is_idle(self) -> bool:
        """Whether the disk has nothing to do."""
        return not any(io.has_work or io.has_news for io in (self.thread, self.reads))
