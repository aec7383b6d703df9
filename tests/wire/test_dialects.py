"""Lines understood at a glance mean what the parser says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.commands import COMMANDS
from beanstalk_twisted.wire.dialects import MAX_REMEMBERED, MODERN, Dialect, Parsed
from beanstalk_twisted.wire.grammar import ParseError

NUMBERS = st.one_of(
    st.integers(0, 300).map(str),
    st.sampled_from([
        "0" * 25, "00000000007", "9999999999", "4294967295", "4294967296", "0004294967295",
        "18446744073709551615", "18446744073709551616", "9999999999999999999",
        "10000000000000000000", "+5", "-1", "1_0", "\u0662", "", "x",
    ]),
)  # fmt: skip
WORDS = st.sampled_from([row.name for row in COMMANDS])
GAPS = st.sampled_from(["", " ", " ", " ", "  ", "\t", "\0"])


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Draw a command with numbers behind it, right or nearly right."""
    parts = [draw(WORDS)]
    for _ in range(draw(st.integers(0, 5))):
        parts += [draw(GAPS), draw(NUMBERS)]
    return "".join([*parts, draw(GAPS)]).encode()


DIALECTS = (MODERN, v1.DIALECT)


def meaning(understand: Callable[[bytes], Parsed], line: bytes) -> object:
    try:
        return understand(line)
    except ParseError as error:
        return error.reply, error.counter


@given(st.sampled_from(DIALECTS), lines())
def test_a_line_means_the_same_at_a_glance(dialect: Dialect, line: bytes) -> None:
    assert meaning(dialect.parse, line) == meaning(dialect.parse_by_pattern, line)


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
@pytest.mark.parametrize(
    "line",
    [
        b"put 1 2 3 4", b"reserve", b"reserve-with-timeout 5", b"delete 9999999999999999999",
        b"delete 18446744073709551615", b"delete 18446744073709551616", b"release 1 4294967295 0",
        b"release 1 4294967296 0", b"release 1 0 4294967296", b"release 1 2", b"touch 7",
        b"bury 7 1", b"reserve-job 3", b"put 1 2 3 4294967296", b"put 0 0 1 5 junk", b"reserve ",
        b"put 1 2", b"put 1 2 junk", b"peek 7", b"peek", b"stats 7", b"stats", b"quit 7", b"\0",
    ],
)  # fmt: skip
def test_a_line_seen_twice_means_the_same_twice(dialect: Dialect, line: bytes) -> None:
    first, second = meaning(dialect.parse, line), meaning(dialect.parse, line)
    assert first == second == meaning(dialect.parse_by_pattern, line)


def test_of_many_different_puts_only_so_many_are_remembered() -> None:
    dialect = Dialect("new", MODERN.rows)
    for size in range(2 * MAX_REMEMBERED + 1):
        assert dialect.parse(b"put 0 0 1 %d" % size)[1] == (0, 0, 1, size)
        assert len(dialect.remembered) == size % MAX_REMEMBERED + 1


@pytest.mark.parametrize("line", [b"delete 1", b"touch 2", b"use a", b"put x", b"reserve 1", b"no"])
def test_lines_that_do_not_come_again_are_not_remembered(line: bytes) -> None:
    dialect = Dialect("new", MODERN.rows)
    meaning(dialect.parse, line)
    assert len(dialect.remembered) == 0
