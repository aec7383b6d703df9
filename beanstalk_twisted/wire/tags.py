"""
Tags: what stands behind the size on the line of a new job (docs/extensions.md, "Tags").

A line has tags if its fifth value begins with the word of one, right or wrong.  Anything else
behind the size is what it is to beanstalkd.
"""

import re
from typing import Final, NamedTuple

from beanstalk_twisted.wire.grammar import MAX_U32, TUBE, Field, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT

MAX_TAGGED_LINE_BYTES: Final = 1024
"""
A job's line that has tags, with its CR LF: with the longest keys and numbers it takes 894 bytes.
Its first tag begins where a line without any would end.
"""

TAG_WORDS: Final = (b"idp:", b"con:", b"grp:", b"aft:")

_WRITTEN: Final = rb"(?: ++[^ ]++)"

_BEGINNING: Final = re.compile(rb"(?: *+[^ ]++){4} ++(?:%s)" % b"|".join(TAG_WORDS))
_SOME: Final = re.compile(_WRITTEN + rb"++")


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
    :param line: or its beginning; it may be wrong.
    :param start: where the first of the four numbers stands.
    :return: whether a tag's word follows the size.
    """
    return _BEGINNING.match(line, start) is not None


def parse_tags(text: bytes) -> PutTags:
    """
    Read tags, in any order.

    :param text: at least one, with spaces before each.
    :raise ParseError: one is wrong or stands twice, or the job would wait for a group that it is
        one of itself: for ever.
    """
    if _SOME.fullmatch(text) is None:
        raise ParseError(BAD_FORMAT)
    found: dict[bytes, list[bytes]] = {}
    for tag in filter(None, text.split(b" ")):
        word, *values = tag.split(b":")
        if word in found:
            raise ParseError(BAD_FORMAT)
        found[word] = values
    unique_key, unique_s = _key_and_number(found.pop(b"idp", None), 0, 0)
    concurrency_key, limit = _key_and_number(found.pop(b"con", None), 1, 1)
    group, after = _key(found.pop(b"grp", None)), _key(found.pop(b"aft", None))
    if found or (group and group == after):
        raise ParseError(BAD_FORMAT)
    return PutTags(unique_key, unique_s, concurrency_key, limit, group, after)


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


def _key_and_number(values: list[bytes] | None, least: int, default: int) -> tuple[bytes, int]:
    """
    :param values: what stands behind the tag's word; None: the tag is not there.
    """
    if values is None or len(values) != 2:
        return _key(values), default if values is not None else 0
    key, text = values
    number = int(text) if text.isdigit() else -1
    if not least <= number <= MAX_U32:
        raise ParseError(BAD_FORMAT)
    return _key([key]), number


def _key(values: list[bytes] | None) -> bytes:
    if values is None:
        return b""
    if len(values) != 1:
        raise ParseError(BAD_FORMAT)
    key: bytes = TUBE.convert(values[0])
    return key


def _written(word: bytes, key: bytes, number: int, default: int) -> bytes:
    return b"%s:%s" % (word, key) + (b"" if number == default else b":%d" % number)


def _optional(text: bytes) -> PutTags | None:
    return parse_tags(text) if text else None


TAGS: Final = Field("tags", b"(%s++)" % _WRITTEN, parse_tags)
OPTIONAL_TAGS: Final = Field("tags", b"(%s*+)" % _WRITTEN, _optional, is_optional=True)
