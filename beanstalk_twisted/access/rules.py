"""The rules of an access file: identities, by what is known of a peer and by tokens, what they may
do, and reading the file, which is TOML.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from beanstalk_twisted.access.tokens import BadHash, TokenHash, id_of, stand_in
from beanstalk_twisted.printable import escape
from beanstalk_twisted.toml import BadToml, parse_toml
from beanstalk_twisted.wire.rights import (
    ALL_RIGHTS,
    LOOK,
    PUT,
    RESERVE,
    RIGHTS,
    BadPattern,
    check_pattern,
    parts_match,
)

MAX_COUNT: Final = 1 << 53
"""The largest number: more than there can be of anything, and whole in JSON and in metrics."""

MAX_RATE: Final = 1_000_000
"""New jobs in a second: more than a server takes."""

UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
"""Of sizes."""

ANONYMOUS: Final = "anonymous"
"""The identity of a peer that is none of the others."""

MAX_IDENTITIES: Final = 1000
"""In a file: each may have a line in the log once a minute."""

ROLES: Final = {
    "producer": PUT,
    "worker": RESERVE | LOOK,
    "viewer": LOOK,
    "admin": ALL_RIGHTS,
}
"""Names for sets of rights.  A worker sees jobs too: it is given them anyway, and client libraries
send `stats-job` before they release one.
"""

SETS: Final = RIGHTS | ROLES
"""What a file may grant, by name."""

MAX_PATTERNS: Final = 100
"""Patterns of an identity: a tube is compared with all in 1 us if they are as `mail.*`; in 110 us
at worst, if all have several stars and begin and end alike, as `*a*` and `*b*`.
"""

MAX_REMEMBERED: Final = 1000
"""Tubes whose rights an identity remembers: some 300 KB with the longest names."""

EVERYTHING: Final = "*"

STAR: Final = b"*"

T = TypeVar("T")

MAX_FILE_BYTES: Final = 128 << 10
"""Of the file: it is read in some 40 ms, while clients wait; room for some 600 identities."""

OTHERS_MAY_WRITE: Final = 0o022
"""Bits of a file's mode by which others than its owner could give themselves any right."""

MAX_ID: Final = (1 << 32) - 2
"""Of a user or group: the last one is none (Linux, setreuid)."""

IDENTITIES: Final = "identities"
OPEN_METRICS: Final = "open-metrics"
LIMITS_KEY: Final = "limits"

_NAME: Final = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_CERTIFICATE: Final = re.compile(r"(?:CN=|DNS:|URI:|EMAIL:)[^\x00-\x1f]{1,256}")
_LISTENER: Final = re.compile(r"unix:[^\x00]{1,108}|[^\x00\s]{1,256}:[0-9]{1,5}")

NO_LIMITS: Final[Mapping[str, int]] = MappingProxyType({})

_SIZE: Final = re.compile(r"([0-9]{1,16}) ?([A-Za-z]*)")


def _number(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"it is a number from 0 to {most}")
    return value


_count: Final = partial(_number, most=MAX_COUNT)


def _size(value: Any) -> int:
    if not isinstance(value, str):
        return _count(value)
    found = _SIZE.fullmatch(value)
    unit = None if found is None else UNITS.get(found[2])
    if found is None or unit is None or int(found[1]) * unit > MAX_COUNT:
        units = ", ".join([each for each in UNITS if each])
        raise ValueError(f"it is a number of bytes up to {MAX_COUNT}, or with a unit: {units}")
    return int(found[1]) * unit


LIMITS: Final[Mapping[str, Callable[[Any], int]]] = {
    "jobs": _count,
    "bytes": _size,
    "keys": _count,
    "put-rate": partial(_number, most=MAX_RATE),
    "tubes": _count,
    "watched": _count,
    "connections": _count,
    "reserved": _count,
}
"""By the keys of a file, what reads each value; that raises ValueError."""


def in_words(limits: Mapping[str, int]) -> str:
    return ", ".join([f"{key} {value}" for key, value in limits.items()]) or "none"


class Granted(NamedTuple):
    """One pattern of a file.  :ivar name: of the right or role, a key of `SETS`."""

    name: str
    pattern: str

    @property
    def rights(self) -> int:
        return SETS[self.name]


_Starred = tuple[Sequence[bytes], int]
"""The parts of a pattern between its stars, and the rights that it gives."""


