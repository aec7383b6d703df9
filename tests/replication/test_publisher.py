"""What the active server tells the stream, and what waits for it."""

from __future__ import annotations

import errno
from concurrent.futures import Future
from contextlib import suppress

import pytest

from beanstalk_twisted.binlog.space_budget import UNKNOWN, Demand
from beanstalk_twisted.replication.membership import read_note
from beanstalk_twisted.replication.publisher import (
    DEFERRED_BYTES,
    GATHER_S,
    HAND_OVER_S,
    REPLICATE_TIMEOUT_S,
    Publisher,
    PublisherEvents,
)
from beanstalk_twisted.replication.segment_positions import PURGE_RETRY_S
from beanstalk_twisted.replication.stream.interface import Ends, HeldLease, Message
from beanstalk_twisted.replication.stream.messages import (
    MAX_IN_FLIGHT,
    Kind,
    Note,
    Part,
    Write,
    decode,
    encode_write,
)
from beanstalk_twisted.storage.fsync import NEVER
from beanstalk_twisted.storage.group_commit import IDLE_FLUSH_S, MAX_UNACKNOWLEDGED_BYTES
from tests.replication.followed import failing
from tests.replication.publishing import LEASE_S, WHO, ActiveLog
from tests.replication.stream.memory import Fate, MemoryStream

RIVAL = next(encode_write(Write(9, 0, b"of another term", 99, 0, True, False)))
"""The beginning of another server's term."""


def started() -> ActiveLog:
    """One whose publisher has sent its first heartbeat."""
    active = ActiveLog()
    active.publisher.start()
    active.reactor.pass_s(1.0)
    return active


def test_a_reply_waits_for_the_disk_and_for_the_stream() -> None:
    active = ActiveLog()
    lsn = active.put()
    active.reactor.settle()
    assert active.publisher.acknowledged_lsn == lsn
    assert active.committer.acknowledgeable_lsn < lsn
    active.write_all()
    assert active.committer.acknowledgeable_lsn == lsn

    active.messages.lose_quorum()
    second = active.put_all()
    assert active.committer.acknowledgeable_lsn == lsn
    active.messages.restore_quorum()
    active.reactor.settle()
    assert active.committer.acknowledgeable_lsn == active.acknowledged[-1] == second


def test_a_reservation_is_waited_for_and_a_touch_is_not() -> None:
    active = ActiveLog()
    active.put_all()
    lsn = active.reserve()
    active.write_all()
    assert active.committer.acknowledgeable_lsn == lsn
    active.touch()
    active.reactor.settle()
    assert not active.io
    assert active.committer.acknowledgeable_lsn == lsn


@pytest.mark.parametrize(
    ("under_way", "body", "waits"),
    [
        (Publisher.deferred_records - 1, b"", False),
        (Publisher.deferred_records, b"", True),
        (Publisher.deferred_records, bytes(DEFERRED_BYTES), False),
    ],
    ids=["few are under way", "many are under way", "a large batch"],
)
def test_a_batch_waits_while_many_records_are_under_way(
    under_way: int, body: bytes, waits: bool
) -> None:
    active = ActiveLog()
    active.messages.lose_quorum()
    put_together(active, under_way)
    assert active.publisher.figures().waiting_records == under_way
    active.put_all(body)
    assert active.publisher.figures().waiting_records == under_way + (not waits)
    # Nor does it wait for longer where the stream takes nothing.
    active.reactor.pass_s(IDLE_FLUSH_S)
    assert active.publisher.figures().waiting_records == under_way + 1


def test_a_batch_waits_until_those_who_were_answered_come_again_or_for_a_moment() -> None:
    active = ActiveLog()
    active.messages.lose_quorum()
    put_together(active, 8)
    put_together(active, 2)
    active.messages.restore_quorum()
    active.reactor.settle()
    before = len(active.writes())
    for _ in range(7):
        active.put_all()
    assert len(active.writes()) == before
    active.put_all()
    assert [each.last_lsn for each in active.writes()[before:]] == [active.log.last_lsn]

    last = active.put_all()
    assert active.committer.acknowledgeable_lsn < last
    active.reactor.pass_s(GATHER_S)
    active.write_all()
    assert active.committer.acknowledgeable_lsn == last


