"""After a failed write or sync, all that was not on disk moves to another segment, once."""

import errno
import os
from collections.abc import Callable
from typing import cast

import pytest
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher

from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory

Fault = Callable[[str, str], None]


def fails(at: int, operations: tuple[str, ...], times: int = 1) -> Fault:
    """EIO for the ``at``-th of these operations and the next ``times - 1``."""
    seen = 0

    def fault(operation: str, name: str) -> None:
        nonlocal seen
        if operation in operations:
            seen += 1
            if at <= seen < at + times:
                raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    return fault


def conversation(server: MemoryServer) -> dict[int, bytes]:
    """
    Some work on some tubes; each command in a turn of its own.

    :return: the bodies of the jobs that are left, by id, as acknowledged.
    """
    client = server.connect()
    left: dict[int, bytes] = {}
    for number in range(60):
        client.send(b"use t%d\r\n" % (number % 3))
        body = b"%d" % number * 40
        client.send(b"put 1 0 60 %d\r\n%s\r\n" % (len(body), body))
        server.advance(0.001)
        reply = client.take().splitlines()[-1]
        assert reply.startswith(b"INSERTED "), reply
        left[int(reply.split()[1])] = body
        if number % 4 == 3:
            victim = min(left)
            assert client.ask(b"delete %d\r\n" % victim) == b"DELETED\r\n"
            del left[victim]
    return left


def loaded(server: MemoryServer) -> dict[int, bytes]:
    jobs = server.service.queue.state.jobs
    found = {job_id: jobs.look(job_id) for job_id in jobs}
    return {job_id: job.loaded_body for job_id, job in found.items() if job is not None}


def server_that(fault: Fault, fsync: FsyncPolicy = ALWAYS) -> tuple[MemoryServer, MemoryDirectory]:
    directory = MemoryDirectory()
    server = MemoryServer(directory=directory, fsync=fsync, segment_bytes=8192)
    directory.fault = fault
    return server, directory


@pytest.mark.one_in(5)
@pytest.mark.parametrize("at", [1, 2, 5, 17, 40, 64])
@pytest.mark.parametrize("operation", ["write", "sync", "create", "allocate", "truncate"])
def test_one_failure_loses_nothing_and_every_reply_comes(operation: str, at: int) -> None:
    server, directory = server_that(fails(at, (operation,)))
    left = conversation(server)
    assert not server.failures
    assert loaded(server) == left
    server.directory = directory.after_power_loss()
    server.start()
    assert loaded(server) == left


def said_when(server: MemoryServer) -> list[str]:
    """Put a job, and gather what the log of the server says meanwhile."""
    said: list[str] = []

    def note(event: LogEvent) -> None:
        said.append(formatEvent(event))

    observer = cast(ILogObserver, note)
    globalLogPublisher.addObserver(observer)
    try:
        server.connect().send(b"put 1 0 60 1\r\nx\r\n")
        server.advance(1)
    finally:
        globalLogPublisher.removeObserver(observer)
    return [line for line in said if "failed" in line]


def test_who_goes_on_after_an_error_is_not_told_to_start_again() -> None:
    server, _ = server_that(fails(1, ("sync",)))
    assert said_when(server) == [
        "writing (memory)/00000000000000000001.tql failed: Input/output error; with --fsync always "
        "no reply was given for what is not on disk. Going on in segment 2 with all that was not "
        "on disk; if that fails too, the server ends. Look at the disk and the kernel's log."
    ]


def test_who_ends_because_of_an_error_is_told_to_start_again() -> None:
    server, directory = server_that(fails(1, ("rename", "sync directory")))
    while not server.failures:
        said_when(server)
    (failure,) = server.failures
    assert str(failure.value).endswith(
        "with --fsync always no reply was given for what is not on disk. "
        f"Mend the disk, run 'binlog-inspect check {directory.path}', start again."
    )


@pytest.mark.parametrize("operation", ["write", "sync", "truncate"])
def test_an_ordered_stop_survives_one_failure_too(operation: str) -> None:
    server, directory = server_that(lambda operation, name: None)
    left = conversation(server)
    directory.fault = fails(1, (operation,))
    stopped = server.stop()
    server.advance()
    assert stopped.called and not server.failures
    server.directory = directory.after_power_loss()
    server.start()
    assert loaded(server) == left


@pytest.mark.parametrize("at", [1, 2, 5, 17])
@pytest.mark.parametrize("operation", ["rename", "sync directory"])
def test_a_failure_of_the_directory_itself_ends_the_server(operation: str, at: int) -> None:
    server, _ = server_that(fails(at, (operation,)))
    with pytest.raises((AssertionError, IndexError)):
        for _ in range(10):
            conversation(server)
    assert len(server.failures) == 1


def test_when_the_next_segment_fails_too_no_reply_comes() -> None:
    server, directory = server_that(fails(5, ("sync",), times=2))
    with pytest.raises((AssertionError, IndexError)):
        conversation(server)
    assert len(server.failures) == 1
    server.directory = directory.after_power_loss()
    server.start()
    assert len(loaded(server)) == 4


def test_without_syncs_there_is_nothing_to_rehome_and_the_server_ends() -> None:
    server, _ = server_that(fails(5, ("write",)), NEVER)
    with pytest.raises((AssertionError, IndexError)):
        conversation(server)
    assert len(server.failures) == 1


def test_with_an_interval_what_was_written_since_the_last_sync_moves_along() -> None:
    server, directory = server_that(fails(1, ("sync",)), FsyncPolicy(10))
    client = server.connect()
    for _ in range(20):
        assert client.ask(b"put 1 0 60 1\r\nx\r\n").startswith(b"INSERTED")
    server.advance(11)
    assert not server.failures
    server.directory = directory.after_power_loss()
    server.start()
    assert len(loaded(server)) == 20


def test_a_rehomed_log_is_compacted_like_any_other() -> None:
    server, directory = server_that(fails(30, ("sync",)))
    left = conversation(server)
    client = server.connect()
    for _ in range(600):
        reply = client.ask(b"put 1 0 60 9\r\ntransient\r\n")
        client.ask(b"delete %d\r\n" % int(reply.split()[1]))
    server.advance(5)
    assert not server.failures
    assert len([name for name in directory.names() if name.endswith(".tql")]) < 8
    server.kill_and_restart()
    assert loaded(server) == left
