"""Tokens, `bst_<id>_<secret>`, and what a file keeps of them: the id, by which one hash tells whose
a token is, and the scrypt hash of all of it with a salt, which gives a reader no identity.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

Chance = Callable[[int], bytes]
"""Gives N random bytes; `os.urandom` is one."""

PREFIX: Final = "bst_"
"""What tokens begin with, so that tools that look for secrets find them."""

ID_BYTES: Final = 5
"""Random bytes in an id: a file with a thousand tokens has one twice once in two million times."""

SECRET_BYTES: Final = 20
"""Random bytes in a secret: 160 bits cannot be guessed."""

SALT_BYTES: Final = 16

HASH_BYTES: Final = 32

LOG2_N: Final = 14
"""Cost of a hash with r = 8 and p = 1: 16 MiB and some 50 ms."""

MAX_LOG2_N: Final = 17
MAX_R: Final = 8
MAX_P: Final = 4
"""The dearest hash that a file may ask for: 128 MiB and some 2 s."""

MAX_TOKEN_BYTES: Final = 200
"""Of what may be sent as a token: what a command line holds, with the word before it."""

_TOKEN: Final = re.compile(rb"bst_([a-z2-7]{8})_[a-z2-7]{32}")
_HASH: Final = re.compile(
    r"bst_([a-z2-7]{8}):scrypt:([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2}):"
    r"([A-Za-z0-9+/]{22}==):([A-Za-z0-9+/]{43}=)"
)


class BadHash(ValueError):
    """Not a hash of a token."""


class TokenHash(NamedTuple):
    """What a file keeps of a token.

    :ivar log2_n: with ``r`` and ``p`` the cost, as scrypt calls them.
    """

    token_id: str
    log2_n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    @classmethod
    def parse(cls, text: str) -> "TokenHash":
        """:raise BadHash: it is none, or costs too much."""
        found = _HASH.fullmatch(text)
        if found is None:
            raise BadHash("it is no hash of a token: make one with beanstalk token")
        log2_n, r, p = map(int, found.group(2, 3, 4))
        if not (1 <= log2_n <= MAX_LOG2_N and 1 <= r <= MAX_R and 1 <= p <= MAX_P):
            raise BadHash(f"its cost is out of range: {MAX_LOG2_N}:{MAX_R}:{MAX_P} is the most")
        salt, digest = map(base64.b64decode, found.group(5, 6))
        return cls(found[1], log2_n, r, p, salt, digest)

    def __str__(self) -> str:
        """As a file has it."""
        salt, digest = (base64.b64encode(each).decode() for each in (self.salt, self.digest))
        cost = f"{self.log2_n}:{self.r}:{self.p}"
        return f"{PREFIX}{self.token_id}:scrypt:{cost}:{salt}:{digest}"

    @property
    def cost(self) -> int:
        """How long a hash takes, in units of its own."""
        return (self.r * self.p) << self.log2_n

    def matches(self, token: bytes) -> bool:
        """Compare in the same time for any token."""
        return hmac.compare_digest(self._of(token), self.digest)

    def _of(self, token: bytes) -> bytes:
        n = 1 << self.log2_n
        memory = 128 * self.r * (n + self.p + 2)
        return hashlib.scrypt(
            token, salt=self.salt, n=n, r=self.r, p=self.p, maxmem=2 * memory, dklen=HASH_BYTES
        )


def hash_of(token: bytes, chance: Chance, log2_n: int = LOG2_N) -> TokenHash:
    """Make what a file keeps of a token.  :raise BadHash: it is no token."""
    token_id = id_of(token)
    if token_id is None:
        raise BadHash("it is no token: make one with beanstalk token")
    blank = TokenHash(token_id, log2_n, 8, 1, chance(SALT_BYTES), b"")
    return blank._replace(digest=blank._of(token))


def new_token(chance: Chance) -> str:
    return f"{PREFIX}{_letters(chance(ID_BYTES))}_{_letters(chance(SECRET_BYTES))}"


def _letters(chance: bytes) -> str:
    return base64.b32encode(chance).decode().lower()


def id_of(token: bytes) -> str | None:
    """:return: None if it is no token."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else found[1].decode()


def stand_in(hashes: Iterable[TokenHash]) -> TokenHash:
    """Make what an unknown token is compared with: it costs as much as the dearest of these, and
    matches none.
    """
    dearest = max(hashes, key=lambda each: each.cost, default=None)
    if dearest is None:
        return TokenHash("", LOG2_N, 8, 1, bytes(SALT_BYTES), b"")
    return dearest._replace(token_id="", digest=b"")
