"""
Lines understood at a glance mean what the parser says.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.server import recognition
from beanstalk_twisted.server.commands import COMMANDS, Parsed, parse
from beanstalk_twisted.server.recognition import MAX_REMEMBERED, recognise
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
    """
    Draw a command with numbers behind it, right or nearly right.
    """
    parts = [draw(WORDS)]
    for _ in range(draw(st.integers(0, 5))):
        parts += [draw(GAPS), draw(NUMBERS)]
    return "".join([*parts, draw(GAPS)]).encode()


def meaning(understand: object, line: bytes) -> object:
    """
    Say what a line is understood as, or why it is not.
    """
    assert callable(understand)
    try:
        return understand(line)
    except ParseError as error:
        return error.reply, error.counter


@given(lines())
def test_a_line_means_the_same_at_a_glance(line: bytes) -> None:
    assert meaning(recognise, line) == meaning(parse, line)


@pytest.mark.parametrize(
    "line",
    [
        b"put 1 2 3 4", b"reserve", b"reserve-with-timeout 5", b"delete 9999999999999999999",
        b"delete 18446744073709551615", b"delete 18446744073709551616", b"release 1 4294967295 0",
        b"release 1 4294967296 0", b"release 1 0 4294967296", b"release 1 2", b"touch 7",
        b"bury 7 1", b"reserve-job 3", b"put 1 2 3 4294967296", b"put 0 0 1 5 junk", b"reserve ",
    ],
)  # fmt: skip
def test_a_line_seen_twice_means_the_same_twice(line: bytes) -> None:
    assert meaning(recognise, line) == meaning(recognise, line) == meaning(parse, line)


def test_of_many_different_puts_only_so_many_are_remembered() -> None:
    for size in range(2 * MAX_REMEMBERED):
        assert isinstance(recognise(b"put 0 0 1 %d" % size), Parsed)
    assert recognition.remembered.cache_info().currsize == MAX_REMEMBERED
