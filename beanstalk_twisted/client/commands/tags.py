"""Tags of new jobs, and the answer to a put that has some (docs/extensions.md, "Tags")."""

from base64 import b32encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import Final, NamedTuple, Self, TypedDict
from urllib.parse import quote_from_bytes

from beanstalk_twisted.wire.extensions import TAGGED_PUT
from beanstalk_twisted.wire.grammar import MAX_U32
from beanstalk_twisted.wire.grammar import check_whole as check_whole
from beanstalk_twisted.wire.grammar import write_name as write_name
from beanstalk_twisted.wire.tags import MAX_METADATA_BYTES, BatchKey, PutTags

MAX_SECONDS: Final = MAX_U32
"""Of any time that is waited for, 136 years: the longest delay of the protocol."""


def check_seconds(
    what: str, value: object, most: float = MAX_SECONDS, *, is_zero_allowed: bool = True
) -> None:
    """:raise TypeError: the value is not a number; a bool is none.
    :raise ValueError: it is negative, infinite, not a number (NaN) or larger than ``most``.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{what} is a number of seconds, not {value!r}")
    is_large_enough = value >= 0 if is_zero_allowed else value > 0
    if not isfinite(value) or not is_large_enough or value > most:
        least = "0" if is_zero_allowed else "more than 0, up"
        raise ValueError(f"{what} is {least} to {most}, not {value}")


HASH_PREFIX: Final = b"h1-"
"""Names the rule, so that another one can follow it."""


def hashed_key(value: str | bytes | int) -> str:
    """Hash a value into a key or the name of a group, of 55 bytes.

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


def percent_encoded(metadata: str | bytes) -> bytes:
    """Write metadata as they stand on the wire; `urllib.parse.unquote_to_bytes` reads them.

    :param metadata: text is encoded as UTF-8.
    :raise TypeError: it is neither text nor bytes.
    :raise ValueError: it is empty, no valid Unicode, or too long.
    """
    if not isinstance(metadata, str | bytes):
        raise TypeError(f"tags: metadata is text or bytes, not {metadata!r}")
    try:
        value = metadata.encode() if isinstance(metadata, str) else metadata
    except UnicodeEncodeError:
        raise ValueError(f"tags: metadata is not valid Unicode: {metadata!r}") from None
    encoded = quote_from_bytes(value, safe=_SAFE).encode()
    if not 1 <= len(encoded) <= MAX_METADATA_BYTES:
        raise ValueError(
            f"tags: metadata has 1 to {MAX_METADATA_BYTES} bytes when it is percent-encoded, not "
            f"{len(encoded)}"
        )
    return encoded


_SAFE: Final = "!#$&'()*+,/:;<=>?@[]^`{|}"
"""What stands for itself besides letters, digits and ``-._~``."""

Key = str | bytes
"""A key or the name of a group, as it stands on the wire."""

