"""Real threads of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from beanstalk_twisted.worker.handlers import PoolThreads
from tests.conftest import the_reactor


@pytest.fixture
def threads() -> Iterator[PoolThreads]:
    """One thread."""
    made = PoolThreads(the_reactor(), 1)
    made.start()
    yield made
    made.stop()


async def test_an_outcome_comes_back(threads: PoolThreads) -> None:
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)


async def test_a_deferred_that_comes_out_of_a_thread_is_given_on_at_once(
    threads: PoolThreads,
) -> None:
    given: Deferred[None] = Deferred()
    came: list[Any] = []
    threads.run(lambda: given).addCallback(lambda result: came.append(result))
    while not came:
        await deferLater(the_reactor(), 0.01, lambda: None)
    assert came == [given]
