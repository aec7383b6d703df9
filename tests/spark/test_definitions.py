"""Paths and URLs as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlog_tools.spark.definitions.addresses import name_of, normal, split, within
from binlog_tools.spark.histories.failing import HEX_BYTES, SAMPLE_BYTES, readable
from binlog_tools.spark.reading.planning import packed


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


def test_a_character_that_is_cut_in_two_is_left_out() -> None:
    assert readable(b"x" * (SAMPLE_BYTES - 1) + "é".encode() * 9).startswith("x" * 10)
    assert "\ufffd" not in readable(b"x" * (SAMPLE_BYTES - 1) + "é".encode() * 9)


@given(st.binary(max_size=600))
def test_any_body_is_printable(body: bytes) -> None:
    assert readable(body).isprintable()


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([], []), ([10, 10, 10], [(10, 10, 10)]), ([10, 10, 11], [(10, 10), (11,)]),
        ([31], [(31,)]), ([31, 1], [(31,), (1,)]), ([0, 31], [(0,), (31,)]),
    ],
)  # fmt: skip
def test_neighbours_are_put_together_up_to_a_size(
    sizes: list[int], tasks: list[tuple[int, ...]]
) -> None:
    assert packed(sizes, int, 30) == tasks


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/var/lib/bs", "/var/lib/bs"),
        ("file:///var/lib/bs", "/var/lib/bs"),
        ("file:/var/lib/bs", "/var/lib/bs"),
        ("file://localhost/var/lib/bs", "/var/lib/bs"),
        ("file:bs", "bs"),
        ("s3a://b/x/", "s3://b/x"),
        ("S3://b/X?region=eu", "s3://b/X?region=eu"),
        ("s3://b/x/?region=eu", "s3://b/x?region=eu"),
        ("hdfs://h:8020/x", "hdfs://h:8020/x"),
    ],
)
def test_an_address_has_one_form(address: str, expected: str) -> None:
    assert normal(address) == expected


@pytest.mark.parametrize(
    ("folder", "address"),
    [
        ("/var/lib/bs", "/var/lib/bs/name"),
        ("a?b", "a?b/name"),
        ("s3://b/x", "s3://b/x/name"),
        ("s3://b", "s3://b/name"),
        ("s3://b/x?region=eu&scheme=http", "s3://b/x/name?region=eu&scheme=http"),
    ],
)
def test_names_are_put_to_folders_and_taken_off_again(folder: str, address: str) -> None:
    assert within(folder, "name") == address
    assert split(address) == (folder, "name")
    assert name_of(address) == "name"
