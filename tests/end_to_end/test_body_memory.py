"""Bodies that are in the log only: whatever clients do with them, and whether they read the replies
or not, the process takes no more memory than `--max-memory` says, as its operator sees it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server_process import Connection, ServerProcess, ours_at_once

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc here")

MB = 1 << 20
MAX_MEMORY = 32 * MB
BODY_BYTES = 60_000
JOBS = 1200
"""72 MB of bodies: more than twice what jobs may take of memory."""

SLOW_READERS = 10
WORKERS = 10
SPARE_MB = 64
MANY_JOBS = 4500

OPTIONS = ("-p0", "-F", "-s", str(8 * MB), "--max-memory", str(MAX_MEMORY))


def memory(server: ServerProcess, which: str) -> int:
    """Bytes of a process's memory, as its kernel counts them."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(rf"{which}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def bound(idle: int, connections: int, reserved: int) -> int:
    return idle + MAX_MEMORY * 5 // 4 + connections * MB + 512 * reserved


def body(number: int) -> bytes:
    return b"%06d" % number * (BODY_BYTES // 6)


def fill(client: Connection, jobs: int = JOBS) -> None:
    for number in range(1, jobs + 1):
        reply = client.ask(b"put 0 0 600 %d\r\n%s\r\n" % (BODY_BYTES, body(number)))
        assert reply == b"INSERTED %d\r\n" % number


def reserve_all(client: Connection) -> int:
    for number in range(1, JOBS + 1):
        reply = client.ask(b"reserve-with-timeout 0\r\n")
        assert reply == b"RESERVED %d %d\r\n%s\r\n" % (number, BODY_BYTES, body(number))
    return JOBS


def reserve_batches(client: Connection) -> int:
    """Reserve as many as the server gives, until there are no more."""
    reserved = 0
    while count := int(client.ask(b"reserve-batch 100\r\n").split()[1]):
        for _ in range(count):
            reserved += 1
            expected = b"RESERVED %d %d\r\n%s\r\n" % (reserved, BODY_BYTES, body(reserved))
            assert client.reply() == expected
    assert reserved == JOBS
    return JOBS


def reserve_and_move(client: Connection) -> int:
    """Take each job by its id, look at it, change it, and move it."""
    for number in range(1, JOBS + 1):
        full = b" %d %d\r\n%s\r\n" % (number, BODY_BYTES, body(number))
        assert client.ask(b"reserve-job %d\r\n" % number) == b"RESERVED" + full
        assert client.ask(b"peek %d\r\n" % number) == b"FOUND" + full
        assert client.ask(b"update-job %d 1 0 600\r\n" % number) == b"UPDATED\r\n"
        assert client.ask(b"move-job %d other\r\n" % number) == b"MOVED\r\n"
    return JOBS


def bury_and_kick(client: Connection) -> int:
    """Make dead letters of all, and give them another life."""
    assert client.ask(b"tube-policy default max-reserves=1\r\n") == b"POLICY\r\n"
    for _ in range(JOBS):
        number = int(client.ask(b"reserve-with-timeout 0\r\n").split()[1])
        assert client.ask(b"release %d 0 0\r\n" % number) == b"RELEASED\r\n"
    kicked = 0
    while kicked < JOBS:
        kicked += int(client.ask(b"kick-dead default %d\r\n" % JOBS).split()[1])
    return 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(ours_at_once(*OPTIONS, "-b", tmp_path / "log"), tmp_path) as made:
        yield made


@pytest.mark.one_in(3)
@pytest.mark.parametrize("work", [reserve_all, reserve_batches, reserve_and_move, bury_and_kick])
def test_memory_is_bounded_whatever_is_done_with_bodies(
    server: ServerProcess, work: Callable[[Connection], int]
) -> None:
    client = server.connect()
    idle = memory(server, "VmRSS")
    fill(client)
    reserved = work(client)
    assert memory(server, "VmHWM") <= bound(idle, 1, reserved)


def test_clients_that_do_not_read_what_they_reserve_hold_up_nobody(server: ServerProcess) -> None:
    client = server.connect()
    idle = memory(server, "VmRSS")
    fill(client)
    slow = [Connection(server.port()) for _ in range(SLOW_READERS)]
    for each in slow:
        each.send(b"reserve-batch 1000\r\n")
    assert client.ask(b"use mine\r\n") == b"USING mine\r\n"
    assert client.ask(b"watch mine\r\n") == b"WATCHING 2\r\n"
    assert client.ask(b"ignore default\r\n") == b"WATCHING 1\r\n"
    for number in range(JOBS + 1, JOBS + 101):
        assert client.ask(b"put 0 0 600 2\r\nhi\r\n") == b"INSERTED %d\r\n" % number
        assert client.ask(b"reserve\r\n") == b"RESERVED %d 2\r\nhi\r\n" % number
        assert client.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
    taken: list[bytes] = []
    while len(taken) < JOBS:
        for each in slow:
            count = int(each.reply().split()[1])
            taken += [each.reply() for _ in range(count)]
            each.send(b"reserve-batch 1000\r\n")
    assert memory(server, "VmHWM") <= bound(idle, SLOW_READERS + 1, JOBS)
    full = [b"RESERVED %d %d\r\n%s\r\n" % (k, BODY_BYTES, body(k)) for k in range(1, JOBS + 1)]
    assert sorted(taken) == sorted(full)


def test_where_memory_ends_nobody_is_parted_from_and_nothing_fails(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once(*OPTIONS, "-b", tmp_path / "other"), tmp_path) as other:
        other.connect()
        limit_kb = (memory(other, "VmPeak") >> 10) + (SPARE_MB << 10)
    command = ours_at_once(*OPTIONS, "-b", tmp_path / "log")
    limited = ["sh", "-c", f'ulimit -v {limit_kb}; exec "$@"', "sh", *command]
    with ServerProcess(limited, tmp_path) as server:
        onlooker = server.connect()
        fill(onlooker, MANY_JOBS)
        workers = [Connection(server.port()) for _ in range(WORKERS)]
        reserved = 0
        while reserved < MANY_JOBS:
            for worker in workers:
                worker.send(b"reserve-batch 100\r\n")
            assert onlooker.ask(b"list-tube-used\r\n") == b"USING default\r\n"
            for worker in workers:
                count = int(worker.reply().split()[1])
                assert all([worker.reply().startswith(b"RESERVED ") for _ in range(count)])
                reserved += count
        assert onlooker.ask(b"stats-job 1\r\n").startswith(b"OK ")
        assert server.terminate() == -signal.SIGTERM
        assert not [line for line in server.said() if "Error" in line or "Traceback" in line]
