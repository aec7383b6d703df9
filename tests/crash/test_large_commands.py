"""Commands for many jobs, ended by a kill or a power loss at every moment: a batch that is deleted
is gone as a whole, or there as a whole; of `flush-tube` and `kick-dead`, the first jobs are done,
and the others as they were.  What was told is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES
from beanstalk_twisted.rules.batches import BATCH_SLICE_JOBS
from beanstalk_twisted.rules.bulk import DEAD_SLICE_JOBS
from beanstalk_twisted.rules.put_batches import SOON_JOBS
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo

SMALL = 5
BODY = b"body" * 20
TICK_S = 0.001


class Held:
    """A server whose disk does one thing after the other."""

    def __init__(self) -> None:
        self.io = HeldIo()
        self.directory = MemoryDirectory()
        self.server = MemoryServer(
            directory=self.directory, io=lambda: self.io, segment_bytes=MIN_SEGMENT_BYTES
        )
        self.client = self.server.connect()

    def steps(self) -> Iterator[None]:
        """All that the disk is to do, and each turn of the server."""
        idle = 0
        while idle < 20:
            idle += 1
            self.server.advance(TICK_S)
            yield
            if self.io:
                idle = 0
                self.io.step()
                yield

    def ask(self, request: bytes) -> bytes:
        self.client.send(request)
        for _ in self.steps():
            pass
        return self.client.take()

    def left(self) -> Iterator[MemoryServer]:
        for disk in (self.directory.after_kill(), self.directory.after_power_loss()):
            yield MemoryServer(directory=disk)


def put_batch(count: int) -> bytes:
    return b"put-batch %d\r\n" % count + count * (b"0 0 60 %d\r\n%b\r\n" % (len(BODY), BODY))


def fill(held: Held, count: int) -> None:
    assert held.ask(put_batch(count)).startswith(b"INSERTED_BATCH ")


def fill_with_dead(held: Held, count: int) -> None:
    fill(held, count)
    held.ask(b"tube-policy default max-reserves=1 dead-letter=dead\r\n")
    worker = held.server.connect()
    worker.send(b"reserve-batch %d\r\n" % count)
    worker.hang_up()
    held.ask(b"tube-policy other max-jobs=1\r\n")
    assert held.server.service.queue.state.counts[State.BURIED] == count


class Case(NamedTuple):
    """A command.

    :ivar many: jobs that take more than one turn.
    :ivar done: of a server, the jobs that the command has come to.
    """

    fill: Callable[[Held, int], None]
    request: Callable[[int], bytes]
    reply: bytes
    many: int
    is_whole: bool
    done: Callable[[MemoryServer, int], list[int]]


def put_jobs(server: MemoryServer, count: int) -> list[int]:
    return sorted(server.service.queue.state.jobs)


def gone_jobs(server: MemoryServer, count: int) -> list[int]:
    there = server.service.queue.state.jobs
    return [job_id for job_id in range(1, count + 1) if job_id not in there]


def kicked_jobs(server: MemoryServer, count: int) -> list[int]:
    """Those that have another life; the others are as they died."""
    kicked = []
    for job_id in range(1, count + 1):
        stats = _stats(server.connect(), job_id)
        if b"\nstate: ready\n" in stats:
            assert b"dead-" not in stats and b"\nreserves: 0\n" in stats and b"kicks: 1\n" in stats
            assert b'\ntube: "default"\n' in stats
            kicked.append(job_id)
        else:
            assert b"\nstate: buried\n" in stats and b"kicks: 0\n" in stats
            assert b'\ntube: "dead"\n' in stats and b'\ndead-from: "default"\n' in stats
    return kicked


def _stats(client: Client, job_id: int) -> bytes:
    return client.ask(b"stats-job %d\r\n" % job_id)


def _nothing(held: Held, count: int) -> None:
    """Nothing is there."""


def delete_batch(count: int) -> bytes:
    return b"delete-batch " + b" ".join(b"%d" % each for each in range(1, count + 1)) + b"\r\n"


CASES = {
    "put-batch": Case(
        _nothing, put_batch, b"INSERTED_BATCH ", SOON_JOBS + 30, True, put_jobs
    ),
    "delete-batch": Case(
        fill, delete_batch, b"DELETED_BATCH ", BATCH_SLICE_JOBS + 30, True, gone_jobs
    ),
    "flush-tube": Case(
        fill, lambda count: b"flush-tube default\r\n", b"FLUSHED ", SLICE_JOBS + 30, False,
        gone_jobs,
    ),
    "kick-dead": Case(
        fill_with_dead, lambda count: b"kick-dead default 1000\r\n", b"KICKED ",
        DEAD_SLICE_JOBS + 30, False, kicked_jobs,
    ),
}  # fmt: skip


def see_every_end(case: Case, count: int) -> set[int]:
    """Have the command carried out, and end the server at each moment of it.

    :return: of how many jobs it was done then.
    """
    held = Held()
    case.fill(held, count)
    held.client.send(case.request(count))
    wanted, told, seen = list(range(1, count + 1)), b"", set()
    for _ in held.steps():
        told += held.client.take()
        for server in held.left():
            done = case.done(server, count)
            assert done == wanted[: len(done)], "the first ones, in order"
            assert not (case.is_whole and 0 < len(done) < count)
            assert not told or len(done) == count
            seen.add(len(done))
    assert told.startswith(case.reply)
    return seen


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_command_for_some_jobs_is_done_as_far_as_is_promised(case: Case) -> None:
    assert see_every_end(case, SMALL) >= {0, SMALL}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_command_of_several_turns_is_done_as_far_as_is_promised(case: Case) -> None:
    seen = see_every_end(case, case.many)
    assert seen >= {0, case.many}
    assert case.is_whole or len(seen) > 2, "it ended in between too"
