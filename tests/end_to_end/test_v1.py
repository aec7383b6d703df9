"""Old clients and a real server: two ports, one queue, and what is left of it after a kill."""

from __future__ import annotations

import signal
from pathlib import Path

import greenstalk
import pytest

from tests.server_process import (
    Connection,
    ServerProcess,
    ours,
    ours_without_epoll,
)

OLD_PORT = ("--listen-v1", "tcp:0:interface=127.0.0.1")


def serving(tmp_path: Path, *options: object) -> ServerProcess:
    """Start our server on a free port for each dialect, with a log."""
    return ServerProcess(ours("-p0", "-b", tmp_path / "log", *OLD_PORT, *options), tmp_path)


def test_old_and_modern_clients_do_each_others_jobs(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        old = Connection(server.port_v1())
        with greenstalk.Client(("127.0.0.1", server.port())) as modern:
            assert old.ask(b"put 5 3\r\nold\r\n") == b"INSERTED\r\n"
            job = modern.reserve(timeout=0)
            assert (job.id, job.body, modern.stats_job(job)["ttr"]) == (1, "old", 120)
            modern.delete(job)
            old.send(b"reserve\r\n")
            modern.put("modern", priority=9)
            assert old.reply() == b"RESERVED 2 9 6\r\nmodern\r\n"
            assert old.ask(b"delete 2\r\n") == b"DELETED\r\n"


def test_what_an_old_client_was_told_is_there_after_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path, "-s", 8192) as server:
        old = Connection(server.port_v1())
        for number in range(200):
            body = b"%d" % number * 50
            assert old.ask(b"put %d %d\r\n%s\r\n" % (number, len(body), body)) == b"INSERTED\r\n"
        for number in range(1, 101):
            assert old.ask(b"reserve\r\n").startswith(b"RESERVED %d " % number)
            if number % 2:
                assert old.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
            else:
                assert old.ask(b"bury %d 7\r\n" % number) == b"BURIED\r\n"
        assert old.ask(b"reserve\r\n").startswith(b"RESERVED 101 ")
        server.kill()
    with serving(tmp_path, "-s", 8192) as server:
        old = Connection(server.port_v1())
        assert b"current-jobs-ready: 100\ncurrent-jobs-reserved: 0\ncurrent-jobs-buried: 50\n" in (
            old.ask(b"stats\r\n")
        )
        body = b"1" * 50
        assert old.ask(b"peek\r\n") == b"FOUND 2 7 50\r\n%s\r\n" % body
        assert old.ask(b"peek 3\r\n") == b"NOT_FOUND\r\n"
        assert old.ask(b"reserve\r\n").startswith(b"RESERVED 101 100 150\r\n")
        assert old.ask(b"kick 1000\r\n") == b"KICKED 50\r\n"
        assert old.ask(b"put 0 1\r\nx\r\n") == b"INSERTED\r\n"
        assert old.ask(b"peek 201\r\n") == b"FOUND 201 0 1\r\nx\r\n"
        assert server.terminate() == -signal.SIGTERM


@pytest.mark.exhaustive
def test_without_epoll_and_the_log_it_is_the_same(tmp_path: Path) -> None:
    with ServerProcess(ours_without_epoll("-p0", *OLD_PORT), tmp_path) as server:
        old = Connection(server.port_v1())
        assert "shared epoll reader" not in "".join(server.said())
        assert old.ask(b"put 0 1\r\nx\r\n") == b"INSERTED\r\n"
        assert old.ask(b"reserve\r\n") == b"RESERVED 1 0 1\r\nx\r\n"
        old.close()
        modern = server.connect()
        assert modern.ask(b"reserve\r\n") == b"RESERVED 1 1\r\nx\r\n"
