"""The receive buffer of a standby, its polling of the stream, and how it reports its progress."""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from twisted.python.failure import Failure

from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.replication import states
from beanstalk_twisted.replication.followed_log import FollowedLog
from beanstalk_twisted.replication.local_log import taken_out
from beanstalk_twisted.replication.membership import read_note
from beanstalk_twisted.replication.stream.interface import (
    Ends,
    Following,
    Message,
    Silence,
    StreamError,
    Unreachable,
)
from beanstalk_twisted.replication.stream.messages import MessageReader, is_of_queue
from beanstalk_twisted.replication.stream_reading import Behind
from beanstalk_twisted.replication.waits import Node, Waits, in_reactor

T = TypeVar("T")

RETRY_S: Final = 0.2
"""Seconds until a stream that did not answer is asked again."""


class Poller:
    """Repeats requests to a stream until they are answered.

    :ivar trouble: why the last one was not, in words; empty if it was.
    """

    def __init__(
        self, node: Node, silence: Silence, waits: Waits, not_answered: Callable[[], None]
    ) -> None:  # fmt: skip
        """:param silence: nobody can be heard while the stream does not answer."""
        self.trouble = ""
        self._node = node
        self._silence = silence
        self._waits = waits
        self._not_answered = not_answered

    async def ask(self, ask: "Callable[[], Future[T]]") -> T:
        """:raise StreamError: any but `Unreachable`."""
        while True:
            try:
                found = await self._waits.wait(in_reactor(ask(), self._node.reactor))
                self.trouble = ""
                return found
            except Unreachable as error:
                self.trouble = str(error).removeprefix(f"{self._node.stream.url}: ")
                self._not_answered()
                await self._waits.sleep(RETRY_S)
                self._silence.heard(self._node.now_ns())


def refuse_purged(since: int, ends: Ends) -> None:
    """:raise Behind: messages after this one were purged."""
    if ends.first > since + 1:
        raise Behind(f"messages from {since + 1} on were purged")


class ReceiveBuffer:
    """Messages received and not yet taken, in order.

    :ivar following: the subscription; None while nothing is asked for.
    :ivar newest: position of the newest message that was received.
    :ivar old_to: of the newest message that was in the stream when the silence began: up to it
        nothing tells of a server that is active now.
    :ivar moved_ns: when a message came last, or messages were asked for.
    :ivar behind_since_ns: since when there are any; None if there are none.
    """

    def __init__(
        self, node: Node, silence: Silence, waits: Waits,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        failed: Callable[[Failure], None], arrived: Callable[[], None],
    ) -> None:  # fmt: skip
        """:param silence: ended by whatever comes of a queue behind ``old_to``."""
        self.following: Following | None = None
        self._number = self.newest = self.old_to = self.moved_ns = self.waiting_bytes = 0
        self.behind_since_ns: int | None = None
        self._node = node
        self._silence = silence
        self._waits = waits
        self._spawn = spawn
        self._failed = failed
        self._arrived = arrived
        self._received: deque[Message] = deque()

    def follow(self) -> None:
        """Ask for what comes after the newest message that was received."""
        hand_on = partial(self._node.reactor.callFromThread, self._hand_on, self._number)
        self.following = self._node.stream.follow(
            self.newest + 1, partial(hand_on, self._receive), partial(hand_on, self._ended)
        )
        self.moved_ns = self._node.now_ns()

    def leave(self) -> None:
        self._number += 1
        if self.following is not None:
            self.following.stop()
            self.following = None

    def _hand_on(self, number: int, hear: Callable[[T], None], heard: T) -> None:
        """Drop what came in another thread if its subscription was left meanwhile."""
        if number == self._number:
            try:
                hear(heard)
            except BaseException:
                self._failed(Failure())

    def follow_anew(self) -> None:
        """There are messages, and for the time of a lease none has come: ask for them again."""
        self.leave()
        self.follow()
        self._silence.heard(self._node.now_ns())

    def is_reading(self, patience_ns: int) -> bool:
        """Return True if messages up to ``old_to`` are on their way: if none has come for this time
        they have expired, or must be asked for again.
        """
        return self.newest < self.old_to and self._node.now_ns() < self.moved_ns + patience_ns

    @property
    def is_empty(self) -> bool:
        return not self._received

    def take(self) -> Message:
        message = self._received.popleft()
        self.waiting_bytes -= len(message.payload)
        return message

    def _receive(self, messages: Sequence[Message]) -> None:
        self.moved_ns = self._node.now_ns()
        heard = [each.position for each in messages if is_of_queue(each.payload)]
        if heard and heard[-1] > self.old_to:
            self._silence.heard(self.moved_ns)
        elif heard:
            self._silence.read()
        for message in messages:
            if message.position <= self.newest:
                continue
            self.newest = message.position
            self._received.append(message)
            self.waiting_bytes += len(message.payload)
        if self._received and self.behind_since_ns is None:
            self.behind_since_ns = self._node.now_ns()
        self._arrived()

    def _ended(self, error: StreamError) -> None:
        self.following = None
        if not isinstance(error, Unreachable):
            self._failed(Failure(error))
            return
        self._spawn(self._follow_again())

    async def _follow_again(self) -> None:
        await self._waits.sleep(RETRY_S)
        self._silence.heard(self._node.now_ns())
        if self.following is None:
            self.follow()


