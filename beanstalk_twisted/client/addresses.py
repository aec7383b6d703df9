"""Where a server is, as text, for the client, the worker and all tools; which host to try next."""

import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

DEFAULT_PORT: Final = 11300
"""beanstalkd's."""

PORTS: Final = range(1, 65_536)
"""TCP's."""

PLAIN_URL: Final = "beanstalk://"
TLS_URL: Final = "tls://"
URLS: Final = (PLAIN_URL, TLS_URL)
"""What an address begins with that may have a token in it."""

FORMS: Final = (
    f"HOST:PORT, {TLS_URL}HOST:PORT or unix:PATH; {PLAIN_URL}A,B for one queue on several hosts"
)
"""How an address is written, for people."""

URL_FORMS: Final = (
    f"{PLAIN_URL}[TOKEN@]HOST:PORT,... or {TLS_URL}[TOKEN@]HOST:PORT,...?ca=FILE&cert=FILE"
    "&key=FILE&name=NAME"
)
"""The same of those that may have a token."""

SHOWN_VARIABLE: Final = "BEANSTALK_TOKEN"
"""The variable of the environment from which commands take the token that they show."""

MAX_HOSTS: Final = 16
"""Of one queue: of more than a few standby servers, all but one only cost."""

MAX_TOKEN_LINE: Final = 1024
"""Characters of a file that are looked at for a token; a token has 200 at most."""


NEXT_S: Final = 0.25
"""How long a host is waited for before the next one is tried too, seconds: the delay of RFC 8305,
more than the way around the world and back.
"""

FIRST_LIMIT_S: Final = 1.0
"""How long a host may take for its connection and its answer in the first round, seconds: while one
is silent because its machine is dead, another one may become active, and is to be asked again.
"""

LIMIT_S: Final = 4.0
"""The same at most, seconds: a packet that asks for a connection is sent again after 1 and 3 s, so
two may be lost.
"""

ASK: Final = b"list-tube-used\r\n"
"""What a host is asked first: it needs no right and no disk, and its reply is one line."""

MAX_ANSWER_BYTES: Final = 1024
"""Of the answer's line: no reply of the protocol has a longer one."""

_ANSWER: Final = re.compile(rb"[A-Z][A-Z_]{1,39}( [!-~]{1,200})?\r\n")

E = TypeVar("E", bound=Exception)


class Tls(NamedTuple):
    """Settings of TLS.

    :ivar ca: a file, or a folder of ``*.pem``; None for what the system trusts.
    :ivar cert: a file with our certificate and its chain.
    :ivar key: a file; None if the key is in the file of the certificate.
    :ivar name: that the server's certificate must have; None for the host's.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    name: str | None = None


class Address(NamedTuple):
    """Where a server is: a host and port, or the path of a UNIX socket; or several hosts, of which
    one is the server at a time.

    - ``HOST:PORT``, ``HOST``, ``[::1]:PORT``, ``tcp:HOST:PORT``: TCP;
    - ``unix:PATH``: a UNIX socket;
    - ``tls://[TOKEN@]HOST[:PORT][?ca=FILE&cert=FILE&key=FILE&name=NAME]``: TLS;
    - ``beanstalk://[TOKEN@]HOST[:PORT]``: TCP, with a token.

    In those with ``://``, ``%`` and two hexadecimal digits stand for any byte, and several hosts of
    one queue have commas between them: ``beanstalk://a,b:11301,c``.

    :ivar port: 0 for a UNIX socket.
    :ivar tls: None for plain TCP.
    :ivar token: shown before anything else; None for none.
    :ivar others: further hosts and ports.
    """

    host: str
    port: int
    tls: Tls | None = None
    token: str | None = None
    others: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """Name the server, without the token and the files."""
        if not self.port:
            return f"unix:{self.host}"
        plain = PLAIN_URL if self.others else ""
        places = ((self.host, self.port), *self.others)
        return f"{TLS_URL if self.tls else plain}{','.join(_shown(*place) for place in places)}"

    def __repr__(self) -> str:
        return f"<Address {self}>"

    @property
    def pool_name(self) -> str:
        """Give what a pool calls the server unless it is given a name: tubes are split by this."""
        if self.tls or self.others or not self.port:
            return str(self)
        return f"tcp:{self.host.replace(':', chr(92) + ':')}:{self.port}"

    @property
    def name(self) -> str:
        """The name that the server's certificate must have."""
        return (self.tls and self.tls.name) or self.host

    @property
    def hosts(self) -> "tuple[Address, ...]":
        places = ((self.host, self.port), *self.others)
        return tuple(self._replace(host=host, port=port, others=()) for host, port in places)

    def showing(self, token: Callable[[], str | None]) -> "Address":
        """Give the same with a token, which is asked for only if there is none."""
        return self if self.token else self._replace(token=token())

    @classmethod
    def of(cls, address: "str | Address") -> "Address":
        """:raise ValueError: it is no address.
        :raise TypeError: it is neither text nor an address.
        """
        if isinstance(address, Address):
            return address
        if not isinstance(address, str):
            raise TypeError(f"an address is a str, such as '127.0.0.1:11300', not {address!r}")
        return cls.parse(address)

    @classmethod
    def parse(cls, text: str) -> "Address":
        """:raise ValueError: it is no address; what may have a token in it is not shown."""
        for scheme in URLS:
            if text.startswith(scheme):
                return _parse_url(text.removeprefix(scheme), scheme == TLS_URL)
        kind, colon, rest = text.partition(":")
        if colon and kind == "unix":
            if not rest:
                raise ValueError(f"{text!r} is no server: write unix:PATH")
            return cls(rest, 0)
        if "@" in text:
            raise ValueError(f"no server: write {URL_FORMS}")
        return cls(*place(text.removeprefix("tcp:"), text))


