"""The lease, by both of its sides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.replication.stream.interface import (
    HEARTBEATS,
    MARGIN_PARTS,
    HeldLease,
    Silence,
)

SECOND = 1_000_000_000


def test_it_counts_from_when_the_newest_message_that_was_accepted_was_sent() -> None:
    lease = HeldLease(3)
    assert not lease.holds(0)
    until = 10 * SECOND + 27 * SECOND // 10
    # An answer to an older message does not shorten it.
    for sent_s in (10, 9):
        lease.accepted(sent_s * SECOND)
        assert lease.holds(until - 1)
        assert not lease.holds(until)


def test_of_the_heartbeats_all_but_one_may_be_lost() -> None:
    lease = HeldLease(3)
    lease.accepted(0)
    due = 0
    for _ in range(HEARTBEATS - 1):
        due = lease.heartbeat_due_ns(due)
        assert lease.holds(due)
    assert lease.heartbeat_due_ns(due) <= 3 * SECOND


def test_silence_is_over_the_longer_lease_after_what_was_heard_last() -> None:
    silence = Silence(3, 5 * SECOND)
    assert silence.over_ns() == 8 * SECOND
    silence.lasts(10)
    assert silence.over_ns() == 15 * SECOND
    silence.lasts(2)
    assert silence.over_ns() == 8 * SECOND
    # After a handing over nobody waits until something is heard again.
    silence.handed_over()
    assert silence.over_ns() == 5 * SECOND
    silence.heard(6 * SECOND)
    assert silence.over_ns() == 9 * SECOND


@given(
    lease_ms=st.integers(100, 60_000),
    sent=st.integers(0, 1 << 60),
    way_ns=st.integers(0, SECOND),
    clock=st.integers(0, 1 << 60),
    fast=st.integers(0, 1000),
)
def test_it_is_over_for_its_holder_before_a_standby_begins(
    lease_ms: int, sent: int, way_ns: int, clock: int, fast: int
) -> None:
    held = HeldLease(lease_ms / 1000)
    held.accepted(sent)
    silence = Silence(lease_ms / 1000, clock)
    # True time that passes for the standby, whose clock is fast by up to a tenth of the lease.
    waits_ns = (silence.over_ns() - clock) * (1000 * MARGIN_PARTS - fast) // (1000 * MARGIN_PARTS)
    assert held.until_ns - sent <= way_ns + waits_ns + 1
