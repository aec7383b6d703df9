"""What a line means.  The tables are what beanstalkd answers, odd input included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.wire.commands import COMMANDS, COUNTERS, MAX_LINE_BYTES
from beanstalk_twisted.wire.dialects import MODERN, Dialect
from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME, ParseError

BAD_FORMAT, UNKNOWN_COMMAND = b"BAD_FORMAT\r\n", b"UNKNOWN_COMMAND\r\n"
NAME_200 = b"n" * MAX_TUBE_NAME
U32, U64 = 4294967295, 18446744073709551615


def refusal(line: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        MODERN.parse(line)
    return caught.value


@pytest.mark.parametrize("name", [b"-a", NAME_200 + b"n"], ids=["hyphen", "201 bytes"])
def test_pause_tube_counts_when_only_its_name_is_bad(name: bytes) -> None:
    error = refusal(b"pause-tube " + name + b" 1")
    assert error.reply.encode() == BAD_FORMAT
    assert error.counter == "cmd-pause-tube"


@pytest.mark.parametrize("junk", [b" ", b"x", b" junk", b"\n", b" 6"], ids=repr)
def test_what_follows_the_size_of_a_put_is_left_to_be_judged(junk: bytes) -> None:
    _, args, has_junk = MODERN.parse(b"put 0 0 1 5" + junk)
    assert args == (0, 0, 1, 5)
    assert has_junk


def test_the_longest_legal_command_fills_the_longest_line() -> None:
    line = b"pause-tube " + NAME_200 + b" 4294967295\r\n"
    assert len(line) == MAX_LINE_BYTES == 224


def test_all_commands_are_counted_but_three_under_their_own_names() -> None:
    uncounted = {row.name for row in COMMANDS if row.counter is None}
    assert uncounted == {"reserve-job", "kick-job", "quit"}
    assert {row.counter for row in COMMANDS if row.counter} == set(COUNTERS)
    assert all(row.counter == f"cmd-{row.name}" for row in COMMANDS if row.counter)


STOCK = Dialect("stock", COMMANDS)

_PIECES = st.sampled_from(
    [row.prefix for row in COMMANDS]
    + [b" ", b"\t", b"\n", b"\0", b"-", b"+", b"0", b"1", b"x", b"4294967296", b"default", b"\xff"]
)


def first_with_a_prefix_of(line: bytes) -> str:
    """Find the command as beanstalkd does: the first in the table wins."""
    return next(row.name for row in COMMANDS if line.startswith(row.prefix))


@given(st.lists(_PIECES, max_size=8).map(b"".join) | st.binary(max_size=222))
def test_any_line_is_the_first_command_it_starts_like_or_refused(line: bytes) -> None:
    try:
        command, args, _ = STOCK.parse(line)
    except ParseError as error:
        is_known = any(line.startswith(row.prefix) for row in COMMANDS)
        is_bad = is_known or b"\0" in line
        assert error.reply.encode() == (BAD_FORMAT if is_bad else UNKNOWN_COMMAND)
        return
    assert command.name == first_with_a_prefix_of(line)
    assert len(args) == len(command.fields)
