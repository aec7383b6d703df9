"""The lease, by both of its sides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.replication.stream.door import (
    HEARTBEATS,
    MARGIN_PARTS,
    HeldLease,
    Silence,
)

SECOND = 1_000_000_000


def test_a_lease_that_nothing_renewed_does_not_hold() -> None:
    assert not HeldLease(3).holds(0)


def test_it_counts_from_when_the_accepted_message_was_sent() -> None:
    lease = HeldLease(3)
    lease.accepted(10 * SECOND)
    until = 10 * SECOND + 27 * SECOND // 10
    assert lease.holds(until - 1)
    assert not lease.holds(until)


def test_an_answer_to_an_older_message_does_not_shorten_it() -> None:
    lease = HeldLease(3)
    lease.accepted(10 * SECOND)
    until = lease.until_ns
    lease.accepted(9 * SECOND)
    assert lease.until_ns == until


def test_of_the_heartbeats_all_but_one_may_be_lost() -> None:
    lease = HeldLease(3)
    lease.accepted(0)
    due = 0
    for _ in range(HEARTBEATS - 1):
        due = lease.heartbeat_due_ns(due)
        assert lease.holds(due)
    assert lease.heartbeat_due_ns(due) <= 3 * SECOND


def test_silence_is_over_a_whole_lease_after_what_was_heard_last() -> None:
    silence = Silence(3, 5 * SECOND)
    assert silence.over_ns() == 8 * SECOND
    silence.heard(6 * SECOND)
    assert silence.over_ns() == 9 * SECOND


def test_of_two_leases_the_longer_one_counts() -> None:
    silence = Silence(3, 5 * SECOND)
    silence.lasts(10)
    assert silence.over_ns() == 15 * SECOND
    silence.lasts(2)
    assert silence.over_ns() == 8 * SECOND


def test_after_a_handing_over_nobody_waits_until_something_is_heard_again() -> None:
    silence = Silence(3, 5 * SECOND)
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
