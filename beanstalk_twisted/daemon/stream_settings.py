"""
The settings of the stream, which anybody may change while servers use it: looked at again and
again.
"""

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.replication.stream.door import Stream, StreamError
from beanstalk_twisted.replication.waits import in_reactor

LOOK_S: Final = 10.0
"""From one look to the next: one request of some 100 bytes, and soon enough to undo a mistake."""


class StreamSettings:
    """
    Looks at them.

    :ivar problems: what does not keep what is promised and was not so when the stream was opened, a
        line each.
    """

    log = Logger()

    def __init__(self, stream: Stream, reactor: Any) -> None:
        self.problems: tuple[str, ...] = ()
        self._stream = stream
        self._reactor = reactor
        self._opened: Sequence[str] = ()
        self._timer: IDelayedCall | None = None
        self._is_over = False

    def opened(self, warnings: Sequence[str]) -> None:
        """
        The stream was opened with these warnings; look at it from now on.
        """
        self._opened = warnings
        self._tell(warnings)
        self._wait()

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
        asked = in_reactor(self._stream.check(), self._reactor)
        looked = asked.addCallback(self._found).addErrback(_not_answered)
        looked.addCallback(lambda _: self._wait())

    def _found(self, found: Sequence[str]) -> None:
        if self._is_over:
            return
        before = self.problems
        self.problems = tuple(each for each in found if each not in self._opened)
        self._tell([each for each in self.problems if each not in before])
        if before and not self.problems:
            self.log.info(
                "{stream}: its settings are again what they were when it was opened",
                event="stream-mended", stream=self._stream.url,
            )  # fmt: skip

    def _tell(self, lines: Sequence[str]) -> None:
        for warning in lines:
            self.log.warn("{warning}", event="stream-settings", warning=warning)


def _not_answered(failure: Failure) -> None:
    """
    Whoever follows and appends finds out what is wrong with the stream.
    """
    failure.trap(StreamError)
