"""
Where a server is, as text: an endpoint of Twisted's, or HOST:PORT.
"""

import re
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote

from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IStreamClientEndpoint

DEFAULT_PORT: Final = 11300
"""beanstalkd's."""

ENDPOINTS: Final = ("tcp:", "unix:", "tls:", "ssl:")
"""What begins so is an endpoint of Twisted's already, of a kind that we know."""

URL: Final = "beanstalk://"
"""What an address begins with that may have a token in it."""

PORTS: Final = range(1, 65_536)
"""TCP's."""

_OTHER_ENDPOINT: Final = re.compile(r"[A-Za-z]\w*:[^:]*:")
"""A kind of endpoint that a plug-in may bring, and its parts; a plain HOST:PORT has one colon."""


def without_token(text: str) -> tuple[str, str | None]:
    """
    Part ``beanstalk://:TOKEN@HOST:PORT``.

    :return: the address, and the token; None if there is none.  Any other text is an address.
    :raise ValueError: it begins so and is none, which is not shown, since it may have a token.
    """
    if not text.startswith(URL):
        return text, None
    login, at, place = text.removeprefix(URL).rpartition("@")
    name, _, token = login.partition(":")
    if not place or "/" in place or bool(at) != bool(token) or name:
        raise ValueError(f"no server: write {URL}HOST:PORT or {URL}:TOKEN@HOST:PORT")
    return place, unquote(token) or None


def endpoint(text: str) -> str:
    """
    Make an endpoint's text of ``HOST``, ``HOST:PORT``, ``[::1]:PORT`` or what is one already.

    :raise ValueError: it is none.
    """
    if text.startswith(URL):
        # It is not shown: it may have a token.
        raise ValueError(f"no server: an address that begins with {URL} cannot stand here")
    if text.startswith(ENDPOINTS):
        _check_place(text)
        return text
    if _OTHER_ENDPOINT.match(text) and not _is_address(text):
        return text
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]") or (":" in host and not host.endswith("]")):
        host, port = text, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or int(port) not in PORTS:
        raise ValueError(f"{text!r} is no server: write HOST:PORT, or an endpoint of Twisted's")
    return f"tcp:{host.replace(':', chr(92) + ':')}:{port}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_place(text: str) -> None:
    """
    Refuse an endpoint that would be tried for ever: Twisted takes any number for a port.
    """
    kind, *parts = re.split(r"(?<!\\):", text)
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    unnamed = [part for part in parts if "=" not in part]
    if kind == "unix":
        if not (named.get("path") or "".join(unnamed[:1])):
            raise ValueError(f"{text!r} is no server: write unix:PATH")
        return
    port = named.get("port") or "".join(unnamed[1:2])
    if not port.isascii() or not port.isdigit() or int(port) not in PORTS:
        raise ValueError(f"{text!r} is no server: write {kind}:HOST:PORT, a port being 1 to 65535")


def connectable(reactor: Any, text: str) -> IStreamClientEndpoint:
    """
    Make the endpoint that a text describes.

    :param text: as `endpoint` takes it.
    :raise ValueError: there is no such kind here, or it does not take these options.
    """
    try:
        made: IStreamClientEndpoint = clientFromString(reactor, endpoint(text))
    except NameError as problem:
        # Twisted's way to say that it has found no OpenSSL.
        why = "TLS needs more packages; run: pip install 'twisted[tls]'"
        raise ValueError(f"{text!r}: {why} ({problem})") from None
    except Exception as problem:  # A plug-in may raise any.
        if str(problem).startswith(f"{text!r} is no server"):
            raise
        raise ValueError(f"{text!r} is no server: {problem}") from None
    return made


def endpoint_of(reactor: Any, place: str | IStreamClientEndpoint) -> Any:
    """
    Give an endpoint as an object.

    :param place: an object, or text as `endpoint` takes it.
    :raise ValueError: the text names no server.
    :raise TypeError: it is neither.
    """
    if isinstance(place, str):
        return connectable(reactor, place)
    if not callable(getattr(place, "connect", None)):
        raise TypeError(f"a server is HOST:PORT or an endpoint of Twisted's, not {place!r}")
    return place


def the_reactor() -> Any:
    """
    Give the one that is installed, or install the default.
    """
    from twisted.internet import reactor

    return reactor
