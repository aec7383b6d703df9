"""What a line means.  The tables are what beanstalkd answers, odd input included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.wire.commands import COMMANDS, COUNTERS, MAX_LINE_BYTES
from beanstalk_twisted.wire.dialects import MODERN, Dialect
from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME, ParseError

NS = 1_000_000_000
BAD_FORMAT, UNKNOWN_COMMAND = b"BAD_FORMAT\r\n", b"UNKNOWN_COMMAND\r\n"
NAME_200 = b"n" * MAX_TUBE_NAME
U32, U64 = 4294967295, 18446744073709551615


def refusal(line: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        MODERN.parse(line)
    return caught.value


def meaning(line: bytes) -> tuple[str, tuple[Any, ...]]:
    command, args, has_junk = MODERN.parse(line)
    assert not has_junk
    return command.name, args


UNDERSTOOD: dict[str, dict[bytes, tuple[Any, ...]]] = {
    "put": {
        b"put 1 2 3 4": (1, 2, 3, 4), b"put 0 0 0 0": (0, 0, 1, 0),
        b"put 4294967295 4294967295 4294967295 4294967295": (U32, U32, U32, U32),
        b"put   01   02   03   04": (1, 2, 3, 4),
    },
    "peek": {b"peek 1": (1,), b"peek 18446744073709551615": (U64,)},
    "reserve-with-timeout": {
        b"reserve-with-timeout 0": (0,), b"reserve-with-timeout 0foo": (0,),
        b"reserve-with-timeout 0 foo": (0,), b"reserve-with-timeout 0 ": (0,),
        b"reserve-with-timeout   1": (NS,),
        b"reserve-with-timeout 2147483647": (2147483647 * NS,),
    },
    "reserve-job": {b"reserve-job 1": (1,)},
    "delete": {b"delete 0": (0,), b"delete   99": (99,), b"delete " + b"0" * 214 + b"1": (1,)},
    "release": {
        b"release  99  1  1": (99, 1, 1),
        b"release 18446744073709551615 4294967295 4294967295": (U64, U32, U32),
    },
    "bury": {b"bury 1 4294967295": (1, U32)},
    "kick": {
        b"kick 1": (1,), b"kick 1x": (1,), b"kick 1 2": (1,), b"kick +1": (1,), b"kick -1": (U32,),
        b"kick \t1": (1,), b"kick 1 ": (1,), b"kick 0x10": (0,), b"kick 4294967296": (0,),
    },
    "kick-job": {b"kick-job 1": (1,)},
    "touch": {b"touch 1": (1,)},
    "stats-job": {b"stats-job 1": (1,), b"stats-job   1": (1,)},
    "stats-tube": {b"stats-tube a": (b"a",)},
    "use": {b"use x_y": (b"x_y",), b"use " + NAME_200: (NAME_200,)},
    "watch": {b"watch a": (b"a",)},
    "ignore": {b"ignore a": (b"a",)},
    "pause-tube": {
        b"pause-tube default 0": (b"default", 0), b"pause-tube   default   0": (b"default", 0),
        b"pause-tubedefault 0": (b"default", 0), b"pause-tubes 0": (b"s", 0),
        b"pause-tube " + NAME_200 + b" 4294967295": (NAME_200, U32),
    },
    "quit": {b"quit": (), b"quitx": (), b"quit foo": (), b"quit\n": ()},
    **{
        name: {name.encode(): ()}
        for name in ("peek-ready", "peek-delayed", "peek-buried", "reserve", "stats", "list-tubes",
                     "list-tube-used", "list-tubes-watched")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_line_is_understood_as_beanstalkd_does(name: str) -> None:
    for line, args in UNDERSTOOD[name].items():
        assert meaning(line) == (name, args)


UNKNOWN = [
    b"", b" stats", b"STATS", b"Put 0 0 1 1", b"put", b"peek", b"delete", b"release", b"bury",
    b"kick", b"kick-job", b"touch", b"use", b"watch", b"ignore", b"putx", b"peekx", b"peek-foo",
    b"kickx", b"deletex 1", b"put\t0 0 1 1", b"reserv", b"list-tube", b"nosuch", b"foo\nbar",
    b"kick-job\t1", b"qui", b"stat", b"\xff\xfe", b"pause-tub",
]  # fmt: skip


@pytest.mark.parametrize("line", UNKNOWN, ids=repr)
def test_an_unknown_word_is_an_unknown_command(line: bytes) -> None:
    assert refusal(line).reply.encode() == UNKNOWN_COMMAND


BEHIND_A_BARE_WORD = [
    b"stats-job", b"stats-tube", b"stats-jobx", b"stats-tubex", b"stats-foo", b"statsx", b"stats ",
    b"stats foo", b"reserve-with-timeout", b"reserve-with-timeout0", b"reserve-job",
    b"reserve-jobx", b"reservex", b"reserve ", b"reserve foo", b"list-tubesx", b"list-tubes ",
    b"list-tubes-watch", b"list-tubes-watchedx", b"list-tubes-watched ", b"list-tube-usedx",
    b"list-tube-used ", b"peek-ready ", b"peek-readyx", b"peek-ready foo", b"peek-delayed ",
    b"peek-delayedx", b"peek-delayed foo", b"peek-buried ", b"peek-buriedx", b"peek-buried foo",
    b"stats-job 77\n", b"stats\n", b"reserve\r",
]  # fmt: skip


WITH_A_NUL = [b"\0", b"stats\0", b"sta\0ts", b"nosuch\0", b"quit\0", b"kick 1\0", b"put 0 0 1 1\0"]


OF_AN_ID = ["peek", "delete", "touch", "kick-job", "stats-job", "reserve-job"]
BAD_IDS = [
    "", " ", "x", "foo111", "111foo", "1 ", "1 2", "-1", "+1", "\t1", ".1", "18446744073709551616",
    "9" * 48, "!@#$", "111 222", "1\n", "0x1",
]  # fmt: skip


BAD_ARGUMENTS = [
    b"put ", b"put 0", b"put 0 0", b"put 0 0 1", b"put -1 0 1 1", b"put +1 0 1 1", b"put a 0 1 1",
    b"put 4294967296 0 1 1", b"put 0 4294967296 1 1", b"put 0 0 4294967296 1",
    b"put 0 0 1 4294967296", b"put 0 -1 1 1", b"put 0 0 1 b", b"put 0 0 1 !", b"put 0\t0 1 1",
    b"release 1", b"release 1 1", b"release 1 1 1 1", b"release 1 1 1 ", b"release 1 abc 1",
    b"release 1 1 abc", b"release 1 4294967296 1", b"release 1 1 4294967296",
    b"release 18446744073709551616 1 1", b"release 111foo 1 1", b"release foo111 1 1", b"release ",
    b"bury ", b"bury 1", b"bury 111abc 2", b"bury 111 222abc", b"bury 1 4294967296", b"bury 1 2 3",
    b"bury 1 2 ", b"bury 18446744073709551616 1",
    b"kick ", b"kick x", b"kick -", b"kick + 1", b"kick 18446744073709551616",
    b"reserve-with-timeout ", b"reserve-with-timeout x", b"reserve-with-timeout -0",
    b"reserve-with-timeout +0", b"reserve-with-timeout \t0", b"reserve-with-timeout 2147483648",
    b"use ", b"use  foo", b"use foo ", b"use foo bar", b"use -foo", b"use f\xf6\xf6", b"use a\tb",
    b"use " + NAME_200 + b"n", b"watch ", b"watch  foo", b"watch " + NAME_200 + b"n",
    b"ignore ", b"ignore  foo", b"ignore foo ", b"stats-tube ", b"stats-tube  a", b"stats-tube a ",
    b"stats-tube -a", b"pause-tube", b"pause-tube ", b"pause-tube a", b"pause-tube a ",
    b"pause-tube a x", b"pause-tube a -1", b"pause-tube a 4294967296", b"pause-tube a 1 ",
    b"pause-tube a 1x", b"pause-tube a 1 1", b"pause-tube \ta 1", b"pause-tube a0",
    b"pause-tube f\xf6\xf6 1", b"pause-tube -a 4294967296",
]  # fmt: skip


BAD = [
    *BEHIND_A_BARE_WORD, *WITH_A_NUL, *BAD_ARGUMENTS,
    *[f"{word} {argument}".encode() for word in OF_AN_ID for argument in BAD_IDS],
]  # fmt: skip


@pytest.mark.parametrize("line", BAD, ids=lambda line: repr(line[:40]))
def test_a_line_with_bad_arguments_is_refused_and_not_counted(line: bytes) -> None:
    error = refusal(line)
    assert error.reply.encode() == BAD_FORMAT
    assert error.counter is None


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
