"""
Tags: what stands behind the size on the line of a new job (docs/extensions.md, "Tags").

A line has tags if its fifth value begins with the word of one, right or wrong.  Anything else
behind the size is what it is to beanstalkd.
"""

import re
from typing import Final, NamedTuple

from beanstalk_twisted.wire.grammar import MAX_U32, Field, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT

MAX_TAGGED_LINE_BYTES: Final = 1024
"""
A job's line that has tags, with its CR LF: with the longest keys and numbers it takes 894 bytes.
Its first tag begins where a line without any would end.
"""

TAG_WORDS: Final = (b"idp:", b"con:", b"grp:", b"aft:")

_WRITTEN: Final = rb"(?: ++[^ ]++)"

_BEGINNING: Final = re.compile(rb"(?: *+[^ ]++){4} ++(?:%s)" % b"|".join(TAG_WORDS))
_KEY: Final = rb"([A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199}+)"
"""As the name of a tube."""

_KEY_AND_NUMBER: Final = _KEY + rb"(?::([0-9]++))?+"

_TAGS: Final = re.compile(
    rb"(?: ++(?:idp:%s|con:%s|grp:%s|aft:%s)(?= |\Z))++"
    % (_KEY_AND_NUMBER, _KEY_AND_NUMBER, _KEY, _KEY)
)
"""Tags in any order; of those that stand twice, the last."""


class PutTags(NamedTuple):
    """
    What the tags of a job say; what is not said is empty or 0.

    :ivar unique_key: no other job of the tube is to have it.
    :ivar unique_s: seconds that it is remembered after the job's deletion, 0 to 4294967295.
    :ivar concurrency_key: so many of its jobs are reserved at once, at most.
    :ivar concurrency_limit: so many, 1 to 4294967295; 0 without a key.
    :ivar group: that the job is one of.
    :ivar after: the group that the job waits for.
    """

    unique_key: bytes = b""
    unique_s: int = 0
    concurrency_key: bytes = b""
    concurrency_limit: int = 0
    group: bytes = b""
    after: bytes = b""


def has_tags(line: bytes, start: int = 0) -> bool:
    """
    Tell whether a tag's word follows the size.

    :param line: or its beginning; it may be wrong.
    :param start: where the first of the four numbers stands.
    """
    return _BEGINNING.match(line, start) is not None


def parse_tags(text: bytes) -> PutTags:
    """
    Read tags, in any order.

    :param text: at least one, with spaces before each.
    :raise ParseError: one is wrong or stands twice, or the job would wait for a group that it is
        one of itself: for ever.
    """
    match = _TAGS.fullmatch(text)
    if match is None:
        raise ParseError(BAD_FORMAT)
    unique_key, unique_s, concurrency_key, limit, group, after = match.groups(b"")
    found = bool(unique_key) + bool(concurrency_key) + bool(group) + bool(after)
    if found != len(text.split()) or (group and group == after):
        raise ParseError(BAD_FORMAT)
    return PutTags(
        unique_key, _number(unique_s, 0) if unique_s else 0,
        concurrency_key, _number(limit, 1) if limit else int(bool(concurrency_key)),
        group, after,
    )  # fmt: skip


def write_tags(tags: PutTags) -> bytes:
    """
    :return: tags as they may stand on a line, with a space between; numbers that need not be
        written are left out.
    """
    written = []
    if tags.unique_key:
        written.append(_written(b"idp", tags.unique_key, tags.unique_s, 0))
    if tags.concurrency_key:
        written.append(_written(b"con", tags.concurrency_key, tags.concurrency_limit, 1))
    if tags.group:
        written.append(b"grp:" + tags.group)
    if tags.after:
        written.append(b"aft:" + tags.after)
    return b" ".join(written)


def _number(text: bytes, least: int) -> int:
    number = int(text)
    if not least <= number <= MAX_U32:
        raise ParseError(BAD_FORMAT)
    return number


def _written(word: bytes, key: bytes, number: int, default: int) -> bytes:
    return b"%s:%s" % (word, key) + (b"" if number == default else b":%d" % number)


def _optional(text: bytes) -> PutTags | None:
    return parse_tags(text) if text else None


TAGS: Final = Field("tags", b"(%s++)" % _WRITTEN, parse_tags)
OPTIONAL_TAGS: Final = Field("tags", b"(%s*+)" % _WRITTEN, _optional, is_optional=True)
