"""Workers and their server in memory."""

from __future__ import annotations

import pytest

from tests.worker.world import Shop, Slow


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def slow() -> Slow:
    return Slow()