def test_a_batch_that_waits_plans_no_turns_while_commands_wait_for_room() -> None:
    active = ActiveLog()
    active.messages.lose_quorum()
    put_together(active, Publisher.deferred_records)
    active.demand = Demand(waiting=1)
    active.log.budget.ample = UNKNOWN
    turns = 0

    def room_changed() -> None:
        """As a service does, but with an end."""
        nonlocal turns
        turns += 1
        if turns < 100:
            active.committer.schedule()

    active.room_changed = room_changed
    active.put_all()
    assert turns < 100


def put_together(active: ActiveLog, jobs: int) -> None:
    """Append this many records in one turn."""
    for _ in range(jobs):
        active.put()
    active.write_all()


def test_marks_are_published_too() -> None:
    active = ActiveLog()
    active.put_all()
    before = len(active.writes())
    active.reactor.pass_s(1.0)
    active.write_all()
    assert len(active.writes()) == before + 1


def test_what_the_disk_has_no_space_for_is_published_once() -> None:
    active = ActiveLog()
    active.directory.fault = failing(errno.ENOSPC, "write")
    active.put()
    for _ in range(3):
        active.write_all()
        active.reactor.pass_s(2.0)
    assert len(active.writes()) == 2
    active.directory.fault = lambda operation, name: None
    active.reactor.pass_s(2.0)
    active.write_all()
    assert active.committer.acknowledgeable_lsn == active.log.last_lsn
    lsns = [write.last_lsn for write in active.writes()]
    assert lsns == sorted(lsns)


def test_what_the_disk_fails_to_write_is_published_and_not_acknowledged() -> None:
    active = ActiveLog()

    def broken(operation: str, name: str) -> None:
        active.directory.fault = lambda operation, name: None
        raise OSError(errno.EIO, "Input/output error")

    active.directory.fault = broken
    lsn = active.put_all()
    assert [write.segment for write in active.writes()] == [1, 1]
    assert active.committer.acknowledgeable_lsn < lsn
    assert len(active.failures) == 1


def test_what_waits_for_the_stream_counts_as_congestion() -> None:
    active = ActiveLog(NEVER)
    active.messages.lose_quorum()
    while active.publisher.waiting_bytes <= MAX_UNACKNOWLEDGED_BYTES:
        assert not active.committer.is_congested
        active.put(b"x" * 60_000)
        active.write_all()
    assert active.committer.is_congested


def test_heartbeats_keep_the_lease_while_nothing_is_written() -> None:
    active = ActiveLog()
    active.publisher.start()
    for _ in range(100):
        active.reactor.pass_s(1.0)
        assert active.lease.holds(active.reactor.now_ns())
    beats = [each for each in active.said() if isinstance(each, Note)]
    assert {each.kind for each in beats} == {Kind.HEARTBEAT}
    assert {read_note(each.text).id for each in beats} == {WHO.id}
    assert {read_note(each.text).lease_s for each in beats} == {LEASE_S}
    assert 39 <= len(beats) <= 42


def test_one_heartbeat_a_lease_is_sent_while_much_is_written() -> None:
    active = ActiveLog()
    active.publisher.start()
    for _ in range(100):
        active.put()
        active.write_all()
        active.reactor.pass_s(LEASE_S / 10)
    beats = [each for each in active.said() if isinstance(each, Note)]
    assert 8 <= len(beats) <= 11


def test_a_heartbeat_tells_of_records_that_are_known_to_be_in_the_stream() -> None:
    active = ActiveLog()
    acknowledged = active.put_all()
    active.messages.lose_quorum()
    written = active.put_all()
    # With that write unanswered.
    active.publisher.start()
    active.messages.restore_quorum()
    active.reactor.settle()
    assert max(each.last_lsn for each in active.writes()) == written
    beats = [each.last_lsn for each in active.said() if isinstance(each, Note)]
    assert beats == [acknowledged]


