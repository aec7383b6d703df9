"""The way to a server on Twisted, and when to try it again."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, UNIXClientEndpoint
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client import tls_faults as faults
from beanstalk_twisted.client.addresses import (
    ASK,
    NEXT_S,
    TLS_URL,
    Address,
    Round,
    is_answer,
    limit_s,
)
from beanstalk_twisted.client.errors import NoHost, ServerClosed, TlsFailed, without_server
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.tls_faults import TlsFault

FIRST_S: Final = 0.1
"""Before the first try again, seconds: a server that is restarted is often back at once."""

MOST_S: Final = 30.0
"""At most, seconds: a server that is back is found within half a minute."""

FACTOR: Final = 2.0
"""Each wait is longer than the one before by this factor."""

UNANSWERED: Final = (
    "the server has closed it before any answer; if it speaks TLS, write tls://HOST:PORT"
)
"""Why a plain connection was lost."""

SERVER_LOG: Final = "beanstalk_twisted.client.server"
"""The namespace in which a client logs that its server is not there, and that it is again."""

# One that belongs to a class is renamed after it.
_log = Logger(namespace=SERVER_LOG)


class Host(NamedTuple):
    """A host and the way to it."""

    name: str
    endpoint: IStreamClientEndpoint


@implementer(IStreamClientEndpoint)
class HostsEndpoint:
    """The way to whichever host answers first.  It fails with `errors.NoHost` when none does, or
    with `errors.TlsFailed` if one cannot be trusted.  ``host`` is the last that has answered.
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
        """Try the hosts; the protocol is made for the one that answers."""
        search = _Search(self._clock, self._hosts, self._last, limit_s(self._lost))
        search.begin_next()

        def hand_over(found: tuple[int, Greeting]) -> Any:
            self._last, greeting = found
            self._lost = 0
            self.host = self._hosts[self._last].name
            return greeting.hand_over(protocolFactory)

        def not_found(failure: Failure) -> Failure:
            self._lost += 1
            return failure

        return search.found.addCallbacks(hand_over, not_found)


class _Search:
    """:ivar found: fires with the number of the host that has answered, and its connection."""

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
        """Try another host, besides those that are still being tried."""
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
                return why  # It stays so until that is changed.
        return NoHost({self._hosts[host].name: why for host, why in reasons.items()})

    def _end(self) -> None:
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
    """:ivar done: fires with this when the host has answered; fails with why it has not."""

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
            if reason.check(ConnectionDone, ConnectionLost):
                why = ConnectionAbortedError("it has closed the connection before any answer")
                reason = Failure(why)
            self.done.errback(reason)


class Way(NamedTuple):
    """The way to a server.

    :ivar name: of the server, without a token and files.
    :ivar token: that of its address; None for none.
    """

    endpoint: IStreamClientEndpoint
    name: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"<Way {self.name}>"


def way_to(reactor: Any, server: str | Address | IStreamClientEndpoint) -> Way:
    """:raise ValueError: the text is no address, or a file that it names is not what it should be.
    :raise TypeError: it is neither an address nor an endpoint.
    """
    if not isinstance(server, str | Address):
        if not callable(getattr(server, "connect", None)):
            raise TypeError(f"a server is HOST:PORT or an endpoint of Twisted's, not {server!r}")
        return Way(server, f"{server!r}")
    address = Address.of(server)
    try:
        hosts = [Host(str(host), _host_endpoint(reactor, host)) for host in address.hosts]
    except ImportError as problem:
        raise ValueError(f"{address}: {faults.EXTRA} ({problem})") from None
    except TlsFault as fault:
        raise ValueError(f"{address}: {fault}") from None
    endpoint = hosts[0].endpoint if len(hosts) == 1 else HostsEndpoint(reactor, hosts)
    return Way(endpoint, str(address), address.token)


