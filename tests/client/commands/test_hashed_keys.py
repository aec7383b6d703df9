"""Keys made of any value: the page's rule, its test vectors, and what the code gives."""

from __future__ import annotations

import ast
import base64
import enum
import hashlib
import re

import pytest

from beanstalk_twisted.client import hashed_key
from beanstalk_twisted.wire.grammar import is_tube_name
from tests.test_docs import EXTENSIONS_PAGE, section

VECTORS = re.findall(r"^(\S+) +(h1-\S+)$", section(EXTENSIONS_PAGE, "Hashed keys"), re.MULTILINE)


def value_of(raw: str) -> str | bytes | int:
    kind, _, rest = raw.partition(":")
    value: bytes = ast.literal_eval(f"b'{rest}'")
    if kind == "i":
        return int(value)
    return value.decode() if kind == "s" else value


@pytest.mark.parametrize(("raw", "key"), VECTORS)
def test_the_vectors_of_the_page_follow_its_rule_and_the_code_does(raw: str, key: str) -> None:
    digest = hashlib.sha256(ast.literal_eval(f"b'{raw}'")).digest()
    assert key == "h1-" + base64.b32encode(digest).decode().replace("=", "").lower()
    assert hashed_key(value_of(raw)) == key
    assert len(key) == 55 and is_tube_name(key.encode())


def test_the_vectors_have_each_kind_of_value() -> None:
    assert len(VECTORS) == 10
    assert {type(value_of(raw)) for raw, _ in VECTORS} == {str, bytes, int}


def test_a_member_of_an_enum_is_its_value() -> None:
    class Number(enum.IntEnum):
        SEVEN = 7

    class Name(enum.StrEnum):
        ORDER = "order"

    assert hashed_key(Number.SEVEN) == hashed_key(7)
    assert hashed_key(Name.ORDER) == hashed_key("order")


@pytest.mark.parametrize("value", [True, False, None, 7.0, ("a",), bytearray(b"a")])
def test_a_value_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="a str, bytes or int can be hashed, not"):
        hashed_key(value)  # type: ignore[arg-type]


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="is not valid Unicode"):
        hashed_key("\ud800")
