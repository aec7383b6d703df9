"""A real server whose memory ends: new jobs are refused, nobody else notices, and nothing is lost.
If it ends in spite of that, it says why.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sampling import one_in
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc here")

BODY_BYTES = 50_000
PRODUCERS = 20
HALF_SENT = 100
ROUNDS = 200


def limited(tmp_path: Path, spare_mb: int, *options: str) -> ServerProcess:
    """Start a server with so much more memory than one needs that has done nothing yet."""
    return started(tmp_path, needed_kb(tmp_path) + (spare_mb << 10), *options)


def needed_kb(tmp_path: Path) -> int:
    """How much memory a server has asked for that has done nothing yet."""
    command = ours_at_once("-p0", "-b", tmp_path / "other")
    with ServerProcess(command, tmp_path, may_fork=False) as server:
        server.connect()
        status = Path(f"/proc/{server.process.pid}/status").read_text()
    peak = re.search(r"VmPeak:\s+(\d+) kB", status)
    assert peak is not None
    return int(peak[1])


def started(tmp_path: Path, limit_kb: int, *options: str) -> ServerProcess:
    command = ours_at_once("-p0", "-z", "20000000", *options, "-b", tmp_path / "log")
    return ServerProcess(["sh", "-c", f'ulimit -v {limit_kb}; exec "$@"', "sh", *command], tmp_path)


def put(number: int) -> bytes:
    body = (b"%08d" % number) * (BODY_BYTES // 8)
    return b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)


def fill(server: ServerProcess, producers: list[Connection]) -> dict[int, int]:
    """All put in step, until one is refused.

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


@pytest.mark.exhaustive
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
        taken[put_again(control)] = 0
        server.kill()
    with ServerProcess(ours_at_once("-p0", "-b", tmp_path / "log"), tmp_path) as server:
        check(server.connect(), taken)


def put_again(control: Connection) -> int:
    """There is memory again: a job is taken, as soon as that is seen."""
    give_up = time.monotonic() + LIMIT_S
    while not (reply := control.ask(put(0))).startswith(b"INSERTED"):
        assert reply == b"OUT_OF_MEMORY\r\n" and time.monotonic() < give_up
        time.sleep(0.02)
    return int(reply.split()[1])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("body_bytes", "delay_s", "policy"),
    one_in(2, [
        (300, 0, "always"), (2_000, 3600, "always"), (60_000, 0, "always"), (60_000, 0, "never"),
        (7_000_000, 0, "always"),
    ]),
)  # fmt: skip
def test_a_full_server_that_was_killed_starts_again_under_the_same_limit(
    tmp_path: Path, body_bytes: int, delay_s: int, policy: str
) -> None:
    """Twice: what the first one had is in order in the memory of the second, which takes more."""
    limit_kb = needed_kb(tmp_path) + (8 << 10)
    last_id = 0
    for _ in range(2):
        with started(tmp_path, limit_kb, "--fsync", policy) as server:
            last_id = put_until_full(server.connect(), body_bytes, delay_s, last_id)
            server.kill()
    with started(tmp_path, limit_kb, "--fsync", policy) as server:
        found = server.connect().ask(b"stats-tube default\r\n")
        assert b"current-jobs-%s: %d\n" % (b"delayed" if delay_s else b"ready", last_id) in found


def put_until_full(client: Connection, body_bytes: int, delay_s: int, last_id: int) -> int:
    """Put jobs until one is refused.

    :param last_id: how many are there.
    :return: how many are there then.
    """
    count = max(1, 500_000 // body_bytes)
    line = b"put 0 %d 60 %d\r\n%s\r\n" % (delay_s, body_bytes, b"b" * body_bytes)
    replies: Counter[bytes] = Counter()
    while not replies[b"OUT_OF_MEMORY\r\n"]:
        client.send(line * count)
        replies = Counter(client.reply().split(b" ")[0] for _ in range(count))
        assert not replies.keys() - {b"INSERTED", b"OUT_OF_MEMORY\r\n"}
        last_id += replies[b"INSERTED"]
    return last_id


TUBES_OF_EACH = 9500
"""Tubes that a connection watches, of the 10,000 that it may."""


@pytest.mark.exhaustive
def test_where_memory_ends_a_connection_or_the_server_ends(tmp_path: Path) -> None:
    """Tubes are not refused, and each takes some.  Memory ends in a step that costs the server, or
    in one that costs the connection, and with it all that it has taken.
    """
    with limited(tmp_path, 24) as server:
        control = server.connect()
        assert control.ask(put(7)) == b"INSERTED 1\r\n"
        greedy: list[Connection] = []
        watched = 0
        while watched < 400_000 and server.process.poll() is None:
            names = range(watched, watched + 500)
            try:
                if not watched % TUBES_OF_EACH:
                    greedy.append(Connection(server.port()))
                greedy[-1].send(b"".join(b"watch tube-%d\r\n" % name for name in names))
                if not all(greedy[-1].reply() for _ in names):
                    break
            except OSError:
                break
            watched += 500
        assert watched < 400_000
        for connection in greedy:
            connection.close()
        jobs = {1: 7}
        if goes_on(server):
            assert server.says("while serving a connection") and server.says("MemoryError")
            control = server.connect()
            check(control, jobs)
            jobs[put_again(control)] = 0
            assert server.process.poll() is None, "it is the connection that has ended"
            server.kill()
        else:
            status, said = server.ended()
            assert status == 74
            # Where there is no memory for a traceback either, no place can be named.
            place = r"( in \S+, line \d+ \(.*\))?"
            assert re.search(rf"the server ends: MemoryError{place}; .* LSN", said), said
    with ServerProcess(ours_at_once("-p0", "-b", tmp_path / "log"), tmp_path) as server:
        check(server.connect(), jobs)


def goes_on(server: ServerProcess) -> bool:
    """Whether a server answers when the greedy have gone, or has ended.  They go in slices, and
    until they have gone memory is short for a connection that did nothing, too.
    """
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up and server.process.poll() is None:
        with suppress(OSError):
            if Connection(server.port()).ask(b"peek 1\r\n").startswith(b"FOUND"):
                return True
        time.sleep(0.02)
    assert server.process.poll() is not None, "it neither answers nor ends"
    return False


def check(control: Connection, jobs: dict[int, int]) -> None:
    """These jobs are there, as they were put, and no other.

    :param jobs: what was put, by id.
    """
    for job_id, number in jobs.items():
        head, _, body = control.ask(b"peek %d\r\n" % job_id).partition(b"\r\n")
        assert body == (b"%08d" % number) * (BODY_BYTES // 8) + b"\r\n", head
    found = control.ask(b"stats-tube default\r\n")
    assert b"current-jobs-ready: %d\n" % len(jobs) in found