class Grant:
    """Rights by tube.

    :ivar granted: the patterns, in the order of the file.
    :ivar anywhere: the rights of any tube.
    :ivar everywhere: the rights of all tubes, by a pattern that is one star.
    """

    def __init__(self, granted: Iterable[Granted] = ()) -> None:
        """:raise BadPattern: a pattern is none, or there are too many."""
        self.granted = tuple(granted)
        if len(self.granted) > MAX_PATTERNS:
            raise BadPattern(f"there are more than {MAX_PATTERNS} patterns")
        self.anywhere = self.everywhere = 0
        self._names: dict[bytes, int] = {}
        self._tables: dict[tuple[int, int], dict[bytes, list[_Starred]]] = {}
        for each in self.granted:
            check_pattern(each.pattern)
            self.anywhere |= each.rights
            if each.pattern == EVERYTHING:
                self.everywhere |= each.rights
                continue
            parts = each.pattern.encode().split(STAR)
            first, last = parts[0], parts[-1]
            if len(parts) == 1:
                self._names[first] = self._names.get(first, 0) | each.rights
            else:
                # What comes before the first star and after the last one is looked up.
                table = self._tables.setdefault((len(first), len(last)), {})
                table.setdefault(first + STAR + last, []).append((parts, each.rights))
        self._remembered: dict[bytes, int] = {}

    def rights_of(self, tube: bytes) -> int:
        """As `compared`, remembered for the newest `MAX_REMEMBERED` tubes."""
        rights = self._remembered.get(tube)
        if rights is None:
            rights = self.compared(tube)
            if len(self._remembered) >= MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[tube] = rights
        return rights

    def compared(self, tube: bytes) -> int:
        """Return the rights of a tube, and remember nothing."""
        rights, size = self.everywhere | self._names.get(tube, 0), len(tube)
        for (first, last), table in self._tables.items():
            for parts, given in table.get(tube[:first] + STAR + tube[size - last :], ()):
                if size >= first + last and (len(parts) == 2 or parts_match(tube, parts)):
                    rights |= given
        return rights


NO_RIGHTS: Final = Grant()


class Peer(NamedTuple):
    """What is known of a peer without a token.

    :ivar listeners: the names of the port that it came to: ``HOST:PORT`` and ``tcp:PORT``, or
        ``unix:PATH``.
    :ivar uid: of its process, on a UNIX socket, as ``gid``.
    :ivar certificate: the names in its certificate, if it has shown one that was verified:
        ``CN=...``, ``DNS:...``, ``URI:...``, ``EMAIL:...``.
    """

    listeners: Sequence[str] = ()
    uid: int | None = None
    gid: int | None = None
    certificate: Sequence[str] = ()


NOBODY: Final = Peer()


class Identity(NamedTuple):
    """An identity of a file.

    :ivar limits: what it may take, by the keys of `LIMITS`; without one of them, any amount.
    :ivar certificates: names as in `Peer.certificate`, of which one is enough.
    """

    name: str
    grant: Grant = NO_RIGHTS
    tokens: Sequence[TokenHash] = ()
    certificates: Sequence[str] = ()
    uids: Sequence[int] = ()
    gids: Sequence[int] = ()
    listeners: Sequence[str] = ()
    limits: Mapping[str, int] = NO_LIMITS

    @property
    def ways(self) -> Mapping[str, Sequence[object]]:
        """What identifies it, by the keys of a file; the first that a peer has counts."""
        return {
            "token": [each.token_id for each in self.tokens],
            "certificate": self.certificates,
            "uid": self.uids,
            "gid": self.gids,
            "listener": self.listeners,
        }


class Clash(ValueError):
    """Two identities are identified by the same thing."""


class AccessRules:
    """Who may do what.

    :ivar identities: by name, without the anonymous one.
    :ivar has_open_metrics: whether every client may read the metrics.
    :ivar stand_in: what an unknown token is compared with.
    """

    def __init__(
        self, identities: Iterable[Identity] = (), anonymous: Grant = NO_RIGHTS,
        *, anonymous_limits: Mapping[str, int] = NO_LIMITS, has_open_metrics: bool = False,
    ) -> None:  # fmt: skip
        """:raise Clash: a peer could be two identities."""
        self.identities = {each.name: each for each in identities}
        self.anonymous = Identity(ANONYMOUS, anonymous, limits=anonymous_limits)
        self.has_open_metrics = has_open_metrics
        self._by: dict[tuple[str, object], Identity] = {}
        self._hashes: dict[str, TokenHash] = {}
        for identity in self.identities.values():
            for way, values in identity.ways.items():
                for value in values:
                    other = self._by.setdefault((way, value), identity)
                    if other is not identity:
                        raise Clash(f"{other.name} and {identity.name} have the same {way}")
            self._hashes |= {each.token_id: each for each in identity.tokens}
        self.stand_in = stand_in(self._hashes.values())

    def hash_for(self, token: bytes) -> TokenHash:
        """Return what a token is compared with, whether it is known or not."""
        return self._hashes.get(id_of(token) or "", self.stand_in)

    @property
    def limited(self) -> Sequence[Identity]:
        everybody = (*self.identities.values(), self.anonymous)
        return [each for each in everybody if each.limits]

    @property
    def gives_nothing(self) -> bool:
        everybody = (self.anonymous, *self.identities.values())
        return not any(each.grant.anywhere for each in everybody)

    def has(self, shown: TokenHash) -> bool:
        return self._hashes.get(shown.token_id) == shown

    def identify(self, peer: Peer, shown: TokenHash | None = None) -> Identity:
        """:param shown: the hash of the token that the peer has shown."""
        if shown is not None and self.has(shown):
            return self._by["token", shown.token_id]
        facts: list[tuple[str, object]] = [("certificate", each) for each in peer.certificate]
        facts += [("uid", peer.uid), ("gid", peer.gid)]
        facts += [("listener", each) for each in peer.listeners]
        for fact in facts:
            identity = self._by.get(fact)
            if identity is not None:
                return identity
        return self.anonymous


