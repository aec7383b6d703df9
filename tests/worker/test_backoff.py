"""Delays after failures: of the tube's policy if it has `backoff`, else the worker's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.defer import fail

from beanstalk_twisted.worker.policy import Retry
from tests.worker.world import TUBE, Shop


@pytest.fixture
def shop() -> Iterator[Shop]:
    yield Shop()


@pytest.mark.parametrize(
    ("policy", "retry", "delay"),
    [
        ("backoff=100", Retry(), 100), ("backoff=100", Retry(first_delay_s=8), 4),
        ("backoff=100", Retry(first_delay_s=0), 100), ("max-reserves=9", Retry(), 1),
        (None, Retry(), 1), (None, Retry(first_delay_s=8), 4),
    ],
)  # fmt: skip
def test_a_tube_s_backoff_goes_before_a_delay_that_was_not_chosen(
    shop: Shop, policy: str | None, retry: Retry, delay: int
) -> None:
    if policy is not None:
        key, _, value = policy.partition("=")
        shop.world.result(shop.producer.tube_policy(TUBE, {key: value}))
    shop.worker(lambda attempt: fail(OSError()), policy=retry)
    job = shop.put()
    shop.world.settle()
    stats = shop.stats(job)
    assert (stats.state, stats.releases) == ("delayed", 1)
    assert abs(stats.time_left - delay) <= max(1, delay // 10)
