"""The tags of rows (docs/extensions.md, "Tags"): words behind the size on the line of a `put`."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class Tag(NamedTuple):
    """
    A tag that a column stands for.

    :ivar word: what it begins with on the line.
    :ivar number: the column of the number behind the key; empty: it has none.
    """

    word: bytes
    number: str = ""


TAGS: Final[Mapping[str, Tag]] = {
    "unique_key": Tag(b"idp:", "unique_s"),
    "concurrency_key": Tag(b"con:", "concurrency_limit"),
    "job_group": Tag(b"grp:"),
    "after": Tag(b"aft:"),
}
"""The columns of tags, which are called as in the events table."""


def tag_words(tag: Tag, keys: Sequence[bytes | None], values: Sequence[int] | None) -> list[bytes]:
    """
    What stands on the lines of some rows, with a space before it; nothing where a key is missing.

    :param values: the numbers, None if the tag has none.
    """
    if values is None:
        return [b"" if key is None else b" %b%b" % (tag.word, key) for key in keys]
    return [
        b"" if key is None else b" %b%b:%d" % (tag.word, key, value)
        for key, value in zip(keys, values, strict=True)
    ]
