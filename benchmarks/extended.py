"""What the extensions cost where there is much of something, and how exactly they keep to a rate
and to weights.

    python -m benchmarks.extended [--only NAMES] [--scale N]

The service runs in this process turn by turn, as for `benchmarks.waits`: what a control client
waits is the processor time of the longest turn.  ``rate`` runs a server, against the clock.
"""

from __future__ import annotations

import argparse
import gc
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Final, NamedTuple

from beanstalk_twisted.testing.memory_server import Client
from benchmarks.speed.servers import HOST, cpu_seconds, ours, running
from benchmarks.speed.workloads import MEMORY
from benchmarks.turns import Meter, Pauses, watched_collections
from benchmarks.waits import AIM_MS, batch, expect, job, put

MILLION: Final = 1_000_000

LISTED_JOBS: Final = 100_000

RESERVES: Final = 100_000

RATE: Final = 100
"""Jobs a second."""

RATE_S: Final = 10.0
"""How long they are counted."""

WORKERS: Final = 50

RATE_WITHIN: Final = 0.01
"""Part of the rate that it may be missed by."""

FAIR_WITHIN: Final = 0.02
"""Part of its share that a tube may be missed by."""

WEIGHTS: Final = (1, 2, 3, 10)

BATCH_JOBS: Final = 1000


class Finding(NamedTuple):
    """What was measured.

    :ivar missed: whether it is not what is aimed at.
    """

    what: str
    is_missed: bool = False


def longest(meter: Meter, what: str) -> Finding:
    """How long others wait while this is done."""
    longest_ms = meter.longest_s * 1000
    turns = f"{meter.turns:,} turns, the longest {longest_ms:.1f} ms (aim {AIM_MS:.0f})"
    return Finding(f"{what}: {turns}", longest_ms > AIM_MS)


def fill(meter: Meter, client: Client, count: int, tags: Callable[[int], bytes]) -> float:
    """Put so many jobs with these tags, by batches.

    :return: processor time, seconds, garbage collections left out.
    """
    used_s = 0.0
    for start in range(0, count, BATCH_JOBS):
        numbers = range(start, min(start + BATCH_JOBS, count))
        request = batch([job(tags=tags(number)) for number in numbers])
        began_s, paused_s = thread_time(), meter.paused_s
        reply = meter.ask(client, request)
        used_s += thread_time() - began_s - (meter.paused_s - paused_s)
        expect(reply, b"INSERTED_BATCH")
    return used_s


def resident_bytes() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def of_puts(pauses: Pauses, count: int, tags: Callable[[int], bytes]) -> tuple[float, float]:
    """Put single jobs with these tags, without a log.

    :return: what one takes, microseconds of the processor and bytes of memory.
    """
    gc.collect()
    meter = Meter(pauses, has_log=False)
    client = meter.connect()
    before = resident_bytes()
    used_s = 0.0
    for start in range(0, count, BATCH_JOBS):
        puts = [put(tags=tags(number)) for number in range(start, start + BATCH_JOBS)]
        began_s, paused_s = thread_time(), meter.paused_s
        meter.ask(client, b"".join(puts))
        used_s += thread_time() - began_s - (meter.paused_s - paused_s)
    taken = resident_bytes() - before
    meter.server.kill()
    return used_s / count * 1e6, taken / count


def unique(pauses: Pauses, scale: int) -> list[Finding]:
    """a million unique keys: what a put takes with one and without"""
    count = MILLION // scale
    with_us, with_bytes = of_puts(pauses, count, lambda number: b"idp:key-%d" % number)
    without_us, without_bytes = of_puts(pauses, count, lambda number: b"")
    return [
        Finding(
            f"{count:,} puts: {with_us:.1f} µs each with a unique key, {without_us:.1f} without; "
            f"{with_bytes:,.0f} bytes of memory a job with one, {without_bytes:,.0f} without"
        )
    ]


def parked(pauses: Pauses, scale: int) -> list[Finding]:
    """a million jobs behind one concurrency key, and a flush of them"""
    count = MILLION // scale
    meter = Meter(pauses)
    client = meter.connect()
    meter.begin()
    fill(meter, client, count, lambda number: b"con:k")
    found = [longest(meter, f"{count:,} jobs with one concurrency key are put")]
    meter.begin()
    for _ in range(100):
        reply = meter.ask(client, b"reserve-with-timeout 0\r\n")
        expect(reply, b"RESERVED")
        expect(meter.ask(client, b"delete %s\r\n" % reply.split(None, 2)[1]), b"DELETED")
    found.append(longest(meter, "100 of them are reserved and deleted"))
    meter.begin()
    expect(meter.ask(client, b"flush-tube default\r\n"), b"FLUSHED %d" % (count - 100))
    return [*found, longest(meter, "the others are flushed")]


def flush(pauses: Pauses, scale: int) -> list[Finding]:
    """a flush of a million jobs"""
    count = MILLION // scale
    meter = Meter(pauses)
    client = meter.connect()
    fill(meter, client, count, lambda number: b"")
    meter.begin()
    expect(meter.ask(client, b"flush-tube default\r\n"), b"FLUSHED %d" % count)
    return [longest(meter, f"{count:,} jobs are flushed")]


