"""A log that is no longer where it should be is noticed within a second, and nothing is
promised then.
"""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.binlog.directory import DELETED, File
from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.storage.store import CHECK_S
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo

EACH_POLICY = pytest.mark.parametrize("fsync", [ALWAYS, FsyncPolicy(0.02), NEVER])


def server_on(directory: MemoryDirectory, fsync: FsyncPolicy = ALWAYS) -> MemoryServer:
    return MemoryServer(directory=directory, fsync=fsync)


def error_of(server: MemoryServer) -> WriteFailed:
    """Give the reason for which its process would have ended."""
    (failure,) = server.failures
    assert isinstance(failure.value, WriteFailed)
    return failure.value


@EACH_POLICY
def test_an_idle_server_notices_within_a_second_that_its_directory_is_away(
    fsync: FsyncPolicy,
) -> None:
    directory = MemoryDirectory()
    server = server_on(directory, fsync)
    server.advance(10 * CHECK_S)
    assert server.failures == []
    directory.is_away = True
    server.advance(CHECK_S)
    error = error_of(server)
    assert error.exit_code == 74
    where = f"{segment_name(1)} is now (elsewhere)/{segment_name(1)}"
    assert f"the binlog is not at (memory) any more: {where}" in str(error)
    assert "binlog-inspect check (memory)" in str(error)


def test_it_is_told_when_all_was_in_place_and_up_to_which_lsn() -> None:
    directory = MemoryDirectory()
    server = server_on(directory)
    client = server.connect()
    assert client.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
    server.advance(3 * CHECK_S)
    before = server.service._store.committer.acknowledgeable_lsn if server.service._store else 0
    client.ask(b"put 0 0 60 1\r\ny\r\n")
    directory.is_away = True
    server.advance(CHECK_S)
    assert f"(LSN {before}); what was acknowledged since" in str(error_of(server))


@EACH_POLICY
def test_nothing_is_acknowledged_after_it_was_noticed(fsync: FsyncPolicy) -> None:
    directory = MemoryDirectory()
    server = server_on(directory, fsync)
    client = server.connect()
    assert client.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
    directory.is_away = True
    server.advance(CHECK_S)
    client.send(b"put 0 0 60 1\r\ny\r\n")
    server.advance(10 * CHECK_S)
    assert client.take() == b""
    assert len(server.failures) == 1


def test_no_reply_goes_whose_batch_was_behind_the_check_that_noticed_it() -> None:
    directory = MemoryDirectory()
    disk = HeldIo()
    server = MemoryServer(directory=directory, io=lambda: disk)
    while disk:
        disk.step()
    client = server.connect()
    server.advance(CHECK_S)
    client.send(b"put 0 0 60 1\r\nx\r\n")
    server.advance()
    directory.is_away = True
    assert len(disk) == 2
    disk.step()
    assert len(server.failures) == 1
    disk.step()
    server.advance()
    assert client.take() == b""


def test_a_segment_that_was_deleted_is_noticed_too() -> None:
    directory = MemoryDirectory()
    server = server_on(directory)
    directory.remove(segment_name(1))
    server.advance(CHECK_S)
    assert f"{segment_name(1)} {DELETED}" in str(error_of(server))


def test_a_log_that_goes_from_segment_to_segment_is_in_place() -> None:
    directory = MemoryDirectory()
    server = server_on(directory)
    client = server.connect()
    for number in range(40):
        reply = client.ask(b"put 0 0 60 9000\r\n" + b"x" * 9000 + b"\r\n")
        assert reply == b"INSERTED %d\r\n" % (number + 1)
        server.advance(CHECK_S / 2)
    assert segment_name(1) != max(directory.names())
    assert server.failures == []


def test_a_check_that_takes_long_holds_up_no_further_ones_and_does_not_count_as_a_slow_disk() -> (
    None
):
    disk = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: disk)
    while disk:
        disk.step()
    with capturedLogs() as events:
        server.advance(1000 * CHECK_S)
    assert (len(disk), server.failures, list(events)) == (1, [], [])


def test_after_an_ordered_stop_nothing_is_checked() -> None:
    directory = MemoryDirectory()
    server = server_on(directory)
    stopped = server.stop()
    server.advance()
    assert stopped.called
    directory.is_away = True
    server.advance(10 * CHECK_S)
    assert server.failures == [] and server.clock.getDelayedCalls() == []


class Restless(MemoryDirectory):
    """A file system that gives a file another number at each look."""

    def displaced(self, name: str, file: File) -> str:
        return "is no longer there"


def test_a_file_system_without_lasting_inodes_is_said_once_and_served_on() -> None:
    with capturedLogs() as events:
        server = server_on(Restless())
        server.advance(10 * CHECK_S)
    said = [str(formatEvent(event)) for event in events]
    (told,) = [each for each in said if "cannot be noticed" in each]
    assert told.startswith(f"binlog (memory): {segment_name(1)} is no longer there, its file sys")
    assert server.failures == []
    assert server.connect().ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
