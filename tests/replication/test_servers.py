"""What schedules take for the active server is the one that the stream says."""

from __future__ import annotations

from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.replication.stream.messages import (
    Kind,
    Write,
    encode_note,
    encode_write,
)
from tests.replication.servers import ReplicatedLog
from tests.replication.world import STARTED_NS, Process, World


def beginning(incarnation: int, first_lsn: int) -> bytes:
    """A message that begins segment 13."""
    header = SegmentHeader(
        13, first_lsn, STARTED_NS, 0, 0, 1, bytes(16), 1, 0, incarnation, "test"
    )  # fmt: skip
    content = header.encode()
    (payload,) = encode_write(Write(13, 0, content, first_lsn + 3, STARTED_NS, True, False))
    return payload


def test_a_segment_that_a_fenced_server_begins_too_late_makes_it_not_active() -> None:
    world = World()
    log = ReplicatedLog(world)
    fenced, active = Process(world), Process(world)
    log.accept(fenced, beginning(2, 100), 0)
    log.accept(active, beginning(3, 158), 1)
    log.accept(active, encode_note(Kind.HEARTBEAT, 161, STARTED_NS), 2)
    world.now_s = 1.0
    log.accept(fenced, beginning(2, 160), 3)
    assert (log.active, log.since_s, log.terms) == (active, 0.0, 2)
    log.accept(fenced, encode_note(Kind.HANDED_OVER, 150, STARTED_NS), 4)
    assert log.active is active


def test_two_terms_with_one_number_are_blamed() -> None:
    world = World()
    log = ReplicatedLog(world)
    faults: list[str] = []
    log.blame = faults.append
    first, second = Process(world), Process(world)
    log.accept(first, beginning(2, 100), 0)
    log.accept(first, beginning(2, 120), 1)
    assert not faults
    log.accept(second, beginning(2, 140), 2)
    assert faults == ["two servers have begun terms of the incarnation 2"]
