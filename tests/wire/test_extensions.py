"""Commands that beanstalkd does not have: their words, and that they change nothing else."""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire.commands import COMMANDS, MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.dialects import MODERN, Dialect
from beanstalk_twisted.wire.extensions import (
    EXTENSIONS,
    MAX_BATCH_LINE_BYTES,
    MAX_POLICY_LINE_BYTES,
    MAX_WEIGHT,
    TAGGED_PUT,
)
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS, MAX_TIMEOUT_S, MAX_U32, MAX_U64, NS
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    MIN_PIECE_BYTES,
    DeletedBatch,
    Reserved,
    ReservedBatch,
)
from beanstalk_twisted.wire.tags import MAX_TAGGED_LINE_BYTES, PutTags, write_tags
from tests.wire.test_dialects import meaning

STOCK = Dialect("stock", COMMANDS)
EACH = pytest.mark.parametrize("row", EXTENSIONS, ids=lambda row: row.name)


@EACH
def test_the_word_alone_is_never_unknown(row: Command) -> None:
    line = row.name.encode()
    if row.form:
        assert meaning(MODERN.parse, line) == meaning(STOCK.parse, line)
    elif all(field.is_optional for field in row.fields):
        assert MODERN.parse(line) == (row, tuple([b"" for _ in row.fields]), False)
    else:
        assert meaning(MODERN.parse, line) == (BAD_FORMAT, None)


@EACH
@pytest.mark.parametrize("behind", [b"x", b"-", b"0"])
def test_a_longer_word_is_what_it_is_to_beanstalkd(row: Command, behind: bytes) -> None:
    line = row.name.encode() + behind + b" 1"
    assert meaning(MODERN.parse, line) == meaning(STOCK.parse, line)


def test_no_command_of_beanstalkds_is_found_as_another_one() -> None:
    for row in COMMANDS:
        for line in (row.prefix, row.prefix + b"1", row.prefix + b"1 2 3 4", row.prefix.strip()):
            assert meaning(MODERN.parse, line) == meaning(STOCK.parse, line)


def arguments(line: bytes) -> tuple[object, ...] | None:
    told = meaning(MODERN.parse, line)
    return None if told == (BAD_FORMAT, None) else MODERN.parse(line)[1]


