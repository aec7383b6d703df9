"""What several tests of the server need."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from twisted.logger import capturedLogs, formatEvent


@pytest.fixture
def told() -> Iterator[Callable[[str], list[str]]]:
    with capturedLogs() as events:
        yield lambda name: [formatEvent(each) for each in events if each.get("event") == name]
