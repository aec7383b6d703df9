"""What the benchmarks of streams share: a server under load, and a driver that reads its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

LIMIT_S: Final = 600.0
"""How long a driver may take to its first batch, or to its end, seconds: as long as Spark waits for
its own parts (`session.PATIENCE_S`)."""

LOAD_S: Final = 3600
"""How long the load goes on at the most, seconds: it is ended when the drivers are done."""

RESTARTS: Final = LOAD_S // 15
"""How often the server is restarted in that time, where it is."""

CHANGED: Final = b"[BINLOG_CHANGED]"
"""With this a driver says that a server has cut what it was reading."""

WARM_S: Final = 20.0
"""What is left aside of a driver whose latency is measured, from its first batch on, seconds."""


@contextmanager
def under_load(
    history: Path, rate: int, segment_bytes: int, restarts: int, *more: str
) -> Iterator[None]:
    """A server, with its log and its archive in this folder, works within the block.

    :param rate: jobs a second.
    :param more: words for `benchmarks.spark.history`.
    """
    load = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.spark.history", str(history), "--jobs", "0",
         "--seconds", str(LOAD_S), "--rate", str(rate), "--restarts", str(restarts),
         "--segment-bytes", str(segment_bytes), *more],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for_log(history / "log")
        yield
    finally:
        # In order: the server ends its last segment and archives it.
        load.send_signal(signal.SIGINT)
        load.wait(LIMIT_S)


def _wait_for_log(log: Path) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not list(log.glob("*.tql")):
        if time.monotonic() > give_up:
            raise SystemExit("the server has not started")
        time.sleep(0.05)


def drive(
    command: Sequence[str], said: Path, done: Callable[[], int], seconds: float,
    how: signal.Signals = signal.SIGKILL,
) -> None:  # fmt: skip
    """Run a driver until it has done one thing more, and for so long; then end it and what it
    started.  One that ends since a restarted server has cut what it was reading is started again,
    as docs/spark.md has users do.

    :param said: the file that its output is appended to.
    :param done: counts what drivers have done.
    :raise SystemExit: it does nothing.
    """
    before, give_up = done(), time.monotonic() + LIMIT_S
    driver = _started(command, said)
    try:
        while done() <= before:
            has_ended = driver.poll() is not None
            if time.monotonic() > give_up or (has_ended and not _was_cut(said)):
                raise SystemExit(f"the driver finishes nothing; see {said}")
            if has_ended:
                driver = _started(command, said)
            time.sleep(0.1)
        time.sleep(seconds)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, how)
        driver.wait()


def _started(command: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _was_cut(said: Path) -> bool:
    return any(CHANGED in line for line in said.read_bytes().splitlines()[-1:])


def finish(command: Sequence[str], said: Path) -> None:
    """Run a driver that ends by itself."""
    with said.open("ab") as log:
        subprocess.run(command, stdout=log, stderr=log, timeout=LIMIT_S, check=True)


def percentiles(taken: np.ndarray) -> dict[str, float]:
    """Of latencies in seconds, with the load of the machine."""
    p50, p95, p99 = np.percentile(taken, [50, 95, 99]).round(3).tolist()
    return {"p50_s": p50, "p95_s": p95, "p99_s": p99, "max_s": round(float(taken.max()), 3),
            "load_average": round(os.getloadavg()[0], 1)}  # fmt: skip
