"""The HTTP server: from a request to its operation, and back."""

import os
from collections.abc import Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import (
    IAddress,
    IProtocolNegotiationFactory,
    IReactorTime,
    ISSLTransport,
)
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPFactory
from zope.interface import implementer

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.access.tokens import TokenHash
from beanstalk_twisted.printable import escape_all
from beanstalk_twisted.server.access_control import AccessControl
from beanstalk_twisted.server.admissions import Known
from beanstalk_twisted.server.connections.turns import SharedTurns
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.channel import (
    REQUEST_S,
    BoundedChannel,
    BoundedRequest,
    HttpConnections,
    PieceSender,
    StreamOutlet,
    lower_case,
)
from beanstalk_twisted.web.exchange import Answer, Call, Document, Operations, Refusal, problem
from beanstalk_twisted.web.logins import (
    HEADERS,
    WRITE_HEADER,
    Logins,
    challenge_for,
    check_route,
    host_is_ours,
    is_own_request,
    known_by,
    refusal_of,
)
from beanstalk_twisted.web.replication import why_closed
from beanstalk_twisted.web.routes import (
    HEALTH_CHECKS,
    LOGIN,
    OF_STANDBYS,
    OPEN,
    NoRoute,
    Route,
    RouteTable,
    WrongMethod,
)

FULL: Final = "there are as many connections as there may be; only health checks are answered"

MAX_AUDIT_BYTES: Final = 400
"""Bytes of a path that the log shows of a change: a tube's name, every byte with three."""

TICK_S: Final = 1.0
"""Seconds between two ticks of a `Ticking` part: as often as a person can read numbers."""

UNIX_SOCKET: Final = "a UNIX socket"
"""In place of a peer's address; requests of several such peers cannot be told apart."""

MAX_QUERY_FIELDS: Final = 32
"""Fields of a query: no operation knows more than a few."""


class HttpSettings(NamedTuple):
    """Settings of the HTTP endpoint.

    :ivar names: by which it may be called, besides IP addresses and ``localhost``, in lower case.
    :ivar metrics_tubes: how many tubes have metrics of their own.
    """

    names: frozenset[str] = frozenset()
    may_write: bool = False
    metrics_tubes: int = 100


class Part:
    """A background service that runs while the endpoint is open."""

    def start(self) -> None:
        """Begin: the first port is open."""

    def stop(self) -> None:
        """End, and leave no timer."""


class Ticking(Part):
    """One that ticks each second from a second on: the ports are open before the log is."""

    def __init__(self, reactor: IReactorTime) -> None:
        self._ticking = LoopingCall(self._tick)
        self._ticking.clock = reactor

    def start(self) -> None:
        self._ticking.start(TICK_S, now=False)

    def stop(self) -> None:
        if self._ticking.running:
            self._ticking.stop()

    def _tick(self) -> None:
        raise NotImplementedError


