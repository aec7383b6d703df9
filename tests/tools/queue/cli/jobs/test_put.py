"""How lines are divided among the requests that put them."""

from __future__ import annotations

import pytest

from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from binlog_tools.logs.quantities import NS
from binlog_tools.queue.cli.put import Batches, moment_s, one_by_one
from binlog_tools.queue.extensions import MAX_BATCH_BYTES

LARGEST = 5 << 20
SMALL = b"x"
BIG = b"x" * (LARGEST + 1)
HALF = b"x" * (MAX_BATCH_BYTES // 2)


@pytest.mark.parametrize(
    ("bodies", "divided"),
    [
        ([], []),
        ([SMALL], [("put", 1)]),
        ([b"", b""], [("put-batch", 2)]),
        ([SMALL] * MAX_BATCH_JOBS, [("put-batch", MAX_BATCH_JOBS)]),
        ([SMALL] * (MAX_BATCH_JOBS + 1), [("put-batch", MAX_BATCH_JOBS), ("put", 1)]),
        ([HALF, HALF, SMALL], [("put-batch", 2), ("put", 1)]),
        ([SMALL, HALF, HALF, SMALL], [("put-batch", 2), ("put-batch", 2)]),
        ([SMALL, SMALL, BIG, SMALL], [("put-batch", 2), ("put", 1), ("put", 1)]),
        ([BIG, BIG], [("put", 1), ("put", 1)]),
    ],
    ids=lambda value: str(len(value)),
)
def test_lines_are_divided_within_the_limits_in_their_order(
    bodies: list[bytes], divided: list[tuple[str, int]]
) -> None:
    requests = list(Batches(5, 6, 7, LARGEST)(bodies))
    found = [(each.sent.split(b" ")[0].decode(), len(each.sizes)) for each in requests]
    assert found == divided
    assert [size for each in requests for size in each.sizes] == list(map(len, bodies))


def test_the_bytes_are_those_of_the_protocol() -> None:
    (batch,) = Batches(5, 6, 7, LARGEST)([b"a", b"\r\n"])
    assert batch.sent == b"put-batch 2\r\n5 6 7 1\r\na\r\n5 6 7 2\r\n\r\n\r\n"
    (single,) = Batches(5, 6, 7, LARGEST)([b"a"])
    assert single.sent == b"put 5 6 7 1\r\na\r\n"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", 1000), ("7", 7), ("+2h", 8200), ("1960-01-01", 0), ("1970-01-01T00:00:01.5Z", 2),
        ("2106-02-07T06:44:55Z", 1000 + (1 << 32) - 1),
    ],
)  # fmt: skip
def test_a_moment_that_is_past_is_one_that_can_be_sent(text: str, moment: int) -> None:
    assert moment_s(text, 1000 * NS) == moment


def test_a_moment_is_no_later_than_a_delay_can_say() -> None:
    with pytest.raises(ValueError, match="136 years"):
        moment_s("2106-02-07T06:44:56Z", 1000 * NS)


def test_without_batches_each_body_is_a_request() -> None:
    requests = list(one_by_one(lambda body: b"put " + body)([b"a", b"bc"]))
    assert [(list(each.sizes), each.sent) for each in requests] == [
        ([1], b"put a"), ([2], b"put bc")
    ]  # fmt: skip
