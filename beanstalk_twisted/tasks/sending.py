"""The three clients as tasks use them: results at once, as awaitables, as Deferreds."""

import asyncio
import os
import threading
import time
from functools import partial
from typing import Any

from beanstalk_twisted.tasks.results import (
    OVER_S,
    Flow,
    Result,
    check_server,
    collect,
    collect_over,
    not_done,
)


def run(flow: Flow) -> Any:
    """Run a flow whose commands were carried out when they were called."""
    value = None
    while True:
        try:
            value = flow.send(value)
        except StopIteration as over:
            return over.value


async def run_async(flow: Flow) -> Any:
    """Run a flow whose commands can be awaited."""
    value, error = None, None
    while True:
        try:
            waited = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as over:
            return over.value
        value, error = None, None
        try:
            value = await waited
        except BaseException as problem:
            error = problem


class Sender:
    """Puts jobs with one kind of client, over connections that it keeps."""

    def __init__(self, options: dict[str, Any]) -> None:
        """:param options: of the client."""
        self._options = options
        self._kept: dict[Any, Any] = {}

    def put(self, server: Any, replies: str | None, body: bytes, **options: Any) -> Any:
        """Put a job; gives a `Result`, or what comes to one.

        :param replies: the tube of its result; None if none is wanted.
        :param options: of the client's `put`.
        """
        raise NotImplementedError

    def close(self) -> Any:
        """Close the connections of this thread, this loop, or this reactor."""
        raise NotImplementedError

    def _flow(self, server: Any, replies: str | None, body: bytes, **options: Any) -> Flow:
        clients = self._clients()
        if server not in clients:
            clients[server] = self._new(server)
        client = clients[server]
        if replies is not None:
            yield from check_server(client)
        job = yield client.put(body, **options)
        wait = partial(self._wait, server, [], replies, int(job)) if replies else None
        return Result(int(job), getattr(job, "is_new", True), wait)

    def _clients(self) -> dict[Any, Any]:
        """Give those that may be used here, by their servers."""
        return self._kept

    def _new(self, server: Any) -> Any:
        raise NotImplementedError

    def _wait(self, server: Any, *what: Any) -> Any:
        """Collect a result over a connection of its own."""
        raise NotImplementedError


class SyncSender(Sender):
    """Blocks; each thread has connections of its own, and so has each child of a fork."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._local = threading.local()

    def put(self, *job: Any, **options: Any) -> Any:
        return run(self._flow(*job, **options))

    def _wait(self, server: Any, *what: Any) -> Any:
        # One that connects again by itself would wait for all of the time once more.
        new = partial(self._new, server, reconnects=False)
        return run(collect_over(new, time.monotonic, time.sleep, *what))

    def _clients(self) -> dict[Any, Any]:
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.pid, self._local.clients = os.getpid(), {}
        clients: dict[Any, Any] = self._local.clients
        return clients

    def _new(self, server: Any, **options: Any) -> Any:
        from beanstalk_twisted.client.sync import Client

        return Client(server, **{**self._options, **options})

    def close(self) -> None:
        clients = self._clients()
        while clients:
            clients.popitem()[1].close()


class AioSender(Sender):
    """Gives awaitables of asyncio; each loop has connections of its own."""

    async def put(self, *job: Any, **options: Any) -> Any:
        return await run_async(self._flow(*job, **options))

    async def _wait(self, server: Any, *what: Any) -> Any:
        *_, job, seconds = what
        new = partial(self._new, server)
        flow = collect_over(new, time.monotonic, asyncio.sleep, *what)
        try:
            return await asyncio.wait_for(run_async(flow), seconds + OVER_S)
        except TimeoutError:
            raise not_done(job, seconds) from None

    def _clients(self) -> dict[Any, Any]:
        for loop in [each for each in self._kept if each.is_closed()]:
            del self._kept[loop]
        clients: dict[Any, Any] = self._kept.setdefault(asyncio.get_running_loop(), {})
        return clients

    def _new(self, server: Any) -> Any:
        from beanstalk_twisted.client.aio import Client

        return Client(server, **self._options)

    async def close(self) -> None:
        for client in self._kept.pop(asyncio.get_running_loop(), {}).values():
            await client.close()


class TwistedSender(Sender):
    """Gives Deferreds."""

    def put(self, *job: Any, **options: Any) -> Any:
        from twisted.internet.defer import inlineCallbacks

        return inlineCallbacks(self._flow)(*job, **options)

    def _wait(self, server: Any, *what: Any) -> Any:
        from twisted.internet.defer import inlineCallbacks

        from beanstalk_twisted.client.endpoints import the_reactor

        client = self._new(server)

        def close(outcome: Any) -> Any:
            return client.stopService().addCallback(lambda _: outcome)

        def over(outcome: Any, _: float) -> Any:
            raise not_done(job, seconds)

        *_, job, seconds = what
        waiting = inlineCallbacks(collect)(client, *what)
        clock = self._options.get("reactor") or the_reactor()
        return waiting.addTimeout(seconds + OVER_S, clock, over).addBoth(close)

    def _new(self, server: Any) -> Any:
        from beanstalk_twisted.client.service import Client

        client = Client(server, probes=True, **self._options)
        client.startService()
        return client

    def close(self) -> Any:
        from twisted.internet.defer import gatherResults

        clients, self._kept = self._kept, {}
        return gatherResults([client.stopService() for client in clients.values()])
