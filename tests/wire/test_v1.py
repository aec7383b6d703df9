"""The older dialect's table: what its lines mean, and how its answers are written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.wire import replies, v1
from beanstalk_twisted.wire.commands import COMMANDS
from beanstalk_twisted.wire.grammar import ParseError
from beanstalk_twisted.wire.replies import Found, Inserted, Reply, Reserved
from beanstalk_twisted.wire.v1 import JOB_KEYS, SERVER_KEYS, TTR_S

V1 = v1.DIALECT
ROWS = {row.prefix: row for row in V1.rows}
BAD_FORMAT, UNKNOWN_COMMAND = b"BAD_FORMAT\r\n", b"UNKNOWN_COMMAND\r\n"
U32, U64 = 4294967295, 18446744073709551615

OPERATIONS = [
    (b"put ", "put", "cmd-put"),
    (b"reserve", "reserve", "cmd-reserve"),
    (b"delete ", "delete", "cmd-delete"),
    (b"release ", "release", "cmd-release"),
    (b"bury ", "bury", "cmd-bury"),
    (b"peek", "peek-buried", "cmd-peek"),
    (b"peek ", "peek", "cmd-peek"),
    (b"kick ", "kick", "cmd-kick"),
    (b"stats", "stats", "cmd-stats"),
    (b"stats ", "stats-job", "cmd-stats"),
]


def test_each_command_stands_in_the_table_once_with_what_it_does() -> None:
    assert [(row.prefix, row.operation, row.counter) for row in V1.rows] == OPERATIONS


UNDERSTOOD: list[tuple[bytes, bytes, tuple[Any, ...]]] = [
    (b"put 1 2", b"put ", (1, 0, TTR_S, 2)),
    (b"put 4294967295 4294967295", b"put ", (U32, 0, TTR_S, U32)),
    (b"put   01   02", b"put ", (1, 0, TTR_S, 2)),
    (b"reserve", b"reserve", ()),
    (b"delete 18446744073709551615", b"delete ", (U64,)),
    (b"release 1 4294967295", b"release ", (1, U32, 0)),
    (b"release   1  2", b"release ", (1, 2, 0)),
    (b"bury 1 2", b"bury ", (1, 2)),
    (b"peek", b"peek", ()),
    (b"peek 7", b"peek ", (7,)),
    (b"peek   7", b"peek ", (7,)),
    (b"kick 0", b"kick ", (0,)),
    (b"kick 4294967295", b"kick ", (U32,)),
    (b"stats", b"stats", ()),
    (b"stats 7", b"stats ", (7,)),
]


@pytest.mark.parametrize(("line", "prefix", "args"), UNDERSTOOD, ids=lambda value: None)
def test_a_line_means_its_row_and_the_values_that_its_method_takes(
    line: bytes, prefix: bytes, args: tuple[Any, ...]
) -> None:
    parsed = V1.parse(line)
    assert (parsed[0].prefix, *parsed[1:]) == (prefix, args, False)


def refusal(line: bytes) -> bytes:
    """Parse a line that cannot be understood; none of those counts."""
    with pytest.raises(ParseError) as caught:
        V1.parse(line)
    assert caught.value.counter is None
    return caught.value.reply.encode()


ONLY_MODERN = sorted({row.name for row in COMMANDS} - {row.name for row in V1.rows})


@pytest.mark.parametrize("name", ONLY_MODERN)
@pytest.mark.parametrize("arguments", ["", " 1", " default", " default 1"])
def test_a_command_that_came_later_is_unknown_whatever_word_it_begins_with(
    name: str, arguments: str
) -> None:
    assert refusal(f"{name}{arguments}".encode()) == UNKNOWN_COMMAND


UNKNOWN = [
    b"", b" stats", b"STATS", b"putx 1 2", b"statsx", b"peek1", b"reserv", b"put\t1 2", b"kick\t1",
    b"stats\n", b"reserve\r", b"\xff", b"foo bar",
]  # fmt: skip


@pytest.mark.parametrize("line", UNKNOWN, ids=repr)
def test_any_other_first_word_is_an_unknown_command(line: bytes) -> None:
    assert refusal(line) == UNKNOWN_COMMAND


BAD_ARGUMENTS = [
    b"put", b"put ", b"put 1", b"put x 2", b"put 1 x", b"put -1 2", b"put +1 2",
    b"put 4294967296 2", b"put 1 4294967296", b"put 1\t2",
    b"reserve ", b"reserve 1", b"delete", b"delete ", b"delete x", b"delete 1 2", b"delete 1 ",
    b"delete 18446744073709551616", b"release", b"release 1", b"release 1 2 3", b"release 1 2 ",
    b"release 1 4294967296", b"bury", b"bury 1", b"bury 1 2 3", b"bury x 1", b"peek ", b"peek x",
    b"peek 1 2", b"kick", b"kick ", b"kick x", b"kick -1", b"kick +1", b"kick 1x", b"kick 1 2",
    b"kick 4294967296", b"stats ", b"stats x", b"stats 1 2", b"stats 18446744073709551616",
    b"\0", b"stats\0", b"foo\0",
]  # fmt: skip


@pytest.mark.parametrize("line", BAD_ARGUMENTS, ids=repr)
def test_wrong_arguments_are_a_bad_format(line: bytes) -> None:
    assert refusal(line) == BAD_FORMAT


@pytest.mark.parametrize("junk", [b" ", b"x", b" 6", b" 0 60 6"], ids=repr)
def test_what_follows_the_size_of_a_put_is_left_to_be_judged(junk: bytes) -> None:
    _, args, has_junk = V1.parse(b"put 0 5" + junk)
    assert args == (0, 0, TTR_S, 5)
    assert has_junk


_PIECES = st.sampled_from(
    [row.prefix for row in V1.rows]
    + [b" ", b"\t", b"\0", b"-", b"0", b"1", b"x", b"4294967296", b"-ready", b"\xff"]
)


@given(st.lists(_PIECES, max_size=8).map(b"".join) | st.binary(max_size=222))
def test_any_line_is_the_command_of_its_first_word_or_refused(line: bytes) -> None:
    word = line.split(b" ")[0]
    try:
        command, args, _ = V1.parse(line)
    except ParseError as error:
        is_known = word.decode("latin-1") in {row.name for row in V1.rows}
        is_bad = is_known or b"\0" in line
        assert error.reply.encode() == (BAD_FORMAT if is_bad else UNKNOWN_COMMAND)
        return
    assert command.name.encode() == word
    assert len(args) == len(command.fields)


SAID: list[tuple[bytes, Reply, bytes]] = [
    (b"put ", Inserted(7), b"INSERTED\r\n"),
    (b"put ", replies.BURIED, b"INSERTED\r\n"),
    (b"put ", replies.JOB_TOO_BIG, b"NOT_INSERTED\r\n"),
    (b"put ", replies.DRAINING, b"NOT_INSERTED\r\n"),
    (b"put ", replies.OUT_OF_MEMORY, b"NOT_INSERTED\r\n"),
    (b"put ", replies.EXPECTED_CRLF, b"EXPECTED_CRLF\r\n"),
    (b"put ", replies.BAD_FORMAT, BAD_FORMAT),
    (b"put ", replies.INTERNAL_ERROR, b"INTERNAL_ERROR\r\n"),
    (b"reserve", Reserved(7, b"hello", 5), b"RESERVED 7 5 5\r\nhello\r\n"),
    (b"reserve", Reserved(U64, b"", U32), b"RESERVED %d %d 0\r\n\r\n" % (U64, U32)),
    (b"reserve", replies.TIMED_OUT, b""),
    (b"reserve", replies.DEADLINE_SOON, b""),
    (b"release ", replies.RELEASED, b"RELEASED\r\n"),
    (b"release ", replies.BURIED, b"NOT_RELEASED\r\n"),
    (b"release ", replies.NOT_FOUND, b"NOT_FOUND\r\n"),
    # Nothing has changed, so the job is not buried either: NOT_RELEASED would not be true.
    (b"release ", replies.OUT_OF_MEMORY, b"OUT_OF_MEMORY\r\n"),
    (b"peek", Found(7, b"hello", 3), b"FOUND 7 3 5\r\nhello\r\n"),
    (b"peek", replies.NOT_FOUND, b"NOT_FOUND\r\n"),
    (b"peek ", Found(7, b"hello", 3), b"FOUND 7 3 5\r\nhello\r\n"),
    (b"stats ", replies.NOT_FOUND, b"NOT_FOUND\r\n"),
]


@pytest.mark.parametrize(("prefix", "reply", "output"), SAID, ids=str)
def test_an_answer_is_written_in_the_words_of_the_dialect(
    prefix: bytes, reply: Reply, output: bytes
) -> None:
    write = ROWS[prefix].write
    assert write is not None
    assert write(reply) == output


@pytest.mark.parametrize("prefix", [b"delete ", b"bury ", b"kick "])
def test_other_answers_are_written_as_ever(prefix: bytes) -> None:
    assert ROWS[prefix].write is None


@pytest.mark.parametrize(("prefix", "keys"), [(b"stats", SERVER_KEYS), (b"stats ", JOB_KEYS)])
def test_statistics_show_the_keys_of_the_dialect_in_its_order(
    prefix: bytes, keys: tuple[str, ...]
) -> None:
    write = ROWS[prefix].write
    assert write is not None
    everything = replies.mapping([("zz", "1"), *((key, key) for key in reversed(keys))])
    body = b"---\n" + b"".join(f"{key}: {key}\n".encode() for key in keys)
    assert write(everything) == b"OK %d\r\n%s\r\n" % (len(body), body)
