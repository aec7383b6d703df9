"""All servers of a pool at once: what they say of themselves, and which tubes are not where they
belong.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.deadline import cancel
from beanstalk_twisted.client.pool.hashing import Split
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.client.stats import ServerStats, TubeStats

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""How long a server may be missing before it is down, seconds: longer than a restart."""


class PoolMember:
    """The way to one server.

    :ivar is_up: there is a connection.
    :ivar is_down: there was none for so long that nobody waits for one.
    """

    _log = Logger(namespace="beanstalk_twisted.client.pool.pool")

    def __init__(
        self, name: str, clock: Any, make_client: Callable[..., Client], patience_s: float,
        changed: Callable[["PoolMember"], object],
    ) -> None:  # fmt: skip
        """:param make_client: makes the client, given what it is to call when it has a connection,
            and when it has lost one.
        :param changed: called with this when the server is up, missing or down.
        """
        self.name = name
        self.client = make_client(connected=self._connected, lost=self._lost)
        self.is_up = False
        self.is_down = False
        self._clock = clock
        self._patience_s = patience_s
        self._changed = changed
        self._timer: IDelayedCall | None = None
        self._bound: set[Deferred[Any]] = set()

    def start(self) -> None:
        self._miss()
        self.client.startService()

    def stop(self) -> Deferred[None]:
        """Part.  What waits for a connection, or for an answer, fails."""
        self.is_up = self.is_down = False
        self._stop_timer()
        return self.client.stopService()

    def send(self, name: str, ask: Callable[[Client], Deferred[T]]) -> Deferred[T]:
        """Send a command.

        :param name: the command's, for errors.
        :raise ServerDown: through the Deferred: it is down, or was before the command was sent.
        """
        if self.is_down:
            return fail(self._is_gone(name))
        return self._bind(name, ask(self.client))

    def _bind(self, name: str, sent: Deferred[T]) -> Deferred[T]:
        """Give this up when the server is down."""
        self._bound.add(sent)

        def answered(answer: Any) -> Any:
            # Whatever is taken out by `_give_up` has no other end than this one.
            is_given_up = sent not in self._bound
            self._bound.discard(sent)
            if is_given_up and isinstance(answer, Failure) and answer.check(CancelledError):
                return Failure(self._is_gone(name))
            return answer

        return sent.addBoth(answered)

    def _is_gone(self, command: str) -> errors.ServerDown:
        return errors.ServerDown(command, self.name, reason=self.client.trouble)

    # Up and down.

    def _connected(self) -> None:
        self._stop_timer()
        if self.is_down:
            self._log.info("the server {server} is back", server=self.name)
        self.is_up, self.is_down = True, False
        self._changed(self)

    def _lost(self, losses: Losses) -> None:
        self.is_up = False
        self._miss()
        self._changed(self)

    def _miss(self) -> None:
        self._stop_timer()
        self._timer = self._clock.callLater(self._patience_s, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        self.is_down = True
        trouble = self.client.trouble
        self._log.warn(
            "no connection to the server {server} for {seconds:g} s{why}: its tubes wait for it",
            server=self.name, seconds=self._patience_s,
            why="" if trouble is None else f" ({errors.without_server(trouble)})",
        )  # fmt: skip
        bound, self._bound = self._bound, set()
        for sent in bound:
            sent.cancel()
        self._changed(self)

    def _stop_timer(self) -> None:
        cancel(self._timer)
        self._timer = None


SUMMED: Final = (
    "current-", "cmd-", "total-", "job-timeouts", "binlog-records-", "rusage-",
)  # fmt: skip
"""How the keys of `stats` begin that can be added up."""


class PoolStats(NamedTuple):
    """What the servers say of themselves.

    :ivar servers: each that has answered, by its name.
    :ivar total: the sums of what can be added up, by the keys of the protocol.
    :ivar failed: why the others have not answered.
    """

    servers: Mapping[str, ServerStats]
    total: Mapping[str, float]
    failed: Mapping[str, BaseException]


class Misplaced(NamedTuple):
    """A tube that has jobs on a server which is not the tube's.

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
