"""
Commands that beanstalkd does not have, asked of the queue.
"""

from __future__ import annotations

from beanstalk_twisted.wire.extensions import EXTENSIONS
from tests.jobs.conversation import Server


def test_capabilities_are_the_rows_of_the_table() -> None:
    listed = "".join(f"- {row.name}\n" for row in EXTENSIONS)
    assert Server().connect().says("capabilities") == f"OK {len(listed) + 4}\r\n---\n{listed}"


def test_a_drained_server_takes_jobs_again() -> None:
    client = Server().connect()
    assert client.says("drain") == "DRAINING"
    assert client.says("put 0 0 60 1", b"x") == "DRAINING"
    assert "draining: true" in str(client.says("stats"))
    assert client.says("undrain") == "NOT_DRAINING"
    assert client.says("put 0 0 60 1", b"x") == "INSERTED 2"
