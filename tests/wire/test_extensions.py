"""
Commands that beanstalkd does not have: their words, and that they change nothing else.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire.commands import COMMANDS, MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.dialects import MODERN, Dialect
from beanstalk_twisted.wire.extensions import (
    EXTENSIONS,
    MAX_BATCH_LINE_BYTES,
    MIN_PIECE_BYTES,
    DeletedBatch,
    ReservedBatch,
)
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS, MAX_TIMEOUT_S, MAX_U64, NS
from beanstalk_twisted.wire.replies import BAD_FORMAT, UNKNOWN_COMMAND, Reserved
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


# Batches.


def arguments(line: bytes) -> tuple[object, ...] | None:
    """
    Give a line's fields, None if it is BAD_FORMAT.
    """
    told = meaning(MODERN.parse, line)
    return None if told == (BAD_FORMAT, None) else MODERN.parse(line)[1]


@pytest.mark.parametrize(
    ("behind", "args"),
    [
        (b"1", (1, None)),
        (b"%d" % MAX_BATCH_JOBS, (MAX_BATCH_JOBS, None)),
        (b"7 0", (7, 0)),
        (b"07  5", (7, 5 * NS)),
        (b"7 %d" % MAX_TIMEOUT_S, (7, MAX_TIMEOUT_S * NS)),
        (b"0", None),
        (b"%d" % (MAX_BATCH_JOBS + 1), None),
        (b"7 %d" % (MAX_TIMEOUT_S + 1), None),
        (b"", None),
        (b"7 ", None),
        (b"7 -1", None),
        (b"7 1 1", None),
        (b"-1", None),
        (b"x", None),
        (b"7x", None),
    ],
)
def test_reserve_batch_has_a_count_and_perhaps_seconds(
    behind: bytes, args: tuple[object, ...] | None
) -> None:
    assert arguments(b"reserve-batch " + behind) == args


@pytest.mark.parametrize(
    ("behind", "ids"),
    [
        (b"1", (1,)),
        (b"3 1  2 1", (3, 1, 2, 1)),
        (b"0 %d" % MAX_U64, (0, MAX_U64)),
        (b"0" * 9000 + b"12 " + b"0" * 9000, (12, 0)),
        (b"1 %d" % (MAX_U64 + 1), None),
        (b"9" * 20_000, None),
        (b"", None),
        (b"1 ", None),
        (b"1 x", None),
        (b"1 -2", None),
        (b"1,2", None),
        (b"1\t2", None),
        (b"1 \0002", None),
    ],
)
def test_delete_batch_has_ids(behind: bytes, ids: tuple[int, ...] | None) -> None:
    assert arguments(b"delete-batch " + behind) == (None if ids is None else (ids,))


def test_delete_batch_has_no_more_ids_than_a_batch_may_have() -> None:
    most = [str(number).encode() for number in range(MAX_BATCH_JOBS)]
    assert arguments(b"delete-batch " + b" ".join(most)) == (tuple(range(MAX_BATCH_JOBS)),)
    assert arguments(b"delete-batch " + b" ".join([*most, b"1"])) is None


def test_only_delete_batch_has_a_longer_line() -> None:
    for row in MODERN.rows:
        longest = MODERN.max_line_bytes(row.prefix.strip() + b" 1 1")
        is_long = row.name == "delete-batch"
        assert longest == (MAX_BATCH_LINE_BYTES if is_long else MAX_LINE_BYTES)
        assert STOCK.max_line_bytes(row.prefix + b"1") == MAX_LINE_BYTES
    for other in (b"delete-batchx 1", b"xdelete-batch 1", b" delete-batch 1", b"delete-batch"):
        assert MODERN.max_line_bytes(other) == MAX_LINE_BYTES


def test_a_thousand_ids_of_19_digits_fit_on_a_line() -> None:
    line = b"delete-batch" + b" 9223372036854775807" * MAX_BATCH_JOBS + b"\r\n"
    assert len(line) == 20_014 <= MAX_BATCH_LINE_BYTES


def test_replies_to_batches() -> None:
    assert DeletedBatch(2, 1).encode() == b"DELETED_BATCH 2 1\r\n"
    assert ReservedBatch([]).encode() == b"RESERVED_BATCH 0\r\n"
    jobs = [Reserved(4, b"ab", 0), Reserved(2, b"\r\n", 0)]
    assert ReservedBatch(jobs).encode() == (
        b"RESERVED_BATCH 2\r\nRESERVED 4 2\r\nab\r\nRESERVED 2 2\r\n\r\n\r\n"
    )
    assert ReservedBatch(jobs) == ReservedBatch(jobs) != ReservedBatch(jobs[:1])
    assert DeletedBatch(2, 1) != DeletedBatch(1, 2)


def test_large_bodies_of_a_batch_are_not_copied() -> None:
    large, small = b"x" * MIN_PIECE_BYTES, b"y" * (MIN_PIECE_BYTES - 1)
    reply = ReservedBatch([Reserved(1, large, 0), Reserved(2, small, 0), Reserved(3, large, 0)])
    head, first, between, last, end = reply.pieces()
    assert first is last is large
    assert head == b"RESERVED_BATCH 3\r\nRESERVED 1 %d\r\n" % len(large)
    assert between == b"\r\nRESERVED 2 %d\r\n%b\r\nRESERVED 3 %d\r\n" % (
        len(small), small, len(large),
    )  # fmt: skip
    assert end == b"\r\n"
    assert b"".join(reply.pieces()) == reply.encode()
