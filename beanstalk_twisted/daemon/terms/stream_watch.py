"""Reaches the stream at a start, however long that takes, and looks at its settings, its copies and
its first message from then on: settings may be changed while servers use it, messages be removed,
and people are to hear of a NATS server that is gone before a second one is.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.daemon.terms.state import NEWS_S
from beanstalk_twisted.replication.comparison import purged_in_use
from beanstalk_twisted.replication.stream.door import (
    Copies,
    Ends,
    Health,
    Stream,
    StreamError,
    Unreachable,
)
from beanstalk_twisted.replication.waits import in_reactor

OPEN_S: Final = 2.0
"""One try to reach the stream: whoever starts a server wants to know soon why it waits, and a NATS
server that can be reached answers within that.
"""

RETRY_S: Final = 1.0
"""From one try to reach the stream to the next: an outage of NATS is seldom shorter."""

LOOK_S: Final = 10.0
"""From one look to the next: one request of some 100 bytes, and soon enough to undo a mistake."""


SURE_TIMES: Final = 2
"""So often in a row a copy is seen to lack something before the log says so: one that fell behind
on a busy disk is seen so once.
"""


class StreamWatch:
    """Opens a stream, and looks at it.

    :ivar copies: where it is stored, as answered last; None if it did not answer.
    """

    log = Logger()

    def __init__(
        self, stream: Stream, reactor: Any,
        in_use: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:  # fmt: skip
        """:param in_use: as `ReplicationState.in_use`."""
        self._settings: tuple[str, ...] = ()
        self._purged: tuple[str, ...] = ()
        self._ends = Ends(1, 0)
        self._in_use = in_use
        self.copies: Copies | None = None
        self._times_missing = 0
        self._is_missing_told = False
        self._stream = stream
        self._reactor = reactor
        self._opened: Sequence[str] = ()
        self._timer: IDelayedCall | None = None
        self._is_over = False

    @property
    def problems(self) -> tuple[str, ...]:
        """What does not keep what is promised and was not so when the stream was opened, a line
        each.
        """
        return self._settings + self._purged

    async def open(
        self, sleep: Callable[[float], Awaitable[None]], waits: Callable[[str], None]
    ) -> None:
        """Wait until the stream can be reached.

        :param waits: told what is waited for, in words; nothing at the end.
        """
        told_s = -NEWS_S
        while True:
            try:
                warnings = await in_reactor(self._stream.open(), self._reactor)
                break
            except Unreachable as problem:
                why = str(problem)
                waits(f"waits for the stream: {why}")
            if self._reactor.seconds() - told_s >= NEWS_S:
                told_s = self._reactor.seconds()
                self.log.warn("waiting for the stream: {why}", event="stream-waits", why=why)
            await sleep(RETRY_S)
        waits("")
        self.opened(warnings)

    def opened(self, warnings: Sequence[str]) -> None:
        """The stream was opened with these warnings; look at it from now on."""
        self._opened = warnings
        self._tell(warnings)
        self._look()

    def stop(self) -> None:
        """Look no more."""
        self._is_over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _wait(self) -> None:
        if not self._is_over:
            self._timer = self._reactor.callLater(LOOK_S, self._look)

    def _look(self) -> None:
        asked = in_reactor(self._stream.health(), self._reactor)
        looked = asked.addCallbacks(self._found, self._not_answered)
        looked.addCallback(lambda _: self._wait())

    def _not_answered(self, failure: Failure) -> None:
        """Whoever follows and appends finds out what is wrong with the stream."""
        failure.trap(StreamError)
        self.copies = None

    def _found(self, found: Health) -> None:
        if not self._is_over:
            self._look_at_settings(found.problems)
            self._look_at_copies(found.copies)
            self._look_at_beginning(found.ends)

    def _look_at_settings(self, found: Sequence[str]) -> None:
        before = self._settings
        self._settings = tuple(each for each in found if each not in self._opened)
        self._tell([each for each in self._settings if each not in before])
        if before and not self._settings:
            self.log.info(
                "{stream}: its settings are again what they were when it was opened",
                event="stream-mended", stream=self._stream.url,
            )  # fmt: skip

    def _look_at_copies(self, found: Copies) -> None:
        self.copies = found
        self._times_missing = self._times_missing + 1 if found.missing else 0
        if self._times_missing >= SURE_TIMES and not self._is_missing_told:
            self._is_missing_told = True
            self.log.warn(
                "the stream has {copies}. It goes on as long as these are a majority: see to the "
                "others.", event="copies-missing", copies=str(found),
            )  # fmt: skip
        elif self._is_missing_told and not found.missing:
            self._is_missing_told = False
            self.log.info("the stream has {copies}", event="copies-whole", copies=str(found))

    def _look_at_beginning(self, ends: Ends) -> None:
        """Whether messages are missing that are in use.  What was purged in order before a look is
        said to be dead in messages that were there at that look: who knows all of these knows it.
        """
        before, self._ends = self._ends, ends
        position, start = self._in_use()
        if not start or position < before.last:
            return
        if before.first <= start:
            self._tell_whole()
        elif not self._purged:
            self._purged = (purged_in_use(self._stream.url, before.first, start),)
            self.log.warn("{purged}", event="stream-purged", purged=self._purged[0])

    def _tell_whole(self) -> None:
        if self._purged:
            self._purged = ()
            self.log.info(
                "{stream}: it has all of the log that is in use again", event="stream-mended",
                stream=self._stream.url,
            )  # fmt: skip

    def _tell(self, lines: Sequence[str]) -> None:
        for warning in lines:
            self.log.warn("{warning}", event="stream-settings", warning=warning)
