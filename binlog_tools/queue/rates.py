"""What happens in a server between two looks at it."""

from collections.abc import Sequence
from typing import NamedTuple

from binlog_tools.queue.server import Queue, Stats


class Snapshot(NamedTuple):
    """
    The statistics of a server at one moment.

    :ivar at_s: when, by a clock that only runs forward, seconds.
    """

    at_s: float
    server: Stats
    tubes: Sequence[Stats]


class Row(NamedTuple):
    """
    A tube, or all of them.

    :ivar puts_s: jobs put in a second since the look before; None in the first.
    :ivar deletes_s: jobs deleted in a second.
    :ivar pause_s: seconds until a pause ends; 0 without one.
    """

    tube: str
    ready: int
    reserved: int
    delayed: int
    buried: int
    waiting: int
    puts_s: float | None
    deletes_s: float | None
    pause_s: int


def take_snapshot(queue: Queue, at_s: float) -> Snapshot:
    """Ask for the statistics of the server and of all tubes."""
    return Snapshot(at_s, queue.stats(), queue.all_tubes())


def rows(now: Snapshot, before: Snapshot | None) -> list[Row]:
    """All tubes, as they are and as they changed since a look before."""
    seconds = 0.0 if before is None else now.at_s - before.at_s
    old = {} if before is None else {tube["name"]: tube for tube in before.tubes}
    return [_row(tube, old.get(tube["name"], Stats()), seconds) for tube in now.tubes]


def _row(tube: Stats, old: Stats, seconds: float) -> Row:
    ready, reserved, delayed, buried = (tube.number(f"current-jobs-{state}") for state in STATES)
    return Row(
        tube["name"], ready, reserved, delayed, buried,
        tube.number("current-waiting"), _rate(tube, old, "total-jobs", seconds),
        _rate(tube, old, "cmd-delete", seconds), tube.number("pause-time-left"),
    )  # fmt: skip


STATES = ("ready", "reserved", "delayed", "buried")


def total(of: Sequence[Row]) -> Row:
    puts = [row.puts_s for row in of if row.puts_s is not None]
    deletes = [row.deletes_s for row in of if row.deletes_s is not None]
    return Row(
        "all", sum(row.ready for row in of), sum(row.reserved for row in of),
        sum(row.delayed for row in of), sum(row.buried for row in of),
        sum(row.waiting for row in of), sum(puts) if puts else None,
        sum(deletes) if deletes else None, 0,
    )  # fmt: skip


def _rate(new: Stats, old: Stats, key: str, seconds: float) -> float | None:
    """A counter that has gone back belongs to a tube, or a server, that was new in between."""
    if seconds <= 0:
        return None
    begun, now = int(old.get(key, 0)), new.number(key)
    return (now - begun if now >= begun else now) / seconds
