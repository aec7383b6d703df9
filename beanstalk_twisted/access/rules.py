"""
The rules of a file: identities, by what is known of a peer and by tokens, and what they may do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.access.grants import NO_RIGHTS, Grant
from beanstalk_twisted.access.limits import NO_LIMITS
from beanstalk_twisted.access.tokens import TokenHash, id_of, stand_in

ANONYMOUS: Final = "anonymous"
"""The identity of who is none of the others."""

MAX_IDENTITIES: Final = 1000
"""In a file: each may have a line in the log once a minute."""


class Peer(NamedTuple):
    """
    What is known of a peer without its doing.

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
    """
    Somebody that a file names.

    :ivar tokens: hashes of its tokens.
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
    """
    Who may do what.

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
