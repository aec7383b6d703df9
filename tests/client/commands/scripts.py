"""Coroutine tests whose server is in memory: nothing waits for a real clock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from beanstalk_twisted.client.service import Client
from tests.client.world import World


def scripted(
    test: Callable[[Client], Coroutine[Any, Any, None]],
) -> Callable[[World, Client], None]:
    """Run a coroutine as a test, which costs the client no connection."""

    def run(world: World, client: Client) -> None:
        world.run(test(client))
        assert world.connects == 1

    return run
