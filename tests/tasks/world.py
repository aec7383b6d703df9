"""An app, its worker and a server in memory, on a clock that stands still."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.tasks import App
from beanstalk_twisted.tasks.app import TwistedTasks
from beanstalk_twisted.tasks.running import AppWorker
from beanstalk_twisted.testing import Beanstalk
from beanstalk_twisted.worker import InlineThreads
from tests.worker.world import Noted

NESTED: list[Any] = []
for _ in range(10_000):
    NESTED = [NESTED]


class Office:
    """:ivar noted: what the worker's hooks were called with."""

    def __init__(self, beanstalk: Beanstalk, **options: Any) -> None:
        self.beanstalk = beanstalk
        self.noted = Noted()
        self.app: App[TwistedTasks] = App(client="twisted", **options)
        self.app.connect(beanstalk.endpoint, reactor=beanstalk.clock)

    def start(self, **options: Any) -> AppWorker:
        worker = AppWorker(
            self.app, reactor=self.beanstalk.clock, in_threads=InlineThreads(), logs=False,
            hooks=[self.noted], chance=lambda: 1.0, backoff=lambda: Backoff(lambda: 1.0), **options,
        )  # fmt: skip
        worker.startService()
        self.beanstalk.settle()
        return worker

    def errors(self) -> list[str]:
        return [f"{type(error).__name__}: {error}" for _, error in self.noted.named("failed")]

    def result(self, waited: Deferred[Any]) -> Any:
        return self.beanstalk.result(waited)
