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

from twisted.internet.defer import Deferred

from beanstalk_twisted.replication.stream.door import Ends, Message, Stream

T = TypeVar("T")

READ_AHEAD: Final = 64
"""Messages that are asked for at once: a round of 1 ms allows 64,000 a second."""

FIRST_AHEAD: Final = 4
"""As many as that in the beginning, and one more behind each that has come: most look at one."""

READ_AHEAD_BYTES: Final = 4 << 20
"""Of messages that are asked for, if all are as large as the largest that has come."""


class Behind(Exception):
    """
    The stream does not go on where the log here ends; the text is the rest of a sentence.
    """


class Ask(Protocol):
    """
    Asks the stream until it answers.
    """

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
        """
        Ask for the ends.
        """
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
        """
        :raise Behind: the message at a position was purged.
        """
        if (first := (await self._ask(self._stream.ends)).first) > position:
            raise Behind(f"messages below {first} were purged")

    def all_from(self, position: int) -> "Ahead":
        """
        Read on in order.
        """
        return Ahead(self, position)


class Ahead:
    """
    Messages in order, some of which are asked for ahead.
    """

    def __init__(self, reader: StreamReader, position: int) -> None:
        self._reader = reader
        self._position = position
        self._most = FIRST_AHEAD
        self._largest = 1
        self._asked: deque[tuple[int, Deferred[Message | None]]] = deque()

    async def next(self) -> Message | None:
        """
        :return: the next message; None at the end.
        :raise Behind: it was purged.
        """
        self._leave_below(self._position)
        self._ask_on()
        if not self._asked:
            return None
        _, asked = self._asked.popleft()
        message = await asked
        if message is not None:
            self._position = message.position + 1
            self._most = min(READ_AHEAD, self._most + 1)
            self._largest = max(self._largest, len(message.payload))
        return message

    def leave(self) -> None:
        """
        Nobody waits for the rest.
        """
        self._leave_below(self._reader.ends.last + 1)

    def _ask_on(self) -> None:
        first = self._asked[-1][0] + 1 if self._asked else self._position
        ahead = max(1, min(self._most, READ_AHEAD_BYTES // self._largest))
        last = min(self._position + ahead - 1, self._reader.ends.last)
        for at in range(first, last + 1):
            asked = Deferred.fromCoroutine(self._reader.first_from(at))
            self._asked.append((at, asked))

    def _leave_below(self, position: int) -> None:
        while self._asked and self._asked[0][0] < position:
            _, asked = self._asked.popleft()
            asked.addErrback(lambda _: None)
            asked.cancel()
