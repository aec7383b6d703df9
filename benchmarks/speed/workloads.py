"""What is measured: each workload is a row."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.speed.figures import (
    ASK_P99,
    ASK_WORST,
    CPU,
    CYCLE_P99,
    CYCLE_WORST,
    JOB_BYTES,
    KEPT_BYTES,
    LOG_BYTES,
    PAUSE,
    PEAK_BYTES,
    RATE,
    REPLAY,
    Figure,
    Target,
)

MILLION: Final = 1_000_000

QUICK_SHARE: Final = 50
"""A quick run takes one of so many jobs: a million becomes 20,000, which are put in a second."""

QUICK_LEAST_JOBS: Final = 100
"""But not fewer: otherwise many waiting workers would be a handful."""

FULL_S: Final = 3.0
"""How long a load lasts, seconds: tens of thousands of commands, so the spread is the machine's."""

QUICK_S: Final = 0.15
"""The same in a quick run, seconds: long enough for replies to be seen right, and no more."""

WARMUP_SHARE: Final = 0.1
"""Part of that time that is run before, unmeasured: caches and free lists fill."""


class Disk(NamedTuple):
    """Where jobs are kept.

    :ivar fsync: "never", "always" (before each reply), or at most every so many milliseconds; None:
        in memory, without a log.
    :ivar slower_us: so much longer each fsync takes, microseconds.
    """

    says: str
    fsync: str | None = None
    slower_us: int = 0


MEMORY: Final = Disk("in memory")
LOG: Final = Disk("binlog, no fsync", "never")
EVERY_50MS: Final = Disk("fsync at most every 50 ms", "50")
SYNC: Final = Disk("fsync before reply", "always")
SYNC_1MS: Final = Disk("fsync before reply, 1 ms disk", "always", 1000)
SYNC_4MS: Final = Disk("fsync before reply, 4 ms disk", "always", 4000)


