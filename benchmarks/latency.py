"""
How long it takes from a record in the log to a committed row of Parquet.

    python -m benchmarks.latency FOLDER [--seconds N] [--rate N]

A server under the load of `benchmarks.history`, `benchmarks.follower` on its log with no pause
between batches.  A row's latency is from when its frame was built (column ``logged_ns``) to when
Spark has noted its batch as done (the file in the checkpoint).  The first batches, of a session
that is not warm, are left aside.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq

from benchmarks.kills import batches, command, wait_for_log

WARM_S: Final = 20.0
"""What is left aside, from the first finished batch on."""


def rows_by_batch(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """
    The files that each batch has written, as Spark has noted them.
    """
    for path in sorted((folder / "out" / "_spark_metadata").iterdir()):
        number = path.name.removesuffix(".compact")
        if not number.isdigit():
            continue
        for line in path.read_text().splitlines()[1:]:
            noted = json.loads(line)
            yield int(number), [unquote(urlparse(noted["path"]).path)]


def latencies(folder: Path) -> np.ndarray:
    """
    Of all rows of warm batches, in seconds.
    """
    commits = folder / "checkpoint" / "commits"
    done = {int(each.name): each.stat().st_mtime_ns for each in commits.iterdir()
            if each.name.isdigit()}  # fmt: skip
    warm_ns = min(done.values()) + int(WARM_S * 1e9)
    found, seen = [], set()
    for batch, paths in rows_by_batch(folder):
        for path in paths:
            # A compact file repeats what the ones before it say.
            if path in seen or done.get(batch, 0) < warm_ns:
                seen.add(path)
                continue
            seen.add(path)
            logged = pq.read_table(path, columns=["logged_ns"])["logged_ns"].to_numpy()
            found.append((done[batch] - logged) / 1e9)
    return np.concatenate(found) if found else np.zeros(0)


def run(folder: Path, seconds: float, rate: int) -> dict[str, float]:
    """
    Do all of it.

    :param folder: a new one.
    """
    folder.mkdir(parents=True)
    history = folder / "history"
    load = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.history", str(history), "--jobs", "0", "--restarts", "0",
         "--seconds", "3600", "--rate", str(rate), "--segment-bytes", str(1 << 22)],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_log(history / "log")
        with (folder / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                command(folder, "--max-bytes", "64M"), stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            while not batches(folder, "commits") and driver.poll() is None:
                time.sleep(0.1)
            time.sleep(WARM_S + seconds)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    finally:
        load.send_signal(signal.SIGINT)
        load.wait(60)
    taken = latencies(folder)
    p50, p95, p99 = np.percentile(taken, [50, 95, 99]).round(3).tolist()
    return {
        "rows": len(taken), "batches": batches(folder, "commits"), "p50_s": p50, "p95_s": p95,
        "p99_s": p99, "max_s": round(float(taken.max()), 3),
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """
    :return: the exit code.
    """
    parser = argparse.ArgumentParser(description="Measure the latency of a stream.")
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--seconds", type=float, default=60, help="%(default)s")
    parser.add_argument("--rate", type=int, default=600, help="jobs a second (%(default)s)")
    given = parser.parse_args(words)
    print(json.dumps(run(given.folder, given.seconds, given.rate), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
