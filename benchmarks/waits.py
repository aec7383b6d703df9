"""How long one turn of the server keeps the others waiting, at most: its processor time, for the
commands and timers that do much at once.

Processor time says more than the clock on a busy machine, but grows there too, by half and more.
``python -m benchmarks.waits --help``.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable
from statistics import median
from typing import Final, NamedTuple

from beanstalk_twisted.testing.memory_server import Client
from benchmarks.turns import Meter, watched_collections

AIM_MS: Final = 20.0
"""The longest wait of a control client that is meant to be."""

LARGE_BYTES: Final = 1 << 20
"""Of the body of a large job."""


def put(body: bytes = b"x", tags: bytes = b"", delay: int = 0, ttr: int = 600) -> bytes:
    """A `put`."""
    return b"put " + job(body, tags, delay, ttr)


def job(body: bytes = b"x", tags: bytes = b"", delay: int = 0, ttr: int = 600) -> bytes:
    """A job as it stands in a `put-batch`."""
    return b"0 %d %d %d%s\r\n%s\r\n" % (delay, ttr, len(body), tags and b" " + tags, body)


def batch(jobs: Iterable[bytes]) -> bytes:
    """A `put-batch`."""
    all_jobs = list(jobs)
    return b"put-batch %d\r\n" % len(all_jobs) + b"".join(all_jobs)


def fill(meter: Meter, client: Client, count: int, make: Callable[[int], bytes]) -> None:
    """Put so many jobs, by batches."""
    for start in range(0, count, 1000):
        jobs = [make(number) for number in range(start, min(count, start + 1000))]
        expect(meter.ask(client, batch(jobs)), b"INSERTED_BATCH")


def expect(reply: bytes, word: bytes) -> None:
    """Check a reply."""
    if not reply.startswith(word):
        raise SystemExit(f"expected {word!r}, not {reply[:100]!r}")


def watch_all(meter: Meter, client: Client, count: int) -> None:
    """Watch tubes t0, t1 and so on."""
    names = [b"watch t%d\r\n" % number for number in range(count)]
    for start in range(0, count, 1000):
        meter.ask(client, b"".join(names[start : start + 1000]))


def fill_tubes(meter: Meter, client: Client, count: int, tags: bytes = b"") -> None:
    """Put one job into each of tubes t0, t1 and so on."""
    for number in range(count):
        meter.ask(client, b"use t%d\r\n" % number + put(tags=tags))


BATCH_TAGS: Final = b"idp:key-%d:600 con:account-%d:5 grp:import-%d"


def tagged_job(number: int) -> bytes:
    """With a key of its own that will be remembered, one of 100 concurrency keys, one of 10
    groups.
    """
    return job(b"x" * 20, BATCH_TAGS % (number, number % 100, number % 10))


def put_batch(meter: Meter) -> None:
    """`put-batch` of 1,000 jobs"""
    client = meter.connect()
    meter.begin()
    fill(meter, client, 10_000, lambda number: job(b"x" * 20))


def put_batch_tagged(meter: Meter) -> None:
    """`put-batch` of 1,000 jobs with three tags"""
    client = meter.connect()
    meter.begin()
    fill(meter, client, 10_000, tagged_job)


def put_batch_same(meter: Meter) -> None:
    """`put-batch` of 1,000 jobs whose keys are all taken"""
    client = meter.connect()
    fill(meter, client, 1000, tagged_job)
    meter.begin()
    fill(meter, client, 1000, tagged_job)


def put_batch_large(meter: Meter) -> None:
    """`put-batch` of 15 jobs of 1 MiB"""
    client = meter.connect()
    meter.begin()
    body = b"x" * (LARGE_BYTES - 100)
    expect(meter.ask(client, batch(job(body) for _ in range(15))), b"INSERTED_BATCH")


def delete_by_batches(meter: Meter, client: Client, count: int) -> None:
    for start in range(1, count + 1, 1000):
        numbers = range(start, min(start + 1000, count + 1))
        line = b"delete-batch " + b" ".join([b"%d" % number for number in numbers]) + b"\r\n"
        expect(meter.ask(client, line), b"DELETED_BATCH %d 0" % len(numbers))


def delete_batch(meter: Meter) -> None:
    """`delete-batch` of 1,000 jobs"""
    client = meter.connect()
    fill(meter, client, 10_000, lambda number: job(b"x" * 20))
    meter.begin()
    delete_by_batches(meter, client, 10_000)


def delete_batch_tagged(meter: Meter) -> None:
    """`delete-batch` of 1,000 jobs with three tags"""
    client = meter.connect()
    fill(meter, client, 10_000, tagged_job)
    meter.begin()
    delete_by_batches(meter, client, 10_000)


def reserve_batch_tagged(meter: Meter) -> None:
    """`reserve-batch` of 1,000 jobs with three tags"""
    client = meter.connect()
    fill(meter, client, 1000, lambda n: job(tags=b"idp:k%d con:c%d grp:g" % (n, n)))
    meter.begin()
    expect(meter.ask(client, b"reserve-batch 1000\r\n"), b"RESERVED_BATCH 1000")


def reserve_and_delete(meter: Meter, client: Client, count: int) -> None:
    for _ in range(count):
        reply = meter.ask(client, b"reserve-with-timeout 0\r\n")
        expect(reply, b"RESERVED")
        expect(meter.ask(client, b"delete %s\r\n" % reply.split(None, 2)[1]), b"DELETED")


KEY_TUBES: Final = 10_000


def key_in_tubes(meter: Meter) -> None:
    """a concurrency key of jobs in 10,000 tubes closes and opens; nobody waits"""
    client = meter.connect()
    fill_tubes(meter, client, KEY_TUBES, b"con:k")
    meter.ask(client, b"watch t0\r\nwatch t1\r\nwatch t2\r\n")
    meter.begin()
    reserve_and_delete(meter, client, 3)


def key_in_watched_tubes(meter: Meter) -> None:
    """the same, one session watches all of them"""
    client = meter.connect()
    fill_tubes(meter, client, KEY_TUBES, b"con:k")
    watch_all(meter, client, KEY_TUBES)
    reserve_and_delete(meter, client, 1)
    meter.begin()
    reserve_and_delete(meter, client, 5)


def key_in_waited_tubes(meter: Meter) -> None:
    """the same, ten others wait for a job of all of them"""
    client = meter.connect()
    fill_tubes(meter, client, KEY_TUBES, b"con:k")
    meter.ask(client, b"watch t0\r\nwatch t1\r\nwatch t2\r\n")
    reply = meter.ask(client, b"reserve-with-timeout 0\r\n")
    for _ in range(10):
        other = meter.connect()
        watch_all(meter, other, KEY_TUBES)
        meter.ask(other, b"reserve\r\n")
    meter.begin()
    meter.ask(client, b"delete %s\r\n" % reply.split(None, 2)[1])


def parked_jobs(meter: Meter) -> None:
    """reserve and delete with 200,000 jobs behind one concurrency key"""
    client = meter.connect()
    fill(meter, client, 200_000, lambda number: job(tags=b"con:k"))
    meter.begin()
    reserve_and_delete(meter, client, 100)


def group_ends(meter: Meter) -> None:
    """a group ends for which 20,000 jobs wait"""
    client = meter.connect()
    meter.ask(client, put(tags=b"grp:g"))
    fill(meter, client, 20_000, lambda number: job(tags=b"aft:g"))
    meter.begin()
    reserve_and_delete(meter, client, 1)


def weights(meter: Meter, mode: bytes, tubes: int = KEY_TUBES) -> None:
    """Begin with a mode, reserve, and end."""
    putter, client = meter.connect(), meter.connect()
    fill_tubes(meter, putter, tubes)
    watch_all(meter, client, tubes)
    meter.begin()
    meter.ask(client, b"reserve-mode %s\r\n" % mode)
    for _ in range(50):
        expect(meter.ask(client, b"reserve-with-timeout 0\r\n"), b"RESERVED")
    for number in range(50, 60):
        meter.ask(client, b"watch t%d 7\r\n" % number)
    meter.ask(client, b"ignore t70\r\n")
    # With a clock that stands still, the commands of one packet are not parted.
    for other in (b"fifo", mode):
        meter.ask(client, b"reserve-mode %s\r\n" % other)
        expect(meter.ask(client, b"reserve-with-timeout 0\r\n"), b"RESERVED")
    meter.leave(client)


def weighted(meter: Meter) -> None:
    """`reserve-mode weighted` with 10,000 watched tubes"""
    weights(meter, b"weighted")


def weighted_fair(meter: Meter) -> None:
    """`reserve-mode weighted-fair` with 10,000 watched tubes"""
    weights(meter, b"weighted-fair")


def waiter_of_tubes(meter: Meter) -> None:
    """a `reserve` waits for a job of 10,000 watched tubes, and ends"""
    client, other = meter.connect(), meter.connect()
    watch_all(meter, client, KEY_TUBES)
    meter.begin()
    meter.ask(client, b"reserve\r\n")
    expect(meter.ask(other, b"use t5000\r\n" + put()), b"USING t5000\r\nINSERTED")
    meter.ask(client, b"reserve\r\n")
    meter.leave(client)


def flush(meter: Meter) -> None:
    """`flush-tube` of 100,000 jobs"""
    client = meter.connect()
    fill(meter, client, 100_000, lambda number: job())
    meter.begin()
    expect(meter.ask(client, b"flush-tube default\r\n"), b"FLUSHED 100000")


def flush_tagged(meter: Meter) -> None:
    """`flush-tube` of 20,000 jobs with three tags"""
    client = meter.connect()
    fill(meter, client, 20_000, tagged_job)
    meter.begin()
    expect(meter.ask(client, b"flush-tube default\r\n"), b"FLUSHED 20000")


def list_tagged(meter: Meter) -> None:
    """`list-jobs` of 1,000 of 20,000 jobs with three tags"""
    client = meter.connect()
    fill(meter, client, 20_000, tagged_job)
    meter.begin()
    expect(meter.ask(client, b"list-jobs default ready 1000\r\n"), b"OK")
    expect(meter.ask(client, b"list-jobs default all 1000\r\n"), b"OK")


def kick_tagged(meter: Meter) -> None:
    """`kick` of 20,000 delayed jobs with three tags"""
    client = meter.connect()
    tags = BATCH_TAGS
    fill(meter, client, 20_000, lambda n: job(b"x", tags % (n, n % 100, n % 10), delay=99))
    meter.begin()
    expect(meter.ask(client, b"kick 20000\r\n"), b"KICKED")


def keys_end(meter: Meter) -> None:
    """20,000 remembered keys come to their end together"""
    client = meter.connect()
    fill(meter, client, 20_000, lambda n: job(b"x", b"idp:k%d:60" % n))
    meter.ask(client, b"flush-tube default\r\n")
    meter.begin()
    meter.wait(70)


def delays_end(meter: Meter) -> None:
    """20,000 delays end together"""
    client = meter.connect()
    fill(meter, client, 20_000, lambda n: job(delay=60))
    meter.begin()
    meter.wait(70)


def put_large(meter: Meter, client: Client, count: int, tags: bytes = b"") -> None:
    body = b"x" * LARGE_BYTES
    for _ in range(count):
        expect(meter.ask(client, put(body, tags)), b"INSERTED")


LARGE_JOBS: Final = 60


def dead_by_age(meter: Meter) -> None:
    """60 jobs of 1 MiB become dead letters by `max-age`, and are kicked"""
    client = meter.connect()
    meter.ask(client, b"tube-policy default max-age=60 dead-letter=dead\r\n")
    put_large(meter, client, LARGE_JOBS)
    meter.begin()
    meter.wait(70)
    expect(meter.ask(client, b"kick-dead default 1000\r\n"), b"KICKED 60")
    meter.wait(70)
    expect(meter.ask(client, b"flush-tube dead\r\n"), b"FLUSHED 60")


def dead_by_reserves(meter: Meter) -> None:
    """60 jobs of 1 MiB become dead letters when their worker leaves"""
    client, worker = meter.connect(), meter.connect()
    meter.ask(client, b"tube-policy default max-reserves=1 dead-letter=dead\r\n")
    put_large(meter, client, LARGE_JOBS)
    for _ in range(LARGE_JOBS):
        meter.ask(worker, b"reserve\r\n")
    meter.begin()
    meter.leave(worker)
    expect(meter.ask(client, b"kick-dead default 1000\r\n"), b"KICKED 60")


def flush_large(meter: Meter) -> None:
    """`flush-tube` of 60 jobs of 1 MiB"""
    client = meter.connect()
    put_large(meter, client, LARGE_JOBS)
    meter.begin()
    expect(meter.ask(client, b"flush-tube default\r\n"), b"FLUSHED 60")


def delete_batch_large(meter: Meter) -> None:
    """`delete-batch` of 60 jobs of 1 MiB"""
    client = meter.connect()
    put_large(meter, client, LARGE_JOBS)
    meter.begin()
    delete_by_batches(meter, client, LARGE_JOBS)


def worker_leaves(meter: Meter) -> None:
    """a worker leaves that holds 10,000 jobs with three tags"""
    client, worker = meter.connect(), meter.connect()
    fill(meter, client, 10_000, lambda n: job(tags=b"idp:k%d con:c%d grp:g%d" % (n, n, n % 10)))
    for _ in range(10):
        meter.ask(worker, b"reserve-batch 1000\r\n")
    meter.begin()
    meter.leave(worker)


def reserve_many(meter: Meter) -> None:
    """200,000 jobs are reserved, released and deleted (look at the collections)"""
    client, worker = meter.connect(), meter.connect()
    fill(meter, client, 200_000, lambda number: job())
    meter.begin()
    for _ in range(200):
        meter.ask(worker, b"reserve-batch 1000\r\n")
    meter.leave(worker)
    delete_by_batches(meter, client, 200_000)


SCENARIOS: Final = (
    put_batch, put_batch_tagged, put_batch_same, put_batch_large, delete_batch,
    delete_batch_tagged, reserve_batch_tagged, key_in_tubes, key_in_watched_tubes,
    key_in_waited_tubes, parked_jobs, group_ends, weighted, weighted_fair, waiter_of_tubes, flush,
    flush_tagged, list_tagged, kick_tagged, keys_end, delays_end, dead_by_age, dead_by_reserves,
    flush_large, delete_batch_large, worker_leaves, reserve_many,
)  # fmt: skip


class Row(NamedTuple):
    """What a scenario has shown.

    :ivar longest_ms: the longest turn of each round; ``pause_ms`` the longest collection.
    """

    name: str
    turns: int
    longest_ms: list[float]
    pause_ms: float


def measure(scenario: Callable[[Meter], None], rounds: int) -> Row:
    """Run a scenario so many times."""
    longest_ms, pause_ms, turns = [], 0.0, 0
    for _ in range(rounds):
        with watched_collections() as pauses:
            meter = Meter(pauses)
            scenario(meter)
            longest_ms.append(meter.longest_s * 1000)
            pause_ms = max(pause_ms, pauses.longest_s * 1000)
            turns = meter.turns
            meter.server.kill()
            del meter
        gc.collect()
    return Row(" ".join((scenario.__doc__ or "").split()), turns, longest_ms, pause_ms)


def main() -> int:
    """Print a table; 1 if a turn was longer than it is meant to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of functions here, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    wanted = set(filter(None, given.only.split(",")))
    worst = 0.0
    print("| what | turns | longest, ms, median (least) | longest collection, ms |")
    print("| --- | ---: | ---: | ---: |")
    for scenario in SCENARIOS:
        if not wanted or scenario.__name__ in wanted:
            name, turns, longest_ms, pause_ms = measure(scenario, given.rounds)
            middle, least = median(longest_ms), min(longest_ms)
            print(
                f"| {name} | {turns:,} | {middle:.1f} ({least:.1f}) | {pause_ms:.1f} |", flush=True
            )
            worst = max(worst, middle)
    return int(worst > AIM_MS)


if __name__ == "__main__":
    sys.exit(main())
