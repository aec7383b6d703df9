"""What is known of a server's jobs that were first seen on a day, and are not gone: it is replaced
together, or stays.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from binlog_tools.spark.histories.resting import is_awake
from binlog_tools.spark.histories.windows import Ints
from binlog_tools.spark.storing.files import File

UNSETTLED: Final = {"settled": "false"}
"""The partitions of jobs that are not gone."""

_NO_JOBS: Final = np.zeros(0, np.int64)


class ServerDay(NamedTuple):
    """The jobs of a server that were first seen on a day, as text."""

    server: str
    date: str

    def partition(self) -> dict[str, str | None]:
        return {"server": self.server, "date": self.date}


def server_of(file: File) -> str:
    return str(dict(file.partition)["server"])


def day_of(file: File) -> ServerDay:
    return ServerDay(server_of(file), str(dict(file.partition)["date"]))


def largest_jobs(files: Iterable[File]) -> dict[str, int]:
    """The largest id of a job in these files, of each server."""
    found: dict[str, int] = {}
    for file in files:
        server, span = server_of(file), file.spans("job")
        if span is not None:
            found[server] = max(span[1], found.get(server, 0))
    return found


def sleeping(
    files: Iterable[File], touched: Mapping[str, Ints], last_ns: Mapping[str, int]
) -> frozenset[ServerDay]:
    """:param files: of ``open``, all of them.
    :param touched: of servers, the jobs that new events are of.
    :param last_ns: of servers, the last moment.
    :return: the days of which all jobs rest.
    """
    there, awake = set(), set()
    for file in files:
        server, day = server_of(file), day_of(file)
        there.add(day)
        jobs = touched.get(server, _NO_JOBS)
        # Others may have put files together, without statistics.
        is_told = file.tells_of("job") and file.tells_of("due_ns")
        if not is_told or is_awake(file.spans("job"), file.spans("due_ns"), jobs, last_ns[server]):
            awake.add(day)
    return frozenset(there - awake)
