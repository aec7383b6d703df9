"""
Logins: what the cookie of a browser stands for, so that no page keeps a token.

A login ends after `LOGIN_S`, when it is ended, when its token has begun `MAX_LOGINS` newer ones,
and when the access file no longer has its token.  What it may do is asked with each request.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.access.tokens import TokenHash

LOGIN_S: Final = 43_200
"""Seconds that a login lasts: half a day, so that nobody has to log in twice while they work."""

MAX_LOGINS: Final = 32
"""Logins of one token: a team's browsers; with one more the oldest ends, and nobody else's."""

SECRET_BYTES: Final = 32
"""Of chance in a cookie: it cannot be guessed, so that wrong ones need not wait."""

COOKIE: Final = "beanstalk-login"
"""What the cookie's name begins with."""

SECURE: Final = "__Host-"
"""
What it begins with over TLS: browsers then take such a cookie from this host alone, and not from
its neighbours in the domain.
"""

ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Strict"


class _Login(NamedTuple):
    """
    A login.

    :ivar ends_at: by the clock's seconds.
    """

    shown: TokenHash
    ends_at: float


class Logins:
    """All logins of a server.  They are in memory only: after a start everybody logs in again."""

    def __init__(self, seconds: Callable[[], float], chance: Callable[[int], bytes]) -> None:
        """
        :param seconds: a clock that does not jump.
        :param chance: gives so many bytes that nobody can foresee.
        """
        self._seconds = seconds
        self._chance = chance
        self._rules: AccessRules | None = None
        # By a digest of the secret: how long a look-up takes says nothing of a secret.
        self._logins: dict[bytes, _Login] = {}

    def begin(
        self, shown: TokenHash, headers: Mapping[str, str], *, is_secure: bool = False
    ) -> str:
        """
        Log somebody in.

        :param shown: the hash of the token that they have.
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
        """
        :param headers: of a request, by lower-case name.
        :param rules: those that hold now.
        :return: the token that its login was begun with; None if it has no login.
        """
        if rules is not self._rules:
            self._rules = rules
            kept = [(mark, each) for mark, each in self._logins.items() if rules.has(each.shown)]
            self._logins = dict(kept)
        found = self._logins.get(_mark(secret_in(headers)))
        return found.shown if found is not None and found.ends_at > self._seconds() else None

    def end(self, headers: Mapping[str, str], *, is_secure: bool = False) -> str:
        """
        Log a browser out.

        :param is_secure: whether the connection itself is TLS.
        :return: the header Set-Cookie.
        """
        self._logins.pop(_mark(secret_in(headers)), None)
        return _set(headers, "", is_secure=is_secure) + "; Max-Age=0"


def secret_in(headers: Mapping[str, str]) -> str:
    """Find the secret in a header Cookie; empty if it has none."""
    pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
    values = {name: value for name, _, value in pairs}
    name = _name(headers)
    return values.get(SECURE + name) or values.get(name, "")


def _mark(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _name(headers: Mapping[str, str]) -> str:
    """
    Browsers give cookies to all ports of a host: so those of several servers have several names.
    """
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdecimal() else COOKIE


def _set(headers: Mapping[str, str], value: str, *, is_secure: bool) -> str:
    """Over the TLS of a proxy, a browser names an origin that says so."""
    if is_secure or headers.get("origin", "").startswith("https://"):
        return f"{SECURE}{_name(headers)}={value}; {ATTRIBUTES}; Secure"
    return f"{_name(headers)}={value}; {ATTRIBUTES}"
