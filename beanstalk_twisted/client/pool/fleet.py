"""
All servers of a pool at once: what they say of themselves, and which tubes are not where they
belong.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from twisted.internet.defer import DeferredList

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.pool.hashing import Split
from beanstalk_twisted.client.pool.member import PoolMember
from beanstalk_twisted.client.stats import ServerStats, TubeStats

SUMMED: Final = (
    "current-", "cmd-", "total-", "job-timeouts", "binlog-records-", "rusage-",
)  # fmt: skip
"""How the keys of `stats` begin that can be added up."""


class PoolStats(NamedTuple):
    """
    What the servers say of themselves.

    :ivar servers: each that has answered, by its name.
    :ivar total: the sums of what can be added up, by the keys of the protocol.
    :ivar failed: why the others have not answered.
    """

    servers: Mapping[str, ServerStats]
    total: Mapping[str, float]
    failed: Mapping[str, BaseException]


class Misplaced(NamedTuple):
    """
    A tube that has jobs on a server which is not the tube's.

    :ivar home: where the tube belongs: there go new jobs.
    """

    tube: str
    server: str
    home: str
    stats: TubeStats


async def stats_of(members: Iterable[PoolMember]) -> PoolStats:
    """Ask all."""
    members = list(members)
    asked = [member.send("stats", lambda client: client.stats()) for member in members]
    servers: dict[str, ServerStats] = {}
    failed: dict[str, BaseException] = {}
    answers: Any = await DeferredList(asked, consumeErrors=True)
    for member, (is_good, answer) in zip(members, answers, strict=True):
        if is_good:
            servers[member.name] = answer
        else:
            failed[member.name] = answer.value
    return PoolStats(servers, added_up(servers.values()), failed)


def added_up(servers: Iterable[ServerStats]) -> dict[str, float]:
    """Add up what can be."""
    total: dict[str, float] = {}
    for stats in servers:
        for key, value in stats.items():
            if key.startswith(SUMMED) and isinstance(value, int | float):
                total[key] = total.get(key, 0) + value
    return total


async def misplaced_on(members: Iterable[PoolMember], split: Split) -> tuple[Misplaced, ...]:
    """Look on all servers that are there."""
    found = []
    for member in [member for member in members if not member.is_down]:
        for tube in await member.send("list-tubes", lambda client: client.list_tubes()):
            home = split.server_of(tube)
            if home != member.name and (stats := await stats_of_tube(member, tube)) is not None:
                found.append(Misplaced(tube, member.name, home, stats))
    return tuple(found)


async def stats_of_tube(member: PoolMember, tube: str) -> TubeStats | None:
    """Ask for a tube with jobs; None if it has none."""
    try:
        stats = await member.send("stats-tube", lambda client: client.stats_tube(tube))
    except errors.NotFound:
        return None  # Its last job has ended since.
    ready, reserved = stats.current_jobs_ready, stats.current_jobs_reserved
    delayed, buried = stats.current_jobs_delayed, stats.current_jobs_buried
    return stats if ready or reserved or delayed or buried else None
