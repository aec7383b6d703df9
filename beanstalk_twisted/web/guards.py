"""
Whom the endpoint answers, and the headers that keep a browser from doing harm.

There is no password: whoever may connect may ask.  What is refused here is a web page of somebody
else that makes its reader's browser ask for it.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final

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

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")


def host_is_ours(host: str, names: Collection[str]) -> bool:
    """
    Whether a header Host names this server: by ``localhost``, an IP address, or one of ``names``.

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
    """
    Whether a request that writes was sent by a program, or by a page of this very endpoint.

    :param headers: by lower-case name.
    """
    if WRITE_HEADER not in headers:
        return False
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