def test_without_a_quorum_heartbeats_do_not_pile_up() -> None:
    active = started()
    active.messages.lose_quorum()
    active.reactor.pass_s(20 * LEASE_S)
    assert active.publisher.waiting_bytes < 1000


def test_without_a_quorum_the_lease_ends_and_changes_are_refused() -> None:
    active = started()
    active.messages.lose_quorum()
    active.put_all()
    active.reactor.pass_s(REPLICATE_TIMEOUT_S - 0.2)
    assert not active.publisher.refuses
    active.reactor.pass_s(0.4)
    assert active.publisher.refuses
    active.reactor.pass_s(LEASE_S)
    assert not active.lease.holds(active.reactor.now_ns())
    figures = active.publisher.figures()
    assert (figures.waiting_records, figures.lease_ns, figures.refuses) == (1, 0, True)
    assert figures.waiting_ns > 14_000_000_000 and figures.waiting_bytes > 100

    active.messages.restore_quorum()
    active.reactor.pass_s(5.0)
    assert active.refusals == [True, False]
    assert active.lease.holds(active.reactor.now_ns())
    figures = active.publisher.figures()
    assert (figures.waiting_records, figures.waiting_bytes, figures.waiting_ns) == (0, 0, 0)


def test_each_segment_is_followed_by_the_lease_which_does_not_expire() -> None:
    active = ActiveLog()
    _fill_segments(active, 3)
    active.reactor.pass_s(active.messages.expire_s + 1)
    found = [decode(payload) for payload in active.messages.messages.values()]
    begins = [at for at, each in enumerate(found) if isinstance(each, Part) and each.write.begins]
    # The first one was there before this publisher.
    for at in begins[1:]:
        note = next(each for each in found[at:] if isinstance(each, Note))
        assert note.kind is Kind.HEARTBEAT and read_note(note.text).lease_s == LEASE_S
    assert len(begins) > 2


def test_what_is_dead_is_purged_if_it_is_known_where_the_next_segment_begins() -> None:
    active = ActiveLog()
    _fill_segments(active, 3)
    del active.publisher.segments.first_positions[2]
    active.publisher.trimmed(1)
    active.reactor.pass_s(1.0)
    assert min(active.messages.messages) == 1
    active.publisher.trimmed(2)
    active.reactor.pass_s(1.0)
    assert min(active.messages.messages) == _first_of(active, 3)


def test_what_dies_while_another_purge_is_under_way_is_purged_behind_it() -> None:
    active = ActiveLog()
    _fill_segments(active, 3)
    active.publisher.trimmed(1)
    active.publisher.trimmed(2)
    active.reactor.pass_s(1.0)
    assert min(active.messages.messages) == _first_of(active, 3)


def test_a_purge_that_failed_is_tried_again() -> None:
    fates = [Fate(there=None, patience=1.0)]
    active = ActiveLog(fate=lambda kind: fates.pop() if kind == "purge" and fates else Fate())
    _fill_segments(active, 2)
    first = _first_of(active, 2)
    active.publisher.trimmed(1)
    active.reactor.pass_s(PURGE_RETRY_S)
    assert min(active.messages.messages) == 1
    active.reactor.pass_s(2.0)
    assert min(active.messages.messages) == first


def _fill_segments(active: ActiveLog, count: int) -> None:
    while active.log.segment <= count:
        active.put(b"x" * 4000)
        active.write_all()


def _first_of(active: ActiveLog, seq: int) -> int:
    positions = zip(active.messages.messages, active.said(), strict=True)
    return next(at for at, said in positions if not isinstance(said, Note) and said.segment == seq)


def test_what_must_be_durable_waits_for_the_stream_too() -> None:
    active = ActiveLog()
    called: list[bool] = []
    active.messages.lose_quorum()
    active.committer.when_durable(active.put(), lambda: called.append(True))
    synced: list[bool] = []
    active.committer.sync(lambda: synced.append(True))
    active.write_all()
    assert synced == [True], "it asks about the disk alone"
    assert not called
    active.messages.restore_quorum()
    active.write_all()
    assert called == [True]