HashedValue = str | bytes | int
"""A value that `hashed_key` makes a key of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tags:
    """Tags of a new job: at least one of metadata and the four keys and groups.  Each of these is
    given as it stands on the wire (1 to 200 bytes, as a tube's name), or with ``_by`` as any value,
    which is hashed.

    :ivar unique: while a job with the key is in the tube, another put puts nothing.
    :ivar unique_seconds: nor for that long after the job's deletion, 0 to 4,294,967,295.
    :ivar concurrency: of the jobs with the key, in all tubes, only some are reserved at a time.
    :ivar concurrency_limit: how many, 1 to 4,294,967,295.
    :ivar group: the job is one of this group.
    :ivar after: the job waits until all jobs of this group are deleted.
    :ivar metadata: what else is said of the job: text, or bytes that `percent_encoded` takes.
    """

    unique: Key | None = None
    unique_by: HashedValue | None = None
    unique_seconds: int = 0
    concurrency: Key | None = None
    concurrency_by: HashedValue | None = None
    concurrency_limit: int = 1
    group: Key | None = None
    group_by: HashedValue | None = None
    after: Key | None = None
    after_by: HashedValue | None = None
    metadata: str | bytes | None = None

    def __post_init__(self) -> None:
        """:raise TypeError, ValueError: something is not what it should be."""
        self.for_wire()

    def for_wire(self) -> PutTags:
        """Give the values that stand on a line."""
        unique_key = _key("unique", self.unique, self.unique_by)
        check_whole("tags: unique_seconds", self.unique_seconds, 0, MAX_U32)
        concurrency_key = _key("concurrency", self.concurrency, self.concurrency_by)
        check_whole("tags: concurrency_limit", self.concurrency_limit, 1, MAX_U32)
        tags = PutTags(
            unique_key, self.unique_seconds, concurrency_key, self.concurrency_limit,
            _key("group", self.group, self.group_by), _key("after", self.after, self.after_by),
            b"" if self.metadata is None else percent_encoded(self.metadata),
        )  # fmt: skip
        if tags.unique_s and not tags.unique_key:
            raise ValueError("tags: unique_seconds needs unique or unique_by")
        if tags.concurrency_limit > 1 and not tags.concurrency_key:
            raise ValueError("tags: concurrency_limit needs concurrency or concurrency_by")
        if tags.group and tags.group == tags.after:
            raise ValueError("tags: a job of a group cannot wait for the end of the same group")
        if not words_of(tags):
            raise ValueError("tags: there is none; leave them out")
        return tags if tags.concurrency_key else tags._replace(concurrency_limit=0)


class TagValues(TypedDict, total=False):
    """The fields of `Tags`, as arguments of a put."""

    unique: Key | None
    unique_by: HashedValue | None
    unique_seconds: int
    concurrency: Key | None
    concurrency_by: HashedValue | None
    concurrency_limit: int
    group: Key | None
    group_by: HashedValue | None
    after: Key | None
    after_by: HashedValue | None
    metadata: str | bytes | None


class NewJob(NamedTuple):
    """A job of a batch to put; what is None is as the arguments of `put_batch`."""

    body: bytes
    priority: int | None = None
    delay: int | None = None
    ttr: int | None = None
    tags: Tags | None = None


class JobCount(int):
    """How many jobs follow a `put-batch`, and the tags of each."""

    tags: tuple[PutTags | None, ...] = ()

    @classmethod
    def of(cls, jobs: Sequence[NewJob]) -> Self:
        count = cls(len(jobs))
        count.tags = tuple(on_wire(job.tags) for job in jobs)
        return count


def on_wire(tags: Tags | None, values: TagValues | None = None) -> PutTags | None:
    """:param values: the tags, one by one, instead.
    :raise TypeError: these are no tags, or both are given.
    """
    if values:
        if tags is not None:
            raise TypeError(f"tags: give {next(iter(values))} in the Tags, not besides")
        tags = Tags(**values)
    if tags is None:
        return None
    if not isinstance(tags, Tags):
        raise TypeError(f"tags are Tags, not {tags!r}")
    return tags.for_wire()


def batch_key(
    unique: Key | None, unique_by: HashedValue | None, seconds: int
) -> BatchKey | None:  # fmt: skip
    """Give the key of a batch; None for none.

    :raise TypeError, ValueError: something is not what it should be.
    """
    key = _key("unique", unique, unique_by)
    check_whole("put-batch: unique_seconds", seconds, 1, MAX_U32)
    return BatchKey(key, seconds) if key else None


def words_of(tags: PutTags) -> list[str]:
    """Give what a server has to announce for these tags."""
    said = {
        "idp:": tags.unique_key, "con:": tags.concurrency_key, "grp:": tags.group,
        "aft:": tags.after, "meta:": tags.metadata,
    }  # fmt: skip
    return [f"{TAGGED_PUT.name} {word}" for word, value in said.items() if value]


def _key(name: str, value: Key | None, hashed: HashedValue | None) -> bytes:
    """Give what stands on a line: empty for None."""
    if hashed is None:
        return b"" if value is None else write_name(f"tags: {name}", value)
    if value is not None:
        raise ValueError(f"tags: give one of {name} and {name}_by, not both")
    try:
        return hashed_key(hashed).encode()
    except (TypeError, ValueError) as wrong:
        raise type(wrong)(f"tags: {name}_by: {wrong}") from None
