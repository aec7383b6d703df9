"""
What differs between two logs, or between a log and a running server.

Both sides are gone through side by side, ascending by id, so no more is held of them than of one.
"""

import zlib
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import Final, NamedTuple

from binlog_tools.client import Line, Reply, parse_stats
from binlog_tools.console.wording import text_of
from binlog_tools.inspect.dumping import Fields, job_fields, tags_text
from binlog_tools.inspect.listing import chosen_jobs, chosen_live, sound_snapshot
from binlog_tools.logs.live_set import Bodies
from binlog_tools.logs.loading import Loaded
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import StoredJob

WINDOW_JOBS: Final = 64
"""Jobs that a server is asked about at once."""

FIELDS: Final = (
    "tube", "state", "priority", "delay_s", "ttr_s", "created", "deadline", "reserves", "timeouts",
    "releases", "buries", "kicks", "body", "tags",
)  # fmt: skip
"""What is compared."""

IN_STATS: Final[Mapping[str, bytes]] = {
    "tube": b"tube", "state": b"state", "priority": b"pri", "delay_s": b"delay", "ttr_s": b"ttr",
    "reserves": b"reserves", "timeouts": b"timeouts", "releases": b"releases", "buries": b"buries",
    "kicks": b"kicks",
}  # fmt: skip
"""What a server tells of a job, and how it calls it; the body comes from `peek`."""


class Difference(NamedTuple):
    """
    A job that is not the same on both sides.

    :ivar where: ``a``: only in the first, ``b``: only in the second, ``both``: it differs.
    :ivar fields: the values that differ, first and second.
    """

    job_id: int
    where: str
    fields: dict[str, tuple[object, object]]


def compare_logs(
    a: Loaded, b: Loaded, selection: Selection, ignored: Collection[str] = ()
) -> Iterator[Difference]:
    """The jobs that a server would load from one log and not from the other, or otherwise."""
    left, right = chosen_jobs(a, selection), chosen_jobs(b, selection)
    one, two = next(left, None), next(right, None)
    while one is not None or two is not None:
        if two is None or (one is not None and one.job_id < two.job_id):
            assert one is not None
            yield Difference(one.job_id, "a", {})
            one = next(left, None)
        elif one is None or two.job_id < one.job_id:
            yield Difference(two.job_id, "b", {})
            two = next(right, None)
        else:
            found = _differing(values_of(one), values_of(two), ignored)
            if found:
                yield Difference(one.job_id, "both", found)
            one, two = next(left, None), next(right, None)


def _differing(
    one: Fields, two: Fields, ignored: Collection[str]
) -> dict[str, tuple[object, object]]:
    return {
        name: (one[name], two[name])
        for name in FIELDS
        if name in one and name in two and name not in ignored and one[name] != two[name]
    }


def values_of(job: StoredJob) -> Fields:
    """What is compared of a job; of the body, its size and checksum."""
    return {
        "tube": text_of(job.tube), **job_fields(job), "body": _summary(job.body),
        "tags": tags_text(job.tags),
    }  # fmt: skip


def _summary(body: bytes) -> str:
    return f"{len(body)} bytes, CRC {zlib.crc32(body):08x}"


class ServerComparison:
    """
    A log beside a running server.

    :ivar unknown_to_log: how many jobs the server has that the log does not name, once all are
        compared; None when only some jobs were chosen.
    """

    def __init__(self, source: Source, line: Line) -> None:
        """:raise BinlogError: a server would refuse the log."""
        self._source = source
        self._line = line
        self._live = sound_snapshot(source).live
        self.unknown_to_log: int | None = None

    def differences(
        self, selection: Selection, now_ns: int, ignored: Collection[str] = ()
    ) -> Iterator[Difference]:
        """
        The jobs of the log that the server has not, or has otherwise.

        :raise OSError: the server is gone.
        """
        bodies = Bodies(self._source)
        window: list[StoredJob] = []
        common = 0
        for found, job in chosen_live(self._live, selection, now_ns):
            window.append(job._replace(body=bodies.of(found)))
            if len(window) >= WINDOW_JOBS:
                common += yield from self._window(window, ignored)
                window = []
        common += yield from self._window(window, ignored)
        if selection == Selection():
            self.unknown_to_log = max(0, self._total() - common)

    def _window(
        self, jobs: list[StoredJob], ignored: Collection[str]
    ) -> Generator[Difference, None, int]:
        """:return: how many of these jobs the server has."""
        request = [b"stats-job %d\r\npeek %d\r\n" % (job.job_id, job.job_id) for job in jobs]
        if request:
            self._line.send(b"".join(request))
        common = 0
        for job in jobs:
            stats, body = self._line.reply(), self._line.reply()
            if stats.name != b"OK" or body.name != b"FOUND":
                yield Difference(job.job_id, "a", {})
                continue
            common += 1
            found = _differing(values_of(job), _told(stats, body), ignored)
            if found:
                yield Difference(job.job_id, "both", found)
        return common

    def _total(self) -> int:
        self._line.send(b"stats\r\n")
        stats = parse_stats(self._line.reply().data)
        states = (b"ready", b"reserved", b"delayed", b"buried")
        return sum(int(stats.get(b"current-jobs-" + state, b"0")) for state in states)


def _told(stats: Reply, body: Reply) -> Fields:
    found = parse_stats(stats.data)
    told: Fields = {}
    for name, key in IN_STATS.items():
        value = found.get(key, b"")
        told[name] = text_of(value) if name in ("tube", "state") else int(value or b"0")
    return {**told, "body": _summary(body.data)}
