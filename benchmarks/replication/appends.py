"""Appends a second to a replicated stream: three servers of NATS on this machine, which sync each.

    python -m benchmarks.replication.appends [--seconds N] [--folder DIR]

One client appends messages of 4 KiB, each expecting the one before, with 1, 8 and 16 on their way.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from beanstalk_twisted.replication.stream.addresses import stream_at
from beanstalk_twisted.replication.stream.interface import Stream
from tests.replication.cluster import running

PAYLOAD: Final = bytes(4096)
IN_FLIGHT: Final = (1, 8, 16)


def appends_a_second(stream: Stream, in_flight: int, seconds: float) -> float:
    """Append for so long."""
    last = stream.ends().result().last
    waiting: deque[Future[int]] = deque()
    count = 0
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        while len(waiting) < in_flight:
            waiting.append(stream.append(PAYLOAD, last))
            last += 1
        waiting.popleft().result()
        count += 1
    elapsed = time.monotonic() - start
    for each in waiting:
        each.result()
    return count / elapsed


def main() -> None:
    """Print a line for each number in flight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--folder", help="on the disk that is measured")
    chosen = parser.parse_args()
    with TemporaryDirectory(dir=chosen.folder) as folder, running(Path(folder), 3) as cluster:
        stream = stream_at(cluster.url("appends"))
        stream.open().result()
        for in_flight in IN_FLIGHT:
            print(f"{in_flight:3} {appends_a_second(stream, in_flight, chosen.seconds):8,.0f}/s")
        stream.close().result()


if __name__ == "__main__":
    main()
