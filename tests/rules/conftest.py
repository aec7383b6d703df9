"""What most tests of one command begin with."""

from __future__ import annotations

import pytest

from tests.rules.conversation import Client, Server


@pytest.fixture
def server() -> Server:
    """Make a queue."""
    return Server()


@pytest.fixture
def client(server: Server) -> Client:
    """Make a connection."""
    return server.connect()