UNDERSTOOD: dict[bytes, dict[bytes, tuple[object, ...]]] = {
    b"flush-tube ": {
        b"a": (b"a", b"all"), b"a all": (b"a", b"all"), b"all": (b"all", b"all"),
        b"a ready": (b"a", b"ready"), b"a buried": (b"a", b"buried"),
        b"a" * 200 + b" delayed": (b"a" * 200, b"delayed"),
    },
    b"list-jobs ": {
        b"a all 1": (b"a", b"all", 1, b""), b"a ready 1000": (b"a", b"ready", 1000, b""),
        b"a reserved 9 h1-2": (b"a", b"reserved", 9, b"h1-2"),
        b"a delayed 09 d-5-2": (b"a", b"delayed", 9, b"d-5-2"),
    },
    b"watch ": {
        b"a 1": (b"a", 1), b"a %d" % MAX_WEIGHT: (b"a", MAX_WEIGHT), b"a 005": (b"a", 5),
        b"5 5": (b"5", 5), b"a" * 200 + b" 1000": (b"a" * 200, 1000),
    },
    b"reserve-mode ": {
        b"fifo": (b"fifo",), b"weighted": (b"weighted",), b"weighted-fair": (b"weighted-fair",),
    },
    b"reserve-batch ": {
        b"1": (1, None), b"%d" % MAX_BATCH_JOBS: (MAX_BATCH_JOBS, None), b"7 0": (7, 0),
        b"07  5": (7, 5 * NS), b"7 %d" % MAX_TIMEOUT_S: (7, MAX_TIMEOUT_S * NS),
    },
    b"delete-batch ": {
        b"1": ((1,),), b"3 1  2 1": ((3, 1, 2, 1),), b"0 %d" % MAX_U64: ((0, MAX_U64),),
        b"0" * 9000 + b"12 " + b"0" * 9000: ((12, 0),),
    },
    b"tube-policy ": {
        b"a": (b"a", ()), b"a colour=red": (b"a", (("colour", "red"),)),
        b"a rate=1  max-jobs=x=y": (b"a", (("rate", "1"), ("max-jobs", "x=y"))),
    },
}  # fmt: skip
WRONG: dict[bytes, list[bytes]] = {
    b"drain": [b" now"],
    b"flush-tube": [
        b"", b" ", b" a ", b"  a", b" a  ready", b" a reserved", b" a readyx", b" a ready x",
        b" -a", b" -a ready", b" a Ready", b" a ready ", b" a\0", b" " + b"a" * 201, b" a\tready",
    ],
    b"list-jobs ": [
        b"", b"a", b" a all 1", b"a all", b"a all 0", b"a all 1001", b"a all -1", b"a all 1 ",
        b"a all 1 r 1", b"a gone 1", b"a  all 1", b"a all  1", b"-a all 1", b"a all 1 R1-1",
        b"a 1", b"a all x", b"a all 1  r1-1", b"a all 99999999999999999999",
        b"a" * 201 + b" all 1",
    ],
    b"watch ": [
        b"a %d" % (MAX_WEIGHT + 1), b"a 0", b"a -1", b"a +1", b"a 1.5", b"a x", b"a  1", b" a 1",
        b"a 1 ", b"a 1 1", b"a ", b" 1", b"-a 1", b"a\t1", b"a 1\0", b"a" * 201 + b" 1",
        b"a " + b"9" * 200,
    ],
    b"reserve-mode ": [
        b"default", b"Weighted", b"weighted-", b"weighted ", b" weighted", b"weighted 1", b"",
    ],
    b"reserve-batch ": [
        b"0", b"%d" % (MAX_BATCH_JOBS + 1), b"7 %d" % (MAX_TIMEOUT_S + 1), b"", b"7 ", b"7 -1",
        b"7 1 1", b"-1", b"x", b"7x",
    ],
    b"delete-batch ": [
        b"1 %d" % (MAX_U64 + 1), b"9" * 20_000, b"", b"1 ", b"1 x", b"1 -2", b"1,2", b"1\t2",
        b"1 \0002",
    ],
    b"tube-policy ": [
        b" a rate=1", b"a rate", b"a rate=", b"a =1", b"a Rate=1", b"a rate=1\t", b"a rate=\xff",
        b"a,rate=1", b"-a rate=1", b"", b"a ", b"a rate=1 ",
    ],
}  # fmt: skip


@pytest.mark.parametrize("word", UNDERSTOOD, ids=repr)
def test_these_arguments_are_understood(word: bytes) -> None:
    for behind, args in UNDERSTOOD[word].items():
        assert arguments(word + behind) == args, behind


@pytest.mark.parametrize("word", WRONG, ids=repr)
def test_no_others_are(word: bytes) -> None:
    for behind in WRONG[word]:
        assert arguments(word + behind) is None, behind


def test_watch_may_have_a_weight() -> None:
    row, _, has_more = MODERN.parse(b"watch a 5")
    assert (row.name, row.form, row.counter, has_more) == ("watch", "watch <weight>", None, False)
    assert meaning(STOCK.parse, b"watch a 5") == (BAD_FORMAT, None)
    for line in (b"watch a", b"watch 5", b"watch", b"watch ", b"watch -", b"watcha 1", b"watch a/"):
        assert meaning(MODERN.parse, line) == meaning(STOCK.parse, line)


def test_a_line_with_all_keys_of_a_policy_is_no_longer_than_it_may_be() -> None:
    u32, u64, name = MAX_U32, MAX_U64, "a" * 200
    line = (
        f"tube-policy {name} max-reserves={u32} dead-letter={name} backoff={u32}:1000:{u32} "
        f"max-age={u32} expired=dead-letter max-jobs={u64} max-bytes={u64} max-job-size={u32} "
        f"max-reserved={u32} rate=1000000:1000000\r\n"
    )
    assert len(line) <= MAX_POLICY_LINE_BYTES