class SiteRequest(BoundedRequest):
    log = Logger()
    _is_change = False
    _identity = ""
    _known: Known | None = None
    _rules: AccessRules | None = None
    _login: TokenHash | None = None

    def answer(self) -> None:
        site: Site = self.channel.factory
        site.requests += 1
        try:
            answer = self._answered(site)
        except Refusal as refusal:
            answer = self._told(refusal)
        except WrongMethod as wrong:
            detail = f"this path has {wrong.allowed}"
            answer = problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, {"Allow": wrong.allowed})
        except NoRoute:
            answer = problem(HTTPStatus.NOT_FOUND, "there is no such path")
        except Exception:
            answer = self._failed(Failure())
        if isinstance(answer, Deferred):
            answer.addErrback(self._refused)
            self.notifyFinish().addErrback(lambda _: answer.cancel())
            answer.addCallback(self._send, site)
        else:
            self._send(answer, site)

    def _answered(self, site: "Site") -> Answer | Deferred[Document]:
        headers = lower_case(self)
        self._check_host(headers, site.settings.names)
        path, _, query = self.uri.decode("latin-1").partition("?")
        route, parameters = site.table.find(self.method.decode("latin-1"), path)
        if self.channel.is_for_health and route.operation not in HEALTH_CHECKS:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, FULL)
        why = why_closed(site.service.situation())
        if why and route.operation not in OF_STANDBYS:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, why)
        self._is_change = route.writes
        if route.writes and not site.settings.may_write:
            detail = "this endpoint is read-only; start the server with --http-write"
            raise Refusal(HTTPStatus.FORBIDDEN, detail)
        if route.method == "POST" and not is_own_request(headers):
            detail = f"a request that changes something has the header {WRITE_HEADER}, and no other"
            raise Refusal(HTTPStatus.FORBIDDEN, f"{detail} origin than this server")
        peer = "" if self._who == UNIX_SOCKET else self._who
        fields, body = _fields(query, route), self.content.getvalue()
        is_secure = ISSLTransport.providedBy(self.channel.transport)
        call = Call(parameters, fields, headers, body, peer, is_secure=is_secure)
        if route.writes and peer:
            site.service.audit.begin_request(peer)
        access = site.service.access
        if access is None or route.asks == OPEN:
            return self._carry_out(site, route, call)
        self._login = None if route.asks == LOGIN else site.logins.find(headers, access.rules)
        shown = headers.get("authorization", "")
        known = known_by(access, self.channel.transport, self._login, shown)
        return known.addCallback(self._allowed, site, access, route, call)

    def _allowed(
        self, known: Known, site: "Site", access: AccessControl, route: Route, call: Call
    ) -> Any:
        """:raise Refusal: the route is not for this client."""
        if route.writes:
            self._identity = access.rules.identify(*known).name
        check_route(access.rules, known, route)
        self._known, self._rules = known, access.rules
        return self._carry_out(site, route, call._replace(known=known))

    def _carry_out(self, site: "Site", route: Route, call: Call) -> Answer | Deferred[Document]:
        self.channel.is_carrying_out = True
        return site.operations[route.operation](route.checked(call))

    @property
    def _who(self) -> str:
        """The client's address and port."""
        client = self.client
        if isinstance(client, IPv6Address):
            return f"[{client.host}]:{client.port}"
        return f"{client.host}:{client.port}" if isinstance(client, IPv4Address) else UNIX_SOCKET

    def _check_host(self, headers: Mapping[str, str], names: Collection[str]) -> None:
        """:raise Refusal: the request is for another server, or for none."""
        given = self.requestHeaders.getRawHeaders(b"host") or []
        if len(given) > 1 or (not given and self.clientproto != b"HTTP/1.0"):
            raise Refusal(HTTPStatus.BAD_REQUEST, "a request has one header Host")
        if given and not host_is_ours(headers["host"], names):
            raise Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server is not known by that name; start it with --http-host NAME",
            )

    def _refused(self, failure: Failure) -> Document:
        if isinstance(failure.value, Refusal):
            return self._told(failure.value)
        if failure.check(CancelledError):
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "it was not waited for")
        return self._failed(failure)

    def _told(self, refusal: Refusal) -> Document:
        """Ask a client without an identity for one."""
        if refusal.status == HTTPStatus.FORBIDDEN and self._known is not None:
            refusal = refusal_of(self._known)
        headers = {}
        if refusal.status == HTTPStatus.UNAUTHORIZED:
            headers = {"WWW-Authenticate": challenge_for(lower_case(self))}
        return problem(refusal.status, refusal.detail, headers)

    def _failed(self, failure: Failure) -> Document:
        """Show the reason to the log alone."""
        self.log.failure("while answering an HTTP request", failure, event="http-failed")
        detail = "the server's log says what happened; nothing was lost"
        return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail)

    def _send(self, answer: Answer, site: "Site") -> None:
        # A change is logged whether or not its client still waits.
        if self._is_change and isinstance(answer, Document):
            path = escape_all(self.uri.partition(b"?")[0][:MAX_AUDIT_BYTES])
            site.service.audit.tell_request(self._who, path, answer.status, self._identity)
        if self._disconnected:
            return
        if isinstance(answer, Document):
            self._set_head(answer.status, answer.content_type, answer.headers)
            if isinstance(answer.body, bytes):
                self.responseHeaders.setRawHeaders("Content-Length", [str(len(answer.body))])
                request: Any = self
                request.write(answer.body)
                request.finish()
            else:
                PieceSender(self, answer.body, site.reactor, site.turns).begin()
        else:
            self._set_head(HTTPStatus.OK, answer.content_type, {})
            StreamOutlet(self, answer, partial(self._is_outdated, site)).begin()

    def _is_outdated(self, site: "Site") -> bool:
        """Return whether the access file was read again since, or the login has ended: then a
        stream ends, and its client has to show a token again.
        """
        access = site.service.access
        if self._rules is None or access is None:
            return False
        if access.rules is not self._rules:
            return True
        return self._login is not None and site.logins.find(lower_case(self), self._rules) is None

    def _set_head(self, status: int, content_type: str, own: Mapping[str, str]) -> None:
        self.setResponseCode(status, HTTPStatus(status).phrase.encode())
        for name, value in {**HEADERS, "Content-Type": content_type, **own}.items():
            self.responseHeaders.setRawHeaders(name, [value])


