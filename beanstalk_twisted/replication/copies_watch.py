"""
Asks a stream from time to time where it is stored, so that people hear of a NATS server that is
gone before a second one is.
"""

from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.replication.stream.door import Copies, Stream, StreamError
from beanstalk_twisted.replication.waits import in_reactor
from beanstalk_twisted.storage.io_thread import Reactor

COPIES_S: Final = 10.0
"""
Seconds from one answer to the next question: one small request, which alerts need no more often.
"""

SURE_TIMES: Final = 2
"""
So often in a row a copy is seen to lack something before the log says so: one that fell behind on a
busy disk is seen so once.
"""


class CopiesWatch:
    """
    :ivar found: what was answered last; None if nothing was.
    """

    log = Logger()

    def __init__(self, reactor: Reactor) -> None:
        self.found: Copies | None = None
        self._reactor = reactor
        self._stream: Stream | None = None
        self._timer: IDelayedCall | None = None
        self._times_missing = 0
        self._is_told = False

    def start(self, stream: Stream) -> None:
        """
        :param stream: that is open.
        """
        self._stream = stream
        self._ask()

    def stop(self) -> None:
        """
        Ask nothing more.
        """
        self._stream = None
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _ask(self) -> None:
        if self._stream is not None:
            asked: Deferred[Copies] = in_reactor(self._stream.copies(), self._reactor)
            asked.addCallbacks(self._answered, self._unanswered).addBoth(self._later)

    def _later(self, ignored: object) -> None:
        if self._stream is not None:
            self._timer = self._reactor.callLater(COPIES_S, self._ask)

    def _unanswered(self, failure: Failure) -> None:
        failure.trap(StreamError)
        self.found = None

    def _answered(self, found: Copies) -> None:
        self.found = found
        self._times_missing = self._times_missing + 1 if found.missing else 0
        if self._times_missing >= SURE_TIMES and not self._is_told:
            self._is_told = True
            self.log.warn(
                "the stream has {copies}. It goes on as long as these are a majority: see to the "
                "others.", event="copies-missing",
                copies=str(found),
            )  # fmt: skip
        elif self._is_told and not found.missing:
            self._is_told = False
            self.log.info("the stream has {copies}", event="copies-whole", copies=str(found))
