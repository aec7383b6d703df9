"""Reads a stream, and finds where segments begin in it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from beanstalk_twisted.replication.local_log import newer_message
from beanstalk_twisted.replication.stream.interface import Ends, Message, Stream
from beanstalk_twisted.replication.stream.messages import (
    MAX_IN_FLIGHT,
    FillMark,
    Kind,
    Malformed,
    Note,
    Part,
    decode,
)

T = TypeVar("T")

SOME: Final = 256
"""Messages that are compared at a time: some 10 ms of work in a thread."""


class Behind(Exception):
    """The stream does not continue the local log.  ``str()`` is the reason."""


class Ask(Protocol):
    """Call with a request to the stream; repeats it until it is answered."""

    def __call__(self, ask: "Callable[[], Future[T]]", /) -> Awaitable[T]: ...


class StreamReader:
    """:ivar ends: where the stream ended when `begin` was called."""

    def __init__(self, stream: Stream, ask: Ask) -> None:
        self.ends = Ends(1, 0)
        self._stream = stream
        self._ask = ask

    async def begin(self) -> Ends:
        self.ends = await self._ask(self._stream.ends)
        return self.ends

    async def first_from(self, position: int) -> Message | None:
        """:raise Behind: what is missing before the message was purged."""
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

    async def batches_from(self, position: int) -> AsyncIterator[list[Message]]:
        """Up to `SOME` messages at a time, in order.

        :raise Behind: the next message was purged.
        """
        while position <= self.ends.last:
            read = await self._ask(partial(self._stream.read_on, position))
            found = [message for message in read if message.position <= self.ends.last]
            expected = position
            for message in found:
                if message.position > expected:
                    # The stream is purged from its beginning on: one gap tells of all.
                    await self.refuse_purged(expected)
                    break
                expected = message.position + 1
            if not found:
                first = await self.first_from(position)
                if first is None:
                    return
                found = [first]
            for at in range(0, len(found), SOME):
                yield found[at : at + SOME]
            position = found[-1].position + 1

    async def all_from(self, position: int) -> AsyncIterator[Message]:
        """:raise Behind: as `batches_from`."""
        async for messages in self.batches_from(position):
            for message in messages:
                yield message


MAX_LOOKED_THROUGH: Final = 10_000
"""Messages of a queue among which the beginning of a segment is looked for; its LSN leads there."""

NEAR_MESSAGES: Final = 512
"""Messages before the beginning of a segment that are read for those of others: when servers become
active in quick succession, a search for each would take as many round trips as there are segments.
"""


class SegmentStart(NamedTuple):
    """The message with which a segment begins."""

    position: int
    header: SegmentHeader


class SegmentIndex:
    """Finds where one stream begins segments.  Foreign messages are skipped, however many there
    are: they say nothing of where a segment is.

    :ivar is_of_queue: whether any message was seen that is one of a queue.
    """

    def __init__(
        self, reader: StreamReader, url: str, progress: Callable[[int, int], None]
    ) -> None:
        self.is_of_queue = False
        self._foreign = 0, 0
        self._near: dict[SegmentHeader, SegmentStart] = {}
        self._reader = reader
        self._url = url
        self._progress = progress

    async def first_from(
        self, position: int, seq: int | None = None, mark: FillMark | None = None
    ) -> SegmentStart | None:
        """Find the first one at a position or behind it.

        :param seq: of the segment; None for any.
        :param mark: told of notes on the way; says which may be the first one of the stream.
        :raise Incompatible: a later version has written to the stream.
        """
        first = await self._first_of_queue(position, self._reader.ends.last + 1)
        if first is None:
            return None
        looked = 0
        async for message in self._from(first):
            at, found = message.position, decode(message.payload)
            if isinstance(found, Malformed) and found.is_newer:
                raise newer_message(self._url, at, found.why)
            if isinstance(found, Malformed):
                self._progress(at, self._reader.ends.last)
            else:
                self.is_of_queue = True
                looked += 1
            if isinstance(found, Note) and mark is not None:
                mark.note(found, at, 0)
            beginning = _beginning(message, found)
            if beginning is not None and _is_meant(beginning.header.seq, seq, mark):
                return beginning
            if looked >= MAX_LOOKED_THROUGH:
                break
        return None

    async def _from(self, message: Message) -> AsyncIterator[Message]:
        """A message that was read, and those after it, which are read when they are wanted."""
        yield message
        async for later in self._reader.all_from(message.position + 1):
            yield later

    async def find(self, header: SegmentHeader) -> SegmentStart | None:
        """Find where the stream begins a segment, by the LSN that it begins with."""
        if (near := self._near.get(header)) is not None:
            return near
        low, high = self._reader.ends
        while low < high:
            middle = (low + high) // 2
            message = await self._first_of_queue(middle, high)
            if message is None or _last_lsn(message) >= header.first_lsn:
                high = middle
            else:
                low = message.position + 1
        # A note among writes under way tells of no more than was acknowledged.
        found = await self.first_from(max(self._reader.ends.first, low - MAX_IN_FLIGHT), header.seq)
        if found is not None:
            await self.look_before(found.position)
        return found

    async def look_before(self, position: int) -> None:
        """Note the segments that begin shortly before a position: none of them needs a search of
        its own.  One counts only if no message before it tells of its records: else it may be a
        copy.
        """
        first = max(self._reader.ends.first, position - NEAR_MESSAGES)
        is_all = first == self._reader.ends.first
        for beginning, last_lsn in await self.between(first, position):
            if last_lsn < beginning.header.first_lsn and (last_lsn or is_all):
                self._near.setdefault(beginning.header, beginning)

    async def between(self, position: int, below: int) -> list[tuple[SegmentStart, int]]:
        """Read those from a position on that are below another one, in order; each with the highest
        LSN that a message before it tells of, 0 if none does.
        """
        found: list[tuple[SegmentStart, int]] = []
        last_lsn = 0
        async for message in self._reader.all_from(position):
            if message.position >= below:
                break
            beginning = _beginning(message, decode(message.payload))
            if beginning is not None:
                found.append((beginning, last_lsn))
            last_lsn = max(last_lsn, _last_lsn(message))
        return found

    async def _first_of_queue(self, position: int, below: int) -> Message | None:
        """The first message from a position on that is not foreign; None if none is below."""
        first, behind = self._foreign
        if first <= position < behind:
            position = behind
        found = await self._reader.first_from(position)
        if found is not None and _is_foreign(found):
            passed = found.position
            read, found = self._from(found), None
            async for message in read:
                if message.position >= below or not _is_foreign(message):
                    found = message
                    break
                passed = message.position
                self._progress(passed, self._reader.ends.last)
            self._note_foreign(position, passed + 1)
        return found if found is not None and found.position < below else None

    def _note_foreign(self, first: int, behind: int) -> None:
        """Keep one row of foreign messages: who looks for several segments comes there again."""
        before = self._foreign
        if first <= before[1] and before[0] <= behind:
            self._foreign = min(first, before[0]), max(behind, before[1])
        else:
            self._foreign = max(before, (first, behind), key=lambda row: row[1] - row[0])


def _is_meant(found: int, seq: int | None, mark: FillMark | None) -> bool:
    return seq in (None, found) and (mark is None or mark.may_begin_with(found))


def _beginning(message: Message, found: Part | Note | Malformed) -> SegmentStart | None:
    """None if no segment begins with the message, which says this."""
    if not (isinstance(found, Part) and found.write.begins and not found.continues):
        return None
    header = decode_segment_header(found.write.content[:SEGMENT_HEADER_BYTES])
    return SegmentStart(message.position, header) if isinstance(header, SegmentHeader) else None


def _is_foreign(message: Message) -> bool:
    found = decode(message.payload)
    return isinstance(found, Malformed) and not found.is_newer


def _last_lsn(message: Message) -> int:
    match found := decode(message.payload):
        case Part():
            return found.write.last_lsn
        case Note() if found.kind is not Kind.FILL_BEGINS:
            return found.last_lsn
    return 0
