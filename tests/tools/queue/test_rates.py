"""What happens between two looks."""

from __future__ import annotations

from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.queue.server import Queue, Stats
from binlog_tools.queue.watching import Snapshot, rows, take_snapshot, total
from tests.tools.queue.lines import MemoryLine


def test_rates_are_what_came_and_went_in_a_second() -> None:
    server = MemoryServer()
    queue = Queue(MemoryLine(server))
    queue.use(b"a")
    queue.put(b"", 0, 0, 100)
    first = take_snapshot(queue, 10.0)
    (a, default) = rows(first, None)
    assert (a.tube, a.ready, a.puts_s, default.tube) == ("a", 1, None, "default")
    jobs = [queue.put(b"", 0, 0, 100) for _ in range(8)]
    queue.delete(jobs[0])
    queue.use(b"b")
    queue.put(b"", 0, 60, 100)
    queue.pause(b"b", 9)
    (a, b, default) = rows(take_snapshot(queue, 14.0), first)
    assert (a.ready, a.puts_s, a.deletes_s) == (8, 2.0, 0.25)
    assert (b.delayed, b.puts_s, b.pause_s) == (1, 0.25, 9)
    assert (default.puts_s, default.deletes_s) == (0.0, 0.0)
    everything = total([a, b, default])
    assert (everything.ready, everything.delayed, everything.puts_s) == (8, 1, 2.25)


def test_a_tube_that_was_made_anew_counts_from_nothing() -> None:
    old = Stats({
        "name": "a", "current-jobs-ready": "0", "current-jobs-reserved": "0",
        "current-jobs-delayed": "0", "current-jobs-buried": "0", "current-waiting": "0",
        "pause-time-left": "0", "total-jobs": "100", "cmd-delete": "100",
    })  # fmt: skip
    new = Stats(old | {"total-jobs": "6", "cmd-delete": "2"})
    (row,) = rows(Snapshot(2.0, Stats(), [new]), Snapshot(0.0, Stats(), [old]))
    assert (row.puts_s, row.deletes_s) == (3.0, 1.0)