def test_an_ordered_end_says_so_behind_all_that_was_written() -> None:
    active = started()
    active.messages.lose_quorum()
    lsn = active.put_all()
    active.committer.finish()
    active.write_all()
    active.publisher.successor = "beta:11300"
    handed_over = active.publisher.hand_over()
    active.reactor.pass_s(1.0)
    assert not handed_over.called and active.lease.holds(active.reactor.now_ns())
    active.messages.restore_quorum()
    active.reactor.pass_s(1.0)
    assert handed_over.called
    assert active.committer.acknowledgeable_lsn == lsn
    last = active.said()[-1]
    assert isinstance(last, Note) and last.kind is Kind.HANDED_OVER
    assert read_note(last.text).to == "beta:11300"
    assert not active.lease.holds(active.reactor.now_ns())
    active.reactor.pass_s(active.messages.expire_s)
    assert not active.reactor.getDelayedCalls()


@pytest.mark.parametrize("is_fenced", [False, True])
def test_an_ordered_end_waits_only_so_long(is_fenced: bool) -> None:
    active = ActiveLog()
    active.put()
    if is_fenced:
        active.messages.append(RIVAL, active.messages.last)
    else:
        active.messages.lose_quorum()
    active.write_all()
    handed_over = active.publisher.hand_over()
    active.reactor.pass_s(HAND_OVER_S - 1)
    assert handed_over.called is is_fenced
    active.reactor.pass_s(1.1)
    assert handed_over.called and not active.failures


def test_who_is_fenced_while_it_hands_over_is_told_before_that_ends() -> None:
    active = ActiveLog()
    told: list[int] = []
    active.publisher.hand_over().addCallback(lambda _: told.append(len(active.fenced)))
    active.messages.append(RIVAL, active.messages.last)
    active.reactor.pass_s(1.0)
    assert told == [1]


class BreakingStream(MemoryStream):
    """One of which a call raises what no stream should.

    :ivar breaks: the call, and how many go well before.
    """

    breaks: tuple[str, int] = ("", 0)

    def append(self, payload: bytes, expected: int, *, expires: bool = False) -> Future[int]:
        self._break("append")
        return super().append(payload, expected, expires=expires)

    def ends(self) -> Future[Ends]:
        self._break("ends")
        return super().ends()

    def read(self, position: int) -> Future[Message | None]:
        self._break("read")
        return super().read(position)

    def _break(self, name: str) -> None:
        broken, left = self.breaks
        if broken == name:
            self.breaks = name, left - 1
            if left <= 0:
                _broken()


def _broken(*ignored: object) -> None:
    raise AssertionError("broken")


@pytest.mark.parametrize(
    ("name", "left"), [("append", 0), ("append", MAX_IN_FLIGHT), ("ends", 0), ("read", 0)]
)
def test_an_exception_of_the_stream_ends_the_server(name: str, left: int) -> None:
    lost = Fate(back=None, patience=1.0)
    fates = [lost] if name in ("ends", "read") else []
    active = ActiveLog(
        NEVER, fate=lambda kind: fates.pop() if fates else Fate(), door=BreakingStream
    )
    assert isinstance(active.stream, BreakingStream)
    active.stream.breaks = name, left
    with suppress(AssertionError):
        for _ in range(MAX_IN_FLIGHT + 1):
            active.put()
            active.committer.flush()
            active.write_all()
    active.reactor.pass_s(5.0)
    assert [str(failure.value) for failure in active.failures] == ["broken"]


@pytest.mark.parametrize("what", ["lease", "changed", "fenced"])
def test_an_exception_of_those_who_are_told_ends_the_server(what: str) -> None:
    active = ActiveLog(lease=BrokenLease(LEASE_S) if what == "lease" else None)
    if what == "changed":
        active.publisher.changed = _broken
    elif what == "fenced":
        active.publisher.events = PublisherEvents(_broken)
        active.messages.append(RIVAL, active.messages.last)
    active.put_all()
    active.reactor.pass_s(5.0)
    assert [str(failure.value) for failure in active.failures] == ["broken"]


class BrokenLease(HeldLease):
    """One that cannot be renewed."""

    def accepted(self, sent_ns: int) -> None:
        _broken()
