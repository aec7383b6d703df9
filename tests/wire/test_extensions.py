"""
Commands that beanstalkd does not have: their words, and that they change nothing else.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire.commands import COMMANDS, Command
from beanstalk_twisted.wire.dialects import MODERN, Dialect
from beanstalk_twisted.wire.extensions import EXTENSIONS
from beanstalk_twisted.wire.replies import BAD_FORMAT, UNKNOWN_COMMAND
from tests.wire.test_dialects import meaning

STOCK = Dialect("stock", COMMANDS)
EACH = pytest.mark.parametrize("row", EXTENSIONS, ids=lambda row: row.name)


@EACH
def test_the_word_alone_is_never_unknown(row: Command) -> None:
    line = row.name.encode()
    if not row.fields:
        assert MODERN.parse(line) == (row, (), False)
    else:
        assert meaning(MODERN.parse, line) == (BAD_FORMAT, None)


@EACH
@pytest.mark.parametrize("behind", [b"x", b"-", b"0"])
def test_a_longer_word_is_what_it_is_to_beanstalkd(row: Command, behind: bytes) -> None:
    line = row.name.encode() + behind + b" 1"
    assert meaning(MODERN.parse, line) == meaning(STOCK.parse, line)


def test_what_follows_a_word_without_fields_is_bad_format() -> None:
    assert meaning(MODERN.parse, b"drain now") == (BAD_FORMAT, None)
    assert meaning(MODERN.parse, b"drainage") == (UNKNOWN_COMMAND, None)


def test_no_command_of_beanstalkds_is_found_as_another_one() -> None:
    for row in COMMANDS:
        for line in (row.prefix, row.prefix + b"1", row.prefix + b"1 2 3 4", row.prefix.strip()):
            assert meaning(MODERN.parse, line) == meaning(STOCK.parse, line)


def test_extensions_are_not_counted() -> None:
    assert not any(row.counter for row in EXTENSIONS)


@pytest.mark.parametrize("word", [b"flush-tube", b"truncate"])
def test_a_flush_names_a_tube_and_perhaps_a_state(word: bytes) -> None:
    for line, args in {
        b" a": (b"a", b"all"), b" a all": (b"a", b"all"), b" all": (b"all", b"all"),
        b" a ready": (b"a", b"ready"), b" a buried": (b"a", b"buried"),
        b" " + b"a" * 200 + b" delayed": (b"a" * 200, b"delayed"),
    }.items():  # fmt: skip
        row, parsed, _ = MODERN.parse(word + line)
        assert (row.operation, parsed) == ("flush-tube", args)
    for line in (
        b"", b" ", b" a ", b" a  ready", b" a reserved", b" a readyx", b" a ready x", b" -a",
        b" -a ready", b" a Ready", b" a ready ", b" a\0", b" " + b"a" * 201, b" a\tready",
    ):  # fmt: skip
        assert meaning(MODERN.parse, word + line) == (BAD_FORMAT, None)


def test_a_list_names_a_tube_a_state_how_many_and_perhaps_where_to_go_on() -> None:
    for line, args in {
        b"a all 1": (b"a", b"all", 1, b""), b"a ready 1000": (b"a", b"ready", 1000, b""),
        b"a reserved 9 h1-2": (b"a", b"reserved", 9, b"h1-2"),
        b"a delayed 09 d-5-2": (b"a", b"delayed", 9, b"d-5-2"),
    }.items():  # fmt: skip
        assert MODERN.parse(b"list-jobs " + line)[1] == args
    for line in (
        b"", b"a", b"a all", b"a all 0", b"a all 1001", b"a all -1", b"a all 1 ", b"a all 1 r 1",
        b"a gone 1", b"a  all 1", b"a all  1", b"-a all 1", b"a all 1 R1-1", b"a 1", b"a all x",
        b"a all 1  r1-1", b"a all 99999999999999999999", b"a" * 201 + b" all 1",
    ):  # fmt: skip
        assert meaning(MODERN.parse, b"list-jobs " + line) == (BAD_FORMAT, None)
