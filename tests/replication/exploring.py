"""Schedules by the ten thousand, in as many processes as there are processors.

    python -m tests.replication.exploring [--first SEED] [--count N] [--processes N]

A line for each schedule that breaks what is promised, with the command that goes through it alone;
at the end, or at an interrupt, what all of them have seen, and how to go on.  Ends with 1 if one
was broken.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import Final, NamedTuple

from twisted.logger import globalLogBeginner

from tests.replication.schedules import Broken, Schedule, explore
from tests.replication.servers import SOUND, Parts

BATCH: Final = 20
"""Schedules that a process goes through before it tells of them: some 2 s."""

DEFAULT_COUNT: Final = 1000
"""Some 40 s on two processors."""


class Seen(NamedTuple):
    """What some schedules have seen.

    :ivar last: the greatest of their seeds.
    :ivar broken: what was wrong, by its seed.
    """

    last: int
    counts: Counter[str]
    broken: dict[int, str]


def explored(seeds: range, parts: Parts = SOUND) -> Seen:
    counts: Counter[str] = Counter()
    broken: dict[int, str] = {}
    for seed in seeds:
        counts["schedules"] += 1
        try:
            schedule = explore(seed, parts)
        except Broken as problem:
            broken[seed] = str(problem)
        else:
            counts.update(_counted(schedule))
    # `COLLECTED_AT` leaves most cycles to the oldest generation, which is seldom looked at.
    gc.collect()
    return Seen(seeds[-1], counts, broken)


def _counted(schedule: Schedule) -> Counter[str]:
    counts = Counter({name.strip("_"): count for name, count in schedule.counts.items()})
    counts["terms"] = schedule.log.terms
    counts["commands"] = schedule.memory.counts["commands"]
    return counts


def batches(first: int, count: int) -> Iterator[range]:
    """The seeds, `BATCH` at a time."""
    end = first + count
    return (range(at, min(at + BATCH, end)) for at in range(first, end, BATCH))


def summary(counts: Counter[str], seconds: float) -> str:
    """What was seen, one line, the most frequent first."""
    seen = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    return f"{seen}; {seconds:.0f} s"


def go_through(
    first: int, count: int, processes: int, tell: Callable[[str], None],
    progress: Callable[[int], None],
) -> bool:  # fmt: skip
    """Go through ``count`` schedules.

    :param progress: told how many are done.
    :return: whether all of them kept what is promised.
    """
    counts: Counter[str] = Counter()
    began_s, last, is_sound = time.monotonic(), first - 1, True
    with get_context("spawn").Pool(processes, _be_silent) as pool:
        try:
            for seen in pool.imap(explored, batches(first, count)):
                last = seen.last
                counts += seen.counts
                progress(counts["schedules"])
                for seed, what in seen.broken.items():
                    is_sound = False
                    tell(f"{what}\n    {command(seed)}")
        except KeyboardInterrupt:
            tell(f"interrupted; go on with --first {last + 1}")
    tell(f"seeds {first} to {last}: {summary(counts, time.monotonic() - began_s)}")
    return is_sound


def command(seed: int) -> str:
    """What goes through one schedule alone."""
    return f"python -m tests.replication.exploring --first {seed} --count 1"


def _be_silent() -> None:
    """In a process of the pool: what its servers log is not shown."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False)


def main() -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.replication.exploring")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--count", type=int, default=DEFAULT_COUNT, help="schedules (default: %(default)s)"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="default: all processors"
    )
    options = parser.parse_args()
    is_terminal = sys.stderr.isatty()

    def progress(done: int) -> None:
        if is_terminal:
            print(f"\r{done:,} of {options.count:,} schedules", end="", file=sys.stderr, flush=True)

    def tell(line: str) -> None:
        print(("\r\x1b[K" if is_terminal else "") + line, flush=True)

    return not go_through(options.first, options.count, options.processes, tell, progress)


if __name__ == "__main__":
    sys.exit(main())
