"""``nats://HOST[:PORT][,HOST[:PORT]…]/NAME[?creds=FILE][&monitor=PORT[,PORT…]]``."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from beanstalk_twisted.replication.stream.interface import Address, Refused, Server, Stream

SCHEMES: Final = ("nats", "tls")

PORT: Final = 4222
"""Of a NATS server, unless the URL names another one."""

MAX_NAME: Final = 200
"""Characters of a stream's name: NATS takes 255 bytes, and makes a folder of it."""

OPTIONS: Final = ("creds", "monitor")

_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?\Z")
_FORM: Final = "nats://HOST,HOST,HOST/NAME"


def is_stream(text: str) -> bool:
    """Whether this is a stream's URL: no path, nor ``tls://`` of a server, which has none."""
    scheme, mark, rest = text.partition("://")
    has_name = "/" in rest.partition("?")[0]
    return bool(mark) and (scheme.lower() == "nats" or (scheme.lower() == "tls" and has_name))


def parse(url: str) -> Address:
    """:raise Refused: it is no URL of a stream; the text does not repeat what may be a secret."""
    try:
        split = urlsplit(url)
    except ValueError:
        raise Refused(f"the URL of a stream is like {_FORM}") from None
    if split.scheme not in SCHEMES:
        raise Refused(f"the URL of a stream begins with nats:// or tls://, like {_FORM}")
    if "@" in url:
        raise Refused(
            f"the URL of the stream has a secret in it: leave out what is before the @, and give"
            f" credentials as a file, ?creds=FILE or NATS_CREDS=FILE, like {_FORM}?creds=FILE"
        )
    servers = tuple(_server(text) for text in split.netloc.split(","))
    name = split.path.removeprefix("/")
    if not _NAME.match(name) or len(name) > MAX_NAME or split.fragment:
        raise Refused(
            f"the path of a stream's URL is its name, of A-Z, a-z, 0-9, _ and -, at most {MAX_NAME}"
            f" of them, like {_FORM}; it is {split.path!r}"
        )
    options = _options(split.query)
    monitors = _monitors(options.get("monitor"), len(servers))
    return Address(split.scheme, servers, name, options.get("creds"), monitors)


def _monitors(text: str | None, servers: int) -> tuple[int, ...]:
    if text is None:
        return ()
    ports = tuple(map(_port, text.split(",")))
    if len(ports) not in (1, servers):
        raise Refused(
            f"monitor in the URL of a stream is one port for all servers, or one for each: it has"
            f" {len(ports)} for {servers}"
        )
    return ports if len(ports) == servers else ports * servers


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in OPTIONS:
            raise Refused(f"{option!r} is none of the options {', '.join(OPTIONS)} of {_FORM}")
        if not value or option in options:
            raise Refused(f"{option} in the URL of a stream is given once, and has a value")
        options[option] = value
    return options


def _server(text: str) -> Server:
    found = _HOST.match(text)
    if found is None:
        raise Refused(f"{text!r} is no HOST or HOST:PORT in the URL of a stream, like {_FORM}")
    return Server(found["host"], _port(found["port"]) if found["port"] else PORT)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise Refused(f"{text!r} in the URL of a stream is no port, 1 to 65535")
    return int(text)


PACKAGES: Final = "another package: pip install '.[replicate]'"
"""What a stream needs, and how that is had in a checkout, where all is installed from."""


def stream_at(url: str, open_s: float | None = None) -> Stream:
    """The stream of a URL, not open yet.

    :param open_s: for how long `Stream.open` tries; None for as long as NATS takes to elect a
        leader.
    :raise Refused: it is no such URL, or nats-py is not installed.
    """
    address = parse(url)
    try:
        from beanstalk_twisted.replication.stream.jetstream import JetStream
    except ImportError as error:
        raise Refused(f"{address.shown} needs {PACKAGES} ({error})") from None
    return JetStream(address) if open_s is None else JetStream(address, open_s=open_s)


def credential_warnings(environment: Mapping[str, str]) -> list[str]:
    """What is only half of the credentials of a NATS user."""
    user, password = (bool(environment.get(name)) for name in ("NATS_USER", "NATS_PASSWORD"))
    if user is password:
        return []
    if user:
        return ["NATS_USER is set and NATS_PASSWORD is not: the password is taken for empty"]
    return ["NATS_PASSWORD is set and NATS_USER is not, so it has no effect"]
