"""Tags: what stands after the size on the line of a new job (docs/extensions.md, "Tags")."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from beanstalk_twisted.wire.grammar import (
    BYTES,
    DELAY,
    JOB_ID,
    MAX_U32,
    PRIORITY,
    TTR,
    Field,
    ParseError,
    line_pattern,
    number,
    optional,
)
from beanstalk_twisted.wire.replies import BAD_FORMAT

MAX_METADATA_BYTES: Final = 1024
"""Of the value of `meta:`, as it is written: trace context, tenant and content type take some 200.
"""

MAX_TAGGED_LINE_BYTES: Final = 2048
"""A job's line that has tags, with its CR LF: with the longest values it takes 1,924 bytes.
Its first tag begins where a line without any would end.
"""

TAG_WORDS: Final = (b"idp:", b"con:", b"grp:", b"aft:", b"meta:")

_WRITTEN: Final = rb"(?: ++[^ ]++)"

_BEGINNING: Final = re.compile(rb"(?: *+[^ ]++){4} ++(?:%s)" % b"|".join(TAG_WORDS))
_KEY: Final = rb"([A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199}+)"
"""As the name of a tube."""

_KEY_AND_NUMBER: Final = _KEY + rb"(?::([0-9]++))?+"

_BATCH_KEY: Final = re.compile(rb" ++idp:%s *+" % _KEY_AND_NUMBER)

_METADATA: Final = rb"((?:[!#$&-\[\]-~]|%[0-9A-Fa-f]{2})++)"
"""Printable ASCII without `"` and `\\`, so that it can be quoted as it is."""

_TAGS: Final = re.compile(
    rb"(?: ++(?:idp:%s|con:%s|grp:%s|aft:%s|meta:%s)(?= |\Z))++"
    % (_KEY_AND_NUMBER, _KEY_AND_NUMBER, _KEY, _KEY, _METADATA)
)
"""Tags in any order; of those that stand twice, the last."""


class PutTags(NamedTuple):
    """The tags of a job; what is not there is empty or 0.

    :ivar unique_key: no other job of the tube may have it.
    :ivar unique_s: seconds that it is remembered after the job's deletion, 0 to 4294967295.
    :ivar concurrency_limit: how many jobs of the key may be reserved simultaneously, 1 to
        4294967295; 0 without a key.
    :ivar after: the group that the job waits for.
    :ivar metadata: percent-encoded, as it was written; never decoded.
    """

    unique_key: bytes = b""
    unique_s: int = 0
    concurrency_key: bytes = b""
    concurrency_limit: int = 0
    group: bytes = b""
    after: bytes = b""
    metadata: bytes = b""


class BatchKey(NamedTuple):
    """The key of a batch.

    :ivar seconds: how long it is remembered from the put on, 1 to 4294967295.
    """

    key: bytes
    seconds: int


DEFAULT_BATCH_KEY_S: Final = 3600
"""How long the key of a batch is remembered: longer than a producer tries again."""


def parse_batch_key(text: bytes) -> BatchKey | None:
    """:raise ParseError: it is no key.
    :return: None of an empty text.
    """
    if not text:
        return None
    match = _BATCH_KEY.fullmatch(text)
    if match is None:
        raise ParseError(BAD_FORMAT)
    key, seconds = match.groups()
    return BatchKey(key, number(seconds, MAX_U32, 1) if seconds else DEFAULT_BATCH_KEY_S)


def write_batch_key(key: BatchKey) -> bytes:
    return _written(b"idp", key.key, key.seconds, DEFAULT_BATCH_KEY_S)


def has_tags(line: bytes, start: int = 0) -> bool:
    """Return True if a tag's word follows the size, right or wrong; anything else there is what it
    is to beanstalkd.

    :param line: or its beginning; it may be wrong.
    :param start: of the first of the four numbers.
    """
    return _BEGINNING.match(line, start) is not None


def parse_tags(text: bytes) -> PutTags:
    """Read tags, in any order.

    :param text: at least one, with spaces before each.
    :raise ParseError: one is wrong or stands twice, or the job would wait for a group that it is
        one of itself: for ever.
    """
    match = _TAGS.fullmatch(text)
    if match is None:
        raise ParseError(BAD_FORMAT)
    unique_key, unique_s, concurrency_key, limit, group, after, metadata = match.groups(b"")
    found = bool(unique_key) + bool(concurrency_key) + bool(group) + bool(after) + bool(metadata)
    is_endless = bool(group) and group == after
    if found != len(text.split()) or is_endless or len(metadata) > MAX_METADATA_BYTES:
        raise ParseError(BAD_FORMAT)
    return PutTags(
        unique_key, number(unique_s, MAX_U32) if unique_s else 0,
        concurrency_key, number(limit, MAX_U32, 1) if limit else int(bool(concurrency_key)),
        group, after, metadata,
    )  # fmt: skip


def write_tags(tags: PutTags) -> bytes:
    """Write tags with a space between, without the numbers that need not be written."""
    written = []
    if tags.unique_key:
        written.append(_written(b"idp", tags.unique_key, tags.unique_s, 0))
    if tags.concurrency_key:
        written.append(_written(b"con", tags.concurrency_key, tags.concurrency_limit, 1))
    if tags.group:
        written.append(b"grp:" + tags.group)
    if tags.after:
        written.append(b"aft:" + tags.after)
    if tags.metadata:
        written.append(b"meta:" + tags.metadata)
    return b" ".join(written)


def _written(word: bytes, key: bytes, value: int, default: int) -> bytes:
    return b"%s:%s" % (word, key) + (b"" if value == default else b":%d" % value)


def _optional(text: bytes) -> PutTags | None:
    return parse_tags(text) if text else None


def _write(what: str, value: object) -> bytes:
    if not isinstance(value, PutTags):
        raise TypeError(f"{what} are Tags, not {value!r}")
    return write_tags(value)


TAGS: Final = Field("tags", b"(%s++)" % _WRITTEN, parse_tags, _write)
OPTIONAL_TAGS: Final = Field(
    "tags", b"(%s*+)" % _WRITTEN, _optional, optional(_write), is_optional=True
)


def _write_key(what: str, value: object) -> bytes:
    if not isinstance(value, BatchKey):
        raise TypeError(f"{what} is a BatchKey, not {value!r}")
    return write_batch_key(value)


OPTIONAL_BATCH_KEY: Final = Field(
    "batch-key", b"(%s*+)" % _WRITTEN, parse_batch_key, optional(_write_key), is_optional=True
)


MAX_BATCH_BYTES: Final = 15 << 20
"""Bytes of all bodies and metadata of a batch.  A batch is one frame of the log, of 16 MiB at most:
1 MiB is left for 1,000 records of up to 1,048 bytes, whatever else they come to carry.
"""

FIELDS: Final = (PRIORITY, DELAY, TTR, BYTES)
"""Of a job's line in a batch."""

