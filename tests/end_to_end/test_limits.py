"""What a stock client makes of a server's limits, at a real one."""

from __future__ import annotations

from pathlib import Path

import greenstalk
import pytest

from tests.server_process import (
    WITH_AND_WITHOUT_EPOLL,
    Command,
    Connection,
    ServerProcess,
    ours_at_once,
)


@pytest.mark.one_in(2)
@WITH_AND_WITHOUT_EPOLL
def test_a_connection_too_many_is_one_that_is_closed(tmp_path: Path, command: Command) -> None:
    options = ["--max-connections=2", "-b", "log"]
    listen = ["--listen=tcp:0:interface=127.0.0.1", f"--listen=unix:{tmp_path}/socket"]
    with ServerProcess(command(*options, *listen), tmp_path) as server:
        address = ("127.0.0.1", server.port())
        with greenstalk.Client(address) as first, greenstalk.Client(f"{tmp_path}/socket"):
            first.put("x")
            with pytest.raises(OSError), greenstalk.Client(address) as refused:
                refused.put("y")
            assert Connection(tmp_path / "socket").reply() == b""
            server.wait_for("connection refused: --max-connections is 2")
            assert first.stats()["current-connections"] == 2
            second = first.put("z")
            assert first.reserve_job(second).body == "z"
        server.terminate()
        assert "1 connection refused: --max-connections is 2" in "".join(server.said())


@pytest.mark.one_in(2)
@WITH_AND_WITHOUT_EPOLL
def test_who_does_not_go_on_is_closed_who_waits_is_not(tmp_path: Path, command: Command) -> None:
    with ServerProcess(command("-p0", "--stalled-timeout=1"), tmp_path) as server:
        port = server.port()
        with greenstalk.Client(("127.0.0.1", port)) as client:
            stalled = [Connection(port) for _ in range(3)]
            waiting = Connection(port)
            waiting.send(b"reserve\r\nuse")
            for connection, sent in zip(
                stalled, (b"p", b"put 0 0 1 5\r\nx", b"a" * 300), strict=True
            ):
                connection.send(sent)
            assert [each.reply() for each in stalled] == [b""] * 3
            assert not waiting.is_answered
            client.put("x")
            assert waiting.reply().endswith(b"\r\nx\r\n")
            assert waiting.ask(b" a\r\n") == b"USING a\r\n"


def test_a_body_of_a_client_that_ends_early_is_no_job(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p0", "--max-memory=100000"), tmp_path) as server:
        port = server.port()
        with greenstalk.Client(("127.0.0.1", port)) as client:
            for _ in range(5):
                connection = Connection(port)
                connection.send(b"put 0 0 60 60000\r\n" + bytes(50_000))
                connection.half_close()
                assert connection.reply() == b""
                connection.close()
                client.delete(greenstalk.Job(client.put("x" * 60_000), "x"))
