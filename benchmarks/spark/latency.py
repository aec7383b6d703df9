"""How long it takes from a record in the log to a committed row of Parquet.

    python -m benchmarks.spark.latency FOLDER [--seconds N] [--rate N]

A server under the load of `history`, `follower` on its log with no pause
between batches.  A row's latency is from when its frame was built (column ``logged_ns``) to when
Spark has noted its batch as done (the file in the checkpoint).  The first batches, of a session
that is not warm, are left aside.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq

from benchmarks.spark.driving import WARM_S, drive, percentiles, under_load
from benchmarks.spark.kills import batches, command


def rows_by_batch(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """The files that each batch has written, as Spark has noted them."""
    for path in sorted((folder / "out" / "_spark_metadata").iterdir()):
        number = path.name.removesuffix(".compact")
        if not number.isdigit():
            continue
        for line in path.read_text().splitlines()[1:]:
            noted = json.loads(line)
            yield int(number), [unquote(urlparse(noted["path"]).path)]


def latencies(folder: Path) -> np.ndarray:
    """Of all rows of warm batches, in seconds."""
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
    """Do all of it.

    :param folder: a new one.
    """
    folder.mkdir(parents=True)
    history = folder / "history"
    driver = command(folder, "--max-bytes", "64M")
    with under_load(history, rate, 1 << 22, 0):
        drive(driver, folder / "driver.log", lambda: batches(folder, "commits"), WARM_S + seconds)
    taken = latencies(folder)
    return {"rows": len(taken), "batches": batches(folder, "commits"), **percentiles(taken)}


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    parser = argparse.ArgumentParser(description="Measure the latency of a stream.")
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--seconds", type=float, default=60, help="%(default)s")
    parser.add_argument("--rate", type=int, default=600, help="jobs a second (%(default)s)")
    given = parser.parse_args(words)
    print(json.dumps(run(given.folder, given.seconds, given.rate), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
