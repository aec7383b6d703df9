"""
What a standby asks the stream, beside following it: it asks until it is answered, and looks whether
messages that it misses were purged.
"""

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from beanstalk_twisted.replication.start.reading import Behind
from beanstalk_twisted.replication.stream.door import Ends, Stream, Unreachable
from beanstalk_twisted.replication.stream.lease import Silence
from beanstalk_twisted.replication.stream.messages import Gaps
from beanstalk_twisted.replication.waits import Waits, in_reactor
from beanstalk_twisted.storage.io_thread import Reactor

T = TypeVar("T")

RETRY_S: Final = 0.2
"""Seconds until a stream that did not answer is asked again."""


class Asking:
    """
    Asks a stream until it answers.

    :ivar trouble: why it did not when it was asked last, in words; empty if it did.
    """

    def __init__(
        self, stream: Stream, reactor: Reactor, now_ns: Callable[[], int], silence: Silence,
        waits: Waits, not_answered: Callable[[], None],
    ) -> None:  # fmt: skip
        """
        :param silence: nobody can be heard while it does not answer.
        :param not_answered: called when it did not.
        """
        self.trouble = ""
        self._url = stream.url
        self._reactor = reactor
        self._now_ns = now_ns
        self._silence = silence
        self._waits = waits
        self._not_answered = not_answered

    async def ask(self, ask: "Callable[[], Future[T]]") -> T:
        """
        :return: the answer.
        :raise StreamError: any but `Unreachable`.
        """
        while True:
            try:
                found = await self._waits.wait(in_reactor(ask(), self._reactor))
                self.trouble = ""
                return found
            except Unreachable as error:
                self.trouble = str(error).removeprefix(f"{self._url}: ")
                self._not_answered()
                await self._waits.sleep(RETRY_S)
                self._silence.heard(self._now_ns())


class Missing:
    """Looks whether what is missing in a stream was purged."""

    def __init__(
        self, stream: Stream, gaps: Gaps, asking: Asking, spawn: Callable[[Awaitable[None]], None]
    ) -> None:
        """
        :param gaps: what is missing.
        :param spawn: goes on with a coroutine; what that raises ends the standby.
        """
        self._stream = stream
        self._gaps = gaps
        self._asking = asking
        self._spawn = spawn
        self._is_looking = False

    def look(self) -> None:
        """Ask for the ends of the stream, unless that is under way."""
        if not self._is_looking:
            self._is_looking = True
            self._spawn(self._refuse_if_purged())

    async def _refuse_if_purged(self) -> None:
        """:raise Behind: what is missing was purged."""
        ends = await self._asking.ask(self._stream.ends)
        self._is_looking = False
        if self._gaps.since is not None:
            _refuse_purged(self._gaps.since, ends)

    def refuse(self, position: int, ends: Ends) -> None:
        """
        Look before this standby becomes active.

        :param position: of the newest message that was applied.
        :raise Behind: more than heartbeats may be missing behind some message.
        """
        since = self._gaps.known_to(position)
        _refuse_purged(since, ends)
        if self._gaps.is_torn:
            raise Behind(f"messages behind {since} are missing")


def _refuse_purged(since: int, ends: Ends) -> None:
    if ends.first > since + 1:
        raise Behind(f"messages from {since + 1} on were purged")
