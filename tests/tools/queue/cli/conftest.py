"""The server that most tests of ``beanstalk`` share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server_process import ServerProcess, ours_at_once
from tests.tools.queue.cli.test_commands import MAX_JOB_BYTES, Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run our server; each test has tubes of its own."""
    folder = tmp_path_factory.mktemp("server")
    command = ours_at_once("-p", 0, "-z", MAX_JOB_BYTES, "-b", folder / "log")
    with ServerProcess(command, folder) as running:
        yield Server(running)
