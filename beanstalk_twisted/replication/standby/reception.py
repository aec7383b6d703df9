"""What a standby has received of the stream and not applied yet, in order."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from twisted.python.failure import Failure

from beanstalk_twisted.replication.standby.asking import RETRY_S
from beanstalk_twisted.replication.stream.door import Message, Stream, StreamError, Unreachable
from beanstalk_twisted.replication.stream.lease import Silence
from beanstalk_twisted.replication.stream.messages import is_of_queue
from beanstalk_twisted.replication.waits import Receiver, Waits
from beanstalk_twisted.storage.io_thread import Reactor


class Reception:
    """
    Follows a stream.

    :ivar following: what is under way; None while nothing is asked for.
    :ivar newest: position of the newest message that was received.
    :ivar waiting_bytes: of those that were not taken.
    :ivar old_to: position of the newest message that was in the stream when the silence began: up
        to it nothing tells of a server that is active now.
    :ivar moved_ns: when a message came last, or messages were asked for, by the monotonic clock.
    :ivar behind_since_ns: since when there are any, by the monotonic clock; None if there are none.
    """

    def __init__(
        self, stream: Stream, reactor: Reactor, now_ns: Callable[[], int], silence: Silence,
        waits: Waits, spawn: Callable[[Awaitable[None]], None], failed: Callable[[Failure], None],
        arrived: Callable[[], None],
    ) -> None:  # fmt: skip
        """
        :param silence: ended by whatever comes of a queue behind ``old_to``.
        :param spawn: goes on with a coroutine.
        :param arrived: called when messages were received.
        """
        self.following: Receiver | None = None
        self.newest = self.old_to = 0
        self.moved_ns = 0
        self.waiting_bytes = 0
        self.behind_since_ns: int | None = None
        self._stream = stream
        self._reactor = reactor
        self._now_ns = now_ns
        self._silence = silence
        self._waits = waits
        self._spawn = spawn
        self._failed = failed
        self._arrived = arrived
        self._received: deque[Message] = deque()

    def follow(self) -> None:
        """Ask for what is behind the newest message that was received."""
        following = Receiver(self._reactor, self._receive, self._ended, self._failed)
        following.following = self._stream.follow(
            self.newest + 1, following.receive, following.ended
        )
        self.following = following
        self.moved_ns = self._now_ns()

    def leave(self) -> None:
        """Ask for nothing more."""
        if self.following is not None:
            self.following.stop()
            self.following = None

    def follow_anew(self) -> None:
        """There are messages, and for the time of a lease none has come: ask for them anew."""
        self.leave()
        self.follow()
        self._silence.heard(self._now_ns())

    def is_reading(self, patience_ns: int) -> bool:
        """
        Whether messages up to ``old_to`` are on their way.  If none has come for this time they
        have expired, or have to be asked for anew.
        """
        return self.newest < self.old_to and self._now_ns() < self.moved_ns + patience_ns

    @property
    def is_empty(self) -> bool:
        """Whether all that was received was taken."""
        return not self._received

    def take(self) -> Message:
        """The next message, which is there."""
        message = self._received.popleft()
        self.waiting_bytes -= len(message.payload)
        return message

    def _receive(self, messages: Sequence[Message]) -> None:
        self.moved_ns = self._now_ns()
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
            self.behind_since_ns = self._now_ns()
        self._arrived()

    def _ended(self, error: StreamError) -> None:
        self.following = None
        if not isinstance(error, Unreachable):
            self._failed(Failure(error))
            return
        self._spawn(self._follow_again())

    async def _follow_again(self) -> None:
        await self._waits.sleep(RETRY_S)
        self._silence.heard(self._now_ns())
        if self.following is None:
            self.follow()