_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]+(%\w+)?")
_BEGINNINGS: Final = ("tcp:", "unix:", *URLS)


def place(text: str, whole: str = "") -> tuple[str, int]:
    """Read the host and port of ``HOST:PORT``, ``HOST`` or ``[::1]:PORT``.

    :param whole: what to show if it is none.
    :raise ValueError: it is none.
    """
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")) or port.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.strip("[]")
    is_port = port.isascii() and port.isdigit() and int(port) in PORTS
    if not host or not is_port or (":" in host and not _IPV6.fullmatch(host)):
        raise ValueError(f"{whole or text!r} is no server: write {FORMS}; ports are 1 to 65535")
    return host, int(port)


def _parse_url(text: str, is_tls: bool) -> Address:
    """:raise ValueError: it is wrong, and not shown, since it may have a token."""
    where, has_query, query = text.partition("?")
    login, at, where = where.rpartition("@")
    token = login.removeprefix(":")
    # One token, before the first host, shows itself to all.
    is_login = bool(at) == bool(token) and not {":", ","}.intersection(token)
    if not is_login or not where or "/" in where or (has_query and not is_tls):
        raise ValueError(f"no server: write {URL_FORMS}")
    tls = _parse_query(query if has_query else None) if is_tls else None
    first, *others = _places(where)
    return Address(*first, tls, unquote(token) or None, tuple(others))


def _places(text: str) -> list[tuple[str, int]]:
    found = [place(each) for each in text.split(",")]
    if len(found) > MAX_HOSTS:
        raise ValueError(f"no server: {len(found)} hosts; a queue has {MAX_HOSTS} at most")
    for host, port in found:
        if found.count((host, port)) > 1:
            raise ValueError(f"no server: {_shown(host, port)} is named twice")
    return found


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listed(text: str) -> tuple[Address, ...]:
    """Read addresses of several queues with commas between them.  After one with ``://`` a comma
    begins another host of its queue, unless what follows begins with ``tcp:``, ``unix:`` or a
    scheme.

    :raise ValueError: one is none.
    """
    parts: list[str] = []
    for part in map(str.strip, text.split(",")):
        if parts and parts[-1].startswith(URLS) and not part.startswith(_BEGINNINGS):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return tuple(map(Address.parse, parts))


def _parse_query(text: str | None) -> Tls:
    pairs = [part.partition("=") for part in text.split("&")] if text is not None else []
    names = [name for name, _, _ in pairs]
    for name, _, value in pairs:
        if name not in Tls._fields or names.count(name) > 1 or not value:
            known = ", ".join(f"{each}=" for each in Tls._fields)
            raise ValueError(f"no server: behind ? stand {known} each once, & between them")
    if "key" in names and "cert" not in names:
        raise ValueError("no server: a key= is of no use without its certificate, cert=")
    return Tls(**{name: unquote(value) for name, _, value in pairs})


def token_of(path: str | None, environment: Mapping[str, str]) -> str | None:
    """Give the token to show: the first line of a file, else that of the environment, if any.

    :raise ValueError: the file cannot be read, or its first line is more than a token.
    """
    if path is None:
        return environment.get(SHOWN_VARIABLE) or None
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            token = file.readline(MAX_TOKEN_LINE).strip()
    except OSError as problem:
        raise ValueError(f"--token-file {path}: {problem.strerror}") from None
    if len(token.split()) > 1:
        said = "its first line has to be the token alone, bst_..., not all that is printed with it"
        raise ValueError(f"--token-file {path}: {said}")
    if not token:
        raise ValueError(f"--token-file {path}: its first line is empty")
    return token


def is_answer(received: bytes) -> bool:
    """Return True if a host has answered, ``USING default`` or a refusal; False if more must come.

    :raise ValueError: it is no server of the protocol.
    """
    if _ANSWER.fullmatch(received):
        return True
    if b"\n" in received or len(received) >= MAX_ANSWER_BYTES:
        raise ValueError(f"no server of this protocol: it says {received[:40]!r}")
    return False


def limit_s(lost: int) -> float:
    """Give the seconds that a host may take; each lost round doubles them, for slow servers."""
    return min(FIRST_LIMIT_S * 2.0 ** min(lost, 10), LIMIT_S)


class Round(Generic[E]):
    """One try of all hosts, numbers from 0: from the one that has served last, each once."""

    def __init__(self, count: int, first: int = 0) -> None:
        self.reasons: dict[int, E] = {}
        self._count = count
        self._left = [(first + turn) % count for turn in range(count)]

    @property
    def has_more(self) -> bool:
        return bool(self._left)

    @property
    def is_lost(self) -> bool:
        return len(self.reasons) == self._count

    def begin(self) -> int:
        """Give the host to try now."""
        return self._left.pop(0)

    def failed(self, host: int, why: E) -> None:
        self.reasons[host] = why
