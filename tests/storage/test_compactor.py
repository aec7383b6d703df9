"""The log stays small, whatever the queue is used for, and compaction changes nothing but its
size.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from beanstalk_twisted.binlog.segments.format import parse_segment_name, segment_name
from beanstalk_twisted.rules.statistics import job as job_statistics
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.sampling import one_in

SEGMENT_BYTES = 1 << 16


class Workload:
    """A server under load, whose log is measured at every tenth step.

    :ivar excess: the largest share of the bound that the log has taken since `settle`.
    """

    def __init__(self, fsync: FsyncPolicy = ALWAYS) -> None:
        self.directory = MemoryDirectory()
        self.server = MemoryServer(
            directory=self.directory, fsync=fsync, max_job_bytes=1 << 20,
            segment_bytes=SEGMENT_BYTES,
        )  # fmt: skip
        self.client = self.server.connect()
        self.random = random.Random(5)
        self.excess = 0.0
        self._steps = 0

    def ask(self, request: bytes) -> bytes:
        self.client.send(request)
        self.server.advance(0.001)
        self._steps += 1
        if self._steps % 10 == 0:
            self.excess = max(self.excess, self.share())
        return self.client.take()

    def share(self) -> float:
        """What the log takes, of twice what lives and two segments."""
        live = self.server.service.queue.state.live.live_bytes
        return self.disk_bytes() / (2 * live + 2 * SEGMENT_BYTES)

    def disk_bytes(self) -> int:
        """What is written; space allocated ahead does not count."""
        names = [name for name in self.directory.names() if parse_segment_name(name) is not None]
        content = [bytes(self.directory.read(name)).rstrip(b"\0") for name in names[-1:]]
        return sum(len(self.directory.read(name)) for name in names[:-1]) + len(content[0])

    def put(self, size: int, delay: int = 0) -> int:
        reply = self.ask(b"put 1 %d 600 %d\r\n%s\r\n" % (delay, size, b"x" * size))
        return int(reply.split()[1])

    def reserve(self) -> int:
        return int(self.ask(b"reserve\r\n").split()[1])

    def delete(self, job_id: int) -> None:
        assert self.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"

    def settle(self) -> None:
        self.server.advance(5)


def first_in_first_out(load: Workload) -> None:
    for _ in range(300):
        load.put(200)
    for _ in range(1500):
        load.put(200)
        load.delete(load.reserve())


def old_buried_jobs(load: Workload) -> None:
    for _ in range(600):
        load.put(200)
        load.ask(b"bury %d 1\r\n" % load.reserve())
    for _ in range(1500):
        load.put(200)
        load.delete(load.reserve())


def released_again_and_again(load: Workload) -> None:
    for _ in range(200):
        load.put(200)
    for _ in range(4000):
        load.ask(b"release %d 1 0\r\n" % load.reserve())


def random_lifetimes(load: Workload) -> None:
    ids: list[int] = []
    for _ in range(3000):
        ids.append(load.put(load.random.choice([10, 200, 1000])))
        if len(ids) > 400:
            load.delete(ids.pop(load.random.randrange(len(ids))))


def long_delays(load: Workload) -> None:
    for _ in range(600):
        load.put(100, delay=100_000)
    for _ in range(1500):
        load.put(100)
        load.delete(load.reserve())


def only_puts(load: Workload) -> None:
    for _ in range(2000):
        load.put(20)


def small_and_large_bodies(load: Workload) -> None:
    ids: list[int] = []
    for _ in range(300):
        ids.append(load.put(load.random.choice([10, 100, 100, 1 << 19])))
        if len(ids) > 20:
            load.delete(ids.pop(load.random.randrange(len(ids))))


class Case(NamedTuple):
    """:ivar copies: copies for each other record at most: what compaction costs.
    :ivar excess: share of the bound at any time at most; a batch of large bodies overshoots.
    """

    run: Callable[[Workload], None]
    copies: float
    excess: float


CASES = [
    Case(first_in_first_out, 0.5, 1.5),
    Case(old_buried_jobs, 0.7, 1.5),
    Case(released_again_and_again, 0.5, 1.5),
    Case(random_lifetimes, 0.5, 1.5),
    Case(long_delays, 0.7, 1.5),
    Case(only_puts, 0.0, 1.0),
    Case(small_and_large_bodies, 0.5, 100.0),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", one_in(3, CASES), ids=lambda case: case.run.__name__)
def test_the_log_is_bounded_by_what_lives_and_its_jobs_stay_as_they_are(case: Case) -> None:
    load = Workload()
    case.run(load)
    queue = load.server.service.queue
    written = load.server.service.process.log.written()
    assert queue.tally.copies <= case.copies * (written - queue.tally.copies)
    assert load.excess <= case.excess
    load.settle()
    assert load.share() <= 1.1
    before = statistics_of(load)
    load.server.kill_and_restart()
    load.server.advance()
    assert statistics_of(load) == before
    assert before


def statistics_of(load: Workload) -> list[object]:
    """Every job's `stats-job`, but for what a restart changes: who has it, and how old it is."""
    state = load.server.service.queue.state
    seen: list[object] = []
    for job_id in state.jobs:
        job = state.jobs.look(job_id)
        assert job is not None
        pairs = dict(job_statistics(job, state.tubes.by_id(job.tube_id), 0))
        for volatile in ("age", "file", "time-left"):
            del pairs[volatile]
        seen.append((pairs, job.body))
    return seen


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fsync", [ALWAYS, FsyncPolicy(0.05), NEVER])
def test_a_dead_segment_is_deleted_only_when_that_is_durable(fsync: FsyncPolicy) -> None:
    load = Workload(fsync)
    for _ in range(600):
        load.delete(load.put(100))
    load.settle()
    assert segment_name(1) not in load.directory.names()
    # A power loss that forgets all that was not synced still finds a sound log.
    load.server.directory = load.directory.after_power_loss()
    load.server.start()


