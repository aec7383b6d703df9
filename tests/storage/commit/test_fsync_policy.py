"""How soon what is written is synced."""

from __future__ import annotations

import pytest

from beanstalk_twisted.storage.fsync import (
    ALWAYS,
    NEVER,
    RELAXED_SYNC_S,
    FsyncPolicy,
)

WITHIN_20_MS = FsyncPolicy(0.02)


def test_replies_wait_for_syncs_only_if_there_is_one_before_each() -> None:
    assert [each.is_always for each in (ALWAYS, WITHIN_20_MS, NEVER)] == [True, False, False]


@pytest.mark.parametrize(
    ("policy", "latest_s"), [(ALWAYS, RELAXED_SYNC_S), (WITHIN_20_MS, 0.02), (NEVER, None)]
)
def test_all_that_is_written_is_synced_in_time_if_ever(
    policy: FsyncPolicy, latest_s: float | None
) -> None:
    assert policy.latest_s == latest_s


@pytest.mark.parametrize(
    ("policy", "words"),
    [(ALWAYS, "fsync always"), (WITHIN_20_MS, "fsync within 20 ms"), (NEVER, "fsync never")],
)
def test_it_is_said_as_the_option_says_it(policy: FsyncPolicy, words: str) -> None:
    assert policy.in_words == words
