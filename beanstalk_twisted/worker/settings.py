"""The settings of a worker, checked when it is made and not when the first job comes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isclass, iscoroutinefunction, signature
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.methods import watch_only
from beanstalk_twisted.client.commands.tags import check_seconds, check_whole
from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.handlers import PoolThreads, Threads
from beanstalk_twisted.worker.hooks import Hooks
from beanstalk_twisted.worker.policy import Policy, Retry
from beanstalk_twisted.worker.serialisers import Bytes, Serialiser

T = TypeVar("T")

Tube = str | bytes

Handler = Callable[[Attempt[T]], Any]
"""What does jobs: a function, one that gives a Deferred or an asyncio future, or a coroutine's."""

Reply = Callable[[Attempt[Any], Any, BaseException | None], Deferred[Any]]

FIFO: Final = "fifo"
"""The mode of a new connection: the best job of all tubes."""

MAX_CONCURRENCY: Final = 1000
"""Jobs at once: each is at least one timer and a function that waits."""

STUCK_S: Final = 1.0
"""From the end of the limit until a handler that has not ended is given up, seconds: one that can
be cancelled ends immediately, and all that waits for the job waits for this too.
"""


BYTES: Final[Serialiser[Any]] = Bytes()
RETRY: Final[Policy] = Retry()


class Route:
    """Chooses the work of each job; given to `service.Worker` in place of a handler."""

    def work_for(self, attempt: Attempt[Any]) -> "Work[Any]":
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Work(Route, Generic[T]):
    """How jobs of one kind, or all jobs, are done; arguments of `service.Worker`.

    :ivar in_threads: whether the handler runs in the worker's threads, or in the reactor's.
    :ivar reply: called after the last attempt, before the server is told of the job's end, with
        the result or the error.
    """

    handler: Handler[T]
    serialiser: Serialiser[T] = BYTES
    policy: Policy = RETRY
    in_threads: bool = False
    touches: bool = True
    limit_s: float | None = None
    stuck_s: float = STUCK_S
    reply: Reply | None = None

    def __post_init__(self) -> None:
        """:raise ValueError: a number is out of its range.
        :raise TypeError: a part cannot be what it is given as.
        """
        if self.limit_s is not None:
            check_seconds("limit_s", self.limit_s, is_zero_allowed=False)
        check_seconds("stuck_s", self.stuck_s)
        _check_handler(self.handler)
        _has_methods("serialiser", self.serialiser, "Bytes() or Json()", ("load",))
        _has_methods("policy", self.policy, "Retry()", ("before", "after"))

    def work_for(self, attempt: Attempt[Any]) -> "Work[T]":
        return self


@dataclass(frozen=True)
class Settings:
    """Arguments of `service.Worker`.

    :ivar clock: the reactor, or a clock in its place.
    :ivar backoff: makes the retry policy of a connection; None for the client's own.
    :ivar threads: where handlers run; None if all run in the reactor's thread.
    """

    endpoint: str | IStreamClientEndpoint
    tubes: Sequence[Tube]
    weights: Mapping[Tube, int]
    mode: str
    route: Route
    concurrency: int
    connections: int
    hooks: Hooks
    logs: bool
    threads: Threads | None
    finish_s: float
    clock: Any
    grace_s: float
    backoff: Callable[[], Backoff] | None
    chance: Callable[[], float]
    token: str | None = None

    def __post_init__(self) -> None:
        """:raise ValueError: a number is out of its range, there is no tube, or one has a name that
            no tube can have.
        :raise TypeError: a part cannot be what it is given as.
        """
        check_whole("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        check_whole("connections", self.connections, 1, MAX_CONCURRENCY)
        check_seconds("finish_s", self.finish_s)
        if not self.tubes:
            raise ValueError("no tube to take jobs from")
        for tube in self.tubes:
            specs.WATCH.line((_name(tube),))
        self._check_weights()

    def _check_weights(self) -> None:
        specs.RESERVE_MODE.line((self.mode,))
        if self.weights and self.mode == FIFO:
            raise ValueError("weights count in the modes weighted and weighted-fair; choose one")
        tubes = {_name(tube) for tube in self.tubes}
        for tube, weight in self.weights.items():
            specs.WATCH_WEIGHTED.line((_name(tube), weight))
            if _name(tube) not in tubes:
                raise ValueError(f"there is a weight of {tube!r}, which is none of the tubes")

    def watch_tubes(self, client: Client) -> list[Deferred[Any]]:
        """Let a new connection reserve from the tubes alone, and as the mode says."""
        asked = watch_only(client, self.tubes)
        asked += [client.watch(tube, weight) for tube, weight in self.weights.items()]
        if self.mode != FIFO:
            asked.append(client.reserve_mode(self.mode))
        return asked

    def make_client(self, number: int, **callbacks: Any) -> Client:
        """Make the client of a connection; number 0 alone logs that the server is not there.

        It asks what the server knows at once: at a stop there is no time to.
        """
        return Client(
            self.endpoint, reactor=self.clock, grace_s=self.grace_s,
            backoff=None if self.backoff is None else self.backoff(),
            logs=self.logs and number == 0, token=self.token, probes=True, **callbacks,
        )  # fmt: skip


def _name(tube: Tube) -> bytes:
    return tube.encode() if isinstance(tube, str) else tube


def threads_of(wanted: bool | Threads, handler: object, reactor: Any) -> Threads | None:
    """:raise ValueError: a coroutine is to run in threads, or the reactor is none.
    :raise TypeError: it is neither true, false, nor threads.
    """
    if wanted is False or wanted is None:
        return None
    if iscoroutinefunction(handler):
        raise ValueError("a coroutine runs in the reactor's thread; leave out in_threads")
    if wanted is not True:
        _has_methods("in_threads", wanted, "True, False or InlineThreads()", ("run", "start"))
        return wanted
    if not hasattr(reactor, "callFromThread"):
        raise ValueError(
            f"in_threads=True needs a real reactor, which {type(reactor).__name__} is not: in a "
            "test on a clock, give in_threads=InlineThreads()"
        )
    return PoolThreads(reactor)


def _check_handler(handler: Callable[..., object]) -> None:
    """One whose signature Python does not know is taken as it is."""
    if not callable(handler):
        raise TypeError(f"handler is a function that is given an Attempt, not {handler!r}")
    try:
        taken = signature(handler)
    except (TypeError, ValueError):
        return
    try:
        taken.bind(object())
    except TypeError as problem:
        name = getattr(handler, "__qualname__", repr(handler))
        raise TypeError(
            f"handler is a function that is given an Attempt and nothing else, not {name}{taken}: "
            f"{problem}"
        ) from None


def _has_methods(name: str, given: object, example: str, methods: Sequence[str]) -> None:
    if isclass(given):
        raise TypeError(f"{name} is an object, such as {example}, not the class {given.__name__}")
    for method in methods:
        if not callable(getattr(given, method, None)):
            raise TypeError(f"{name} is {example}, or has {method}() as that has; not {given!r}")
