"""
Keys and names of groups that stand for any value (docs/extensions.md, "Hashed keys").
"""

from base64 import b32encode
from hashlib import sha256
from typing import Final

HASH_PREFIX: Final = b"h1-"
"""Names the rule, so that another one can follow it."""


def hashed_key(value: str | bytes | int) -> str:
    """
    Hash a value into a key or the name of a group, of 55 bytes.

    :raise TypeError: the value is of another type; a bool is no number here.
    :raise ValueError: the text is not valid Unicode.
    """
    digest = sha256(_tagged(value)).digest()
    return (HASH_PREFIX + b32encode(digest).rstrip(b"=").lower()).decode()


def _tagged(value: object) -> bytes:
    """Precede the value by its type: ``7``, ``"7"`` and ``b"7"`` are three values."""
    if isinstance(value, str):
        try:
            return b"s:" + value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{value!r} is not valid Unicode") from None
    if isinstance(value, bytes):
        return b"b:" + value
    if isinstance(value, int) and not isinstance(value, bool):
        return b"i:%d" % value
    raise TypeError(f"a str, bytes or int can be hashed, not {value!r}")
