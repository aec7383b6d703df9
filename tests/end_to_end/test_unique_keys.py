"""Unique keys of deleted jobs: remembered over a kill -9, until they are forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server_process import Connection, ServerProcess, ours_at_once

PUT = b"put 0 0 60 1 idp:%b:4000000000\r\nx\r\n"


@pytest.mark.parametrize(
    "forget", [b"flush-tube default\r\n", b"forget-key default k\r\n"], ids=["flush", "key"]
)
def test_a_key_that_was_forgotten_stays_so(tmp_path: Path, forget: bytes) -> None:
    command = ours_at_once("-p0", "-b", tmp_path / "log", "-s", 8192)
    with ServerProcess(command, tmp_path) as server:
        client = server.connect()
        assert client.ask(PUT % b"k") == b"INSERTED 1\r\n"
        assert client.ask(b"delete 1\r\n") == b"DELETED\r\n"
    with ServerProcess(command, tmp_path) as server:
        client = server.connect()
        assert client.ask(PUT % b"k") == b"INSERTED 1 DELETED\r\n"
        assert client.ask(forget) in (b"FLUSHED 0\r\n", b"FORGOTTEN\r\n")
    with ServerProcess(command, tmp_path) as server:
        client = server.connect()
        assert client.ask(b"forget-key default k\r\n") == b"NOT_FOUND\r\n"
        fill_some_segments(client)
        assert client.ask(PUT % b"k") == b"INSERTED 102\r\n"


def fill_some_segments(client: Connection) -> None:
    """Write so much that the segments with the key's records are compacted."""
    for _ in range(100):
        word, job = client.ask(b"put 0 0 60 1000\r\n" + bytes(1000) + b"\r\n").split()
        assert word == b"INSERTED"
        assert client.ask(b"delete %b\r\n" % job) == b"DELETED\r\n"