def _fields(query: str, route: Route) -> dict[str, str]:
    """:raise Refusal: they are too many, or wrong, or one is unknown."""
    try:
        fields = dict(parse_qsl(
            query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS, errors="strict",
        ))  # fmt: skip
    except ValueError:
        detail = f"the query is not UTF-8, or has more than {MAX_QUERY_FIELDS} fields"
        raise Refusal(HTTPStatus.BAD_REQUEST, detail) from None
    route.check_names(fields)
    return fields


@implementer(IProtocolNegotiationFactory)
class Site(HTTPFactory):
    """The endpoint: HTTP/1.1 on any number of ports.

    :ivar turns: divides turns among replies in pieces, and requests that came at once.
    """

    protocol = BoundedChannel  # type: ignore[assignment]
    noisy = False

    def __init__(
        self, service: BeanstalkService, settings: HttpSettings, reactor: IReactorTime
    ) -> None:
        super().__init__(timeout=REQUEST_S, reactor=reactor)
        self.service = service
        self.settings = settings
        self.operations: Operations = {}
        self.table = RouteTable()
        self.parts: list[Part] = []
        self.turns = SharedTurns(reactor)
        self.logins = Logins(reactor.seconds, os.urandom)
        self.requests = 0
        self.connections = HttpConnections(reactor)

    def buildProtocol(self, addr: Any) -> Any:
        channel: Any = super().buildProtocol(addr)
        channel.requestFactory = SiteRequest
        self.connections.take(channel, addr)
        return channel

    def acceptableProtocols(self) -> list[bytes]:
        """No HTTP/2, whose connections are not bounded here."""
        return [b"http/1.1"]

    def startFactory(self) -> None:
        """Unlike Twisted's, it opens no access log."""
        for part in self.parts:
            part.start()

    def stopFactory(self) -> None:
        for part in self.parts:
            part.stop()
        self.connections.stop()
        self.turns.stop()

    def log(self, request: object) -> None:
        """Requests are not logged."""


@implementer(IProtocolNegotiationFactory)
class PresentSite(Factory):
    """Serves the site of the present term; connections end with it."""

    noisy = False

    def __init__(self) -> None:
        self._site: Site | None = None
        self._is_open = False

    def show(self, site: Any) -> None:
        """:param site: the present term's; None while there is none."""
        if self._is_open and self._site is not None:
            self._site.stopFactory()
        self._site = site
        if self._is_open and site is not None:
            site.startFactory()

    def buildProtocol(self, addr: IAddress | None) -> Any:
        return None if self._site is None else self._site.buildProtocol(addr)

    def acceptableProtocols(self) -> list[bytes]:
        return [] if self._site is None else self._site.acceptableProtocols()

    def startFactory(self) -> None:
        self._is_open = True
        if self._site is not None:
            self._site.startFactory()

    def stopFactory(self) -> None:
        if self._site is not None:
            self._site.stopFactory()
        self._is_open = False
