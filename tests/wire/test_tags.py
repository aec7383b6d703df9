"""Tags: what they say, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME, MAX_U32, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT
from beanstalk_twisted.wire.tags import PutTags, has_tags, parse_tags, write_tags

LONGEST = b"k" * MAX_TUBE_NAME

RIGHT = {
    b" idp:a": PutTags(unique_key=b"a"),
    b" idp:a:0": PutTags(unique_key=b"a"),
    b" idp:a:060": PutTags(unique_key=b"a", unique_s=60),
    b" idp:a:%d" % MAX_U32: PutTags(unique_key=b"a", unique_s=MAX_U32),
    b" idp:%s" % LONGEST: PutTags(unique_key=LONGEST),
    b" con:a": PutTags(concurrency_key=b"a", concurrency_limit=1),
    b" con:a:1": PutTags(concurrency_key=b"a", concurrency_limit=1),
    b" con:a:%d" % MAX_U32: PutTags(concurrency_key=b"a", concurrency_limit=MAX_U32),
    b" grp:a": PutTags(group=b"a"),
    b" aft:a": PutTags(after=b"a"),
    b" grp:a aft:b": PutTags(group=b"a", after=b"b"),
    b"   aft:b grp:a  con:idp idp:con": PutTags(b"con", 0, b"idp", 1, b"a", b"b"),
    b" idp:+/;.$_()-a:1": PutTags(unique_key=b"+/;.$_()-a", unique_s=1),
}

WRONG = [
    b"", b" ", b"idp:a", b" idp:a ", b" idp", b" idp:", b" idp:-a", b" idp:a:", b" idp:a:-1",
    b" idp:a:x", b" idp:a:1:1", b" idp::1", b" idp:a:%d" % (MAX_U32 + 1), b" idp:%sk" % LONGEST,
    b" idp:a idp:a", b" idp:a idp:b", b" con:a:0", b" con:a:%d" % (MAX_U32 + 1), b" con:",
    b" con::2", b" con:a con:a:2", b" grp:", b" grp:a:1", b" grp:a grp:b", b" aft:a:1", b" aft:",
    b" aft:a aft:a", b" grp:a aft:a", b" aft:a idp:x grp:a", b" xyz:a", b" idp:a xyz:b",
    b" idp:a junk", b" IDP:a", b" idp:a,b", b" idp:a\tcon:b", b" idp:a\0", b" idp:a\n",
    b" idp:\xff", b" :a", b" idp:a :", b" idp:a:+1", b" idp:a:\xd9\xa2", b" idp:a: 1",
]  # fmt: skip


@pytest.mark.parametrize("text", RIGHT)
def test_tags_say_this(text: bytes) -> None:
    assert parse_tags(text) == RIGHT[text]


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_a_wrong_tag(text: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        parse_tags(text)
    assert caught.value.reply is BAD_FORMAT
    assert not caught.value.is_counted


KEYS = st.text("ab-+/;.$_()", min_size=1, max_size=5).map(str.encode)
KEY = KEYS.filter(lambda key: not key.startswith(b"-"))
OR_NONE = st.one_of(st.just(b""), KEY)


@st.composite
def tags(draw: st.DrawFn) -> PutTags:
    unique, concurrent, group, after = (draw(OR_NONE) for _ in range(4))
    return PutTags(
        unique,
        draw(st.integers(0, MAX_U32)) if unique else 0,
        concurrent,
        draw(st.integers(1, MAX_U32)) if concurrent else 0,
        group,
        after if after != group else b"",
    )


@given(tags().filter(any), st.randoms(use_true_random=False), st.integers(1, 3))
def test_tags_are_read_as_written_in_any_order(drawn: PutTags, chance: object, gap: int) -> None:
    words = write_tags(drawn).split(b" ")
    chance.shuffle(words)  # type: ignore[attr-defined]
    text = b"".join(b" " * gap + word for word in words)
    assert parse_tags(text) == drawn
    assert has_tags(b"0 0 1 5" + text)


def test_nothing_is_written_of_no_tags() -> None:
    assert write_tags(PutTags()) == b""