def listing(pauses: Pauses, scale: int) -> list[Finding]:
    """`list-jobs` over 100,000 jobs, page by page"""
    count = LISTED_JOBS // scale
    meter = Meter(pauses)
    client = meter.connect()
    fill(meter, client, count, lambda number: b"")
    meter.begin()
    cursor, pages = b"", 0
    while True:
        reply = meter.ask(client, b"list-jobs default all 1000%s\r\n" % cursor)
        expect(reply, b"OK")
        pages += 1
        last = reply.rstrip().rpartition(b"\n")[2]
        if not last.startswith(b"cursor: "):
            break
        cursor = b" " + last.partition(b": ")[2].strip(b'"')
    return [longest(meter, f"{count:,} jobs are listed, {pages} pages")]


def shares(pauses: Pauses, scale: int) -> list[Finding]:
    """`reserve-mode weighted`: the share of each tube, of 100,000 reserves"""
    count = RESERVES // scale
    meter = Meter(pauses, has_log=False)
    client = meter.connect()
    for weight in WEIGHTS:
        meter.ask(client, b"use t%d\r\n" % weight + put(b"%d" % weight) * 2)
        meter.ask(client, b"watch t%d %d\r\n" % (weight, weight))
    expect(meter.ask(client, b"ignore default\r\nreserve-mode weighted\r\n"), b"WATCHING")
    taken: Counter[int] = Counter()
    for _ in range(count):
        reply = meter.ask(client, b"reserve-with-timeout 0\r\n")
        expect(reply, b"RESERVED")
        _, job_id, _, body = reply.split()
        taken[int(body)] += 1
        meter.ask(client, b"release %s 0 0\r\n" % job_id)
    off = max(abs(taken[each] * sum(WEIGHTS) / (each * count) - 1) for each in WEIGHTS)
    told = ", ".join(f"{taken[each]:,} of weight {each}" for each in WEIGHTS)
    what = f"{count:,} reserves: {told}; off by {off:.2%} at most (aim {FAIR_WITHIN:.0%})"
    return [Finding(what, off > FAIR_WITHIN)]


def rate(pauses: Pauses, scale: int) -> list[Finding]:
    """a rate of 100 jobs/s over 10 s, with 50 waiting workers"""
    seconds = RATE_S / scale
    side = ours(sys.executable)
    with TemporaryDirectory() as folder, \
            running(side, MEMORY, Path(folder), Path()) as server:  # fmt: skip
        control = socket.create_connection((HOST, server.port))
        jobs = round(RATE * (RATE_S + 10))
        control.sendall(b"tube-policy default rate=%d\r\n" % RATE + put() * jobs)
        replies = control.makefile("rb")
        expect(replies.readline(), b"POLICY")
        for _ in range(jobs):
            expect(replies.readline(), b"INSERTED")
        found = count_reserves(server.port, server.pid, seconds)
        control.close()
        server.stop()
    reached = found.jobs / found.took_s
    off = abs(reached / RATE - 1)
    what = f"{WORKERS} workers reserve {reached:.2f} jobs/s for {found.took_s:.2f} s at rate={RATE}"
    what += f": off by {off:.2%} (aim {RATE_WITHIN:.0%}); the longest pause {found.pause_s:.3f} s, "
    what += f"{found.cpu_s / found.jobs * 1e6:.0f} µs a job"
    return [Finding(what, off > RATE_WITHIN)]


class Reserves(NamedTuple):
    """What workers have got.

    :ivar took_s: seconds from the first to the last; ``cpu_s`` of the server's processor.
    :ivar pause_s: the longest time from one to the next.
    """

    jobs: int
    took_s: float
    pause_s: float
    cpu_s: float


def count_reserves(port: int, pid: int, seconds: float) -> Reserves:
    """Have workers reserve and delete, and count, beginning a second after the first reserve."""
    selector = selectors.DefaultSelector()
    by_number: dict[int, socket.socket] = {}
    workers = [socket.create_connection((HOST, port)) for _ in range(WORKERS)]
    began_s = time.perf_counter()
    first_s = cpu_s = pause_s = 0.0
    count = 0
    for worker in workers:
        by_number[worker.fileno()] = worker
        selector.register(worker, selectors.EVENT_READ)
        worker.sendall(b"reserve\r\n")
    now_s = began_s
    while not first_s or now_s < first_s + seconds:
        for key, _ in selector.select():
            worker = by_number[key.fd]
            said = worker.recv(4096).split()
            if b"RESERVED" not in said:
                continue
            last_s, now_s = now_s, time.perf_counter()
            job_id = said[said.index(b"RESERVED") + 1]
            worker.sendall(b"delete %s\r\nreserve\r\n" % job_id)
            if first_s:
                count += 1
                pause_s = max(pause_s, now_s - last_s)
            elif now_s > began_s + 1:
                first_s, cpu_s = now_s, cpu_seconds(pid)
    for worker in workers:
        worker.close()
    return Reserves(count, now_s - first_s, pause_s, cpu_seconds(pid) - cpu_s)


ROWS: Final = (unique, parked, flush, listing, shares, rate)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found; 1 if something is not what is aimed at."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of functions here, with commas between")
    parser.add_argument("--scale", type=int, default=1, help="a part of all numbers: 1 of so many")
    given = parser.parse_args(arguments)
    wanted = set(filter(None, given.only.split(",")))
    is_missed = False
    for measure in ROWS:
        if not wanted or measure.__name__ in wanted:
            with watched_collections() as pauses:
                for finding in measure(pauses, given.scale):
                    print(f"- {measure.__name__}: {finding.what}", flush=True)
                    is_missed |= finding.is_missed
            gc.collect()
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