CATCHES_UP: Final = "catches up with the stream"
"""What a standby does first, in words; how far it is follows after a colon."""

FOLLOWS: Final = "follows the active server"
HEARS_NOTHING: Final = "hears nothing: the stream does not answer"
"""What a standby does that has caught up; the second one until the next message comes."""

SAID_OF: Final = {
    states.PROBING: "looks for the end of the stream",
    states.PROMOTING: "begins a term: waits until the stream has accepted that",
}
"""What it does in some of its states; in others it follows."""


class StandbyFigures(NamedTuple):
    """How a standby does, as of now.

    :ivar doing: in words; ``trouble`` why that takes long, as the stream says, if it does.
    :ivar active: the name of the active server; empty if none has said its name.
    :ivar position: of the newest message that was applied; ``lsn`` of the newest record.
    :ivar lag_records: received and not applied; ``lag_bytes`` of messages that are not, or are not
        on the disk; ``lag_s`` since when there are any, seconds.
    :ivar is_in_sync: it has all that was in the stream when it began, so it may become active.
    """

    doing: str
    active: str
    position: int
    lsn: int
    lag_records: int
    lag_bytes: int
    lag_s: float
    is_in_sync: bool
    trouble: str = ""

    @property
    def in_words(self) -> str:
        return f"{self.doing} ({self.trouble})" if self.trouble else self.doing


def why_not_in_sync(
    url: str, reader: MessageReader, is_silent: bool, read_to: int, log: FollowedLog
) -> str:
    """What a standby waits for before it may become active; empty for nothing.

    :param is_silent: of the server that fills the stream, if one does.
    :param read_to: the position up to which it must have read.
    """
    mark, gaps = reader.mark, reader.gaps
    if mark.is_filling:
        filler = read_note(mark.text).name or "another server"
        if not is_silent:
            return f"waits until {filler} has filled the stream"
        return (
            f"waits for {filler}, which has begun to fill the stream and is silent: start it "
            "again, nobody else has all of its log. If no server was started to fill it, somebody "
            f"else has written message {mark.position}: {taken_out(url, mark.position)}"
        )
    if reader.position < read_to:
        return f"reads the stream: message {reader.position} of {read_to}"
    if not log.segment:
        return "waits at an empty stream: a server that has a log goes first"
    if gaps.is_torn:
        return f"misses what was behind message {gaps.since}"
    if not log.is_whole:
        oldest = segment_name(min(log.segments))
        return f"lacks what is in use before {oldest}: somebody has purged the stream"
    return ""


def why_active(handed_over_by: str, active: str, lease_s: float, is_empty: bool) -> str:
    """Why a standby becomes active.

    :param handed_over_by: the name of a server that has ended in order, or empty; ``active`` of the
        one that was active last, for ``lease_s`` silent.
    """
    if handed_over_by:
        return f"{handed_over_by} has handed over"
    lease = f"for {lease_s:g} s"
    if is_empty:
        return f"the stream is empty, and {lease} no server that has a log came"
    return f"{active} was silent {lease}" if active else f"no server was heard {lease}"
