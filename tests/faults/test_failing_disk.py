"""One read, write, sync, rename or sync of the directory fails under a real server."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.files import MAX_READ_TRIES
from tests.faults.disk import FOR_EVER, Call, FaultyDisk, Rule
from tests.journal import Crowd
from tests.server_process import Connection, ServerProcess

SEGMENT_BYTES = 16_384

ONCE = {
    "a write fails": [Rule("write", "fail", errno.EIO)],
    "a write is cut short and then fails": [
        Rule("write", "short", 100),
        Rule("write", "fail", errno.EIO, first=2),
    ],
    "a sync fails": [Rule("sync", "fail", errno.EIO)],
    "a finished segment cannot be cut": [Rule("truncate", "fail", errno.EIO)],
    "a segment cannot get its name": [Rule("rename", "fail", errno.EIO)],
    "the directory cannot be synced": [Rule("syncdir", "fail", errno.EIO)],
}
EACH_FAULT = pytest.mark.parametrize("rules", ONCE.values(), ids=ONCE)


def put(connection: Connection, body: bytes) -> bytes:
    return connection.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))


def touched_after_a_failure(calls: list[Call]) -> list[Call]:
    """Find the calls on an open file after one on it has failed; nothing proves what is in it
    then.
    """
    failed: set[int] = set()
    found = []
    for call in calls:
        if call.serial in failed:
            found.append(call)
        if call.serial and call.result < 0 and call.call in ("write", "sync", "truncate"):
            failed.add(call.serial)
    return found


def check_on_a_sound_disk(disk: FaultyDisk, crowd: Crowd) -> None:
    disk.obey()
    with disk.serve() as server:
        crowd.check_after_restart(server)


@pytest.mark.exhaustive
def test_a_write_without_space_is_done_again(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve("-s", SEGMENT_BYTES) as server:
        connection = server.connect()
        disk.obey(Rule("write", "fail", errno.ENOSPC))
        assert put(connection, b"patient") == b"INSERTED 1\r\n"
        server.wait_for("no space for the newest changes, which wait: No space left on device")
        server.wait_for("there is space again")
        assert put(connection, b"next") == b"INSERTED 2\r\n"
    disk.obey()
    with disk.serve() as server:
        assert server.connect().ask(b"peek 1\r\n").startswith(b"FOUND 1 7\r\n")


AGAIN = {"EAGAIN": errno.EAGAIN, "EINTR": errno.EINTR}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("error", AGAIN.values(), ids=AGAIN)
def test_a_call_that_is_to_be_made_again_is_made_again(error: int, tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    calls = ("write", "sync", "allocate", "open", "truncate", "rename", "syncdir", "unlink")
    body = b"x" * 4_000
    with disk.serve("-s", SEGMENT_BYTES) as server:
        connection = server.connect()
        assert put(connection, b"first") == b"INSERTED 1\r\n"
        disk.obey(*[Rule(call, "fail", error, times=3) for call in calls])
        for job_id in range(2, 20):
            assert put(connection, body) == b"INSERTED %d\r\n" % job_id
            assert connection.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
    failed = {call.call for call in disk.calls() if call.error == error}
    assert failed >= {"write", "sync", "allocate", "open", "rename", "syncdir"}
    disk.obey()
    with disk.serve() as server:
        assert server.connect().ask(b"peek 1\r\n") == b"FOUND 1 5\r\nfirst\r\n"


def test_a_read_is_made_again(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve("--body-cache", 0) as server:
        client = server.connect()
        assert put(client, b"first") == b"INSERTED 1\r\n"
        disk.obey(Rule("read", "fail", errno.EAGAIN, times=MAX_READ_TRIES - 1))
        assert client.ask(b"peek 1\r\n") == b"FOUND 1 5\r\nfirst\r\n"
        server.terminate()
        assert "body-read-failed" not in server.ended()[1]


def test_a_write_that_is_never_done_ends_the_server(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve("--fsync-timeout", 1) as server:
        connection = server.connect()
        assert put(connection, b"safe") == b"INSERTED 1\r\n"
        disk.obey(Rule("write", "fail", errno.EAGAIN, times=FOR_EVER))
        assert put(connection, b"lost?") == b""
        status, said = server.ended()
    assert (status, "the disk hangs" in said) == (74, True), said
    disk.obey()
    with disk.serve() as server:
        assert server.connect().ask(b"peek 1\r\n") == b"FOUND 1 4\r\nsafe\r\n"


@pytest.mark.exhaustive
@EACH_FAULT
def test_the_server_ends_with_74_at_the_first_error(rules: list[Rule], tmp_path: Path) -> None:
    disk, crowd = FaultyDisk(tmp_path), Crowd()
    with disk.serve("-s", SEGMENT_BYTES) as server:
        crowd.work(server)
        crowd.wait_for(50)
        disk.obey(*rules)
        assert_it_ends(disk, server, rules[-1].number)
        crowd.join()
    assert [call.result for call in disk.calls() if call.error == errno.EIO] == [-1]
    assert touched_after_a_failure(disk.calls()) == []
    check_on_a_sound_disk(disk, crowd)


def assert_it_ends(disk: FaultyDisk, server: ServerProcess, error: int) -> None:
    status, said = server.ended()
    assert status == 74, said
    assert f"the server ends: writing {disk.log}/" in said
    assert f" failed: {os.strerror(error)}; with --fsync always no reply was given" in said
    assert f"binlog-inspect check {disk.log}" in said
    assert "Traceback" not in said


@pytest.mark.one_in(2)
@pytest.mark.parametrize("call", ["write", "sync"])
def test_no_reply_is_given_without_write_and_sync(call: str, tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve() as server:
        connection, other = server.connect(), server.connect()
        assert put(connection, b"safe") == b"INSERTED 1\r\n"
        disk.obey(Rule(call, "fail", errno.EIO))
        assert put(connection, b"lost?") == b""
        assert other.reply() == b""
        assert_it_ends(disk, server, errno.EIO)
        connection.close()
        other.close()
    assert [each.result for each in disk.calls() if each.error == errno.EIO] == [-1]
    assert touched_after_a_failure(disk.calls()) == []
    disk.obey()
    with disk.serve() as server:
        connection = server.connect()
        assert connection.ask(b"peek 1\r\n") == b"FOUND 1 4\r\nsafe\r\n"
        connection.close()


@pytest.mark.exhaustive
def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_all_of_them(tmp_path: Path) -> None:
    disk, crowd = FaultyDisk(tmp_path), Crowd()
    with disk.serve() as server:
        crowd.work(server)
        disk.obey(Rule("write", "short", 100, times=FOR_EVER))
        crowd.wait_for(100)
        disk.obey()
        crowd.stop()
    assert sum(call.result == 100 for call in disk.calls()) > 100
    check_on_a_sound_disk(disk, crowd)


def test_a_read_that_ends_before_a_bad_page_is_tried_again(tmp_path: Path) -> None:
    """The kernel gives what stands before the page, and says that it is bad when it is asked
    again.
    """
    disk = FaultyDisk(tmp_path)
    bodies = [bytes([65 + at]) * 20_000 for at in range(5)]
    with disk.serve("--body-cache", 0) as server:
        client = server.connect()
        for body in bodies:
            assert put(client, body).startswith(b"INSERTED ")
        for at, (bad, body) in enumerate(zip((0, 2, 3, 5, 8), bodies, strict=True), start=1):
            short = Rule("read", "short", 3000, times=FOR_EVER)
            disk.obey(Rule("read", "fail", errno.EIO, first=bad, times=1 if bad else 0), short)
            assert client.ask(b"peek %d\r\n" % at) == b"FOUND %d 20000\r\n%b\r\n" % (at, body)
        server.terminate()
        assert "body-lost" not in server.ended()[1]
    reads = [call.result for call in disk.calls() if call.call == "read"]
    assert (reads.count(-1), reads.count(3000) > 20) == (4, True)


@pytest.mark.exhaustive
def test_on_a_slow_disk_many_clients_share_a_sync(tmp_path: Path) -> None:
    disk, crowd = FaultyDisk(tmp_path), Crowd(clients=8)
    with disk.serve() as server:
        server.wait_for("begun")
        disk.obey(Rule("sync", "delay", 30, times=FOR_EVER))
        before = len(disk.calls())
        crowd.work(server)
        crowd.wait_for(120)
        server.process.kill()
        crowd.join()
    syncs = sum(call.call == "sync" for call in disk.calls()[before:])
    assert 3 <= syncs <= crowd.acknowledged / 3
    check_on_a_sound_disk(disk, crowd)


@pytest.mark.exhaustive
def test_an_error_while_it_starts_is_73_and_the_next_start_has_everything(tmp_path: Path) -> None:
    disk, crowd = FaultyDisk(tmp_path), Crowd()
    with disk.serve("-s", SEGMENT_BYTES) as server:
        crowd.work(server)
        crowd.wait_for(100)
        server.process.kill()
        crowd.join()
    for call in ("open", "write", "sync", "rename", "syncdir"):
        # The files of the lock come first, and are not the log.
        disk.obey(Rule(call, "fail", errno.EIO, first=3 if call in ("open", "write") else 1))
        with disk.serve() as server:
            status, said = server.ended()
        assert (status, "cannot be used: Input/output error" in said) == (73, True), said
        assert "Traceback" not in said
    check_on_a_sound_disk(disk, crowd)
