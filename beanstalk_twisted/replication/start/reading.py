"""
Reading a stream while nothing is followed yet: message by message, up to where it ended, over the
gaps that heartbeats leave which have expired.

What is missing at or above the stream's first message has expired, or somebody has removed it; what
is missing below was purged.  Only heartbeats expire, and all else is numbered: a write goes on at
the offset and the LSN at which the one before it has ended.  So the next write that goes on shows
that a gap was of heartbeats alone.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol, TypeVar

from beanstalk_twisted.replication.stream.door import Ends, Message, Stream

T = TypeVar("T")


SOME: Final = 256
"""Messages that are compared at a time: some 10 ms of work in a thread."""


class Behind(Exception):
    """The stream does not go on where the log here ends; the text is the rest of a sentence."""


class Ask(Protocol):
    """Asks the stream until it answers."""

    def __call__(self, ask: "Callable[[], Future[T]]", /) -> Awaitable[T]: ...


class StreamReader:
    """
    Reads one stream, up to where it ended when `begin` was called.

    :ivar ends: its ends then.
    """

    def __init__(self, stream: Stream, ask: Ask) -> None:
        self.ends = Ends(1, 0)
        self._stream = stream
        self._ask = ask

    async def begin(self) -> Ends:
        """Ask for the ends."""
        self.ends = await self._ask(self._stream.ends)
        return self.ends

    async def first_from(self, position: int) -> Message | None:
        """
        :return: the first message at a position or behind it; None if there is none up to the end.
        :raise Behind: what is missing before it was purged.
        """
        if position > self.ends.last:
            return None
        message = await self._ask(partial(self._stream.read, position))
        if message is not None and message.position == position:
            return message
        await self.refuse_purged(position)
        if message is None and position == self.ends.first:
            raise Behind(f"message {position} is not there any more")
        return message if message is not None and message.position <= self.ends.last else None

    async def refuse_purged(self, position: int) -> None:
        """:raise Behind: the message at a position was purged."""
        if (first := (await self._ask(self._stream.ends)).first) > position:
            raise Behind(f"messages below {first} were purged")

    async def some_from(self, position: int) -> list[Message]:
        """:return: messages from a position on, in order; there may be more of them."""
        found = await self._ask(partial(self._stream.read_on, position))
        return [message for message in found if message.position <= self.ends.last]

    def all_from(self, position: int) -> "Ahead":
        """Read on in order."""
        return Ahead(self, position)


class Ahead:
    """Messages in order."""

    def __init__(self, reader: StreamReader, position: int) -> None:
        self._reader = reader
        self._position = position
        self._read: deque[Message] = deque()

    async def next(self) -> Message | None:
        """
        :return: the next message; None at the end.
        :raise Behind: it was purged.
        """
        if not self._read:
            await self._read_on()
        if not self._read:
            message = await self._reader.first_from(self._position)
        else:
            message = self._read.popleft()
        if message is not None:
            self._position = message.position + 1
        return message

    async def _read_on(self) -> None:
        """
        :raise Behind: what is missing in what comes was purged.  The stream is asked once, however
            many gaps there are: it is purged from its beginning on.
        """
        if self._position > self._reader.ends.last:
            return
        found = await self._reader.some_from(self._position)
        expected = self._position
        for message in found:
            if message.position > expected:
                await self._reader.refuse_purged(expected)
                break
            expected = message.position + 1
        self._read.extend(found)

    async def some(self) -> list[Message]:
        """
        :return: the next messages, at most `SOME`; empty at the end.
        :raise Behind: they were purged.
        """
        message = await self.next()
        some = [] if message is None else [message]
        while self._read and len(some) < SOME:
            some.append(self._read.popleft())
            self._position = some[-1].position + 1
        return some