@pytest.mark.exhaustive
def test_many_small_segments_are_compacted_though_they_are_few_bytes() -> None:
    """Each start leaves one."""
    load = Workload()
    load.put(100)
    for _ in range(120):
        load.server.kill_and_restart()
    client = load.server.connect()
    client.ask(b"put 1 0 60 1\r\nx\r\n")
    load.server.advance(5)
    assert load.server.directory is not None
    assert len(load.server.directory.names()) <= 103
    assert client.ask(b"peek 1\r\n").startswith(b"FOUND 1 100\r\n")


@pytest.mark.exhaustive
def test_a_damaged_segment_is_kept_and_ends_compaction() -> None:
    load = Workload()
    for _ in range(300):
        load.put(200)
    name = segment_name(1)
    spoilt = bytearray(load.directory.read(name))
    spoilt[5000] ^= 1
    load.directory.replace(name, bytes(spoilt))
    for _ in range(3000):
        load.delete(load.put(100))
    load.settle()
    assert name in load.directory.names()
    assert load.ask(b"peek 1\r\n").startswith(b"FOUND 1 200\r\n")


def test_on_a_full_disk_nothing_is_copied_that_has_no_room_and_deletions_go_on() -> None:
    load = Workload()
    load.directory.space = 24 * SEGMENT_BYTES
    ids = [load.put(30_000)]
    request = b"put 1 0 600 30000\r\n%s\r\n" % bytes(30_000)
    while (reply := load.ask(request)) != b"OUT_OF_MEMORY\r\n":
        ids.append(int(reply.split()[1]))
    assert len(ids) > 10
    load.directory.space = 0  # Somebody else takes what compaction frees.
    for job_id in [*ids[::2], *ids[1::2]]:
        load.delete(job_id)
        load.server.advance(1)
    assert not load.server.failures
    while (reply := load.ask(request)) != b"OUT_OF_MEMORY\r\n":
        ids.append(int(reply.split()[1]))
    assert len(ids) < 50, "no more than what was set apart goes in"
    load.directory.space = None
    load.settle()
    assert load.put(30_000)
    assert load.share() <= 1.1
