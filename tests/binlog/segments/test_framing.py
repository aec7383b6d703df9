from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.others import Record, TubeDef
from beanstalk_twisted.binlog.segments.framing import Framing
from tests.binlog.scribe import SALT, T0, delete, encoded, index_of, put

RECORDS: list[Record] = [put(7), TubeDef(1, b"default", T0), put(3), delete(7), put(9), delete(3)]


@pytest.mark.parametrize("count", [1, 3, len(RECORDS)])
def test_a_seal_says_the_same_of_records_of_one_batch_and_of_one_each(count: int) -> None:
    framing = Framing(SALT)
    for lsn, record in enumerate(RECORDS[:count], 1):
        framing.add(encoded(record), lsn, T0)
    together, apart = index_of(*RECORDS[:count]), framing.index
    assert together.encode() == apart.encode()
    assert together.records == count
