"""
Where the replies of a connection leave.

Twisted's `transport.write` waits for the reactor to say that the socket takes bytes, which it
nearly always does: two calls of `epoll_ctl` and one more round through the reactor for each reply.
So what can be sent at once is, through the socket itself.  What the socket does not take goes to
`transport.write`, and so does all that follows until that buffer is empty: the two never mix.

Round trips on 50 connections, processor time a command: 4.9 times beanstalkd's by
`transport.write` for each reply, 3.6 times this way (unoptimised CPython 3.11).
"""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.interfaces import IPullProducer
from twisted.internet.tcp import Connection
from zope.interface import implementer


class Source(Protocol):
    """
    What makes the output; an IPushProducer.
    """

    def pauseProducing(self) -> None:
        """
        The peer does not read.
        """

    def resumeProducing(self) -> None:
        """
        The peer has read all.
        """


def is_plain(transport: object) -> bool:
    """
    Whether what is written to a transport is what goes through its socket: no TLS, no wrapper.
    """
    return isinstance(transport, Connection) and not getattr(transport, "TLS", False)


@implementer(IPullProducer)
class Outlet:
    """
    Sends at once what it can; see `is_plain` for when it does not try.
    """

    __slots__ = ("_is_direct", "_is_registered", "_send", "_source", "_transport")

    def __init__(self, transport: Any, source: Source) -> None:
        """
        :param source: told to stop when the peer does not read, and to go on when it has.
        """
        self._transport = transport
        self._source = source
        self._is_registered = False
        self._is_direct = is_plain(transport)
        if self._is_direct:
            self._send: Callable[[bytes], int] = transport.getHandle().send
        else:
            transport.registerProducer(source, True)

    def write(self, output: bytes) -> None:
        """
        Send this behind all that was written before.
        """
        if not self._is_direct:
            self._transport.write(output)
            return
        try:
            sent = self._send(output)
        except OSError:
            # It takes nothing now, or it is broken, which Twisted will find out.
            sent = 0
        if sent != len(output):
            self._leave(output[sent:])

    def close(self) -> None:
        """
        Nothing is to hold up the end of the connection any more.
        """
        self._is_direct = False
        self._transport.unregisterProducer()

    def _leave(self, rest: bytes) -> None:
        """
        A transport tells those who feed it by the spoonful when it is empty.
        """
        self._is_direct = False
        self._transport.write(rest)
        self._source.pauseProducing()
        self._transport.registerProducer(self, False)
        self._is_registered = True

    def resumeProducing(self) -> None:
        """
        The transport has sent all; the first call, from `registerProducer`, comes too early.
        """
        if self._is_registered:
            self._is_registered = False
            self._transport.unregisterProducer()
            self._is_direct = True
            self._source.resumeProducing()

    def stopProducing(self) -> None:
        """
        The connection ends; the source is told by its own means.
        """
        self._is_direct = self._is_registered = False
