"""The three clients as tasks use them: results at once, as awaitables, as Deferreds."""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from beanstalk_twisted.client.commands.tags import Tags
from beanstalk_twisted.tasks.results import Flow, Result, check_server, collect


class Put(NamedTuple):
    """One job to put.

    :ivar result: the tube of replies; None if no result is wanted.
    """

    server: Any
    body: bytes
    tube: str
    delay: int
    priority: int
    ttr: int
    tags: Tags | None
    result: str | None


class Sender(Protocol):
    """Puts jobs with one kind of client."""

    def put(self, put: Put) -> Any:
        """:return: a `Result`, or what comes to one."""

    def close(self) -> Any:
        """Close the connections."""


def sending(client: Any, put: Put, wait: Callable[[Put, int, float], Any]) -> Flow:
    """Put a job; its result is waited for with ``wait(put, job, seconds)``."""
    if put.result is not None:
        yield from check_server(client)
    job = yield client.put(
        put.body, tube=put.tube, priority=put.priority, delay=put.delay, ttr=put.ttr, tags=put.tags
    )
    number = int(job)

    def wait_for_it(seconds: float) -> Any:
        return wait(put, number, seconds)

    return Result(number, getattr(job, "is_new", True), wait_for_it if put.result else None)


def _collect(client: Any, put: Put, job: int, seconds: float) -> Flow:
    assert put.result is not None
    return collect(client, put.result, job, seconds)


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


class SyncSender:
    """Blocks; each thread has connections of its own, and so has each child of a fork."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._local = threading.local()

    def put(self, put: Put) -> Any:
        return run(sending(self._client(put.server), put, self._wait))

    def _wait(self, put: Put, job: int, seconds: float) -> Any:
        with self._new(put.server) as client:
            return run(_collect(client, put, job, seconds))

    def _client(self, server: Any) -> Any:
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.pid, self._local.clients = os.getpid(), {}
        if server not in self._local.clients:
            self._local.clients[server] = self._new(server)
        return self._local.clients[server]

    def _new(self, server: Any) -> Any:
        from beanstalk_twisted.client.sync import Client

        return Client(server, **self._options)

    def close(self) -> None:
        """Close the connections of this thread."""
        clients, self._local.clients = getattr(self._local, "clients", {}), {}
        for client in clients.values():
            client.close()


class AioSender:
    """Gives awaitables of asyncio; each loop has connections of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._clients: dict[Any, dict[Any, Any]] = {}

    async def put(self, put: Put) -> Any:
        for loop in [each for each in self._clients if each.is_closed()]:
            del self._clients[loop]
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        if put.server not in clients:
            clients[put.server] = self._new(put.server)
        return await run_async(sending(clients[put.server], put, self._wait))

    async def _wait(self, put: Put, job: int, seconds: float) -> Any:
        async with self._new(put.server) as client:
            return await run_async(_collect(client, put, job, seconds))

    def _new(self, server: Any) -> Any:
        from beanstalk_twisted.client.aio import Client

        return Client(server, **self._options)

    async def close(self) -> None:
        """Close the connections of this loop."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()


class TwistedSender:
    """Gives Deferreds."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._clients: dict[Any, Any] = {}

    def put(self, put: Put) -> Any:
        from twisted.internet.defer import inlineCallbacks

        if put.server not in self._clients:
            self._clients[put.server] = self._new(put.server)
        return inlineCallbacks(sending)(self._clients[put.server], put, self._wait)

    def _wait(self, put: Put, job: int, seconds: float) -> Any:
        from twisted.internet.defer import inlineCallbacks

        client = self._new(put.server)
        waited = inlineCallbacks(_collect)(client, put, job, seconds)

        def close(outcome: Any) -> Any:
            return client.stopService().addCallback(lambda _: outcome)

        return waited.addBoth(close)

    def _new(self, server: Any) -> Any:
        from beanstalk_twisted.client.service import Client

        client = Client(server, probes=True, **self._options)
        client.startService()
        return client

    def close(self) -> Any:
        from twisted.internet.defer import gatherResults

        clients, self._clients = self._clients, {}
        return gatherResults([client.stopService() for client in clients.values()])
