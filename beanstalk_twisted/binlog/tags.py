"""What a job carries besides its body; in the log, extensions of its full records
(docs/binlog-format.md, "Extensions of a job").
"""

import re
import struct
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import BATCH_KEYS as BATCH_KEYS
from beanstalk_twisted.binlog.segments.format import EXTENSIONS as EXTENSIONS
from beanstalk_twisted.binlog.segments.format import KNOWN_FEATURES as KNOWN_FEATURES
from beanstalk_twisted.binlog.segments.format import METADATA as METADATA

MAX_NAME_BYTES: Final = 200
"""Of a key or a group, as of a tube's name."""

MAX_METADATA_BYTES: Final = 1024
"""Of metadata as they are written, percent-encoded: trace context, tenant and content type take
some 200.
"""

MAX_TAGS_BYTES: Final = 2 + 6 * (4 + MAX_NAME_BYTES) + 4 + 4 + 9 + 4 + MAX_METADATA_BYTES
"""The most that the extensions of a job take."""

WRITTEN_METADATA: Final = re.compile(rb"(?:[!#$&-\[\]-~]|%[0-9A-Fa-f]{2})++")
"""Printable ASCII, in which `%` stands before two digits, without `"` and `\\`: it can be quoted in
YAML and JSON as it is.
"""

_HEAD: Final = struct.Struct("<BBH")
_LENGTH: Final = struct.Struct("<H")
_NUMBER: Final = struct.Struct("<I")
_NUMBERED: Final = struct.Struct("<BBHI")
_DEAD: Final = struct.Struct("<Bq")

_UNIQUE, _CONCURRENCY, _GROUP, _AFTER, _DEAD_LETTER, _ORIGIN, _METADATA = range(1, 8)
_NAMES: Final = {_GROUP: "group", _AFTER: "after", _ORIGIN: "origin"}


class BadTags(ValueError):
    """Extensions that are damaged, or of a newer version."""


class Tags(NamedTuple):
    """What a job carries besides its body; what it does not carry is empty or 0.

    :ivar unique_s: how long no other job may have the key after the job's deletion, seconds.
    :ivar concurrency_key: at most ``concurrency_limit`` jobs with it are reserved at once.
    :ivar after: the group whose end it waits for.
    :ivar metadata: what a client says of it, percent-encoded; nobody decodes it here.
    :ivar dead_from: the tube that it is a dead letter of; ``dead_reason`` is a `Reason`.
    :ivar origin: the tube that it was put into, if it was moved since.
    """

    unique_key: bytes = b""
    unique_s: int = 0
    concurrency_key: bytes = b""
    concurrency_limit: int = 0
    group: bytes = b""
    after: bytes = b""
    metadata: bytes = b""
    dead_from: bytes = b""
    dead_reason: int = 0
    dead_at_ns: int = 0
    origin: bytes = b""

    def encode(self) -> bytes:
        """:return: the bytes before a body, their length included."""
        (unique_key, unique_s, concurrency_key, concurrency_limit, group, after, metadata,
         dead_from, dead_reason, dead_at_ns, origin) = self  # fmt: skip
        # In the order of their numbers.
        encoded = _LENGTH.pack(self.encoded_bytes - _LENGTH.size)
        if unique_key:
            encoded += _NUMBERED.pack(_UNIQUE, 0, 4 + len(unique_key), unique_s) + unique_key
        if concurrency_key:
            size = 4 + len(concurrency_key)
            encoded += _NUMBERED.pack(_CONCURRENCY, 0, size, concurrency_limit) + concurrency_key
        if group:
            encoded += _HEAD.pack(_GROUP, 0, len(group)) + group
        if after:
            encoded += _HEAD.pack(_AFTER, 0, len(after)) + after
        if dead_from:
            dead = _DEAD.pack(dead_reason, dead_at_ns) + dead_from
            encoded += _HEAD.pack(_DEAD_LETTER, 0, len(dead)) + dead
        if origin:
            encoded += _HEAD.pack(_ORIGIN, 0, len(origin)) + origin
        return encoded + _HEAD.pack(_METADATA, 0, len(metadata)) + metadata if metadata else encoded

    @property
    def features(self) -> int:
        """The incompat bits of a segment that may hold them."""
        return EXTENSIONS | METADATA if self.metadata else EXTENSIONS

    @property
    def holds_key(self) -> bool:
        """Whether the job keeps its unique key from others: a dead letter does not."""
        return bool(self.unique_key) and not self.dead_from

    @property
    def leaves_key(self) -> bool:
        return bool(self.unique_s) and self.holds_key

    @property
    def encoded_bytes(self) -> int:
        """How many bytes `encode` gives; it is asked for at each change of a job."""
        unique_key, _, concurrency_key, _, group, after, metadata, dead_from, _, _, origin = self
        size = 4 + 2 + len(metadata) if metadata else 2
        if unique_key:
            size += 8 + len(unique_key)
        if concurrency_key:
            size += 8 + len(concurrency_key)
        if group:
            size += 4 + len(group)
        if after:
            size += 4 + len(after)
        if dead_from:
            size += 13 + len(dead_from)
        return size + 4 + len(origin) if origin else size


NO_TAGS: Final = Tags()


def split_tags(data: bytes) -> tuple[Tags | None, bytes]:
    """Take apart the data of a record that has extensions: tags, None if there are none, and body.

    :raise BadTags: they cannot be understood.
    """
    end = 2 + int.from_bytes(data[:2], "little")
    if len(data) < max(2, end):
        raise BadTags("the extensions are longer than the data they stand in")
    fields: dict[str, bytes | int] = {}
    at, last = 2, 0
    while at < end:
        if at + _HEAD.size > end:
            raise BadTags("the extensions end within one")
        number, _, length = _HEAD.unpack_from(data, at)
        start, at = at + _HEAD.size, at + _HEAD.size + length
        if at > end:
            raise BadTags("the extensions end within one")
        if number <= last:
            raise BadTags("the extensions are not in order")
        last = number
        fields |= _fields(number, data[start:at])
    tags = NO_TAGS._replace(**fields)  # type: ignore[arg-type]
    return (None if tags == NO_TAGS else tags), data[end:]


def _fields(number: int, value: bytes) -> dict[str, bytes | int]:
    if number == _UNIQUE:
        (unique_s,), name = _NUMBER.unpack(value[:4].ljust(4, b"\0")), value[4:]
        return {"unique_key": _name(name), "unique_s": unique_s}
    if number == _CONCURRENCY:
        (limit,), name = _NUMBER.unpack(value[:4].ljust(4, b"\0")), value[4:]
        return {"concurrency_key": _name(name), "concurrency_limit": limit}
    if number == _DEAD_LETTER:
        reason, at_ns = _DEAD.unpack(value[: _DEAD.size].ljust(_DEAD.size, b"\0"))
        return {"dead_from": _name(value[_DEAD.size :]), "dead_reason": reason, "dead_at_ns": at_ns}
    if number == _METADATA:
        if not 1 <= len(value) <= MAX_METADATA_BYTES:
            raise BadTags(f"the metadata in the extensions have {len(value)} bytes")
        return {"metadata": value}
    if number not in _NAMES:
        raise BadTags(f"extension {number} is unknown")
    return {_NAMES[number]: _name(value)}


def _name(name: bytes) -> bytes:
    if not 1 <= len(name) <= MAX_NAME_BYTES:
        raise BadTags(f"a name in the extensions has {len(name)} bytes")
    return name
