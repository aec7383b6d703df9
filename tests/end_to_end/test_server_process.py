"""The server as a process: how it ends, what it says then, and what it keeps."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading import replay
from tests.server_process import (
    LIMIT_S,
    TWISTD,
    Connection,
    ServerProcess,
    ours,
    theirs,
)


def serving(tmp_path: Path, *options: object) -> ServerProcess:
    return ServerProcess(ours("-p0", "-b", tmp_path / "log", *options), tmp_path)


def put(connection: Connection, body: bytes = b"x") -> bytes:
    return connection.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))


def newest_segment(folder: Path) -> Path:
    return max(folder.glob("*.tql"))


def read_log(folder: Path) -> tuple[bool, set[bytes]]:
    """Read a log as the next start would.

    :return: whether it ended in order, and the bodies of its jobs.
    """
    found = replay.read(RealDirectory(str(folder)), lambda done, total: None)
    return found.small.is_clean, {bytes(image.body) for image, _, _ in found.survivors(0)}


def refused(tmp_path: Path, *options: object) -> tuple[int, str]:
    """Start our server where it must not start.

    :return: its exit status and what it said.
    """
    with ServerProcess(ours("-p0", *options), tmp_path) as server:
        return server.ended()


# It does not start.


@pytest.mark.exhaustive
def test_a_directory_of_a_beanstalkd_is_refused_with_10_and_vice_versa(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with ServerProcess(theirs("-b", folder), tmp_path) as real:
        real.port()
        status, said = refused(tmp_path, "-b", folder)
        assert (status, "is locked by a C beanstalkd" in said) == (10, True), said
    for left in folder.glob("binlog.*"):
        left.unlink()
    with serving(tmp_path) as server:
        server.connect().close()
        with ServerProcess(theirs("-b", folder), tmp_path) as real:
            assert real.ended()[0] == 10


def test_a_damaged_log_is_refused_with_65_and_left_as_it_is(tmp_path: Path) -> None:
    damaged, offset = damage_a_log(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "log").glob("*.tql")}
    status, said = refused(tmp_path, "-b", tmp_path / "log")
    assert status == 65
    assert damaged.name in said
    assert f"binlog-inspect check {tmp_path / 'log'}" in said
    found = re.search(r"offset (\d+)", said)
    assert found and 4096 <= int(found[1]) <= offset, said
    assert re.search(r"LSN \d+", said), said
    assert {path: path.read_bytes() for path in (tmp_path / "log").glob("*.tql")} == before


def damage_a_log(tmp_path: Path) -> tuple[Path, int]:
    """Make a log and flip a byte of a body that was acknowledged.

    :return: the segment, and where.
    """
    with serving(tmp_path) as server:
        connection = server.connect()
        for body in (b"before", b"to be damaged", b"behind"):
            assert put(connection, body).startswith(b"INSERTED")
        connection.close()
        server.terminate()
    segment = newest_segment(tmp_path / "log")
    content = bytearray(segment.read_bytes())
    offset = content.index(b"to be damaged")
    content[offset] ^= 1
    segment.write_bytes(content)
    return segment, offset


def test_a_port_in_use_is_refused_with_111_and_the_log_is_whole(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert put(server.connect()) == b"INSERTED 1\r\n"
        server.terminate()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = refused(tmp_path, "-p", port, "-b", tmp_path / "log")
    assert status == 111
    assert "cannot listen" in said and str(port) in said
    assert read_log(tmp_path / "log") == (True, {b"x"})


def test_a_daemon_serves_and_stops_in_order(tmp_path: Path) -> None:
    subprocess.run(
        [TWISTD, "--pidfile=daemon.pid", "--logfile=daemon.log", "beanstalk",
         "-l", f"unix:{tmp_path}/s", "-b", "log"],
        cwd=tmp_path, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    pid = int((tmp_path / "daemon.pid").read_text())
    # The launcher returns when the daemon listens.
    with Connection(tmp_path / "s") as client:
        assert client.ask(b"put 0 0 1 1\r\nx\r\n") == b"INSERTED 1\r\n"
        end_daemon(pid, client)
    assert read_log(tmp_path / "log") == (True, {b"x"})


def end_daemon(pid: int, client: Connection) -> None:
    """Ask it to stop, and wait until it has: it parts when its log is sealed."""
    os.kill(pid, signal.SIGTERM)
    assert client.reply() == b""


# It ends.


def test_sigterm_answers_what_was_begun_and_seals_the_log(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        connection, waiting = server.connect(), server.connect()
        waiting.send(b"watch other\r\nignore default\r\nreserve\r\n")
        assert (waiting.reply(), waiting.reply()) == (b"WATCHING 2\r\n", b"WATCHING 1\r\n")
        assert put(connection, b"kept") == b"INSERTED 1\r\n"
        assert server.terminate() == -signal.SIGTERM
        assert (connection.reply(), waiting.reply()) == (b"", b"")
    assert read_log(tmp_path / "log") == (True, {b"kept"})
    assert newest_segment(tmp_path / "log").read_bytes().endswith(b"TQLEND\r\n")
