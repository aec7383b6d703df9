"""What jobs are said to take of memory, beside what the process grows by."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sampling import one_in

FILL = """
import gc, os, sys
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.server.settings import Process
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.wire.commands import COUNTERS
from beanstalk_twisted.wire.tags import PutTags

kind, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
now = 10**18

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def put(number):
    body = os.urandom(size)
    if kind == "tubes":
        queue.watching.use(session, now, b"tube-%d" % number)
    if kind.startswith("tags-"):
        key = b"key-%015d" % number
        tags = PutTags(**{word: key for word in kind.split("-")[1:]})
        queue.put_batches.put_tagged(session, now, now, 7, 0, 60, tags, body)
        return
    draft = queue.puts.begin(session, now + number)
    queue.puts.put(session, now + number, draft, 7, 5 if kind == "delayed" else 0, 60, body)

def watch(number):
    global watcher
    if not number % 5000:
        watcher = queue.connect()
    queue.watching.watch(watcher, now, b"%d-" % number + b"x" * size)
    if number % 5000 == 4999:
        queue.reservations.reserve_with_timeout(watcher, now, 10**9 if kind == "waited" else 0)

gc.disable()
queue = WorkQueue(Process(LogClock(), 0).facts, COUNTERS, size)
session = queue.connect()
counted, before = queue.state.memory_bytes, resident()
for number in range(count):
    watch(number) if kind in ("watched", "waited") else put(number)
if kind in ("reserved", "buried"):
    for job_id in range(1, count + 1):
        queue.reservations.reserve(session, now)
        # Each before the next: what all took while they were reserved stays with the process.
        if kind == "buried":
            queue.bury(session, now + job_id, job_id, 7)
if kind in ("watched", "waited"):
    count = len(queue.state.tubes) - 1 + len(queue.state.jobs)
else:
    count = len(queue.state.jobs)
print(count, queue.state.memory_bytes - counted, resident() - before)
"""

KINDS = [
    ("ready", 40_000, 20), ("ready", 40_000, 200), ("ready", 4_000, 20_000), ("ready", 20, 4 << 20),
    ("delayed", 60_000, 100), ("reserved", 20_000, 100), ("buried", 60_000, 100),
    ("tubes", 10_000, 100), ("tags-unique_key", 20_000, 100), ("tags-group", 30_000, 100),
    ("tags-concurrency_key", 10_000, 100),
    ("tags-unique_key-group-concurrency_key", 10_000, 100), ("watched", 20_000, 180),
    ("waited", 20_000, 180),
]  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
@pytest.mark.parametrize(("kind", "count", "size"), one_in(3, KINDS), ids=str)
def test_what_is_counted_is_about_what_the_process_grows_by(
    kind: str, count: int, size: int
) -> None:
    command = [sys.executable, "-c", FILL, kind, str(count), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    jobs, counted, grown = map(int, done.stdout.split())
    assert jobs == count
    # More by the third of a job's own bytes where this is compiled; less by what malloc rounds up.
    assert 0.8 * grown < counted < 1.5 * grown, (counted / count, grown / count)