def _host_endpoint(reactor: Any, address: Address) -> IStreamClientEndpoint:
    """:raise TlsFault: a file that it names is not what it should be.
    :raise ImportError: there is no OpenSSL.
    """
    if not address.port:
        return UNIXClientEndpoint(reactor, address.host)
    # For a name Twisted reports a refusal 0.3 s later: it may have more addresses.
    is_ip = isIPAddress(address.host) or isIPv6Address(address.host)
    plain = (TCP4ClientEndpoint if is_ip else HostnameEndpoint)(reactor, address.host, address.port)
    if address.tls is None:
        return plain
    from beanstalk_twisted.client.tls import TlsEndpoint

    return TlsEndpoint(reactor, address, plain)


def the_reactor() -> Any:
    """Give the one that is installed, or install the default."""
    from twisted.internet import reactor

    return reactor


class Backoff:
    """A retry policy for Twisted's `ClientService`.

    That counts failed tries, and starts again with each connection made.  Here a connection counts
    as made only when the server has answered on it (`succeeded`): one that accepts and hangs up is
    not tried faster and faster.
    """

    def __init__(
        self, random: Callable[[], float], first_s: float = FIRST_S, most_s: float = MOST_S
    ) -> None:
        """:param random: gives a number from 0 up to 1 for each call."""
        self._random = random
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = self._before_s = first_s

    def __call__(self, attempt: int = 0) -> float:
        """Give the seconds to wait: between half and all of what is due, so that a thousand clients
        of a server that was restarted do not come back as one.
        """
        due_s, self._next_s = self._next_s, min(self._next_s * FACTOR, self._most_s)
        return due_s * (1 + self._random()) / 2

    def succeeded(self) -> None:
        self._next_s, self._before_s = self._first_s, self._next_s

    def turned_away(self) -> None:
        """The server has refused our token, or a tube: wait as long as ever.  No restart changes
        that, and each try has the next token from our address wait longer.
        """
        self._next_s = self._most_s

    def disappointed(self) -> None:
        """What was there was no server of our protocol: `succeeded` came too early."""
        self._next_s = max(self._next_s, self._before_s)


@implementer(IStreamClientEndpoint)
class LoggedEndpoint:
    """Logs when its server becomes unavailable, and when it is available again or on another host.

    :ivar trouble: why it could not be used the last time; None when it could.
    """

    def __init__(
        self, endpoint: IStreamClientEndpoint, name: str, logs: bool,
        failed: Callable[[BaseException], object] = lambda why: None,
    ) -> None:  # fmt: skip
        """:param failed: called with the reason, each time that there is no connection."""
        self.name = name
        self.trouble: BaseException | None = None
        self._on_failure = failed
        self._endpoint = endpoint
        self._logs = logs
        self._is_unavailable = False
        self._host: str | None = None

    def __repr__(self) -> str:
        return f"{self._endpoint!r}"

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        connecting: Deferred[Any] = self._endpoint.connect(protocolFactory)
        return connecting.addErrback(self._failed)

    def _failed(self, failure: Failure) -> Failure:
        if not failure.check(CancelledError):  # As it is when the client is stopped.
            assert failure.value is not None
            self.unavailable(failure.value)
        return failure

    def unavailable(self, why: BaseException) -> None:
        was_unavailable, self._is_unavailable = self._is_unavailable, True
        self.trouble = why
        if self._logs and not was_unavailable:
            # A server that expects TLS closes what is plain without a word.
            is_plain = not self.name.startswith(TLS_URL)
            is_silent = is_plain and isinstance(why, ServerClosed)
            _log.warn("no connection to {server}: {why}; retrying", server=self.name,
                      why=UNANSWERED if is_silent else without_server(why))  # fmt: skip
        self._on_failure(why)

    def available(self) -> None:
        was_unavailable, self._is_unavailable = self._is_unavailable, False
        self.trouble = None
        host = self._endpoint.host if isinstance(self._endpoint, HostsEndpoint) else None
        before, self._host = self._host, host
        if self._logs and (was_unavailable or before not in (None, host)):
            at = "" if host is None else f", which {host} serves"
            _log.info("connected to {server}{at}", server=self.name, at=at)

    def reset(self) -> None:
        self._is_unavailable = False