class BadAccessFile(ValueError):
    """A file that cannot be used; the text is where and why."""


def parse_access(text: str) -> AccessRules:
    """:raise BadAccessFile: there is something wrong with it."""
    try:
        tables = parse_toml(text)
    except BadToml as problem:
        raise BadAccessFile(str(problem)) from None
    _no_others("the file", tables, (ANONYMOUS, IDENTITIES, OPEN_METRICS))
    has_open_metrics = tables.get(OPEN_METRICS, False)
    if not isinstance(has_open_metrics, bool):
        raise BadAccessFile(f"{OPEN_METRICS} is true or false, not {has_open_metrics!r}")
    named = _table(IDENTITIES, tables.get(IDENTITIES, {}))
    if len(named) > MAX_IDENTITIES:
        raise BadAccessFile(f"there are more than {MAX_IDENTITIES} identities")
    identities = [_identity(name, table) for name, table in named.items()]
    anonymous = _table(ANONYMOUS, tables.get(ANONYMOUS, {}))
    _no_others(f"[{ANONYMOUS}]", anonymous, (*SETS, LIMITS_KEY))
    try:
        return AccessRules(
            identities, _grant(f"[{ANONYMOUS}]", anonymous), has_open_metrics=has_open_metrics,
            anonymous_limits=_limits(f"[{ANONYMOUS}]", anonymous),
        )  # fmt: skip
    except Clash as problem:
        raise BadAccessFile(str(problem)) from None


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadAccessFile(f"{name} is a table, written [{name}], not {type(value).__name__}")
    return value


def _no_others(where: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in table:
        if key not in keys:
            words = ", ".join(keys)
            raise BadAccessFile(f"{where}: there is no key {escape(key)}; keys are {words}")


def _identity(name: str, value: Any) -> Identity:
    where = f"[{IDENTITIES}.{escape(name)}]"
    if not _NAME.fullmatch(name) or name == ANONYMOUS:
        raise BadAccessFile(
            f"{where}: a name has 1 to 64 letters, digits and ._@+-, and is not {ANONYMOUS}"
        )
    table = _table(f"{IDENTITIES}.{name}", value)
    _no_others(where, table, (*WAYS, *SETS, LIMITS_KEY))
    ways = {key: _values(where, key, table.get(key, []), read) for key, read in WAYS.items()}
    if not any(ways.values()):
        raise BadAccessFile(f"{where}: nobody could be it; say one of {', '.join(WAYS)}")
    return Identity(
        name, _grant(where, table), tokens=ways["token"], certificates=ways["certificate"],
        uids=ways["uid"], gids=ways["gid"], listeners=ways["listener"],
        limits=_limits(where, table),
    )  # fmt: skip


def _limits(where: str, table: Mapping[str, Any]) -> Mapping[str, int]:
    given = _table(LIMITS_KEY, table.get(LIMITS_KEY, {}))
    _no_others(f"{where}, {LIMITS_KEY}", given, tuple(LIMITS))
    found = {}
    for key, value in given.items():
        try:
            found[key] = LIMITS[key](value)
        except ValueError as problem:
            raise BadAccessFile(f"{where}, {LIMITS_KEY}, {key}: {problem}") from None
    return found


def _grant(where: str, table: Mapping[str, Any]) -> Grant:
    granted = []
    for key in table:
        if key in SETS:
            patterns = _values(where, key, table[key], _text)
            granted += [Granted(key, pattern) for pattern in patterns]
    try:
        return Grant(granted)
    except BadPattern as problem:
        raise BadAccessFile(f"{where}: {problem}") from None


def _values(where: str, key: str, value: Any, read: Callable[[Any], T]) -> list[T]:
    """:param value: of a key: one, or a list of them."""
    try:
        return [read(each) for each in (value if isinstance(value, list) else [value])]
    except ValueError as problem:
        raise BadAccessFile(f"{where}, {key}: {problem}") from None


# Values; who reads one raises ValueError.  None is shown that may be a secret.


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _wrong("a text, or a list of them")


def _token(value: Any) -> TokenHash:
    if not isinstance(value, str):
        raise BadHash("it is no hash of a token: make one with beanstalk token")
    return TokenHash.parse(value)


def _id_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_ID:
        _wrong(f"a number from 0 to {MAX_ID}, or a list of them")
    return int(value)


def _certificate(value: Any) -> str:
    if not _CERTIFICATE.fullmatch(_text(value)):
        _wrong("CN=NAME of the subject, or DNS:NAME, URI:NAME or EMAIL:NAME")
    return str(value)


def _listener(value: Any) -> str:
    if not _LISTENER.fullmatch(_text(value)):
        _wrong("an address as the log says it, HOST:PORT, or tcp:PORT, or unix:PATH")
    return str(value)


def _wrong(expected: str) -> NoReturn:
    raise ValueError(f"it is {expected}")


WAYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "token": _token,
    "certificate": _certificate,
    "uid": _id_number,
    "gid": _id_number,
    "listener": _listener,
}
"""What identifies a peer, by the keys of a file."""
