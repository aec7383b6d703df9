"""
The way to a server on Twisted: an endpoint of what `addresses` reads, or of Twisted's own texts.
"""

import re
from typing import Any, Final

from twisted.internet.endpoints import HostnameEndpoint, clientFromString
from twisted.internet.interfaces import IStreamClientEndpoint

from beanstalk_twisted.client.addresses import PLAIN_URL, PORTS, TLS_URL, URLS, Address
from beanstalk_twisted.client.hosts.endpoint import Host, HostsEndpoint
from beanstalk_twisted.client.tls import faults
from beanstalk_twisted.client.tls.faults import TlsFault

ENDPOINTS: Final = ("tcp:", "unix:", "tls:", "ssl:")
"""What begins so is an endpoint of Twisted's already, of a kind that we know."""

_OTHER_ENDPOINT: Final = re.compile(r"[A-Za-z]\w*:[^:/@]*:")
"""A kind of endpoint that a plug-in may bring, and its parts; a plain HOST:PORT has one colon."""

_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]+")


def without_token(text: str) -> tuple[str, str | None]:
    """
    Part the token from an address.

    :return: the address, without the token; and the token, None if there is none.
    :raise ValueError: it may have one, and is no address; then it is not shown.
    """
    if not text.startswith(URLS):
        return text, None
    token = Address.parse(text).token
    scheme = TLS_URL if text.startswith(TLS_URL) else PLAIN_URL
    login_and_host, has_query, query = text.removeprefix(scheme).partition("?")
    where = login_and_host.rpartition("@")[2]
    is_url = scheme == TLS_URL or "," in where
    return f"{scheme}{where}{has_query}{query}" if is_url else where, token


def endpoint(text: str) -> str:
    """
    Name what an address leads to, in full, without a token and the files of TLS: a text of
    Twisted's for an endpoint, but for ``tls://HOST:PORT`` and several hosts.

    :raise ValueError: it is none.
    """
    if text.startswith(URLS):
        address = Address.parse(text)
        return str(address) if address.tls or address.others else _tcp(address)
    if text.startswith(ENDPOINTS):
        _check_place(text)
        return text
    if _OTHER_ENDPOINT.match(text) and not _IPV6.fullmatch(text):
        return text
    return _tcp(Address.parse(text))


def _tcp(address: Address) -> str:
    return f"tcp:{address.host.replace(':', chr(92) + ':')}:{address.port}"


def _check_place(text: str) -> None:
    """
    Refuse an endpoint that would be tried for ever, as Twisted takes any number for a port, and one
    that would trust anybody.
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
    if kind == "ssl" and not named.get("hostname"):
        raise ValueError(f"{text!r} is no server: it checks no name; write tls://HOST:PORT")


def connectable(reactor: Any, text: str) -> IStreamClientEndpoint:
    """
    Make the endpoint that a text describes.

    :param text: an address, or an endpoint of Twisted's.
    :raise ValueError: there is no such kind here, it does not take these options, or a file that it
        names is not what it should be.
    """
    described = endpoint(text)
    address = _url(text)
    try:
        if address is None:
            made: IStreamClientEndpoint = clientFromString(reactor, described)
            return made
        hosts = [Host(str(host), _host_endpoint(reactor, host)) for host in address.hosts]
    except (NameError, ImportError) as problem:
        # Twisted's way to say that it has found no OpenSSL, and Python's.
        raise ValueError(f"{described!r}: {faults.EXTRA} ({problem})") from None
    except TlsFault as fault:
        raise ValueError(f"{address}: {fault}") from None
    except Exception as problem:  # A plug-in may raise any.
        raise ValueError(f"{described!r} is no server: {problem}") from None
    return hosts[0].endpoint if len(hosts) == 1 else HostsEndpoint(reactor, hosts)


def _url(text: str) -> Address | None:
    """
    Read an address of TLS, or one with ``://``.

    :return: None if it is of something else, or has what only Twisted knows.
    """
    if not text.startswith(("tls:", *URLS)):
        return None
    try:
        return Address.parse(text)
    except ValueError:
        if text.startswith(URLS):
            raise
        return None


def _host_endpoint(reactor: Any, address: Address) -> IStreamClientEndpoint:
    """
    :raise TlsFault: a file that it names is not what it should be.
    :raise ImportError: there is no OpenSSL.
    """
    plain = HostnameEndpoint(reactor, address.host, address.port)
    if address.tls is None:
        return plain
    from beanstalk_twisted.client.tls.endpoint import TlsEndpoint

    return TlsEndpoint(reactor, address, plain)


def endpoint_of(reactor: Any, place: str | IStreamClientEndpoint) -> Any:
    """
    Give an endpoint as an object.

    :param place: an object, or text as `connectable` takes it.
    :raise ValueError: the text names no server.
    :raise TypeError: it is neither.
    """
    if isinstance(place, str):
        return connectable(reactor, place)
    if not callable(getattr(place, "connect", None)):
        raise TypeError(f"a server is HOST:PORT or an endpoint of Twisted's, not {place!r}")
    return place


def shown(place: str | IStreamClientEndpoint) -> str:
    """
    Name a server for errors and the log, without a token and files.

    :param place: as of `endpoint_of`.
    """
    if isinstance(place, str):
        return endpoint(place) if place.startswith(URLS) else place
    return f"{place!r}"


def the_reactor() -> Any:
    """Give the one that is installed, or install the default."""
    from twisted.internet import reactor

    return reactor
