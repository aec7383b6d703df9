"""Following a stream of JetStream."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from beanstalk_twisted.replication.stream.connection import (
    PAUSE_S,
    TIMEOUT_S,
    Connection,
    raise_if_cancelled,
)
from beanstalk_twisted.replication.stream.interface import (
    MAX_MESSAGE_BYTES,
    Message,
    Refused,
    StreamError,
    Unreachable,
)

PULLED_MESSAGES: Final = 1024
"""Asked for at a time."""

PULLED_BYTES: Final = 4 << 20
"""Asked for at a time: what a slow reader has waiting in memory, beside what it was given."""

READ_MESSAGES: Final = 8192
"""Asked for at a time by who reads on: each time costs a consumer, some 10 ms."""

GIVEN_BYTES: Final = 1 << 20
"""Given to `receive` at a time, about."""

HEARTBEAT_S: Final = 0.5
"""When nothing comes the server says so as often; three times nothing, and it is given up."""

PULL_S: Final = 20.0
"""A request for messages is asked anew after this time."""

UNUSED_S: Final = 10.0
"""The server forgets a consumer that nobody has asked for so long."""

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class JetStreamFollowing:
    """A reader of a stream, from ``position`` on: a consumer in memory, asked for a bounded number
    of messages at a time, and made anew from where it was whenever anything is not as it should be.

    :param check: raises a `StreamError` for which this ends, if the stream is not the one that it
        was or ends before a position.
    """

    def __init__(
        self, connection: Connection, name: str, position: int, ask: Ask,
        check: Callable[[int], Awaitable[None]], receive: Callable[[Sequence[Message]], None],
        ended: Callable[[StreamError], None],
    ) -> None:  # fmt: skip
        self._connection = connection
        self._name = name
        self._position = position
        self._ask = ask
        self._check = check
        self._receive = receive
        self._ended = ended
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def begin(self) -> None:
        if not self._is_over:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._is_over = True
        self._connection.soon(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while not self._is_over:
            try:
                await self._read_on()
            except (Unreachable, errors.Error, TimeoutError):
                await asyncio.sleep(PAUSE_S)
            except asyncio.CancelledError:
                raise_if_cancelled()
                await asyncio.sleep(PAUSE_S)
            except StreamError as error:
                self._end(error)
            except Exception as error:
                # Else nobody would know that nothing more comes.
                self._end(Refused(f"{self._connection.url}: following has failed: {error!r}"))

    def _end(self, why: StreamError) -> None:
        if not self._is_over:
            self.stop()
            self._ended(why)

    async def _read_on(self) -> None:
        async with _pulling(self._connection, self._name, self._position, self._ask) as pulling:
            await self._check(self._position - 1)
            while True:
                await pulling.ask(_PULL, PULLED_MESSAGES)
                while found := await pulling.some():
                    if self._is_over:
                        return
                    self._position = found[-1].position + 1
                    self._receive(found)
                    if pulling.is_over:
                        break


async def read_some(connection: Connection, name: str, position: int, ask: Ask) -> list[Message]:
    """:raise Unreachable: nobody answers, or what came is not whole; see `Stream.read_on`."""
    found: list[Message] = []
    try:
        async with _pulling(connection, name, position, ask) as pulling:
            await pulling.ask(_READ, READ_MESSAGES)
            while some := await pulling.some():
                found += some
                if pulling.is_over:
                    break
    except (errors.Error, TimeoutError) as error:
        raise Unreachable(f"{connection.url}: {error or 'no answer in time'}") from None
    return found


@asynccontextmanager
async def _pulling(
    connection: Connection, name: str, position: int, ask: Ask
) -> AsyncIterator["_Pulling"]:
    """A consumer of a stream from a position on, which the server forgets by itself."""
    client = await connection.client()
    consumer, inbox = secrets.token_hex(8), client.new_inbox()
    config = {
        "name": consumer, "deliver_policy": "by_start_sequence", "opt_start_seq": position,
        "ack_policy": "none", "mem_storage": True, "num_replicas": 1,
        "inactive_threshold": _ns(UNUSED_S),
    }  # fmt: skip
    async with asyncio.timeout(TIMEOUT_S):
        reading = await client.subscribe(inbox)
    try:
        await ask(
            f"CONSUMER.CREATE.{name}.{consumer}",
            {"stream_name": name, "config": config, "action": "create"},
        )
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}"
        yield _Pulling(partial(client.publish, subject, reply=inbox), reading, position)
    finally:
        if not client.is_closed:
            async with asyncio.timeout(TIMEOUT_S):
                await reading.unsubscribe()


class _Pulling:
    """:ivar is_over: whether the last request is fulfilled, so that the next may be made."""

    def __init__(
        self, publish: Callable[..., Awaitable[None]], reading: Subscription, position: int
    ) -> None:
        self.is_over = False
        self._publish = publish
        self._reading = reading
        self._position = position
        self._delivered = 0
        self._count = self._most = 0

    async def ask(self, request: bytes, most: int) -> None:
        """:param most: how many messages the request is for."""
        self._count, self._most = 0, most
        async with asyncio.timeout(TIMEOUT_S):
            await self._publish(payload=request)

    async def some(self) -> list[Message]:
        """The messages that are there, at least one, unless the request is over."""
        found: list[Message] = []
        size = 0
        self.is_over = False
        while not self.is_over and size < GIVEN_BYTES:
            if found and not self._reading.pending_msgs:
                break
            came = await self._reading.next_msg(3 * HEARTBEAT_S)
            if came.reply:
                found.append(self._checked(came))
                size += len(came.data)
                self._count += 1
                self.is_over = self._count == self._most
            else:
                self.is_over = _ends_request(came)
        return found

    def _checked(self, came: Msg) -> Message:
        # "$JS.ACK", two more words with a domain, stream, consumer, times delivered, its position
        # in the stream and in the consumer, time, how many are left, and perhaps one more.
        words = came.reply.split(".")
        position, delivered = map(int, words[7:9] if len(words) > 9 else words[5:7])
        if delivered != self._delivered + 1 or position < self._position:
            raise Unreachable("a message is missing")
        self._delivered, self._position = delivered, position + 1
        return Message(position, came.data)


def _ends_request(came: Msg) -> bool:
    headers = came.headers or {}
    status, why = headers.get("Status", ""), headers.get("Description", "")
    if status == "100":
        return False
    if status in ("404", "408") or "MaxBytes" in why or "Batch Completed" in why:
        return True
    raise Unreachable(f"{status} {why}")


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


_READ = json.dumps(
    {"batch": READ_MESSAGES, "max_bytes": PULLED_BYTES + MAX_MESSAGE_BYTES, "no_wait": True}
).encode()  # fmt: skip

_PULL = json.dumps(
    {
        "batch": PULLED_MESSAGES, "max_bytes": PULLED_BYTES + MAX_MESSAGE_BYTES,
        "expires": _ns(PULL_S), "idle_heartbeat": _ns(HEARTBEAT_S),
    }
).encode()  # fmt: skip
