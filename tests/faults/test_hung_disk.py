"""A sync that neither returns nor fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from beanstalk_twisted.binlog.segments.frames import Frame
from beanstalk_twisted.storage.fsync import LESSONS
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.reading import OpenSegment, segments
from tests.faults.disk import FaultyDisk, Rule
from tests.faults.mounting import run, small_ext4
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once, wait_until
from tests.test_deploy import UNIT, unit

HANGS = Rule("sync", "hang")


def put(connection: Connection, body: bytes) -> None:
    connection.send(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))


def begin_to_hang(server: ServerProcess, hang: Callable[[], None]) -> tuple[Connection, Connection]:
    """Put a safe job, let the disk hang, put another one.

    :return: a connection that waits for a reply, and one that does not.
    """
    waiting, other = server.connect(), server.connect()
    put(waiting, b"safe")
    assert waiting.reply() == b"INSERTED 1\r\n"
    hang()
    put(waiting, b"unknown")
    while b"cmd-put: 2\n" not in other.ask(b"stats\r\n"):
        assert server.process.poll() is None
    return waiting, other


def assert_it_ends(server: ServerProcess, log: Path) -> None:
    status, said = server.ended()
    assert status == 74, said
    assert (
        f"the server ends: the disk hangs: a write or sync in {log} has not ended for 1 s" in said
    )
    assert f"binlog-inspect check {log}" in said


def assert_the_safe_job_is_there(server: ServerProcess) -> None:
    with server:
        connection = server.connect()
        assert connection.ask(b"peek 1\r\n") == b"FOUND 1 4\r\nsafe\r\n"
        connection.close()


def test_a_disk_that_hangs_ends_the_server_with_74_and_no_reply_is_given(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve("--fsync-timeout", 1) as server:
        waiting, other = begin_to_hang(server, lambda: disk.obey(HANGS))
        assert (waiting.reply(), other.reply()) == (b"", b"")
        assert_it_ends(server, disk.log)
        waiting.close()
        other.close()
    disk.obey()
    assert_the_safe_job_is_there(disk.serve())


HOLD_THE_LOCK = """
import fcntl, sys, time
with open(sys.argv[1]) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(30)
"""
"""What a process does that hangs in the kernel, and so keeps the lock though it was killed."""


@pytest.mark.exhaustive
def test_after_a_hang_and_a_lock_held_for_30_s_the_unit_has_the_server_back(tmp_path: Path) -> None:
    service = unit(UNIT)["Service"]
    disk = FaultyDisk(tmp_path)
    with disk.serve("--fsync-timeout", 1) as server:
        waiting, other = begin_to_hang(server, lambda: disk.obey(HANGS))
        assert_it_ends(server, disk.log)
        waiting.close()
        other.close()
    disk.obey()
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(disk.log / "LOCK")]
    statuses = [74]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        while statuses[-1:] in ([74], [10]):
            assert str(statuses[-1]) not in service["RestartPreventExitStatus"].split()
            time.sleep(int(service["RestartSec"]))
            with disk.serve() as server:
                if server.says("listening on"):
                    assert server.connect().ask(b"peek 1\r\n") == b"FOUND 1 4\r\nsafe\r\n"
                    break
                statuses.append(server.ended()[0])
        assert holder.wait(LIMIT_S) == 0
    assert statuses[:2] == [74, 10] and set(statuses[1:]) == {10}


def test_a_disk_that_goes_on_in_time_costs_only_the_wait(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve() as server:
        waiting, other = begin_to_hang(server, lambda: disk.obey(HANGS))
        assert not waiting.is_answered
        disk.obey()
        assert waiting.reply() == b"INSERTED 2\r\n"
        waiting.close()
        other.close()
        assert server.terminate() == -signal.SIGTERM


@pytest.mark.exhaustive
def test_a_stop_while_the_disk_hangs_ends_too(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve("--fsync-timeout", 1) as server:
        waiting, other = begin_to_hang(server, lambda: disk.obey(HANGS))
        server.process.send_signal(signal.SIGTERM)
        assert_it_ends(server, disk.log)
        waiting.close()
        other.close()


@contextmanager
def frozen(mount: Path) -> Iterator[None]:
    """Let all that writes to a file system hang in the kernel."""
    run("fsfreeze", "--freeze", str(mount))
    try:
        yield
    finally:
        run("fsfreeze", "--unfreeze", str(mount))


@pytest.mark.exhaustive
@pytest.mark.parametrize("fsync", [("-f", 0), ("-f", 60_000), ("-F",)])
def test_a_hanging_server_parts_from_its_clients(tmp_path: Path, fsync: tuple[object, ...]) -> None:
    if shutil.which("fsfreeze") is None:
        pytest.skip("fsfreeze is not installed, so no file system can be made to hang")
    with small_ext4(tmp_path / "mount", tmp_path / "image") as mount:
        log = mount / "log"
        command = ours_at_once("-p0", "-b", log, "-s", 65536, "--fsync-timeout", 1, *fsync)
        with ServerProcess(command, tmp_path) as server, ExitStack() as thawed:
            port = server.port()
            waiting, other = server.connect(), server.connect()
            put(waiting, b"safe")
            assert waiting.reply() == b"INSERTED 1\r\n"
            thawed.enter_context(frozen(mount))
            put(waiting, b"unknown")
            assert (waiting.reply(), other.reply()) == (b"", b"")
            with pytest.raises(ConnectionRefusedError):
                Connection(port)
            thawed.close()
            assert_it_ends(server, log)
            waiting.close()
            other.close()
        assert_the_safe_job_is_there(ServerProcess(command, tmp_path))


@contextmanager
def quick_ext4(folder: Path) -> Iterator[Path]:
    """A file system that syncs quickly whatever else the machine's disk does, if it has memory
    for it.
    """
    memory = Path("/dev/shm")
    place = str(memory) if os.access(memory, os.W_OK) else None
    with (
        TemporaryDirectory(dir=place) as other,
        small_ext4(folder / "mount", Path(other) / "image") as mount,
    ):
        yield mount


def ends_with_a_sync_mark(log: Path) -> bool:
    """Whether the log ends with the empty frame that follows what was done last."""
    *_, newest = segments(open_source(str(log)))
    assert isinstance(newest, OpenSegment)
    frames = [piece for piece in newest.pieces() if isinstance(piece, Frame)]
    return bool(frames) and frames[-1].n_rec == 0


def wait_until_stuck(server: ServerProcess) -> None:
    """See its main thread hang in the kernel; one that has ended, or its process, never does."""
    pid = server.process.pid
    state = "R"
    while state in "RS":
        state = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "D"


@pytest.mark.exhaustive
def test_a_lone_clients_sync_that_hangs_ends_the_server(tmp_path: Path) -> None:
    if shutil.which("fsfreeze") is None:
        pytest.skip("fsfreeze is not installed, so no file system can be made to hang")
    with quick_ext4(tmp_path) as mount:
        log = mount / "log"
        command = ours_at_once(
            "-p0", "-b", log, "-s", 65536, "--fsync-timeout", 1, "--fsync-inline", 10_000
        )
        with ServerProcess(command, tmp_path) as server, ExitStack() as thawed:
            waiting, other = server.connect(), server.connect()
            put(waiting, b"safe")
            assert waiting.reply() == b"INSERTED 1\r\n"
            for _ in range(2 * LESSONS):
                assert waiting.ask(b"put 0 0 60 1\r\nx\r\n").startswith(b"INSERTED ")
            # The other thread is not to hang in the sync mark of the idle log, which comes first.
            wait_until(lambda: ends_with_a_sync_mark(log))
            thawed.enter_context(frozen(mount))
            put(waiting, b"unknown")
            wait_until_stuck(server)
            other.send(b"list-tube-used\r\n")
            assert (waiting.reply(), other.reply()) == (b"", b"")
            thawed.close()
            assert_it_ends(server, log)
            waiting.close()
            other.close()
        assert_the_safe_job_is_there(ServerProcess(command, tmp_path))


def test_while_replies_wait_for_a_hung_sync_others_are_answered(tmp_path: Path) -> None:
    if shutil.which("fsfreeze") is None:
        pytest.skip("fsfreeze is not installed, so no file system can be made to hang")
    with small_ext4(tmp_path / "mount", tmp_path / "image") as mount:
        command = ours_at_once(
            "-p0", "-b", mount / "log", "-s", 65536, "--fsync-timeout", 0, "--fsync-inline", 0
        )
        with ServerProcess(command, tmp_path) as server, ExitStack() as thawed:
            waiting, other = begin_to_hang(server, lambda: thawed.enter_context(frozen(mount)))
            assert not waiting.is_answered
            thawed.close()
            assert waiting.reply() == b"INSERTED 2\r\n"
            waiting.close()
            other.close()
