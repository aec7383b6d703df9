"""Measures: rounds of all servers in turns, each on a new folder and a new process."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

from benchmarks.speed.building import Tools
from benchmarks.speed.ending import temporary_folder
from benchmarks.speed.figures import (
    LOG_BYTES,
    REPLAY,
    Outcome,
    WrongRepliesError,
    parse_outcome,
    ratio,
)
from benchmarks.speed.flooding import flooded
from benchmarks.speed.servers import REDIS, NotStartedError, Running, Side, ready_jobs, running
from benchmarks.speed.workloads import QUICK_FLOOD_S, Workload

LOAD_LIMIT_S: Final = 900
"""The load generator gives up then, seconds: a million puts take one minute, or ten at worst."""

LOG_LOOKS_S: Final = 0.05
"""From one look at the size of the log to the next, seconds."""


FAILURES: Final = (NotStartedError, WrongRepliesError, OSError, subprocess.SubprocessError)
"""What ends a workload, and not the others."""


class Bench(NamedTuple):
    """How to measure.

    :ivar directory: where servers keep their logs, for which it matters what disk that is.
    """

    tools: Tools
    sides: tuple[Side, ...]
    rounds: int
    quick: bool
    directory: Path | None = None


class Result(NamedTuple):
    """All runs of one workload.

    :ivar outcomes: by the name of the server, one for each round.
    :ivar problem: why there are none, or fewer.
    """

    workload: Workload
    outcomes: dict[str, list[Outcome]]
    problem: str = ""


def order(sides: Sequence[Side], round_: int) -> list[Side]:
    """Take turns: A B, then B A.  So neither always runs on what the other has left behind."""
    return list(sides) if round_ % 2 == 0 else list(reversed(sides))


def measure(bench: Bench, workload: Workload, seen: Callable[[str], None]) -> Result:
    """Run all rounds of a workload.

    :param seen: told what begins.
    """
    sides = [side for side in bench.sides if side.name != REDIS or workload.with_redis]
    outcomes: dict[str, list[Outcome]] = {side.name: [] for side in sides}
    rounds = min(bench.rounds, workload.most_rounds)
    for round_ in range(rounds):
        for side in order(sides, round_):
            seen(f"{workload.name}, round {round_ + 1} of {rounds}, {side.name}")
            try:
                outcomes[side.name].append(measure_once(bench, workload, side))
            except FAILURES as problem:
                return Result(workload, {}, f"{side.name}: {problem}")
    return Result(workload, outcomes)


def measure_once(bench: Bench, workload: Workload, side: Side) -> Outcome:
    """Run one server through a workload."""
    with temporary_folder("speed-", bench.directory) as folder:
        if any(figure is REPLAY for figure, _ in workload.figures):
            return replay(bench, workload, side, folder)
        watches_log = any(figure is LOG_BYTES for figure, _ in workload.figures)
        with running(side, workload.disk, folder, bench.tools.slowsync, workload.options) as server:
            if workload.flood:
                seconds = QUICK_FLOOD_S if bench.quick else workload.seconds
                return flooded(workload.flood, seconds, server)
            if not watches_log:
                return load(bench, workload, side, server)
            with LogWatch(folder / "log") as watch:
                outcome = load(bench, workload, side, server)
        outcome.figures[LOG_BYTES.key] = max(size for _, size in watch.sizes)
        return outcome._replace(log=watch.sizes)


def load(bench: Bench, workload: Workload, side: Side, server: Running) -> Outcome:
    """Put the load on a server.

    :raise WrongRepliesError: it has answered wrong, or not at all.
    """
    command = [
        str(bench.tools.loadgen), "--port", str(server.port), "--pid", str(server.pid),
        "--timeout", str(LOAD_LIMIT_S), *(["--redis"] if side.name == REDIS else []),
        *workload.words(bench.quick),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * LOAD_LIMIT_S, check=False
    )
    if not done.stdout:
        raise WrongRepliesError(done.stderr.strip() or f"the load has ended by {done.returncode}")
    return parse_outcome(done.stdout)


def replay(bench: Bench, workload: Workload, side: Side, folder: Path) -> Outcome:
    """Measure a start on a full log, less what a start on an empty one takes.

    :raise WrongRepliesError: not all jobs have come back.
    """
    jobs = workload.count(bench.quick)
    with running(side, workload.disk, folder, bench.tools.slowsync) as server:
        empty_s = server.cpu_s
        load(bench, workload, side, server)
        server.stop()
    with running(side, workload.disk, folder, bench.tools.slowsync) as server:
        found = ready_jobs(server.port)
        if found != jobs:
            raise WrongRepliesError(f"{jobs} jobs were put, {found} have come back")
        return replayed(jobs, empty_s, server.cpu_s)


def replayed(jobs: int, empty_s: float, full_s: float) -> Outcome:
    """Tell how fast a log was replayed, from the processor time of two starts.

    Where the full start took no more than the empty one, what a start varies by has swallowed the
    replay: then there is no figure.  Both starts are kept, so that one can see why.
    """
    starts = {"empty_start_s": empty_s, "full_start_s": full_s}
    return Outcome({REPLAY.key: ratio(jobs, full_s - empty_s), **starts})


class LogWatch:
    """Looks at the size of a log, as long as the block lasts.

    :ivar sizes: pairs of seconds and bytes of all files.
    """

    def __init__(self, log: Path) -> None:
        self.sizes: list[tuple[float, float]] = []
        self._log = log
        self._is_over = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> LogWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        began = time.monotonic()
        while True:
            self.sizes.append((round(time.monotonic() - began, 3), size_of(self._log)))
            if self._is_over.wait(LOG_LOOKS_S):
                return


def size_of(log: Path) -> float:
    """Add up the files of a folder."""
    total = 0
    for path in log.iterdir():
        with suppress(FileNotFoundError):  # It was deleted in between.
            total += path.stat().st_size
    return total
