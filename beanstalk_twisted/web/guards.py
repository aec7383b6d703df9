"""Whom the endpoint answers, and the headers that keep a browser from doing harm.

Without an access file there is no password: whoever may connect may ask.  What is refused here
besides is a web page of somebody else that makes its reader's browser ask for it.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

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


def challenge_for(headers: Mapping[str, str]) -> str:
    """How to ask the sender of a request who they are.

    :param headers: by lower-case name.
    """
    return QUIET_CHALLENGE if headers.get("sec-fetch-dest") == "empty" else CHALLENGE


class Credentials(NamedTuple):
    """What a request shows.

    :ivar name: of an identity; empty if it names none.
    """

    token: bytes
    name: str = ""


def credentials_of(header: str) -> Credentials | None:
    """Read a header Authorization: ``Bearer TOKEN``, or ``Basic`` with a name, or none, and the
    token as the password.

    :return: None if it is neither.
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


_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")


def host_is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a header Host names this server: by ``localhost``, an IP address, or one of
    ``names``.

    A page of another origin that has its own name lead to this address (DNS rebinding) sends that
    name.

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
    """Whether a request that writes was sent by a program, or by a page of this very endpoint.

    :param headers: by lower-case name.
    """
    if WRITE_HEADER not in headers:
        return False
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
