"""
Taking new connections a few at a time.

Twisted's `Port` accepts as many connections in one call as came in the one before, and 20 more: in
a storm of connections those who are there already wait for hundreds of others to be set up.  An
`AcceptLimiter` stands in a port's place in the reactor and lets it take `MAX_ACCEPTS` in a round;
the others wait in the kernel's queue, where they cost nothing.
"""

from typing import Final

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.internet.tcp import Port
from twisted.python.failure import Failure
from zope.interface import implementer

MAX_ACCEPTS: Final = 8
"""
Connections that a port takes in one round of the reactor: some 2 ms at most, with what each costs
when it begins and ends, and a small part of a turn.
"""


@implementer(IReadDescriptor)
class AcceptLimiter:
    """
    Reads a port's new connections in its stead.
    """

    def __init__(self, reactor: IReactorFDSet, port: Port) -> None:
        """
        :param port: which listens.
        """
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
        """
        :return: the port's.
        """
        return int(self._port.fileno())

    def doRead(self) -> None:
        """
        Take the next few connections.
        """
        self._port.numberAccepts = MAX_ACCEPTS
        self._port.doRead()

    def logPrefix(self) -> str:
        """
        See `ILoggingContext.logPrefix`.
        """
        return str(self._port.logPrefix())

    def connectionLost(self, reason: Failure) -> None:
        """
        The reactor ends.
        """
        self._port.connectionLost(reason)
