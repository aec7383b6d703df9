"""
Accepting connections: a few at a time, and those that are refused counted in one line a minute.
"""

import errno
from typing import Any, Final

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.internet.tcp import Port
from twisted.logger import ILogFilterPredicate, LogEvent, Logger, PredicateResult
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats

MAX_ACCEPTS: Final = 8
"""Connections that a port takes in one round of the reactor: 2 ms with what each costs."""


@implementer(IReadDescriptor)
class AcceptLimiter:
    """
    Reads a port's new connections in its stead, `MAX_ACCEPTS` in a round of the reactor.
    """

    def __init__(self, reactor: IReactorFDSet, port: Port) -> None:
        self._reactor = reactor
        self._port = port
        reactor.removeReader(port)
        reactor.addReader(self)

    def stop(self) -> None:
        """
        Take no more; call this before the port stops listening.
        """
        self._reactor.removeReader(self)

    # What the reactor calls.

    def fileno(self) -> int:
        return int(self._port.fileno())

    def doRead(self) -> None:
        """
        Take the next few connections.
        """
        self._port.numberAccepts = MAX_ACCEPTS
        self._port.doRead()

    def logPrefix(self) -> str:
        return str(self._port.logPrefix())

    def connectionLost(self, reason: Failure) -> None:
        self._port.connectionLost(reason)


ACCEPTS: Final = "twisted.internet.tcp.Port"
"""Namespace of the lines that Twisted logs while it accepts connections."""

OUT_OF_DESCRIPTORS: Final = (
    f"no file descriptors are left ({errno.errorcode[errno.EMFILE]}); raise 'ulimit -n' or "
    f"LimitNOFILE of the unit"
)


class RefusalLog:
    """
    Counts what is refused for one reason and logs the number, as `Repeats` does.

    :ivar total: of all of them.
    """

    log = Logger()

    def __init__(self, clock: Clock, why: str) -> None:
        """
        :param why: the reason and what to do about it, as it goes on behind "connections refused:".
        """
        self._repeats: Repeats[str] = Repeats(clock, self._tell)
        self._why = why
        self.total = 0

    def note(self) -> None:
        """
        Count one more.
        """
        self.total += 1
        self._repeats.note(self._why)

    def stop(self) -> None:
        """
        Log what was counted and not told yet; leave no timer.
        """
        self._repeats.stop()

    def _tell(self, count: int, why: str) -> None:
        noun = "connection" if count == 1 else "connections"
        self.log.warn(
            "{count} {noun} refused: {why}", event="connections-refused",
            count=count, noun=noun, why=why,
        )  # fmt: skip


@implementer(ILogFilterPredicate)
class AcceptErrors:
    """
    Takes out of a log what Twisted's ports say of connections that they cannot accept, three lines
    and more for each, and counts them in a `RefusalLog`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals: dict[str, RefusalLog] = {}

    def __call__(self, event: LogEvent) -> Any:
        """
        :return: ``no`` for what is counted instead, ``maybe`` for all others.
        """
        said = event.get("log_format") or ""
        if event.get("log_namespace") != ACCEPTS:
            return PredicateResult.maybe
        if said.startswith("Could not accept new connection"):
            self._count(f"they cannot be accepted ({event.get('acceptError')})")
        elif "Closed socket from" in said:
            self._count(OUT_OF_DESCRIPTORS)
        elif "EMFILE" not in said:
            return PredicateResult.maybe
        return PredicateResult.no

    def stop(self) -> None:
        """
        Log what was counted and not told yet; leave no timer.
        """
        for refusals in self._refusals.values():
            refusals.stop()

    def _count(self, why: str) -> None:
        if why not in self._refusals:
            self._refusals[why] = RefusalLog(self._clock, why)
        self._refusals[why].note()
