"""A write or a sync fails, so the server ends with 74; the next one starts, and the power is lost.

After a failed sync the page cache may show what the disk has not got, and the kernel need not drop
it when it is asked to.  What either server has answered must be there afterwards.
"""

import errno
import os

import pytest

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.storage.fsync import ALWAYS, FsyncPolicy
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory

INTERVAL = FsyncPolicy(10)
OPERATIONS = ["sync", "write", "create", "allocate", "truncate", "rename", "sync directory"]


class KeptCache(MemoryDirectory):
    """A disk of which the kernel drops no page."""

    def forget_cached(self, name: str) -> None:
        """Do not follow the advice."""


class Disk:
    """A disk that fails once, and what the clients of all servers on it were answered."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.failed = False
        self._jobs: dict[int, bytes] = {}
        self._deleted: set[int] = set()

    def fail(self, operation: str, at: int) -> None:
        """Let an operation fail when it is asked for the ``at``-th time."""
        seen = 0

        def fault(asked: str, name: str) -> None:
            nonlocal seen
            seen += asked == operation
            if asked == operation and seen == at:
                self.failed = True
                raise OSError(errno.EIO, os.strerror(errno.EIO), name)

        assert isinstance(self.server.directory, MemoryDirectory)
        self.server.directory.fault = fault

    def work(self) -> None:
        """Put and delete jobs until the server ends, 30 jobs at most."""
        client = self.server.connect()
        for number in range(30):
            body = b"%3d" % number * 100
            reply = client.ask(b"put 1 0 60 300\r\n%s\r\n" % body)
            if not reply:
                return
            job_id = int(reply.removeprefix(b"INSERTED "))
            assert job_id not in self._jobs.keys() | self._deleted
            self._jobs[job_id] = body
            if number % 4 == 3:
                oldest = min(self._jobs)
                # Without an answer it may be there or not.
                del self._jobs[oldest]
                if not client.ask(b"delete %d\r\n" % oldest):
                    return
                self._deleted.add(oldest)

    def check(self) -> None:
        table = self.server.service.queue.state.jobs
        found = {job_id: table.look(job_id) for job_id in table}
        bodies = {job_id: job.loaded_body for job_id, job in found.items() if job is not None}
        assert self._jobs.items() <= bodies.items()
        assert not self._deleted & bodies.keys()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("disk_class", "policy"),
    [(MemoryDirectory, ALWAYS), (KeptCache, ALWAYS), (KeptCache, INTERVAL)],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_answered_is_lost_by_a_failure_a_start_and_a_power_loss(
    operation: str, disk_class: type[MemoryDirectory], policy: FsyncPolicy
) -> None:
    def new() -> Disk:
        return Disk(MemoryServer(directory=disk_class(), fsync=policy, segment_bytes=8192))

    failures = 0
    while fails_and_starts_again(new(), operation, failures + 1):
        failures += 1
    assert failures >= 3, "in the first segment, where it ends, and in the next one"


def fails_and_starts_again(disk: Disk, operation: str, at: int) -> bool:
    """Return False if so many operations were not asked for."""
    server = disk.server
    assert server.directory is not None
    disk.fail(operation, at)
    disk.work()
    if not server.failures:
        server.stop()
        server.advance(0.001)
    if not disk.failed:
        return False
    [failure] = server.failures
    error = failure.value
    assert isinstance(error, WriteFailed) and error.exit_code == 74
    assert str(error).endswith(
        " failed: Input/output error; with --fsync always no reply was given for what is not on "
        f"disk. Mend the disk, run 'binlog-inspect check {server.directory.path}', start again."
    )
    server.failures.clear()
    server.kill_and_restart()
    disk.check()
    disk.work()
    server.advance(11)
    assert not server.failures
    server.kill()
    server.directory = server.directory.after_power_loss()
    server.start()
    disk.check()
    return True
