"""Whom the endpoint answers: hosts, origins, tokens and logins of browsers."""

import base64
import binascii
import hashlib
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, succeed

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.access.tokens import TokenHash
from beanstalk_twisted.server.access_control import AccessControl
from beanstalk_twisted.server.admissions import Known
from beanstalk_twisted.server.connections.served import host_of, peer_of
from beanstalk_twisted.web.exchange import Refusal
from beanstalk_twisted.web.routes import EVERYTHING, LOGIN, MANAGED, METRICS, SOME, Route
from beanstalk_twisted.wire.rights import LOOK, MANAGE

WRITE_HEADER: Final = "x-beanstalk-request"
"""A request that writes has it, with any value: no page of another origin can send it unasked."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every reply; an operation may replace them."""

CHALLENGE: Final = 'Basic realm="beanstalk-twisted", charset="UTF-8"'
"""Of a reply that asks who somebody is: a browser asks its reader then.  It does not name Bearer
too: Chromium does not ask when one header has two schemes.
"""

QUIET_CHALLENGE: Final = 'Bearer realm="beanstalk-twisted"'
"""The same for what a script of a page has sent: the page asks its reader, and not the browser."""

MAX_CREDENTIALS: Final = 1024
"""Characters of a header Authorization that are looked at."""

LOGIN_S: Final = 43_200
"""Seconds that a login lasts: half a day, so that nobody has to log in twice while they work."""

MAX_LOGINS: Final = 32
"""Logins of one token: a team's browsers; with one more the oldest ends, and nobody else's."""

SECRET_BYTES: Final = 32
"""Of chance in a cookie: it cannot be guessed, so that wrong ones need not wait."""

COOKIE: Final = "beanstalk-login"
"""What the cookie's name begins with."""

SECURE: Final = "__Host-"
"""What it begins with over TLS: browsers then take such a cookie from this host alone, and not from
its neighbours in the domain.
"""

ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Strict"

WHO: Final = (
    "say who you are: the header Authorization with Bearer and a token, or with Basic, the token "
    "as the password"
)
LOOKER: Final = "log in with a token that may look at all tubes"

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")


def challenge_for(headers: Mapping[str, str]) -> str:
    """:param headers: by lower-case name."""
    return QUIET_CHALLENGE if headers.get("sec-fetch-dest") == "empty" else CHALLENGE


class Credentials(NamedTuple):
    """:ivar name: of an identity; empty if it names none."""

    token: bytes
    name: str = ""


def credentials_of(header: str) -> Credentials | None:
    """Read a header Authorization: ``Bearer TOKEN``, or ``Basic`` with a name, or none, and the
    token as the password.  None if it is neither.
    """
    scheme, _, value = header[:MAX_CREDENTIALS].strip().partition(" ")
    if scheme.lower() == "bearer":
        return Credentials(value.strip().encode("latin-1", "replace"))
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, token = base64.b64decode(value.strip(), validate=True).partition(b":")
        return Credentials(token, name.decode()) if colon else None
    except (binascii.Error, ValueError):
        return None


def host_is_ours(host: str, names: Collection[str]) -> bool:
    """Return whether a header Host names this server: by ``localhost``, an IP address, or one of
    ``names``.  A page of another origin that has its own name lead to this address (DNS rebinding)
    sends that name.

    :param names: those of ``--http-host``, in lower case.
    """
    found = _HOST.fullmatch(host.strip())
    if found is None:
        return False
    name = found[1].lower().rstrip(".")
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_own_request(headers: Mapping[str, str]) -> bool:
    """Return whether a request that writes was sent by a program, or by a page of this endpoint.

    :param headers: by lower-case name.
    """
    if WRITE_HEADER not in headers:
        return False
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


class _Login(NamedTuple):
    """:ivar ends_at: by the clock's seconds."""

    shown: TokenHash
    ends_at: float


