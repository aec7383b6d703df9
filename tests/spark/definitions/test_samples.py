"""A body is shown so that it can be read, and obeyed by nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlog_tools.spark.definitions.samples import HEX_BYTES, SAMPLE_BYTES, readable


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"id": 7, "name": "caf\xc3\xa9"}', '{"id": 7, "name": "caf\u00e9"}'),
        (b"To: x\r\n\thello\r\n", "To: x\\r\\n\\thello\\r\\n"),
        (b"a long enough text with \x1b[0m in it", "a long enough text with \\x1b[0m in it"),
        ("a\u202ebc\u2028def and what follows".encode(), "a\\u202ebc\\u2028def and what follows"),
        (b"mostly text, and one byte of none: \xff", "mostly text, and one byte of none: \\xff"),
        (b"\x80\x04\x95\x12\x00", "hex 80 04 95 12 00"),
        (b"", ""),
    ],
)
def test_text_is_text_and_anything_else_hexadecimal(body: bytes, shown: str) -> None:
    assert readable(body) == shown


def test_it_is_cut_at_the_limit_and_says_so() -> None:
    assert readable(b"x" * SAMPLE_BYTES) == "x" * SAMPLE_BYTES
    assert readable(b"x" * (SAMPLE_BYTES + 1)) == "x" * SAMPLE_BYTES + " \u2026 and 1 more bytes"
    assert readable(b"\0" * HEX_BYTES).count("00") == HEX_BYTES
    assert readable(b"\0" * (HEX_BYTES + 2)).endswith(" \u2026 and 2 more bytes")
    assert readable(b"x" * SAMPLE_BYTES, 1000) == "x" * SAMPLE_BYTES + " \u2026 and 760 more bytes"


def test_a_character_that_is_cut_in_two_is_left_out() -> None:
    assert readable(b"x" * (SAMPLE_BYTES - 1) + "é".encode() * 9).startswith("x" * 10)
    assert "\ufffd" not in readable(b"x" * (SAMPLE_BYTES - 1) + "é".encode() * 9)


@given(st.binary(max_size=600))
def test_any_body_is_printable(body: bytes) -> None:
    assert readable(body).isprintable()
