"""An asyncio application that uses the client: Twisted runs on asyncio's loop.

    python examples/asyncio_application.py [ENDPOINT]

Two things make it work.  Twisted's asyncio reactor is installed before anything else of Twisted is
imported that needs a reactor; and a Deferred is awaited as a future, ``.asFuture(loop)``.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet import asyncioreactor
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from beanstalk_twisted.client import Client, errors

TUBE = "greetings"


class Queue:
    """The client's methods, for asyncio: each gives a future."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., asyncio.Future[Any]]:
        """Wrap the method of that name."""
        method = getattr(self._client, name)
        return lambda *args, **options: method(*args, **options).asFuture(self._loop)


async def produce(queue: Queue) -> None:
    """Put three jobs, all at once."""
    await asyncio.gather(*(queue.put(name.encode()) for name in ("Ada", "Grace", "Edsger")))


async def consume(queue: Queue) -> None:
    """Take jobs until there are none for a second."""
    while True:
        try:
            job = await queue.reserve_with_timeout(1)
        except errors.TimedOut:
            return
        await asyncio.sleep(0)  # The work; asyncio's other tasks run meanwhile.
        print(f"hello, {job.body.decode()}")
        await queue.delete(job)


async def application(endpoint: str) -> None:
    """Produce, consume, and part."""
    client = Client(endpoint)
    client.startService()
    queue = Queue(client, asyncio.get_running_loop())
    await queue.use(TUBE)
    await queue.watch(TUBE)
    await queue.ignore("default")  # Watched from the start: its jobs belong to somebody else.
    await produce(queue)
    await consume(queue)
    await queue.quit()


def main(endpoint: str = "tcp:127.0.0.1:11300") -> None:
    """Run it on a loop that Twisted shares."""
    loop = asyncio.new_event_loop()
    asyncioreactor.install(loop)
    react(lambda reactor: Deferred.fromFuture(loop.create_task(application(endpoint))))


if __name__ == "__main__":
    main(*sys.argv[1:])
