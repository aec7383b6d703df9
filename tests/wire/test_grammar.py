"""The fields of a command line, at their limits and one past."""

from __future__ import annotations

from typing import Any

import pytest

from beanstalk_twisted.wire import grammar
from beanstalk_twisted.wire.grammar import Field, ParseError, line_pattern
from beanstalk_twisted.wire.replies import BAD_FORMAT

NS = 1_000_000_000
NAME_200 = b"n" * 200

NUMBERS_OF_32_BITS = (grammar.PRIORITY, grammar.DELAY, grammar.BYTES, grammar.PAUSE, grammar.TTR)


def read(field: Field, text: bytes) -> tuple[Any, bytes]:
    match = line_pattern([field]).fullmatch(text)
    if match is None:
        raise ParseError(BAD_FORMAT)
    found, rest = match.groups()
    return field.convert(found), rest


def is_refused(field: Field, text: bytes) -> bool:
    """Say whether a text is no such field, or has something behind it."""
    try:
        _, rest = read(field, text)
    except ParseError as error:
        assert error.reply == BAD_FORMAT
        return True
    return bool(rest)


@pytest.mark.parametrize("field", NUMBERS_OF_32_BITS, ids=lambda field: str(field.name))
def test_a_number_of_32_bits_ends_at_4294967295(field: Field) -> None:
    assert read(field, b"4294967295") == (4294967295, b"")
    assert is_refused(field, b"4294967296")


def test_an_id_has_64_bits_and_a_timeout_31() -> None:
    assert read(grammar.TIMEOUT, b"2147483647") == (2147483647 * NS, b"")
    assert is_refused(grammar.TIMEOUT, b"2147483648")
    assert read(grammar.JOB_ID, b"18446744073709551615") == ((1 << 64) - 1, b"")
    assert is_refused(grammar.JOB_ID, b"18446744073709551616")
    assert is_refused(grammar.JOB_ID, b"9" * 48)


@pytest.mark.parametrize(
    "field", [grammar.JOB_ID, *NUMBERS_OF_32_BITS], ids=lambda field: field.name
)
def test_blanks_and_zeros_before_a_number_are_fine(field: Field) -> None:
    assert read(field, b"   0000000000000000000000000000000000007") == (7, b"")


@pytest.mark.parametrize("rest", [b" ", b"foo", b" foo", b"\n", b"\r\n", b"x" * 100])
def test_what_follows_a_timeout_or_a_count_is_ignored(rest: bytes) -> None:
    assert read(grammar.TIMEOUT, b"0" + rest) == (0, b"")
    assert read(grammar.BOUND, b"3" + rest) == (3, b"")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"0", 0), (b"+1", 1), (b"-1", 4294967295), (b"\t\n\v\f\r 1", 1), (b"0x10", 0),
        (b"4294967295", 4294967295), (b"4294967296", 0), (b"18446744073709551615", 4294967295),
        (b"-18446744073709551615", 1),
    ],
)  # fmt: skip
def test_a_count_is_read_as_c_reads_it(text: bytes, count: int) -> None:
    assert read(grammar.BOUND, text) == (count, b"")


@pytest.mark.parametrize(
    "text", [b"", b" ", b"x", b"- 1", b"+-1", b"18446744073709551616", b"-18446744073709551616"]
)
def test_a_count_without_digits_or_above_64_bits_is_refused(text: bytes) -> None:
    assert is_refused(grammar.BOUND, text)


LEGAL = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()")


def test_each_of_the_256_bytes_is_legal_in_a_name_or_is_not() -> None:
    inside = {byte for byte in range(256) if not is_refused(grammar.TUBE, b"a" + bytes([byte]))}
    first = {byte for byte in range(256) if not is_refused(grammar.TUBE, bytes([byte]))}
    assert inside == LEGAL
    assert first == LEGAL - set(b"-")


@pytest.mark.parametrize("name", [b"-a", NAME_200 + b"n"], ids=["hyphen", "201 bytes"])
def test_a_name_before_a_number_that_only_looks_legal_is_refused_and_counted(name: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        read(grammar.TUBE_THEN, name)
    assert caught.value.is_counted
