"""What three NATS servers have of what they acknowledged, after all of them have lost power.

    python -m tests.replication.chaos.unsynced --folder DIR --sync-interval S

Prints how many messages were acknowledged, and how many are there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.jetstream import JetStream
from tests.replication.chaos.field import STREAM, Field
from tests.replication.chaos.machines import again_inside, has_namespaces
from tests.replication.cluster import LIMIT_S

MESSAGES: Final = 50


def left(folder: Path, sync_interval: str) -> int:
    """Append `MESSAGES`, and count them after the loss."""
    field = Field(folder, sync_interval)
    try:
        field.wait_for_nats()
        stream = opened(field)
        for at in range(MESSAGES):
            stream.append(b"message %d" % at, at).result(LIMIT_S)
        stream.close().result(LIMIT_S)
        field.lose_power()
        field.wait_for_nats()
        stream = opened(field)
        try:
            return stream.ends().result(LIMIT_S).last
        finally:
            stream.close().result(LIMIT_S)
    finally:
        field.stop()


def opened(field: Field) -> JetStream:
    """A client of the stream, which is made if there is none."""
    stream = JetStream(parse(field.nats.url(STREAM)), {}, LIMIT_S)
    stream.open().result(LIMIT_S)
    return stream


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--sync-interval", required=True)
    chosen = parser.parse_args()
    if not has_namespaces():
        again_inside(sys.argv[1:], "tests.replication.chaos.unsynced")
        print("not root: no losses of power")
        return 2
    print(f"{left(Path(chosen.folder), chosen.sync_interval)} of {MESSAGES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
