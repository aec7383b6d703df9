"""Every conversation over every transport, with our server and with the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.testing import BeanstalkServer
from tests.client.transports.carriers import CARRIERS
from tests.client.transports.conversations import EXTENDED, PLAIN
from tests.server_process import ServerProcess, theirs

EACH_CARRIER = pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)


@pytest.fixture
def server() -> Iterator[BeanstalkServer]:
    with BeanstalkServer(clock="real") as running:
        yield running


@EACH_CARRIER
@pytest.mark.parametrize("conversation", PLAIN + EXTENDED, ids=lambda each: each.__name__)
def test_with_our_server(
    carrier: Callable[..., Any], conversation: Callable[[Any], Any], server: BeanstalkServer
) -> None:
    carrier(f"127.0.0.1:{server.port}", conversation)


@pytest.fixture
def beanstalkd(tmp_path: Path) -> Iterator[int]:
    with ServerProcess(theirs(), tmp_path) as running:
        yield running.port()


@EACH_CARRIER
@pytest.mark.parametrize("conversation", PLAIN, ids=lambda each: each.__name__)
def test_with_the_real_beanstalkd(
    carrier: Callable[..., Any], conversation: Callable[[Any], Any], beanstalkd: int
) -> None:
    carrier(f"127.0.0.1:{beanstalkd}", conversation)


@EACH_CARRIER
def test_extensions_are_not_sent_to_the_real_beanstalkd(
    carrier: Callable[..., Any], beanstalkd: int
) -> None:
    async def talk(client: Any) -> None:
        with pytest.raises(errors.NotAnnounced):
            await client.put(b"put 0 0 60 0", unique="k")
        with pytest.raises(errors.NotAnnounced):
            await client.reserve_batch(3)
        assert await client.probe() == frozenset()

    carrier(f"127.0.0.1:{beanstalkd}", talk)
