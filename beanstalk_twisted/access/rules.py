"""The rules of a file: identities, by what is known of a peer and by tokens, and what they may
do.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from beanstalk_twisted.access.tokens import TokenHash, id_of, stand_in
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

NO_LIMITS: Final[Mapping[str, int]] = MappingProxyType({})

_SIZE: Final = re.compile(r"([0-9]{1,16}) ?([A-Za-z]*)")


def _count(value: Any) -> int:
    return _number(value, MAX_COUNT)


def _rate(value: Any) -> int:
    return _number(value, MAX_RATE)


def _number(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"it is a number from 0 to {most}")
    return value


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
    "put-rate": _rate,
    "tubes": _count,
    "watched": _count,
    "connections": _count,
    "reserved": _count,
}
"""By the keys of a file, what reads each value; that raises ValueError."""


def in_words(limits: Mapping[str, int]) -> str:
    """Say them in one line."""
    return ", ".join([f"{key} {value}" for key, value in limits.items()]) or "none"


ROLES: Final = {
    "producer": PUT,
    "worker": RESERVE | LOOK,
    "viewer": LOOK,
    "admin": ALL_RIGHTS,
}
"""Names for sets of rights.  A worker sees jobs too: it is given them anyway, and client libraries
ask for `stats-job` before they release one.
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


class Granted(NamedTuple):
    """One pattern of a file.

    :ivar name: of the right or role, a key of `SETS`.
    """

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
    :ivar anywhere: the rights that it has of any tube.
    :ivar everywhere: those that it has of all tubes, by a pattern that is one star.
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
            else:
                self._add(each.pattern.encode().split(STAR), each.rights)
        self._remembered: dict[bytes, int] = {}

    def _add(self, parts: Sequence[bytes], rights: int) -> None:
        if len(parts) == 1:
            self._names[parts[0]] = self._names.get(parts[0], 0) | rights
            return
        # What comes before the first star and behind the last one is looked up.
        first, last = parts[0], parts[-1]
        table = self._tables.setdefault((len(first), len(last)), {})
        table.setdefault(first + STAR + last, []).append((parts, rights))

    def rights_of(self, tube: bytes) -> int:
        """The rights that it has of a tube, remembered if it was asked of late.

        :param tube: its name.
        """
        rights = self._remembered.get(tube)
        if rights is None:
            rights = self.compared(tube)
            if len(self._remembered) >= MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[tube] = rights
        return rights

    def compared(self, tube: bytes) -> int:
        """The same, and nothing is remembered: for who walks over many tubes."""
        rights, size = self.everywhere | self._names.get(tube, 0), len(tube)
        for (first, last), table in self._tables.items():
            for parts, given in table.get(tube[:first] + STAR + tube[size - last :], ()):
                if size >= first + last and (len(parts) == 2 or parts_match(tube, parts)):
                    rights |= given
        return rights


NO_RIGHTS: Final = Grant()


ANONYMOUS: Final = "anonymous"
"""The identity of who is none of the others."""

MAX_IDENTITIES: Final = 1000
"""In a file: each may have a line in the log once a minute."""


class Peer(NamedTuple):
    """What is known of a peer without its doing.

    :ivar listeners: the names of the port that it came to: ``HOST:PORT`` and ``tcp:PORT``, or
        ``unix:PATH``.
    :ivar uid: of its process, on a UNIX socket; ``gid`` likewise.
    :ivar certificate: the names in its certificate, if it has shown one that was verified:
        ``CN=...``, ``DNS:...``, ``URI:...``, ``EMAIL:...``.
    """

    listeners: Sequence[str] = ()
    uid: int | None = None
    gid: int | None = None
    certificate: Sequence[str] = ()


NOBODY: Final = Peer()


class Identity(NamedTuple):
    """Somebody that a file names.

    :ivar limits: what it may take, by the keys of `limits.LIMITS`; without one of them, any amount.
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
        """How it is told, by the keys of a file, the first one that tells a peer counting."""
        return {
            "token": [each.token_id for each in self.tokens],
            "certificate": self.certificates,
            "uid": self.uids,
            "gid": self.gids,
            "listener": self.listeners,
        }


class Clash(ValueError):
    """Two identities are told by the same thing."""


class AccessRules:
    """Who may do what.

    :ivar identities: by name, without the anonymous one.
    :ivar anonymous: who is none of them.
    :ivar has_open_metrics: whether anybody may read the metrics.
    :ivar stand_in: what a token is compared with that nobody has.
    """

    def __init__(
        self, identities: Iterable[Identity] = (), anonymous: Grant = NO_RIGHTS,
        *, anonymous_limits: Mapping[str, int] = NO_LIMITS, has_open_metrics: bool = False,
    ) -> None:  # fmt: skip
        """:raise Clash: of two identities nobody could say which a peer is."""
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
        """:return: what a token is to be compared with, whether anybody has it or not."""
        return self._hashes.get(id_of(token) or "", self.stand_in)

    @property
    def limited(self) -> Sequence[Identity]:
        """Those who have limits."""
        everybody = (*self.identities.values(), self.anonymous)
        return [each for each in everybody if each.limits]

    @property
    def gives_nothing(self) -> bool:
        """Whether nobody has any right."""
        everybody = (self.anonymous, *self.identities.values())
        return not any(each.grant.anywhere for each in everybody)

    def has(self, shown: TokenHash) -> bool:
        """Whether it is a token's of these rules."""
        return self._hashes.get(shown.token_id) == shown

    def identify(self, peer: Peer, shown: TokenHash | None = None) -> Identity:
        """:param shown: the hash of the token that the peer has shown, if it has shown one."""
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
