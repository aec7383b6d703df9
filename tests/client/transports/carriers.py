"""Each transport of the client, as what runs a coroutine with a client of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.selectreactor import SelectReactor
from twisted.python.failure import Failure

from beanstalk_twisted.client import aio, sync
from beanstalk_twisted.client.service import Client

T = TypeVar("T")
Work = Callable[[Any], Coroutine[Any, Any, T]]
"""A conversation; the methods of its client are awaited, whichever it is."""


class There:
    """What can be awaited, and is there."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[None, None, Any]:
        return self.value
        yield


class Awaited:
    """A blocking client, whose methods are awaited."""

    def __init__(self, client: sync.Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: There(method(*args, **kwargs))


def over_sync(address: str, work: Work[T], **options: Any) -> T:
    with sync.Client(address, timeout_s=20, **options) as client:
        try:
            work(Awaited(client)).send(None)
        except StopIteration as end:
            found: T = end.value
            return found
    raise AssertionError("it waits for what is not the client's")


def over_twisted(address: str, work: Work[T], **options: Any) -> T:
    reactor: Any = SelectReactor()
    outcome: list[Any] = []

    async def run() -> T:
        client = Client(address, reactor=reactor, grace_s=20, **options)
        client.startService()
        try:
            await client.whenConnected(failAfterFailures=1)
            return await work(client)
        finally:
            await client.stopService()

    def end(result: Any) -> None:
        outcome.append(result)
        reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(run()).addBoth(end))
    reactor.run(installSignalHandlers=False)
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    found: T = outcome[0]
    return found


def over_aio(address: str, work: Work[T], **options: Any) -> T:
    async def run() -> T:
        async with aio.Client(address, timeout_s=20, **options) as client:
            return await work(client)

    return asyncio.run(run())


CARRIERS: dict[str, Callable[..., Any]] = {
    "sync": over_sync, "aio": over_aio, "twisted": over_twisted,
}  # fmt: skip
