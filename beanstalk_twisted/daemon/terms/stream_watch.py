"""
Reaches the stream at a start, however long that takes, and looks at its settings and its copies
from then on: settings may be changed while servers use it, and people are to hear of a NATS server
that is gone before a second one is.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.daemon.terms.replication_log import NEWS_S
from beanstalk_twisted.replication.stream.door import (
    Copies,
    Health,
    Stream,
    StreamError,
    Unreachable,
)
from beanstalk_twisted.replication.waits import in_reactor

OPEN_S: Final = 2.0
"""
One try to reach the stream: whoever starts a server wants to know soon why it waits, and a NATS
server that can be reached answers within that.
"""

RETRY_S: Final = 1.0
"""From one try to reach the stream to the next: an outage of NATS is seldom shorter."""

LOOK_S: Final = 10.0
"""From one look to the next: one request of some 100 bytes, and soon enough to undo a mistake."""


SURE_TIMES: Final = 2
"""
So often in a row a copy is seen to lack something before the log says so: one that fell behind on a
busy disk is seen so once.
"""


class StreamWatch:
    """
    Opens a stream, and looks at it.

    :ivar problems: what does not keep what is promised and was not so when the stream was opened, a
        line each.
    :ivar copies: where it is stored, as answered last; None if it did not answer.
    """

    log = Logger()

    def __init__(self, stream: Stream, reactor: Any) -> None:
        self.problems: tuple[str, ...] = ()
        self.copies: Copies | None = None
        self._times_missing = 0
        self._is_missing_told = False
        self._stream = stream
        self._reactor = reactor
        self._opened: Sequence[str] = ()
        self._timer: IDelayedCall | None = None
        self._is_over = False

    async def open(
        self, sleep: Callable[[float], Awaitable[None]], waits: Callable[[str], None]
    ) -> None:
        """
        Wait until the stream can be reached.

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
        """
        The stream was opened with these warnings; look at it from now on.
        """
        self._opened = warnings
        self._tell(warnings)
        self._look()

    def stop(self) -> None:
        """
        Look no more.
        """
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
        """
        Whoever follows and appends finds out what is wrong with the stream.
        """
        failure.trap(StreamError)
        self.copies = None

    def _found(self, found: Health) -> None:
        if not self._is_over:
            self._look_at_settings(found.problems)
            self._look_at_copies(found.copies)

    def _look_at_settings(self, found: Sequence[str]) -> None:
        before = self.problems
        self.problems = tuple(each for each in found if each not in self._opened)
        self._tell([each for each in self.problems if each not in before])
        if before and not self.problems:
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

    def _tell(self, lines: Sequence[str]) -> None:
        for warning in lines:
            self.log.warn("{warning}", event="stream-settings", warning=warning)
