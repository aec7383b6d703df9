"""A server as a process, with an archive in object storage that is away for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.object_storage.store import open_store
from tests.binlog.archived import check_archive
from tests.object_storage import s3_server
from tests.object_storage.s3_server import S3Server
from tests.server_process import Connection, ServerProcess, ours, wait_until

pytestmark = pytest.mark.exhaustive


def pass_through(connection: Connection, count: int) -> None:
    for _ in range(count):
        job_id = int(connection.ask(b"put 1 0 60 500\r\n%s\r\n" % (b"x" * 500)).split()[1])
        assert connection.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"


def archived(url: str) -> dict[str, bytes]:
    store = open_store(url)
    (folder,) = store.folders()
    return {
        entry.name: store.read(f"{folder}/{entry.name}", 0, entry.size)
        for entry in store.listing(folder).entries
    }


def delivered(url: str) -> int:
    """How many segments are complete; others may just get their names."""
    store = open_store(url)
    names = [entry.name for folder in store.folders() for entry in store.listing(folder).entries]
    return sum(name.endswith(".tql") for name in names)


def live(log: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.glob("*.tql")}


def serve(path: Path, url: str) -> ServerProcess:
    options = ("--binlog-archive", url, "--binlog-archive-age", 0)
    return ServerProcess(ours("-p0", "-b", path / "log", "-s", 8192, *options), path)


def test_an_archive_that_is_away_is_caught_up_with_through_kill_and_stop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with s3_server.running() as s3:
        url = s3.url("prod/bs")
        with serve(tmp_path, url) as server:
            pass_through(server.connect(), 60)
            wait_until(lambda: delivered(url) > 3)
            s3.stop()
            before = len(live(log))
            pass_through(server.connect(), 60)
            assert len(live(log)) > before, "the log keeps what the archive lacks"
            server.wait_for("NETWORK_CONNECTION")
        with serve(tmp_path, url) as server:
            pass_through(server.connect(), 10)
            server.wait_for("NETWORK_CONNECTION")
            again = S3Server(s3.port)
            try:
                again.refused = 2
                server.terminate()
                said = "".join(server.said())
                check_archive(archived(url), live(log))
            finally:
                again.stop()
    assert "the log keeps all, so nothing is lost" in said
    assert "testing" not in said, "no credentials are logged"