class Workload(NamedTuple):
    """One row.

    :ivar load: options of the load generator; ``{jobs}`` is how many, `jobs` or a share of it.
    :ivar seconds: how long; 0: until all is done.
    :ivar connections: where the row stands in the plots over connections; 0: nowhere.
    :ivar options: of both servers, whose letters are the same.
    :ivar most_rounds: where a round takes minutes.
    :ivar with_redis: Redis lists can do it too.
    :ivar is_quick: it is part of a quick run.
    :ivar is_detail: the page leaves it out: it says what its neighbours say.
    :ivar flood: what one host does meanwhile (`flood.KINDS`), while others are measured; then
        there is no load.
    """

    name: str
    says: str
    disk: Disk
    load: str
    figures: tuple[tuple[Figure, Target | None], ...]
    jobs: int = 0
    seconds: float = FULL_S
    connections: int = 0
    options: tuple[str, ...] = ()
    most_rounds: int = 99
    with_redis: bool = False
    is_quick: bool = False
    is_detail: bool = False
    flood: str = ""

    def count(self, quick: bool) -> int:
        """Say how many jobs, tubes or workers there are."""
        if not quick or not self.jobs:
            return self.jobs
        return max(self.jobs // QUICK_SHARE, QUICK_LEAST_JOBS)

    def words(self, quick: bool) -> list[str]:
        """Give the load generator's options."""
        words = self.load.format(jobs=self.count(quick)).split()
        if not self.seconds:
            return words
        seconds = QUICK_S * self.seconds / FULL_S if quick else self.seconds
        return [
            *words, "--ms", f"{seconds * 1000:.0f}",
            "--warmup-ms", f"{seconds * 1000 * WARMUP_SHARE:.0f}",
        ]  # fmt: skip


CYCLE: Final = "--ops put,reserve,delete"
NO_WORSE: Final = Target(1.0)


def cpu(at_least: float, aim: float, unoptimised: float) -> tuple[Figure, Target]:
    """A target for the processor time."""
    return CPU, Target(at_least, aim, unoptimised)


def rate(at_least: float, aim: float) -> tuple[Figure, Target]:
    """A target for the throughput."""
    return RATE, Target(at_least, aim)


CPU_ONLY: Final = ((CPU, None),)
RATE_ONLY: Final = ((RATE, None),)
CPU_AND_RATE: Final = ((CPU, None), (RATE, None))

IN_MEMORY: Final = (
    Workload("rt1", "round trips, 1 connection", MEMORY, CYCLE,
             (cpu(2.6, 1.5, 3.0), (RATE, None)), connections=1, with_redis=True, is_quick=True),
    Workload("rt10", "round trips, 10 connections", MEMORY, f"{CYCLE} --connections 10",
             CPU_AND_RATE, connections=10, with_redis=True, is_detail=True),
    Workload("rt50", "round trips, 50 connections, 16 B", MEMORY, f"{CYCLE} --connections 50",
             (cpu(1.6, 1.0, 1.9), (RATE, None)), connections=50, with_redis=True, is_quick=True),
    Workload("rt200", "round trips, 200 connections", MEMORY, f"{CYCLE} --connections 200",
             CPU_AND_RATE, connections=200, with_redis=True, is_detail=True),
    Workload("rt1000", "round trips, 1,000 connections", MEMORY, f"{CYCLE} --connections 1000",
             CPU_AND_RATE, connections=1000, with_redis=True, is_detail=True),
    Workload("pipe100", "pipelined, depth 100, 1 connection", MEMORY, f"{CYCLE} --depth 100",
             ((RATE, Target(1.7, 5.0, 1.3)), (CPU, None)), with_redis=True, is_quick=True),
    Workload("mixed", "8 producers, 8 workers", MEMORY, "--connections 8 --workers 8",
             CPU_AND_RATE, is_quick=True, is_detail=True),
    Workload("backlog", "10 connections, {jobs:,} jobs stand by, one priority", MEMORY,
             f"{CYCLE} --connections 10 --preload {{jobs}}", CPU_ONLY, MILLION, most_rounds=3,
             is_detail=True),
    Workload("backlog-random", "10 connections, {jobs:,} jobs stand by, random priorities", MEMORY,
             f"{CYCLE} --connections 10 --preload {{jobs}} --random-priorities", CPU_ONLY, MILLION,
             most_rounds=3, is_quick=True),
    Workload("body256", "rt50 with bodies of 256 B", MEMORY, f"{CYCLE} --connections 50 --body 256",
             CPU_AND_RATE, with_redis=True, is_detail=True),
    Workload("body4k", "rt50 with bodies of 4 KiB", MEMORY, f"{CYCLE} --connections 50 --body 4096",
             CPU_AND_RATE, with_redis=True, is_detail=True),
    Workload("body60k", "rt50 with bodies of 60 KB, any bytes", MEMORY,
             f"{CYCLE} --connections 50 --body 60000 --random-bytes", CPU_AND_RATE,
             with_redis=True, is_quick=True),
)  # fmt: skip
"""Jobs in memory only."""

LOGGED: Final = (
    Workload("log-rt1", "round trips, 1 connection", LOG, CYCLE, CPU_AND_RATE, with_redis=True),
    Workload("50ms-rt1", "round trips, 1 connection", EVERY_50MS, CYCLE, CPU_AND_RATE,
             with_redis=True),
    Workload("50ms-rt50", "round trips, 50 connections", EVERY_50MS, f"{CYCLE} --connections 50",
             CPU_AND_RATE, with_redis=True),
    Workload("log-rt50", "round trips, 50 connections", LOG, f"{CYCLE} --connections 50",
             (cpu(1.3, 0.75, 1.5), (RATE, None)), with_redis=True, is_quick=True),
    Workload("log-pipe100", "pipelined, depth 100, 1 connection", LOG, f"{CYCLE} --depth 100",
             CPU_AND_RATE, with_redis=True),
    Workload("log-put100", "pipelined puts, depth 100, 1 connection", LOG, "--ops put --depth 100",
             CPU_AND_RATE, with_redis=True, is_detail=True),
    Workload("log-body60k", "rt50 with bodies of 60 KB", LOG,
             f"{CYCLE} --connections 50 --body 60000", CPU_AND_RATE, with_redis=True,
             is_detail=True),
    Workload("log-size", "8 connections, {jobs:,} jobs of 256 B stand by, files of 1 MiB", LOG,
             f"{CYCLE} --connections 8 --body 256 --preload {{jobs}}", ((LOG_BYTES, None),), 1000,
             seconds=4 * FULL_S, options=("-s", "1048576"), most_rounds=3, is_quick=True),
)  # fmt: skip
"""With a log that no reply waits for: a killed process loses nothing, a dead machine may."""

SYNCED: Final = (
    Workload("sync-rt1", "1 connection", SYNC, CYCLE, (rate(0.6, 0.9),), connections=1,
             with_redis=True, is_quick=True),
    Workload("sync-rt10", "10 connections", SYNC, f"{CYCLE} --connections 10", RATE_ONLY,
             connections=10, with_redis=True, is_detail=True),
    Workload("sync-rt50", "50 connections", SYNC, f"{CYCLE} --connections 50",
             (rate(1.8, 3.3),), connections=50, with_redis=True, is_quick=True),
    Workload("sync-rt200", "200 connections", SYNC, f"{CYCLE} --connections 200", RATE_ONLY,
             connections=200, with_redis=True),
    Workload("sync-1ms-rt1", "1 connection", SYNC_1MS, CYCLE, (rate(0.8, 1.0),), with_redis=True),
    Workload("sync-1ms-rt50", "50 connections", SYNC_1MS, f"{CYCLE} --connections 50",
             (rate(8.0, 16.0),), with_redis=True, is_quick=True),
    Workload("sync-4ms-rt1", "1 connection", SYNC_4MS, CYCLE, RATE_ONLY, with_redis=True,
             is_detail=True),
    Workload("sync-4ms-rt50", "50 connections", SYNC_4MS, f"{CYCLE} --connections 50",
             (rate(20.0, 25.0),), with_redis=True),
)  # fmt: skip
"""With a log that is synced before each reply that it matters to."""

WIDE: Final = (
    Workload("tubes", "10 connections, {jobs:,} tubes", MEMORY,
             f"{CYCLE} --connections 10 --tubes {{jobs}}", ((CPU, Target(0.2, 0.03)),), 10_000,
             is_quick=True),
    Workload("workers", "1 producer, {jobs:,} waiting workers", MEMORY,
             "--workers {jobs} --backlog 1", ((CPU, Target(0.2, 0.15)),), 1000, is_quick=True),
    Workload("workers-own", "the same, each watches 10 tubes of its own too", MEMORY,
             "--workers {jobs} --backlog 1 --own-tubes 10", ((CPU, Target(0.2, 0.15)),), 1000),
    Workload("watched", "reserve and release, {jobs:,} watched tubes with a job each", MEMORY,
             "--ops reserve,release --spread {jobs}", ((CPU, NO_WORSE),), 1000, is_quick=True),
    Workload("kick", "kick {jobs:,} buried jobs, one command", MEMORY,
             "--ops kick --preload {jobs} --bury --count 1", ((CPU, NO_WORSE),), 100_000, seconds=0,
             is_quick=True),
    Workload("log-kick", "kick {jobs:,} buried jobs, one command", LOG,
             "--ops kick --preload {jobs} --bury --count 1", ((CPU, Target(2.0, 1.0)),), 100_000,
             seconds=0),
    Workload("delete-random", "delete {jobs:,} jobs in random order, 10 connections", MEMORY,
             "--ops delete-preloaded --preload {jobs} --count {jobs} --connections 10",
             ((CPU, NO_WORSE),), 100_000, seconds=0, is_quick=True),
)  # fmt: skip
"""Much of something: where a list that is walked shows."""

LARGE: Final = (
    Workload("million", "put {jobs:,} jobs of 16 B, 4 connections, depth 16", MEMORY,
             "--ops put --count {jobs} --connections 4 --depth 16 --probe-us 2000 "
             "--memory-samples 20",
             ((JOB_BYTES, Target(1.0, 0.5)), (PAUSE, Target(100.0, 20.0)), (CPU, None)), MILLION,
             seconds=0, most_rounds=3, is_quick=True),
    Workload("million256", "put {jobs:,} jobs of 256 B, 4 connections, depth 16", MEMORY,
             "--ops put --count {jobs} --connections 4 --depth 16 --body 256 --memory-samples 20",
             ((JOB_BYTES, Target(1.0, 0.8)),), MILLION, seconds=0, most_rounds=3),
    Workload("replay", "start on a log of {jobs:,} jobs of 16 B", LOG,
             "--ops put --count {jobs} --connections 4 --depth 16",
             ((REPLAY, Target(1.5, 3.0)),), MILLION, seconds=0, most_rounds=3, is_quick=True),
)  # fmt: skip
"""A million jobs."""

FLOOD_S: Final = 15.0
"""How long a flood lasts, seconds: garbage collections and what piles up are in it."""

QUICK_FLOOD_S: Final = 1.0

BESIDE: Final = (
    (ASK_P99, Target(20.0)), (ASK_WORST, Target(100.0)),
    (CYCLE_P99, Target(20.0)), (CYCLE_WORST, Target(100.0)),
    (PEAK_BYTES, None), (KEPT_BYTES, None),
)  # fmt: skip
"""Of clients beside a flood: what a person, or a health check, does not notice."""


def hostile(
    name: str, says: str, flood: str, disk: Disk = MEMORY, options: tuple[str, ...] = ()
) -> Workload:
    """A flood.  The page says of all what the worst of them does."""
    return Workload(
        name, f"two clients beside {says}", disk, "", BESIDE, seconds=FLOOD_S,
        options=options, most_rounds=3, flood=flood, is_detail=True,
    )  # fmt: skip


HOSTILE: Final = (
    hostile("hostile-noise", "20 connections that send nonsense at full speed", "noise"),
    hostile("hostile-noise-log", "the same", "noise", LOG),
    hostile("hostile-noise-close", "the same, closed behind 5 to 50 KB", "noise-and-close"),
    hostile("hostile-lines", "200 connections that pipeline 64 KiB of wrong lines", "wrong-lines"),
    hostile("hostile-touch", "20 connections that pipeline touch", "touch"),
    hostile("hostile-connects", "3,000 connections a second, half puts, closed or reset",
            "connects"),
    hostile("hostile-unread", "3,000 connections that ask for 60 bodies of 65 KB, unread",
            "unread"),
    hostile("hostile-unread-large", "60 connections that ask for a body of 20 MB, unread",
            "unread-large", options=("-z", "30000000")),
)  # fmt: skip
"""One host does its worst."""

WORKLOADS: Final = IN_MEMORY + LOGGED + SYNCED + WIDE + LARGE + HOSTILE


def chosen(patterns: Sequence[str], quick: bool) -> list[Workload]:
    """Pick workloads by names, where ``*`` stands for anything; all if there are none.

    :raise ValueError: nothing has that name.
    """
    if not patterns:
        return [each for each in WORKLOADS if each.is_quick or not quick]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(each.name, pattern) for each in WORKLOADS):
            names = " ".join(each.name for each in WORKLOADS)
            raise ValueError(f"there is no workload {pattern!r}; there are: {names}")
    return [
        each for each in WORKLOADS
        if any(fnmatch.fnmatchcase(each.name, pattern) for pattern in patterns)
    ]  # fmt: skip
