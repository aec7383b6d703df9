"""A server in memory, and who speaks to it."""

from __future__ import annotations

import pytest

from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.service import Client
from tests.client.fleet import Fleet
from tests.client.world import Line, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


@pytest.fixture
def connection(world: World) -> Connection:
    return world.connection()


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def fleet() -> Fleet:
    return Fleet("a", "b")
