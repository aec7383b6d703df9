"""An endpoint of one queue on several hosts, connected when one of them has answered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.client.errors import NoHost, TlsFailed
from beanstalk_twisted.client.hosts.rounds import ASK, NEXT_S, Round, is_answer, limit_s


class Host(NamedTuple):
    """
    :ivar name: as it is told.
    :ivar endpoint: the way to it.
    """

    name: str
    endpoint: IStreamClientEndpoint


@implementer(IStreamClientEndpoint)
class HostsEndpoint:
    """
    The way to whichever host answers first.  It fails with `errors.NoHost` when none does, or with
    `errors.TlsFailed` if one cannot be trusted.

    :ivar host: the name of the one that has answered last; None if none has.
    """

    def __init__(self, clock: IReactorTime, hosts: Sequence[Host]) -> None:
        self.host: str | None = None
        self._clock = clock
        self._hosts = hosts
        self._last = 0
        self._lost = 0

    def __repr__(self) -> str:
        return f"<HostsEndpoint {', '.join(host.name for host in self._hosts)}>"

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Try the hosts, beginning with the one that has answered last; the protocol is made for the
        one that answers.
        """
        search = _Search(self._clock, self._hosts, self._last, limit_s(self._lost))
        search.begin_next()
        return search.found.addCallbacks(
            self._hand_over, self._not_found, callbackArgs=(protocolFactory,)
        )

    def _not_found(self, failure: Failure) -> Failure:
        self._lost += 1
        return failure

    def _hand_over(self, found: "tuple[int, Greeting]", factory: IProtocolFactory) -> Any:
        self._last, greeting = found
        self._lost = 0
        self.host = self._hosts[self._last].name
        return greeting.hand_over(factory)


class _Search:
    """
    One round.

    :ivar found: fires with the number of the host that has answered, and its connection.
    """

    def __init__(
        self, clock: IReactorTime, hosts: Sequence[Host], first: int, host_limit_s: float
    ) -> None:  # fmt: skip
        self.found: Deferred[Any] = Deferred(lambda _: self._end())
        self._clock = clock
        self._hosts = hosts
        self._limit_s = host_limit_s
        self._round: Round[Exception] = Round(len(hosts), first)
        self._tries: dict[int, Deferred[Any]] = {}
        self._timer: IDelayedCall | None = None
        self._is_over = False

    def begin_next(self) -> None:
        """Try another host, beside those that are still being tried."""
        cancel(self._timer)
        host = self._round.begin()
        more = self._round.has_more
        self._timer = self._clock.callLater(NEXT_S, self.begin_next) if more else None
        greeting = Factory.forProtocol(Greeting)
        greeting.noisy = False
        trying: Deferred[Any] = self._hosts[host].endpoint.connect(greeting)
        trying.addCallback(lambda made: made.done)
        trying.addTimeout(self._limit_s, self._clock, _late)
        self._tries[host] = trying
        trying.addCallbacks(self._answered, self._failed, callbackArgs=(host,), errbackArgs=(host,))

    def _answered(self, greeting: "Greeting", host: int) -> None:
        del self._tries[host]
        self._end()
        self.found.callback((host, greeting))

    def _failed(self, failure: Failure, host: int) -> None:
        del self._tries[host]
        if self._is_over:
            return  # It was dropped for another one.
        assert isinstance(failure.value, Exception)
        self._round.failed(host, failure.value)
        if self._round.is_lost:
            self._end()
            self.found.errback(self._reason())
        elif self._round.has_more:
            self.begin_next()

    def _reason(self) -> Exception:
        reasons = self._round.reasons
        for why in reasons.values():
            if isinstance(why, TlsFailed) and not why.fault.may_pass:
                return why  # It stays so until somebody has seen to it.
        return NoHost({self._hosts[host].name: why for host, why in reasons.items()})

    def _end(self) -> None:
        """Drop what is still being tried."""
        self._is_over = True
        cancel(self._timer)
        self._timer = None
        for trying in list(self._tries.values()):
            trying.cancel()


def _late(outcome: Any, seconds: float) -> Any:
    if isinstance(outcome, Failure) and outcome.check(CancelledError):
        return Failure(TimeoutError(f"no answer within {seconds:g} s"))
    return outcome


class Greeting(Protocol):
    """
    Waits for a host's first answer, then gives everything to the protocol that is made for it.

    :ivar done: fires with this when it has answered; fails with why it has not.
    """

    transport: Any

    def __init__(self) -> None:
        self.done: Deferred[Greeting] = Deferred(lambda _: self.transport.abortConnection())
        self._received = b""
        self._protocol: IProtocol | None = None

    def connectionMade(self) -> None:
        self.transport.write(ASK)

    def hand_over(self, factory: IProtocolFactory) -> IProtocol | None:
        """Let the factory's protocol have the connection; None if it makes none."""
        self._protocol = factory.buildProtocol(self.transport.getPeer())
        if self._protocol is None:
            self.transport.abortConnection()
        else:
            self._protocol.makeConnection(self.transport)
        return self._protocol

    def dataReceived(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.dataReceived(data)
        elif not self.done.called:
            self._received += data
            self._look()

    def _look(self) -> None:
        try:
            has_answered = is_answer(self._received)
        except ValueError as problem:
            self.transport.abortConnection()
            self.done.errback(problem)
        else:
            if has_answered:
                self.done.callback(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._protocol is not None:
            self._protocol.connectionLost(reason)
        elif not self.done.called:
            self.done.errback(_before_any_answer(reason))


def _before_any_answer(reason: Failure) -> Failure:
    if reason.check(ConnectionDone, ConnectionLost):
        return Failure(ConnectionAbortedError("it has closed the connection before any answer"))
    return reason
