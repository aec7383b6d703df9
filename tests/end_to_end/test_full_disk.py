"""A disk that is full: new jobs are refused, and all else goes on until there is space again."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.disk import FOR_EVER, FaultyDisk, Rule
from tests.faults.mounting import small_tmpfs
from tests.journal import ask_all, values
from tests.sampling import one_in
from tests.server_process import Connection, ServerProcess, ours_at_once, wait_until

SEGMENT_BYTES = 65_536

REFUSED = b"OUT_OF_MEMORY\r\n"


class Shortage:
    """A way in which a disk may be full; this one is that no more space can be allocated.

    :ivar error: what the system calls it.
    """

    error = errno.ENOSPC

    def __init__(self, tmp_path: Path) -> None:
        self.log = tmp_path / "log"
        self._folder = tmp_path
        self._disk = FaultyDisk(tmp_path)

    def serve(self) -> ServerProcess:
        return self._disk.serve("-s", SEGMENT_BYTES)

    def begin(self, server: ServerProcess) -> None:
        self._disk.obey(Rule("allocate", "fail", self.error, times=FOR_EVER))

    def end(self, server: ServerProcess) -> None:
        self._disk.obey()


class QuotaUsedUp(Shortage):
    error = errno.EDQUOT


class OnTheRealDisk(Shortage):
    def serve(self) -> ServerProcess:
        command = ours_at_once("-p0", "-b", self.log, "-s", SEGMENT_BYTES)
        return ServerProcess(command, self._folder)


class FilesMayNotGrow(OnTheRealDisk):
    """A limit of the size of files (``ulimit -f``) that is smaller than a segment."""

    error = errno.EFBIG

    def begin(self, server: ServerProcess) -> None:
        """The segment that is allocated ahead is there by now; it may be used up to the limit."""
        wait_until(lambda: list(self.log.glob("spare.*.tmp")))
        self._limit(server, SEGMENT_BYTES * 3 // 4)

    def end(self, server: ServerProcess) -> None:
        self._limit(server, resource.RLIM_INFINITY)

    @staticmethod
    def _limit(server: ServerProcess, size: int) -> None:
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


class SmallFileSystem(OnTheRealDisk):
    """A file system that somebody else has filled."""

    def __init__(self, mount: Path, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.log = mount / "log"
        self._ballast = mount / "ballast"

    def begin(self, server: ServerProcess) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            for size in (65_536, 4096, 1):
                fill(file.write, bytes(size))

    def end(self, server: ServerProcess) -> None:
        self._ballast.unlink()


def fill(write: Callable[[bytes], int | None], chunk: bytes) -> None:
    try:
        while write(chunk) == len(chunk):
            pass
    except OSError as problem:
        assert problem.errno == errno.ENOSPC


KINDS = {
    "nothing can be allocated": Shortage, "quota used up": QuotaUsedUp,
    "files may not grow": FilesMayNotGrow,
}  # fmt: skip


@contextmanager
def shortage_of(kind: str, tmp_path: Path) -> Iterator[Shortage]:
    if kind in KINDS:
        yield KINDS[kind](tmp_path)
    else:
        with small_tmpfs(tmp_path / "mount", "4m") as mount:
            yield SmallFileSystem(mount, tmp_path)


def put(connection: Connection, size: int = 500, delay_s: int = 0) -> bytes:
    return connection.ask(b"put 5 %d 600 %d\r\n%s\r\n" % (delay_s, size, b"x" * size))


def put_until_refused(connection: Connection, size: int = 500) -> list[int]:
    """Put jobs until one is refused as it should be.

    :return: the ids of those before it.
    """
    ids: list[int] = []
    while (reply := put(connection, size)).startswith(b"INSERTED "):
        ids.append(int(reply.split()[1]))
        assert len(ids) * (80 + size) < 8 << 20, "nothing was refused"
    assert reply == REFUSED
    return ids


def state_of(connection: Connection, job_id: int) -> str:
    return values(connection.ask(b"stats-job %d\r\n" % job_id)).get("state", "gone")


def count_jobs(connection: Connection) -> int:
    stats = values(connection.ask(b"stats\r\n"))
    states = ("ready", "reserved", "delayed", "buried")
    return sum(int(stats[f"current-jobs-{state}"]) for state in states)


RESERVED = ("release", "release later", "bury", "touch")
OPERATIONS = {
    "reserve": (b"reserve-job %d\r\n", b"RESERVED ", "reserved"),
    "release": (b"release %d 6 0\r\n", b"RELEASED\r\n", "ready"),
    "release later": (b"release %d 6 1000\r\n", b"RELEASED\r\n", "delayed"),
    "bury": (b"bury %d 6\r\n", b"BURIED\r\n", "buried"),
    "touch": (b"touch %d\r\n", b"TOUCHED\r\n", "reserved"),
    "kick a buried one": (b"kick-job %d\r\n", b"KICKED\r\n", "ready"),
    "kick a delayed one": (b"kick-job %d\r\n", b"KICKED\r\n", "ready"),
    "delete": (b"delete %d\r\n", b"DELETED\r\n", "gone"),
}
"""Each with its command, the begin of its reply, and what its job is then."""


def prepare(connection: Connection) -> dict[str, int]:
    """Put one job for each operation, and bring it where it has to be before."""
    jobs = {}
    for name in OPERATIONS:
        reply = put(connection, delay_s=1000 if name == "kick a delayed one" else 0)
        job_id = jobs[name] = int(reply.split()[1])
        if name in RESERVED or name == "kick a buried one":
            assert connection.ask(b"reserve-job %d\r\n" % job_id).startswith(b"RESERVED ")
        if name == "kick a buried one":
            assert connection.ask(b"bury %d 5\r\n" % job_id) == b"BURIED\r\n"
    return jobs


def carry_out(connection: Connection, jobs: dict[str, int]) -> None:
    for name, (command, reply, state) in OPERATIONS.items():
        assert connection.ask(command % jobs[name]).startswith(reply), name
        assert state_of(connection, jobs[name]) == state, name


@pytest.mark.parametrize("kind", one_in(4, [*KINDS, "small file system"]))
def test_on_a_full_disk_puts_are_refused_and_all_else_goes_on(kind: str, tmp_path: Path) -> None:
    with shortage_of(kind, tmp_path) as shortage:
        with shortage.serve() as server:
            connection, other = server.connect(), server.connect()
            jobs = prepare(connection)
            shortage.begin(server)
            more = put_until_refused(connection)
            server.wait_for(os.strerror(shortage.error))
            # Its body was read, a second client is served, and soon small jobs are refused as well.
            assert connection.ask(b"list-tube-used\r\n") == b"USING default\r\n"
            more += put_until_refused(other, size=0)
            expected = len(jobs) + len(more)
            assert count_jobs(connection) == expected, "a refused put has left a job"
            carry_out(connection, jobs)
            assert put(connection) == REFUSED
            assert count_jobs(connection) == expected - 1
            shortage.end(server)
            wait_until(lambda: put(connection).startswith(b"INSERTED "))
            still_there = [*more, *(job_id for name, job_id in jobs.items() if name != "delete")]
            assert_deletable(connection, still_there)
            assert count_jobs(connection) == 1
            connection.close()
            other.close()
            server.process.kill()
        with shortage.serve() as server:
            connection = server.connect()
            assert count_jobs(connection) == 1


def assert_deletable(connection: Connection, ids: list[int]) -> None:
    replies = ask_all(connection, [b"delete %d\r\n" % job_id for job_id in ids])
    assert set(replies) == {b"DELETED\r\n"}


@pytest.mark.exhaustive
def test_a_queue_that_filled_its_disk_takes_jobs_again_when_emptied(tmp_path: Path) -> None:
    with (
        small_tmpfs(tmp_path / "mount", "4m") as mount,
        SmallFileSystem(mount, tmp_path).serve() as server,
    ):
        connection = server.connect()
        for _ in range(2):
            fill_and_empty(connection)


def fill_and_empty(connection: Connection) -> None:
    """Put jobs until half of the disk is full of them, as soon as it is given free, then delete
    them.
    """
    ids: list[int] = []

    def is_full() -> bool:
        ids.extend(put_until_refused(connection, size=10_000))
        return len(ids) * 10_000 > 2 << 20

    wait_until(is_full)
    assert_deletable(connection, ids)


@pytest.mark.exhaustive
def test_a_server_that_is_killed_on_a_full_disk_starts_on_the_full_disk(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "mount", "4m") as mount:
        shortage = SmallFileSystem(mount, tmp_path)
        with shortage.serve() as server:
            connection = server.connect()
            jobs = prepare(connection)
            shortage.begin(server)
            more = put_until_refused(connection)
            carry_out(connection, jobs)
            server.process.kill()
        with shortage.serve() as server:
            connection = server.connect()
            assert count_jobs(connection) == len(jobs) - 1 + len(more)
            assert state_of(connection, jobs["delete"]) == "gone"
            assert state_of(connection, jobs["bury"]) == "buried"
            assert_deletable(connection, more[:10])
            shortage.end(server)
            wait_until(lambda: put(connection).startswith(b"INSERTED "))
            assert_deletable(connection, more[10:])
