"""The server as a process: how it ends, what it says then, and what it keeps."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import greenstalk
import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.binlog.reading import replay
from tests.server_process import (
    LIMIT_S,
    TWISTD,
    Connection,
    ServerProcess,
    ours,
    ours_at_once,
    theirs,
    wait_until,
)


def serving(tmp_path: Path, *options: object) -> ServerProcess:
    """Start our server on a free port, with a log."""
    return ServerProcess(ours("-p0", "-b", tmp_path / "log", *options), tmp_path)


def put(connection: Connection, body: bytes = b"x") -> bytes:
    return connection.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))


def newest_segment(folder: Path) -> Path:
    """Find it."""
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
def test_a_directory_that_another_server_of_ours_has_is_refused_with_10(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        connection = first.connect()
        status, said = refused(tmp_path, "-b", tmp_path / "log")
        assert status == 10
        assert f"is locked by process {first.process.pid} on " in said
        assert "nothing was touched" in said
        assert put(connection) == b"INSERTED 1\r\n"
        connection.close()


@pytest.mark.exhaustive
def test_a_directory_that_a_real_beanstalkd_has_is_refused_with_10_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with ServerProcess(theirs("-p0", "-b", folder), tmp_path) as real:
        real.port()
        status, said = refused(tmp_path, "-b", folder)
        assert (status, "is locked by a C beanstalkd" in said) == (10, True), said
    for left in folder.glob("binlog.*"):
        left.unlink()
    with serving(tmp_path) as server:
        server.connect().close()
        with ServerProcess(theirs("-p0", "-b", folder), tmp_path) as real:
            assert real.ended()[0] == 10


@pytest.mark.exhaustive
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        first.connect().close()
    with serving(tmp_path) as second:
        second.connect().close()


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


@pytest.mark.exhaustive
def test_a_directory_whose_parent_is_missing_is_refused_with_73(tmp_path: Path) -> None:
    status, said = refused(tmp_path, "-b", tmp_path / "a" / "b")
    assert status == 73
    assert f"binlog directory {tmp_path}/a/b: there is no {tmp_path}/a to make it in" in said


@pytest.mark.exhaustive
def test_a_directory_that_is_a_file_is_refused_with_73(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("mine")
    status, said = refused(tmp_path, "-b", tmp_path / "log")
    assert (status, "Not a directory" in said) == (73, True)
    assert (tmp_path / "log").read_text() == "mine"


def test_a_log_of_a_real_beanstalkd_is_refused_with_78(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "binlog.1").write_bytes(b"\7\0\0\0")
    status, said = refused(tmp_path, "-b", tmp_path / "log")
    assert status == 78
    assert "binlog.1" in said and "import-v7" in said
    assert (tmp_path / "log" / "binlog.1").read_bytes() == b"\7\0\0\0"


def test_a_port_in_use_is_refused_with_111(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with ServerProcess(ours("-p", port, "-b", tmp_path / "log"), tmp_path) as server:
            status, said = server.ended()
    assert status == 111
    assert "cannot listen" in said and str(port) in said


@pytest.mark.exhaustive
def test_a_log_is_whole_after_a_start_that_found_its_port_in_use(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert put(server.connect()) == b"INSERTED 1\r\n"
        server.terminate()
    test_a_port_in_use_is_refused_with_111(tmp_path)
    with serving(tmp_path) as server:
        connection = server.connect()
        assert connection.ask(b"peek 1\r\n") == b"FOUND 1 1\r\nx\r\n"
        connection.close()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("command", "name"), [(ours, "twistd beanstalk"), (ours_at_once, "beanstalk-twisted")]
)
def test_wrong_options_are_refused_with_5_and_one_line_of_the_command_typed(
    command: Callable[..., list[str]], name: str, tmp_path: Path
) -> None:
    with ServerProcess(command("-p", "no-such-service"), tmp_path) as server:
        status, said = server.ended()
    assert (status, said.count("\n")) == (5, 1), said
    assert said.startswith(f"{name}: ")
    assert "there is no service called 'no-such-service'" in said


@pytest.mark.exhaustive
def test_a_daemon_that_cannot_start_says_why_and_its_launcher_ends_with_1(tmp_path: Path) -> None:
    damage_a_log(tmp_path)
    launcher = subprocess.run(
        [TWISTD, "--pidfile=daemon.pid", "--logfile=daemon.log", "beanstalk", "-p0",
         "-b", tmp_path / "log"],
        cwd=tmp_path, timeout=LIMIT_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert launcher.returncode == 1
    assert "Refused: damaged binlog: " in launcher.stderr
    assert "binlog-inspect check" in (tmp_path / "daemon.log").read_text()
    # The daemon tells its launcher first, and then goes.
    wait_until(lambda: not (tmp_path / "daemon.pid").exists())


@pytest.mark.exhaustive
def test_a_refused_start_in_the_foreground_leaves_no_pidfile(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a file")
    done = subprocess.run(
        [TWISTD, "-n", "beanstalk", "-p0", "-b", "log"],
        cwd=tmp_path, timeout=LIMIT_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 73, done.stdout
    assert not (tmp_path / "twistd.pid").exists()


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


@contextmanager
def held_open(path: Path) -> Iterator[Callable[[], bool]]:
    """Have whoever opens a file wait in that call: we hold a lease of it, which the kernel asks
    back by SIGIO and waits for, `/proc/sys/fs/lease-break-time` seconds at most.

    :return: tells whether somebody waits.
    """
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with path.open("rb+") as file:
            hold(file)
            yield lambda: fcntl.fcntl(file, fcntl.F_GETLEASE) != fcntl.F_WRLCK
    finally:
        signal.signal(signal.SIGIO, before)


def hold(file: BinaryIO) -> None:
    """Take a lease of it, or skip the test."""
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as problem:
        pytest.skip(f"no leases on this file system: {problem}")


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="only Linux has leases")
@pytest.mark.parametrize("command", [ours, ours_at_once])
def test_ctrl_c_while_a_log_is_read_is_one_line_and_130(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    with serving(tmp_path) as first:
        first.connect().close()
        first.terminate()
    segment = newest_segment(tmp_path / "log")
    before = segment.read_bytes()
    with (
        held_open(segment) as is_waited_for,
        ServerProcess(command("-p0", "-b", tmp_path / "log"), tmp_path) as server,
    ):
        give_up = time.monotonic() + LIMIT_S
        while not is_waited_for():
            assert server.process.poll() is None and time.monotonic() < give_up
            time.sleep(0.01)
        server.process.send_signal(signal.SIGINT)
        status, said = server.ended()
    assert status == 130, said
    assert "Traceback" not in said
    assert said.count("stopped while the log was read; nothing was changed\n") == 1
    assert list((tmp_path / "log").glob("*.tql")) == [segment]
    assert segment.read_bytes() == before


# It ends.


def test_sigterm_answers_what_was_begun_and_seals_the_log(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        connection, waiting = server.connect(), server.connect()
        waiting.send(b"watch other\r\nignore default\r\nreserve\r\n")
        assert (waiting.reply(), waiting.reply()) == (b"WATCHING 2\r\n", b"WATCHING 1\r\n")
        assert put(connection, b"kept") == b"INSERTED 1\r\n"
        assert server.terminate() == -signal.SIGTERM
        assert (connection.reply(), waiting.reply()) == (b"", b"")
        connection.close()
        waiting.close()
    assert read_log(tmp_path / "log") == (True, {b"kept"})
    assert newest_segment(tmp_path / "log").read_bytes().endswith(b"TQLEND\r\n")


def test_sigusr1_drains(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        connection = server.connect()
        put(connection)
        server.process.send_signal(signal.SIGUSR1)
        while b"draining: true\n" not in connection.ask(b"stats\r\n"):
            assert server.process.poll() is None
        assert put(connection) == b"DRAINING\r\n"
        assert connection.ask(b"delete 1\r\n") == b"DELETED\r\n"
        connection.close()


def test_a_hang_up_while_a_reserve_waits_is_noticed_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        waiting, connection = server.connect(), server.connect()
        waiting.send(b"list-tube-used\r\nreserve\r\nlist-tubes\r\n")
        waiting.reply()
        assert b"current-waiting: 1\n" in connection.ask(b"stats\r\n")
        waiting.close()
        while b"current-waiting: 0\n" not in connection.ask(b"stats\r\n"):
            assert server.process.poll() is None
        put(connection)
        assert connection.ask(b"peek-ready\r\n") == b"FOUND 1 1\r\nx\r\n"
        connection.close()


def test_all_replies_come_after_a_half_close(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        connection = server.connect()
        connection.send(
            b"put 0 0 60 1\r\nx\r\n" * 500 + b"watch a\r\nignore default\r\nreserve\r\n"
        )
        connection.half_close()
        replies = [connection.reply() for _ in range(504)]
        assert replies[:500] == [b"INSERTED %d\r\n" % number for number in range(1, 501)]
        assert replies[500:] == [b"WATCHING 2\r\n", b"WATCHING 1\r\n", b"TIMED_OUT\r\n", b""]
        connection.close()


# A client in the wild.


def test_greenstalk_takes_a_job_through_its_whole_life(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        address = ("127.0.0.1", server.port())
        with greenstalk.Client(address, use="work", watch=["work"]) as client:
            job_id = client.put("a body", priority=7, delay=0, ttr=30)
            assert client.peek(job_id).body == "a body"
            live_through(client, client.reserve(timeout=5))
            assert client.stats_tube("work")["cmd-delete"] == 1
            assert client.stats()["total-jobs"] == 1
            assert set(client.tubes()) == {"default", "work"}


def live_through(client: greenstalk.Client[str], job: greenstalk.Job[str]) -> None:
    """Release, bury, kick and delete a reserved job."""
    client.touch(job)
    client.release(job, priority=3, delay=1000)
    assert client.stats_job(job)["state"] == "delayed"
    client.kick_job(job)
    job = client.reserve_job(job.id)
    client.bury(job, priority=9)
    assert client.peek_buried().id == job.id
    assert client.kick(10) == 1
    job = client.reserve(timeout=5)
    facts = client.stats_job(job)
    assert [facts[key] for key in ("reserves", "releases", "buries", "kicks")] == [3, 1, 1, 2]
    client.delete(job)
    with pytest.raises(greenstalk.NotFoundError):
        client.peek(job.id)
