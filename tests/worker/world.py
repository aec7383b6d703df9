"""Workers and a whole server in memory, on clocks that stand still."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.testing.double import MemoryLink
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.hooks import Event
from beanstalk_twisted.worker.service import Worker
from tests.client.world import World

TUBE = "work"


FACTS: dict[str, tuple[str, ...]] = {
    "failed": ("error",), "ended": ("verdict",), "lost": ("ending",), "stuck": ("stuck", "slots"),
    "unsettled": ("verdict", "error"), "troubled": ("error",),
}  # fmt: skip
"""What is noted of an event besides its job."""


class Noted:
    """A hook that keeps what it was called with."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.told if each[0] == name]

    def __call__(self, event: Event) -> None:
        if event.name == "raised":
            return  # Nothing is known of the job yet.
        about: list[Any] = [] if event.attempt is None else [event.attempt.id]
        if event.losses is not None:
            about.append(event.losses.reservations)
        about += [getattr(event, fact) for fact in FACTS.get(event.name, ())]
        self.told.append((event.name, *about))


class Slow:
    """Does jobs as slowly as a test wants.

    :ivar begun: the attempts, in their order.
    :ivar waiting: what each waits for.
    :ivar cancelled: those that were cancelled.
    """

    def __init__(self) -> None:
        self.begun: list[Attempt[Any]] = []
        self.waiting: dict[int, Deferred[Any]] = {}
        self.cancelled: list[int] = []

    def __call__(self, attempt: Attempt[Any]) -> Deferred[Any]:
        self.begun.append(attempt)
        waiting: Deferred[Any] = Deferred(lambda given_up: self.cancelled.append(attempt.id))
        self.waiting[attempt.id] = waiting
        return waiting

    def finish(self, job: int, result: Any = None) -> None:
        self.waiting.pop(job).callback(result)

    def fail(self, job: int, error: Exception) -> None:
        self.waiting.pop(job).errback(error)


class Stubborn:
    """Does jobs as slowly as a test wants, and heeds no cancelling.

    :ivar begun: the attempts, in their order.
    :ivar waiting: what each of them waits for that hangs.
    :ivar cancelled: the numbers of the attempts that were cancelled.
    """

    def __init__(self, hanging: bytes = b"") -> None:
        """:param hanging: how the bodies of jobs begin that hang."""
        self.begun: list[Attempt[Any]] = []
        self.waiting: list[Deferred[Any]] = []
        self.cancelled: list[int] = []
        self._hanging = hanging

    async def __call__(self, attempt: Attempt[Any]) -> Any:
        self.begun.append(attempt)
        if not attempt.body.startswith(self._hanging):
            return None
        self.waiting.append(Deferred())
        place = len(self.waiting) - 1
        while True:
            try:
                return await self.waiting[place]
            except CancelledError:
                self.cancelled.append(attempt.number)
                self.waiting[place] = Deferred()

    @property
    def bodies(self) -> list[bytes]:
        return [attempt.body for attempt in self.begun]


@implementer(IStreamClientEndpoint)
class Door:
    """The endpoint of the workers.

    :ivar links: the connections that they have made.
    """

    def __init__(self, world: World) -> None:
        self.links: list[MemoryLink] = []
        self._world = world

    def connect(self, factory: Any) -> Deferred[Any]:
        before = len(self._world.links)
        connected: Deferred[Any] = self._world.endpoint.connect(factory)
        self.links += cast(list[MemoryLink], self._world.links[before:])
        return connected


class Shop:
    """A server, somebody who puts jobs, and workers.

    :ivar links: the workers' connections, in the order in which they were made.

    :ivar noted: what the workers' hooks were told.
    """

    def __init__(self, **options: Any) -> None:
        self.world = World(**options)
        self.noted = Noted()
        self._door = Door(self.world)
        self.links = self._door.links
        self.producer: Client = self.world.client()
        self.world.result(self.producer.use(TUBE))

    def worker(self, doer: Any, concurrency: int = 1, **options: Any) -> Worker[Any]:
        chosen: dict[str, Any] = {
            "hooks": [self.noted], "chance": lambda: 0.0, "backoff": lambda: Backoff(lambda: 1.0),
            "tubes": TUBE,
        } | options  # fmt: skip
        tubes = chosen.pop("tubes")
        worker: Worker[Any] = Worker(
            cast(Any, self._door), tubes, doer, concurrency, reactor=self.world.clock, **chosen
        )
        worker.startService()
        self.world.settle()
        return worker

    def put(self, body: bytes = b"x", **options: Any) -> int:
        return int(self.world.result(self.producer.put(body, **options)))

    def stats(self, job: int) -> JobStats:
        return self.world.result(self.producer.stats_job(job))

    def jobs(self) -> dict[str, int]:
        """Count the jobs of all tubes by their states; what is 0 is left out."""
        stats = self.world.result(self.producer.stats())
        states = ("ready", "reserved", "delayed", "buried")
        counts = {state: int(cast(Any, stats[f"current-jobs-{state}"])) for state in states}
        return {state: count for state, count in counts.items() if count}

    def commands(self, name: str) -> int:
        return int(cast(Any, self.world.result(self.producer.stats())[f"cmd-{name}"]))
