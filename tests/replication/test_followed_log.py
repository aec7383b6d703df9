"""Which writes of a stream continue a log."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.replication.followed_log import FollowedLog, Rejected
from beanstalk_twisted.replication.receiving import refuse_purged
from beanstalk_twisted.replication.stream.interface import Ends
from beanstalk_twisted.replication.stream.messages import Write
from beanstalk_twisted.replication.stream_reading import Behind
from tests.binlog.scribe import T0

LATER = 1 << 31
"""A feature that no version knows."""


def beginning(incompat: int = 0, damage: bytes = b"") -> Write:
    header = SegmentHeader(1, 1, T0, 0, 0, 1, bytes(16), 1, 0, 1, "test", incompat).encode()
    return Write(1, 0, damage + header[len(damage) :], 0, T0, True, False)


def test_a_segment_of_a_later_version_is_told_from_a_damaged_one() -> None:
    log = FollowedLog()
    with pytest.raises(Incompatible, match="Install the version of the active server"):
        log.take(beginning(LATER))
    assert isinstance(log.take(beginning(damage=b"x")), Rejected)
    assert log.segment == 0
    assert not isinstance(log.take(beginning()), Rejected)
    assert (log.segment, log.next_job_id, log.is_clean) == (1, 1, True)


def test_messages_were_purged_if_the_stream_begins_after_the_next_one() -> None:
    refuse_purged(5, Ends(6, 9))
    with pytest.raises(Behind, match="from 6 on were purged"):
        refuse_purged(5, Ends(7, 9))