def test_delete_batch_has_no_more_ids_than_a_batch_may_have() -> None:
    most = [str(number).encode() for number in range(MAX_BATCH_JOBS)]
    assert arguments(b"delete-batch " + b" ".join(most)) == (tuple(range(MAX_BATCH_JOBS)),)
    assert arguments(b"delete-batch " + b" ".join([*most, b"1"])) is None


LONG_LINES = {"delete-batch": MAX_BATCH_LINE_BYTES, "tube-policy": MAX_POLICY_LINE_BYTES}


def test_only_these_have_a_longer_line_whatever_is_on_it() -> None:
    for row in MODERN.rows:
        longest = MODERN.max_line_bytes(row.prefix.strip() + b" 1 1")
        assert longest == LONG_LINES.get(row.name, MAX_LINE_BYTES)
        assert STOCK.max_line_bytes(row.prefix + b"1") == MAX_LINE_BYTES
    for other in (b"delete-batchx 1", b"xdelete-batch 1", b" delete-batch 1", b"delete-batch"):
        assert MODERN.max_line_bytes(other) == MAX_LINE_BYTES


TAGGED = (
    b"put 0 0 1 5 idp:a",
    b"put  x  y z -  aft:",
    b"put-at 0 0 1 5 con:\0 x",
    b"put 0 0 1 x grp:",
)


@pytest.mark.parametrize("start", TAGGED)
def test_a_put_with_tags_may_have_a_longer_line_right_or_wrong(start: bytes) -> None:
    assert MODERN.max_line_bytes(start) == MAX_TAGGED_LINE_BYTES
    row = MODERN.with_jobs(start)
    assert row is (TAGGED_PUT if start.startswith(b"put ") else MODERN.parse(b"put-at 0 0 1 5")[0])


NOT_TAGGED = (
    b"put 0 0 1 5", b"put 0 0 1 5 ", b"put 0 0 1 5 junk", b"put 0 0 1 5 x idp:a",
    b"put 0 0 1 idp:a", b"put 0 0 1 5 idp", b"put 0 0 1 5idp:a", b"put 0 0 1 5 IDP:a", b"put",
    b"put 0 0 1 5\tidp:a", b"putx 0 0 1 5 idp:a", b"put-batch 0 0 1 5 idp:a",
    b"release 0 0 1 5 idp:a", b"put 0 0 1 5 xidp:a",
)  # fmt: skip


@pytest.mark.parametrize("line", NOT_TAGGED)
def test_any_other_junk_is_what_it_is_to_beanstalkd(line: bytes) -> None:
    assert MODERN.max_line_bytes(line) == MAX_LINE_BYTES
    assert MODERN.with_jobs(line) is None or line.startswith(b"put-batch")
    if not line.startswith(b"put-"):
        assert meaning(MODERN.parse, line) == meaning(STOCK.parse, line)


def test_a_put_with_tags_is_counted_as_a_put_and_not_remembered() -> None:
    dialect = Dialect("new", MODERN.rows, tagged_put=TAGGED_PUT)
    row, args, _ = dialect.parse(b"put 1 2 3 4 grp:g")
    assert row is TAGGED_PUT and row.counter == "cmd-put" and row.takes_job
    assert args == (1, 2, 3, 4, PutTags(group=b"g"))
    assert not dialect.remembered
    assert dialect.parse(b"put-at 1 2 3 4")[1] == (1, 2, 3, 4, None)
    assert dialect.parse(b"put-at 1 2 3 4 grp:g")[1] == args


def test_the_longest_tags_fit_on_a_line() -> None:
    tags = PutTags(b"a" * 200, MAX_U32, b"b" * 200, MAX_U32, b"c" * 200, b"d" * 200)
    line = b"put-at" + b" %d" % MAX_U32 * 4 + b" " + write_tags(tags)
    assert len(line) + 2 == 894 <= MAX_TAGGED_LINE_BYTES
    assert MODERN.parse(line)[1][-1] == tags


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
