"""Policies hold for jobs of every size: a job that is to be a dead letter waits for space in the
log, and nobody is given it meanwhile.  A real server, asked through sockets.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.disk import FOR_EVER, FaultyDisk, Rule
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once

MOST = 2
"""What `max-reserves` is."""

JOBS = 4

LARGE = pytest.mark.parametrize(
    ("segment_bytes", "body_bytes"), [(8192, 5000), (65_536, 60_000), (1 << 20, 1_000_000)]
)
"""So large that two of them have no place in one segment."""

CACHE = pytest.mark.parametrize("cache", [(), ("--body-cache", 0)], ids=["cached", "in the log"])


class Queue:
    """A server on a log.

    :ivar taken: how often each job was handed out.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.port = server.port()
        self.client = self.worker()
        self.taken: Counter[int] = Counter()

    def worker(self) -> Connection:
        worker = Connection(self.port)
        for line in (b"use work", b"watch work", b"ignore default"):
            worker.ask(line + b"\r\n")
        return worker

    def ask(self, line: str) -> str:
        return self.client.ask(f"{line}\r\n".encode()).decode().rstrip()

    def put(self, body_bytes: int, ttr_s: int = 60) -> str:
        return self.ask(f"put 0 0 {ttr_s} {body_bytes}\r\n{'x' * body_bytes}")

    def take(self, worker: Connection, wait_s: int = 0) -> int | None:
        reply = worker.ask(b"reserve-with-timeout %d\r\n" % wait_s)
        if not reply.startswith(b"RESERVED "):
            assert reply in (b"TIMED_OUT\r\n", b"DEADLINE_SOON\r\n")
            return None
        job_id = int(reply.split()[1])
        self.taken[job_id] += 1
        assert self.taken[job_id] <= MOST, f"job {job_id}"
        return job_id

    def count(self, tube: str, state: str) -> int:
        found = re.search(f"current-jobs-{state}: (\\d+)", self.ask(f"stats-tube {tube}"))
        return int(found[1]) if found else 0

    def wait_for_dead(self, jobs: int, work: Callable[[], object]) -> None:
        """Let workers work until there are so many dead letters."""
        give_up = time.monotonic() + LIMIT_S
        while self.count("dead", "buried") < jobs:
            assert time.monotonic() < give_up
            work()


def start(folder: Path, *options: object) -> ServerProcess:
    return ServerProcess(ours_at_once("-p0", "-b", folder / "log", *options), folder)


def release(queue: Queue) -> None:
    job_id = queue.take(queue.client)
    if job_id is not None:
        assert queue.ask(f"release {job_id} 0 0") == "RELEASED"


def hold(queue: Queue) -> None:
    queue.take(queue.client, wait_s=1)


def part(queue: Queue) -> None:
    worker = queue.worker()
    queue.take(worker)
    worker.close()


@pytest.mark.one_in(7)
@CACHE
@LARGE
@pytest.mark.parametrize("way", [release, hold, part])
def test_a_large_job_is_handed_out_as_often_as_its_policy_says(
    tmp_path: Path, way: Callable[[Queue], None], segment_bytes: int, body_bytes: int,
    cache: tuple[object, ...],
) -> None:  # fmt: skip
    with start(tmp_path, "-s", segment_bytes, "-z", 1 << 20, *cache) as server:
        queue = Queue(server)
        queue.ask(f"tube-policy work max-reserves={MOST} dead-letter=dead")
        for _ in range(JOBS):
            assert queue.put(body_bytes, ttr_s=1).startswith("INSERTED")
        queue.wait_for_dead(JOBS, lambda: way(queue))
        assert set(queue.taken.values()) == {MOST} and len(queue.taken) == JOBS


@pytest.mark.one_in(7)
@CACHE
@LARGE
def test_a_large_job_that_is_too_old_is_not_handed_out(
    tmp_path: Path, segment_bytes: int, body_bytes: int, cache: tuple[object, ...]
) -> None:
    with start(tmp_path, "-s", segment_bytes, "-z", 1 << 20, *cache) as server:
        queue = Queue(server)
        for _ in range(JOBS):
            assert queue.put(body_bytes).startswith("INSERTED")
        time.sleep(1)
        queue.ask("tube-policy work max-age=1 dead-letter=dead")
        queue.wait_for_dead(JOBS, lambda: queue.take(queue.client))
        assert not queue.taken


