from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.others import Record, TubeDef
from beanstalk_twisted.binlog.segments.framing import SegmentIndex
from tests.binlog.scribe import T0, delete, put

RECORDS: list[Record] = [put(7), TubeDef(1, b"default", T0), put(3), delete(7), put(9), delete(3)]


@pytest.mark.parametrize("count", [1, 3, len(RECORDS)])
def test_a_seal_says_the_same_of_records_of_one_batch_and_of_one_each(count: int) -> None:
    together, apart = SegmentIndex(), SegmentIndex()
    together.add([], 8192, RECORDS[:count])
    for record in RECORDS[:count]:
        apart.add([], 8192, [record])
    assert together.encode() == apart.encode()
    assert together.records == count