UPDATE_FIELDS: Final = (JOB_ID, PRIORITY, DELAY, TTR, BYTES)
"""Of the line of an `update-job` with a body."""

_JOB: Final = line_pattern(FIELDS)
_UPDATE: Final = line_pattern(UPDATE_FIELDS)


class JobLine(NamedTuple):
    """A job's line.

    :ivar size: bytes of the body that follows, without its CR LF; None if that is unknown.
    :ivar values: of the fields before the size; None if one of them is wrong.
    :ivar has_junk: whether something follows the size that is no tags, or wrong ones.
    """

    size: int | None
    values: tuple[Any, ...] | None
    has_junk: bool
    tags: PutTags | None = None


NO_LINE: Final = JobLine(None, None, False)
"""An empty line."""


def parse_job_line(line: bytes, fields: Sequence[Field] = FIELDS) -> JobLine:
    """Understand a job's line, or at least its size.

    :param line: without a command's word and its CR LF.
    :param fields: the first three are what stands before the size; all are numbers.
    """
    match = _JOB.fullmatch(line)
    if match is None:
        words = line.split()
        return JobLine(_u32(words[3]) if len(words) > 3 else None, None, False)
    *texts, size_text, rest = match.groups()
    size, values = _u32(size_text), _values(fields, texts)
    if values is None or not rest:
        return JobLine(size, values, bool(rest))
    tags = _tags(rest)
    return JobLine(size, values, tags is None, tags)


def parse_update_line(line: bytes) -> JobLine | None:
    """Understand the line of an `update-job`, or at least the size of its body.

    :param line: without the command's word and its CR LF.
    :return: None if it says no size: no body follows.
    """
    words = line.split()
    if len(words) < len(UPDATE_FIELDS):
        return None
    match = _UPDATE.fullmatch(line)
    if match is None:
        return JobLine(_u32(words[len(UPDATE_FIELDS) - 1]), None, False)
    *texts, size_text, rest = match.groups()
    return JobLine(_u32(size_text), _values(UPDATE_FIELDS, texts), bool(rest))


def _values(fields: Sequence[Field], texts: Sequence[bytes]) -> tuple[Any, ...] | None:
    """:return: None if one is wrong."""
    try:
        values = [field.convert(text) for field, text in zip(fields, texts, strict=False)]
    except ParseError:
        return None
    return tuple(values)


def _tags(rest: bytes) -> PutTags | None:
    """:return: None if it is no tags, or wrong ones."""
    try:
        return parse_tags(rest)
    except ParseError:
        return None


def parse_count(line: bytes) -> int | None:
    """Return how many jobs follow, though they may be too many; None if that is unknown.

    :param line: without the command's word.
    """
    words = line.split()
    is_known = bool(words) and all([word.startswith(TAG_WORDS) for word in words[1:]])
    return _u32(words[0]) if is_known else None


def _u32(text: bytes) -> int | None:
    """Read a number below 2**32; None of anything else."""
    if not text.isdigit():
        return None
    value = int(text)
    return value if value <= MAX_U32 else None