# A disk that is full.


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Queue]:
    """A queue with one tube of large jobs, whose log may have no more bytes."""
    with start(tmp_path, "-s", 65_536, "--max-log-bytes", 1_000_000) as server:
        queue = Queue(server)
        queue.ask(f"tube-policy work max-reserves={MOST} dead-letter=dead")
        while (reply := queue.put(60_000, ttr_s=1)) != "OUT_OF_MEMORY":
            assert reply.startswith("INSERTED")
        yield queue


def withhold_all(queue: Queue) -> int:
    """Fail all jobs as often as may be; there is no space for a dead letter."""
    jobs = queue.count("work", "ready")
    give_up = time.monotonic() + LIMIT_S
    while queue.count("work", "delayed") < jobs:
        assert time.monotonic() < give_up
        release(queue)
    assert queue.count("dead", "buried") == 0
    return jobs


def test_on_a_full_disk_a_job_waits_for_space_and_others_are_served(full: Queue) -> None:
    jobs = withhold_all(full)
    assert full.take(full.client) is None
    assert full.put(60_000) == "OUT_OF_MEMORY"
    job = full.ask("stats-job 1")
    assert "state: delayed" in job and "time-left: 0" in job
    for job_id in range(1, jobs // 2 + 1):
        assert full.ask(f"delete {job_id}") == "DELETED"
    full.wait_for_dead(jobs - jobs // 2, lambda: full.take(full.client))
    assert "dead-reason: release" in full.ask(f"stats-job {jobs}")


@pytest.mark.parametrize("ends", [ServerProcess.kill, ServerProcess.terminate])
def test_what_waits_for_space_waits_after_a_restart_too(
    full: Queue, tmp_path: Path, ends: Callable[[ServerProcess], object]
) -> None:
    jobs = withhold_all(full)
    ends(full.server)
    with start(tmp_path, "-s", 65_536) as server:
        after = Queue(server)
        after.taken = full.taken
        after.wait_for_dead(jobs, lambda: after.take(after.client))
        assert "dead-reason: release" in after.ask("stats-job 1")
        assert set(full.taken.values()) == {MOST}


def test_where_nothing_can_be_allocated_a_job_waits_for_space(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with disk.serve("-s", 65_536) as server:
        queue = Queue(server)
        queue.ask(f"tube-policy work max-reserves={MOST} dead-letter=dead")
        for _ in range(JOBS):
            assert queue.put(60_000).startswith("INSERTED")
        disk.obey(Rule("allocate", "fail", 28, times=FOR_EVER))
        for _ in range(MOST * JOBS):
            release(queue)
        assert queue.take(queue.client) is None
        disk.obey()
        queue.wait_for_dead(JOBS, lambda: queue.take(queue.client))


# Commands that state a job again.


@pytest.mark.one_in(2)
@CACHE
def test_a_job_of_any_size_is_moved_and_updated(tmp_path: Path, cache: tuple[object, ...]) -> None:
    with start(tmp_path, "-s", 8192, *cache) as server:
        queue = Queue(server)
        sizes = [3000 + 300 * number for number in range(11)]
        for size in sizes:
            assert queue.put(size).startswith("INSERTED")
        clients = [queue.worker() for _ in range(4)]
        for number in range(160):
            job_id = 1 + number * 7 % len(sizes)
            lines = [
                b"move-job %d t%d\r\n" % (job_id, number % 5),
                b"update-job %d %d 0 60\r\n" % (job_id, number),
                b"update-job %d 1 0 60 %d\r\n%s\r\n" % (job_id, 5000, b"y" * 5000),
            ]
            for client, line in zip(clients, [*lines, lines[0]], strict=True):
                client.send(line)
            replies = {client.reply() for client in clients}
            assert replies <= {b"MOVED\r\n", b"UPDATED\r\n"}