class Logins:
    """What the cookies of browsers stand for, so that no page keeps a token.  A login ends after
    `LOGIN_S`, when it is ended, when its token has begun `MAX_LOGINS` newer ones, and when the
    access file no longer has its token.  What it may do is asked with each request.  Logins are in
    memory only: after a start everybody logs in again.
    """

    def __init__(self, seconds: Callable[[], float], chance: Callable[[int], bytes]) -> None:
        """:param seconds: a clock that does not jump.
        :param chance: returns that many bytes that nobody can foresee.
        """
        self._seconds = seconds
        self._chance = chance
        self._rules: AccessRules | None = None
        # By a digest of the secret: how long a look-up takes says nothing of a secret.
        self._logins: dict[bytes, _Login] = {}

    def begin(
        self, shown: TokenHash, headers: Mapping[str, str], *, is_secure: bool = False
    ) -> str:
        """Log somebody in.

        :param is_secure: whether the connection itself is TLS.
        :return: the header Set-Cookie.
        """
        now = self._seconds()
        live = {mark: each for mark, each in self._logins.items() if each.ends_at > now}
        own = [mark for mark, each in live.items() if each.shown == shown]
        for mark in own[: max(len(own) + 1 - MAX_LOGINS, 0)]:
            del live[mark]
        secret = base64.urlsafe_b64encode(self._chance(SECRET_BYTES)).decode().rstrip("=")
        self._logins = {**live, _mark(secret): _Login(shown, now + LOGIN_S)}
        return _set(headers, secret, is_secure=is_secure)

    def find(self, headers: Mapping[str, str], rules: AccessRules) -> TokenHash | None:
        """Return the token that the login of a request was begun with; None if it has no login."""
        if rules is not self._rules:
            self._rules = rules
            kept = [(mark, each) for mark, each in self._logins.items() if rules.has(each.shown)]
            self._logins = dict(kept)
        found = self._logins.get(_mark(secret_in(headers)))
        return found.shown if found is not None and found.ends_at > self._seconds() else None

    def end(self, headers: Mapping[str, str], *, is_secure: bool = False) -> str:
        """Log a browser out, and return the header Set-Cookie."""
        self._logins.pop(_mark(secret_in(headers)), None)
        return _set(headers, "", is_secure=is_secure) + "; Max-Age=0"


def secret_in(headers: Mapping[str, str]) -> str:
    pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
    values = {name: value for name, _, value in pairs}
    name = _name(headers)
    return values.get(SECURE + name) or values.get(name, "")


def _mark(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _name(headers: Mapping[str, str]) -> str:
    """Browsers send cookies to all ports of a host: so each server has a name of its own."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdecimal() else COOKIE


def _set(headers: Mapping[str, str], value: str, *, is_secure: bool) -> str:
    """Over the TLS of a proxy, a browser names an origin that says so."""
    if is_secure or headers.get("origin", "").startswith("https://"):
        return f"{SECURE}{_name(headers)}={value}; {ATTRIBUTES}; Secure"
    return f"{_name(headers)}={value}; {ATTRIBUTES}"


def known_by(
    access: AccessControl, transport: Any, login: TokenHash | None, header: str
) -> "Deferred[Known]":
    """Find out who sends a request.

    :param login: the token that its login was begun with; None if it has none.  It comes before the
        header: browsers keep sending a password that they were once given.
    :param header: Authorization; empty if there is none.
    :return: fails with a `Refusal` if it shows a token that is nobody's.
    """
    peer = peer_of(transport)
    if login is not None or not header:
        return succeed(Known(peer, login))
    shown = credentials_of(header)
    if shown is None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, WHO)
    told: Deferred[TokenHash | None] = Deferred(lambda _: withdraw())
    withdraw = access.authenticator.ask(host_of(transport), shown.token, told.callback)
    return told.addCallback(lambda found: _known(access.rules, Known(peer, found), shown))


def _known(rules: AccessRules, known: Known, shown: Credentials) -> Known:
    is_named = not shown.name or rules.identify(*known).name == shown.name
    if known.shown is None or not is_named:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is nobody's, or not of that name")
    return known


def check_route(rules: AccessRules, known: Known, route: Route) -> None:
    """:raise Refusal: the route is not for them."""
    grant = rules.identify(*known).grant
    if route.asks in (EVERYTHING, METRICS, LOGIN):
        is_theirs = bool(grant.everywhere & LOOK)
        is_theirs |= route.asks == METRICS and rules.has_open_metrics
    elif route.asks == MANAGED:
        is_theirs = bool(grant.everywhere & MANAGE)
    else:
        is_theirs = route.asks != SOME or bool(grant.anywhere)
    if is_theirs:
        return
    if route.asks == LOGIN and known.shown is not None:
        raise Refusal(HTTPStatus.FORBIDDEN, LOOKER)
    raise refusal_of(known)


def refusal_of(known: Known | None) -> Refusal:
    """Return what a client without the right is told: to say who it is, if it has not."""
    if known is None or known.shown is None:
        return Refusal(HTTPStatus.UNAUTHORIZED, WHO)
    return Refusal(HTTPStatus.FORBIDDEN, "the access file gives no right to this")
