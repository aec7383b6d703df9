"""What is known of the disk's quickness, and what a slow sync then costs others."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.storage.fsync import (
    ALWAYS,
    DEFAULT_LIMIT_US,
    LESSONS,
    MAX_LIMIT_US,
    NEVER,
    RELAXED_SYNC_S,
    REST,
    STALL,
    US,
    FsyncPolicy,
    InlineSyncPolicy,
)

LIMIT_NS = DEFAULT_LIMIT_US * US
STALL_NS = STALL * LIMIT_NS
MS = 1000 * US


class Disk:
    """A disk at work, one sync after the other, and who did each.

    :ivar now_ns: when the last one ended.
    """

    def __init__(self, limit_us: int = DEFAULT_LIMIT_US) -> None:
        self.shortcut = InlineSyncPolicy(limit_us)
        self.now_ns = 0

    def sync(self, took_ns: int, times: int = 1) -> int:
        """Sync so often, which takes so long each time.

        :return: how many of them were done at once.
        """
        at_once = 0
        for _ in range(times):
            at_once += self.shortcut.take(self.now_ns)
            self.now_ns += took_ns
            self.shortcut.note(self.now_ns, took_ns, syncs=True)
        return at_once

    @property
    def is_open(self) -> bool:
        """Whether the next one would be done at once."""
        return self.shortcut.take(self.now_ns)


@pytest.mark.parametrize(("took_ns", "is_quick"), [(LIMIT_NS, True), (LIMIT_NS + 8, False)])
def test_a_disk_is_quick_up_to_the_limit(took_ns: int, is_quick: bool) -> None:
    disk = Disk()
    disk.sync(took_ns, 200)
    assert disk.is_open is is_quick


@pytest.mark.parametrize("limit_us", [1, DEFAULT_LIMIT_US, MAX_LIMIT_US])
def test_the_limit_is_what_was_given(limit_us: int) -> None:
    quick, slow = Disk(limit_us), Disk(limit_us)
    quick.sync(limit_us * US, 100)
    slow.sync(2 * limit_us * US, 100)
    assert (quick.is_open, slow.is_open) == (True, False)


def test_with_a_limit_of_0_nothing_is_done_at_once_however_quick_the_disk_is() -> None:
    disk = Disk(limit_us=0)
    assert disk.sync(0, 100) == 0
    assert disk.shortcut.take(0, syncs=False), "but writes"


@pytest.mark.parametrize(("took_ns", "rests"), [(STALL_NS, False), (STALL_NS + 1, True)])
def test_after_a_sync_that_was_slow_by_far_others_have_a_multiple_of_it(
    took_ns: int, rests: bool
) -> None:
    disk = Disk(limit_us=DEFAULT_LIMIT_US)
    disk.sync(50 * US, 100)
    disk.sync(took_ns)
    # The mean forgets it before the rest is over.
    for _ in range(50):
        disk.shortcut.note(disk.now_ns, 50 * US, syncs=True)
    assert disk.is_open is not rests
    disk.now_ns += REST * took_ns - 1
    assert disk.is_open is not rests
    disk.now_ns += 1
    assert disk.is_open


def test_a_write_teaches_nothing_unless_it_is_slow_by_far() -> None:
    disk = Disk()
    for _ in range(100):
        disk.shortcut.note(0, 1, syncs=False)
    assert not disk.is_open
    disk.sync(50 * US, LESSONS)
    for _ in range(100):
        disk.shortcut.note(disk.now_ns, STALL_NS, syncs=False)
    disk.shortcut.note(disk.now_ns, STALL_NS + 1, syncs=False)
    assert disk.is_open, "that was the thread's, where it held up nobody else"
    disk.shortcut.note(disk.now_ns, STALL_NS + 1, syncs=False)
    assert not disk.is_open


def test_a_hang_of_a_minute_is_forgotten_in_some_twenty_syncs() -> None:
    disk = Disk()
    disk.sync(100 * US, 100)
    disk.sync(60_000 * MS)
    disk.now_ns += 60_000 * MS * REST
    assert disk.sync(100 * US, 1) == 0
    disk.sync(100 * US, 24)
    assert disk.is_open


def test_a_disk_that_is_slow_one_time_in_a_hundred_costs_others_little() -> None:
    disk = Disk()
    at_once = stalls = held_up_ns = 0
    for number in range(20_000):
        took_ns = 5 * MS if number % 100 == 99 else 140 * US
        is_here = disk.sync(took_ns)
        at_once += is_here
        if is_here and took_ns > STALL_NS:
            stalls += 1
            held_up_ns += took_ns
    assert stalls and held_up_ns * REST <= disk.now_ns
    # A fair part is done at once all the same: quick disks have such moments.
    assert at_once > 20_000 // 10


def test_a_disk_that_has_become_slow_is_found_out_by_one_sync_and_one_that_is_slowish_by_some() -> (
    None
):
    for took_ns, most in (5 * MS, 1), (1 * MS, 3), (600 * US, 6):
        disk = Disk()
        disk.sync(140 * US, 100)
        assert 1 <= disk.sync(took_ns, 1000) <= most


DURATIONS = st.integers(0, 20 * STALL_NS) | st.integers(0, 2 * LIMIT_NS)


@given(st.lists(st.tuples(DURATIONS, st.integers(0, 100 * MS)), max_size=100))
def test_whatever_the_disk_does_others_lose_no_more_than_their_share(
    syncs: list[tuple[int, int]],
) -> None:
    disk = Disk()
    stalls: list[tuple[int, int]] = []
    for took_ns, idle_ns in syncs:
        disk.now_ns += idle_ns
        began_ns = disk.now_ns
        if disk.sync(took_ns) and took_ns > STALL_NS:
            stalls.append((began_ns, disk.now_ns))
    for (began_ns, ended_ns), (next_ns, _) in pairwise(stalls):
        assert next_ns - ended_ns >= REST * (ended_ns - began_ns)


@given(st.lists(st.integers(LIMIT_NS + 1, 100 * STALL_NS), max_size=60))
def test_a_disk_that_was_never_quick_is_left_to_the_thread(syncs: list[int]) -> None:
    disk = Disk()
    assert sum(disk.sync(took_ns) for took_ns in syncs) == 0


@given(st.lists(st.integers(0, LIMIT_NS), min_size=LESSONS, max_size=60))
def test_a_disk_that_was_always_quick_is_known_after_its_first_syncs(syncs: list[int]) -> None:
    disk = Disk()
    at_once = sum(disk.sync(took_ns) for took_ns in syncs)
    assert at_once == len(syncs) - LESSONS


@pytest.mark.parametrize(
    ("policy", "is_always", "latest_s", "words"),
    [
        (ALWAYS, True, RELAXED_SYNC_S, "fsync always"),
        (FsyncPolicy(0.02), False, 0.02, "fsync within 20 ms"),
        (NEVER, False, None, "fsync never"),
    ],
)
def test_all_that_is_written_is_synced_in_time_if_ever(
    policy: FsyncPolicy, is_always: bool, latest_s: float | None, words: str
) -> None:
    assert (policy.is_always, policy.latest_s, policy.in_words) == (is_always, latest_s, words)
