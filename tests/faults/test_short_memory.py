"""
A real server whose memory ends: new jobs are refused, nobody else notices, and nothing is lost.  If
it ends in spite of that, it says why.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.server_process import Connection, ServerProcess, ours_at_once

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc here")

BODY_BYTES = 50_000
PRODUCERS = 20
HALF_SENT = 100
ROUNDS = 200


def limited(tmp_path: Path, spare_mb: int) -> ServerProcess:
    """
    Start a server with so much more memory than one needs that has done nothing yet.
    """
    command = ours_at_once("-p0", "-z", "1000000", "-b", tmp_path / "log")
    with ServerProcess([*command[:-1], str(tmp_path / "other")], tmp_path) as server:
        server.connect()
        status = Path(f"/proc/{server.process.pid}/status").read_text()
    peak = re.search(r"VmPeak:\s+(\d+) kB", status)
    assert peak is not None
    limit_kb = int(peak[1]) + (spare_mb << 10)
    return ServerProcess(["sh", "-c", f'ulimit -v {limit_kb}; exec "$@"', "sh", *command], tmp_path)


def put(number: int) -> bytes:
    """
    A put whose body can be told from others.
    """
    body = (b"%08d" % number) * (BODY_BYTES // 8)
    return b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)


def fill(server: ServerProcess, producers: list[Connection]) -> dict[int, int]:
    """
    All put in step, until one is refused.

    :return: what was put, by id.
    """
    taken: dict[int, int] = {}
    replies: list[bytes] = []
    for number in range(0, ROUNDS * PRODUCERS, PRODUCERS):
        for at, producer in enumerate(producers):
            producer.send(put(number + at))
        replies = [producer.reply() for producer in producers]
        for at, reply in enumerate(replies):
            if reply.startswith(b"INSERTED"):
                taken[int(reply.split()[1])] = number + at
        assert set(replies) - {b"OUT_OF_MEMORY\r\n"} <= {b"INSERTED %d\r\n" % k for k in taken}
        if b"OUT_OF_MEMORY\r\n" in replies:
            return taken
    raise AssertionError(f"{len(taken)} jobs, and none was refused")


@pytest.mark.parametrize("spare_mb", [40, 64])
def test_new_jobs_are_refused_and_all_else_goes_on(tmp_path: Path, spare_mb: int) -> None:
    with limited(tmp_path, spare_mb) as server:
        control = server.connect()
        halves = [Connection(server.port()) for _ in range(HALF_SENT)]
        for half in halves:
            half.send(b"put 0 0 60 120000\r\n" + b"h" * 60_000)
        producers = [Connection(server.port()) for _ in range(PRODUCERS)]
        taken = fill(server, producers)
        server.wait_for("memory is short")
        assert control.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        for job_id in sorted(taken):
            if taken[job_id] % 4:
                assert control.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
                del taken[job_id]
        for half in halves:
            half.close()
        job_id = put_again(control)
        server.kill()
    with ServerProcess(ours_at_once("-p0", "-b", tmp_path / "log"), tmp_path) as server:
        control = server.connect()
        for known, number in taken.items():
            head, _, body = control.ask(b"peek %d\r\n" % known).partition(b"\r\n")
            assert body == (b"%08d" % number) * (BODY_BYTES // 8) + b"\r\n", head
        found = control.ask(b"stats-tube default\r\n")
        assert b"current-jobs-ready: %d\n" % (len(taken) + 1) in found, job_id


def put_again(control: Connection) -> int:
    """
    There is memory again: a job is taken, as soon as that is seen.
    """
    give_up = time.monotonic() + 20
    while not (reply := control.ask(put(0))).startswith(b"INSERTED"):
        assert reply == b"OUT_OF_MEMORY\r\n" and time.monotonic() < give_up
        time.sleep(0.02)
    return int(reply.split()[1])


def test_where_memory_ends_all_the_same_a_connection_or_the_server_ends_and_says_so(
    tmp_path: Path,
) -> None:
    """
    Tubes are not refused, and each takes some.  Memory ends in a step that costs the server, or in
    one that costs the connection, and with it all that it has taken.
    """
    with limited(tmp_path, 24) as server:
        control = server.connect()
        assert control.ask(put(7)) == b"INSERTED 1\r\n"
        greedy = Connection(server.port())
        watched = 0
        while watched < 400_000 and server.process.poll() is None:
            names = range(watched, watched + 500)
            try:
                greedy.send(b"".join(b"watch tube-%d\r\n" % name for name in names))
                if not all(greedy.reply() for _ in names):
                    break
            except OSError:
                break
            watched += 500
        assert watched < 400_000
        if server.says("while serving a connection"):
            assert control.ask(b"peek 1\r\n").startswith(b"FOUND 1 ")
            server.kill()
        else:
            status, said = server.ended()
            assert status == 74
            assert re.search(r"the server ends: MemoryError in \S+, line \d+ \(.*\); .* LSN", said)
    with ServerProcess(ours_at_once("-p0", "-b", tmp_path / "log"), tmp_path) as server:
        assert server.connect().ask(b"peek 1\r\n").startswith(b"FOUND 1 ")
