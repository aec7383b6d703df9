"""Which bodies are of one kind."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.bodies import (
    DIGITS,
    MAX_DEPTH,
    MAX_JSON_BYTES,
    SHAPE_CHARACTERS,
    fingerprint,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"send 17 to 4", b"SEND 9  to\t1000"),
        (
            b"user 0b5cad00-0000-4000-8000-00000000000a",
            b"user 1b5cad00-1234-4000-8000-0000fffff00a",
        ),
        (b'{"to": "a@example.org", "n": 1}', b'{"n":[2,3],"to":"b@example.org"}'),
        (b'{"type": "mail", "args": [1]}', b' {"args": [], "type": "Mail"}'),
        (b'{"a": {"b": 1}}', b'{"a": {"b": "x"}}'),
        (b'{"task": "resize-1"}', b'{"task": "resize-27"}'),
        (b"x" * 512 + b"a", b"x" * 512 + b"b"),
    ],
)
def test_bodies_of_one_kind_have_the_same(one: bytes, other: bytes) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"send", b"receive"),
        (b'{"type": "mail"}', b'{"type": "resize"}'),
        (b'{"a": 1}', b'{"b": 1}'),
        (b'{"a": {"b": 1}}', b'{"a": {"c": 1}}'),
        (b'{"a": {"b": 1}}', b'{"a": 1, "b": 1}'),
        (b'{"a": 1', b'{"a": 1}'),
        (b"\xff", b"\xfe"),
        (b"", b"x"),
    ],
)
def test_bodies_of_two_kinds_have_not(one: bytes, other: bytes) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_an_object_is_read_up_to_a_size() -> None:
    words = [b'{"a": "%s", "b": "%s"}' % (word, b"x" * 4080) for word in (b"p", b"q")]
    assert len(words[0]) > MAX_JSON_BYTES
    assert fingerprint(words[0]) != fingerprint(words[1])
    whole = [each[:-2][: MAX_JSON_BYTES - 2] + b'"}' for each in words]
    assert len(whole[0]) == MAX_JSON_BYTES
    assert fingerprint(whole[0]) == fingerprint(whole[1])


def nested(depth: int, key: str) -> bytes:
    value: object = {key: 1}
    for _ in range(depth - 1):
        value = {"in": value}
    return json.dumps(value).encode()


def test_keys_count_down_to_a_depth() -> None:
    assert fingerprint(nested(MAX_DEPTH, "a")) != fingerprint(nested(MAX_DEPTH, "b"))
    assert fingerprint(nested(MAX_DEPTH + 1, "a")) == fingerprint(nested(MAX_DEPTH + 1, "b"))


@given(
    st.binary(max_size=600) | st.text(max_size=50).map(lambda text: json.dumps({text: 1}).encode())
)
def test_any_body_has_one_and_a_long_beginning_of_it_the_same(body: bytes) -> None:
    mark = fingerprint(body)
    assert len(mark) == DIGITS and int(mark, 16) >= 0
    long = body + b" " * (MAX_JSON_BYTES + 1)
    assert fingerprint(long) == fingerprint(long[: MAX_JSON_BYTES + 1])


@pytest.mark.parametrize(
    "body",
    [b'{"a":' * 800 + b"1" + b"}" * 800, b'{"a":1' + b"0" * 4080 + b"}", b'{"\\ud800": 1}',
     b'{"type": "\\ud800"}'],
)  # fmt: skip
def test_what_is_hard_to_read_has_one_too(body: bytes) -> None:
    assert len(fingerprint(body)) == DIGITS


def keyed(count: int, last: str) -> bytes:
    """An object with keys of 8 letters, and one that comes behind them."""
    keys = [f"{at:08d}".translate(LETTERS) for at in range(count)]
    return json.dumps(dict.fromkeys([*keys, last], 1)).encode()


LETTERS = str.maketrans("0123456789", "abcdefghij")


def test_keys_count_up_to_a_length() -> None:
    # With its line end each key has 9 characters.
    few, many = SHAPE_CHARACTERS // 9, SHAPE_CHARACTERS // 9 + 1
    assert fingerprint(keyed(few, "zy")) != fingerprint(keyed(few, "zz"))
    assert fingerprint(keyed(many, "zy")) == fingerprint(keyed(many, "zz"))
