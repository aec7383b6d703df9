"""The servers of a pool: the way to each, what all of them answer, and the connections on which it
reserves from one of them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    FirstError,
    fail,
    gatherResults,
)
from twisted.internet.endpoints import connectProtocol
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.methods import watch_only
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.client.core.dialogue import Ended, lose_all
from beanstalk_twisted.client.endpoints import Way
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.pool.hashing import Split
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.client.stats import ServerStats, TubeStats

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""How long a server may be missing before it is down, seconds: longer than a restart."""


SUMMED: Final = (
    "current-", "cmd-", "total-", "job-timeouts", "binlog-records-", "rusage-",
)  # fmt: skip
"""How the keys of `stats` begin that can be added up."""

BLOCKING_RESERVE_S: Final = 30
"""How long a `reserve` waits, seconds; it is then sent again, so a dead server is noticed."""


class PoolMember:
    """:ivar is_up: there is a connection.
    :ivar is_down: there was none for so long that nothing waits for one.
    """

    _log = Logger(namespace="beanstalk_twisted.client.pool.pool")

    def __init__(
        self, name: str, clock: Any, make_client: Callable[..., Client], patience_s: float,
        changed: Callable[["PoolMember"], object],
    ) -> None:  # fmt: skip
        """:param make_client: given ``connected`` and ``lost``, as of `Client`.
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
        """Send a command, and give it up when the server is down.

        :raise ServerDown: through the Deferred: it is down, or was before the command was sent.
        """
        if self.is_down:
            return fail(self._is_gone(name))
        sent = ask(self.client)
        self._bound.add(sent)

        def answered(answer: Any) -> Any:
            # What is taken out by `_give_up` has no other end than this one.
            is_given_up = sent not in self._bound
            self._bound.discard(sent)
            if is_given_up and isinstance(answer, Failure) and answer.check(CancelledError):
                return Failure(self._is_gone(name))
            return answer

        return sent.addBoth(answered)

    def _is_gone(self, command: str) -> errors.ServerDown:
        return errors.ServerDown(command, self.name, reason=self.client.trouble)

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


class PoolStats(NamedTuple):
    """:ivar total: the sums of what can be added up, by the keys of the protocol.
    :ivar failed: why servers have not answered, by their names.
    """

    servers: Mapping[str, ServerStats]
    total: Mapping[str, float]
    failed: Mapping[str, BaseException]


class Misplaced(NamedTuple):
    """A tube that has jobs on a server which is not its ``home``: there go new jobs."""

    tube: str
    server: str
    home: str
    stats: TubeStats


async def stats_of(members: Iterable[PoolMember]) -> PoolStats:
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
    total: dict[str, float] = {}
    for stats in servers.values():
        for key, value in stats.items():
            if key.startswith(SUMMED) and isinstance(value, int | float):
                total[key] = total.get(key, 0) + value
    return PoolStats(servers, total, failed)


async def misplaced_on(members: Iterable[PoolMember], split: Split) -> tuple[Misplaced, ...]:
    found = []
    for member in [member for member in members if not member.is_down]:
        for tube in await member.send("list-tubes", lambda client: client.list_tubes()):
            home = split.server_of(tube)
            if home != member.name and (stats := await _stats_of_tube(member, tube)) is not None:
                found.append(Misplaced(tube, member.name, home, stats))
    return tuple(found)


async def _stats_of_tube(member: PoolMember, tube: str) -> TubeStats | None:
    """Ask for a tube with jobs; None if it has none."""
    try:
        stats = await member.send("stats-tube", lambda client: client.stats_tube(tube))
    except errors.NotFound:
        return None  # Its last job has ended since.
    ready, reserved = stats.current_jobs_ready, stats.current_jobs_reserved
    delayed, buried = stats.current_jobs_delayed, stats.current_jobs_buried
    return stats if ready or reserved or delayed or buried else None


@dataclass(frozen=True, slots=True)
class PoolJob:
    """:ivar id: its number there.  Other servers have jobs of that number too.
    :ivar body: empty if it is not known.
    :ivar job_connection: the connection that has reserved it; None if none of ours has.
    """

    server: str
    id: int
    body: bytes = field(default=b"", repr=False)
    job_connection: "JobConnection | None" = field(default=None, repr=False, compare=False)


class JobConnection:
    """:ivar jobs: the numbers of those that are reserved on it, as far as we know."""

    def __init__(self, job_connections: "JobConnections") -> None:
        self.jobs: set[int] = set()
        self.polls = 0
        self.gone: Deferred[None] = Deferred()
        self._job_connections = job_connections
        self.connection = Connection(
            job_connections.clock, grace_s=job_connections.grace_s, ended=self._ended
        )

    async def watch(self) -> None:
        """Show the token, and watch the tubes; all are confirmed before a reserve, since no other
        jobs are ours.
        """
        try:
            token, tubes = self._job_connections.way.token, self._job_connections.tubes
            shown = [] if token is None else [self.connection.auth(token)]
            asked = [*shown, *watch_only(self.connection, tubes)]
            await gatherResults(asked, consumeErrors=True)
        except FirstError as error:
            self.hang_up()
            assert error.subFailure.value is not None
            raise error.subFailure.value from None

    def take(self, job: Job) -> PoolJob:
        """Note a job that was reserved."""
        self.jobs.add(job.id)
        return PoolJob(self._job_connections.name, job.id, job.body, self)

    def end(self, job_id: int, asked: Deferred[T]) -> Deferred[T]:
        """Note the answer to a command that ends a job."""

        def ended(answer: Any) -> Any:
            if not isinstance(answer, Failure) or answer.check(errors.NotFound, errors.Buried):
                self._forget(job_id)
            return answer

        return asked.addBoth(ended)

    def touch(self, job_id: int) -> Deferred[None]:
        def not_touched(failure: Failure) -> Failure:
            if failure.check(errors.NotFound):
                self._forget(job_id)
            return failure

        return self.connection.touch(job_id).addErrback(not_touched)

    def hang_up(self) -> None:
        """Cut the connection.  What was reserved on it is ready again."""
        self.connection.dialogue.abort(errors.Closed("the pool does not need it any more"))

    def _forget(self, job_id: int) -> None:
        self.jobs.discard(job_id)
        if not self.jobs:
            self._job_connections.is_free(self)

    def _ended(self, ended: Ended) -> None:
        jobs, self.jobs = tuple(sorted(self.jobs)), set()
        self._job_connections.lost(self, jobs)
        self.gone.callback(None)
        lose_all(ended)


class JobConnections:
    """All connections to one server for jobs.

    A `reserve` that may wait is sent only on a connection that holds no job, since the server
    answers nothing else there meanwhile (`beanstalk_twisted.worker`).  So a server has one
    connection for *polls*, reserves that do not wait, which may hold many jobs; one that is
    *blocking* in a `reserve` as long as a caller waits; and those that were blocking and have got
    their job, until that has ended.

    A blocking `reserve` that is not wanted any more is ended by closing its connection, the only
    way that beanstalkd's protocol has.  A job given out in the same moment is ready again.

    :ivar polls: how many polls have no answer yet.
    """

    def __init__(
        self, name: str, clock: Any, way: Way, tubes: Sequence[str | bytes],
        grace_s: float, lost: Callable[[str, tuple[int, ...]], object],
    ) -> None:  # fmt: skip
        """:param lost: called with the server's name and the jobs reserved on a connection when it
        is lost.
        """
        self.name = name
        self.clock = clock
        self.way = way
        self.tubes = tubes
        self.grace_s = grace_s
        self.polls = 0
        self._lost = lost
        self._is_stopping = False
        self._open: set[JobConnection] = set()
        self._poller: JobConnection | None = None
        self._asking: dict[Deferred[PoolJob | None], bool] = {}

    @property
    def can_poll(self) -> bool:
        """Return True if a poll would be sent now: the first opens its connection, others wait."""
        return self._poller is not None or not self.polls

    @property
    def is_blocking(self) -> bool:
        """Return True if a `reserve` waits, or is about to."""
        return any(self._asking.values())

    def poll(self) -> Deferred[PoolJob | None]:
        """Reserve without waiting; None if there is no job."""
        self.polls += 1
        return self._ask(self._poll(), waits=False)

    def block(self) -> Deferred[PoolJob | None]:
        """Reserve; None if no job came in `BLOCKING_RESERVE_S`."""
        return self._ask(self._block(), waits=True)

    def cancel_blocking(self) -> None:
        for asked in [asked for asked, waits in self._asking.items() if waits]:
            asked.cancel()

    def give_back(self, job: PoolJob) -> None:
        """Let the server have an unwanted job again, by hanging up if that ends nothing else."""
        job_connection = job.job_connection
        assert job_connection is not None
        if job_connection.jobs == {job.id} and not job_connection.polls:
            job_connection.jobs.clear()
            job_connection.hang_up()
            return
        connection = job_connection.connection
        released = connection.stats_job(job.id).addCallback(
            lambda stats: connection.release(job.id, priority=stats.pri)
        )
        # If that fails the connection is over, or the job is gone: it is not ours in any case.
        job_connection.end(job.id, released).addErrback(lambda failure: None)

    def stop(self) -> Deferred[Any]:
        """Close all connections; jobs that are reserved are ready again."""
        self._is_stopping = True
        for asked in list(self._asking):
            asked.cancel()
        job_connections = list(self._open)
        for job_connection in job_connections:
            job_connection.connection.part()
        self._poller = None
        return gatherResults([job_connection.gone for job_connection in job_connections])

    def start(self) -> None:
        self._is_stopping = False

    # What a `JobConnection` calls.

    def is_free(self, job_connection: JobConnection) -> None:
        """A connection holds no job any more: let it poll, or go."""
        if job_connection is self._poller or job_connection not in self._open or self._is_stopping:
            return
        if self._poller is None:
            self._poller = job_connection
        else:
            self._open.discard(job_connection)
            job_connection.connection.part()

    def lost(self, job_connection: JobConnection, jobs: tuple[int, ...]) -> None:
        self._open.discard(job_connection)
        if job_connection is self._poller:
            self._poller = None
        if jobs and not self._is_stopping:
            self._lost(self.name, jobs)

    # Asking.

    def _ask(self, asking: Awaitable[PoolJob | None], *, waits: bool) -> Deferred[PoolJob | None]:
        asked: Deferred[PoolJob | None] = Deferred.fromCoroutine(asking)  # type: ignore[arg-type]
        self._asking[asked] = waits

        def answered(answer: Any) -> Any:
            self._asking.pop(asked, None)
            self.polls -= not waits
            return answer

        return asked.addBoth(answered)

    async def _poll(self) -> PoolJob | None:
        job_connection = self._poller
        if job_connection is None:
            # It polls, if none has come free meanwhile.
            self.is_free(await self._new_job_connection())
            job_connection = self._poller
            assert job_connection is not None
        job_connection.polls += 1
        try:
            return job_connection.take(await job_connection.connection.reserve_with_timeout(0))
        except (errors.TimedOut, errors.DeadlineSoon):
            return None
        finally:
            job_connection.polls -= 1

    async def _block(self) -> PoolJob | None:
        job_connection = self._poller
        if job_connection is None or job_connection.jobs or job_connection.polls:
            job_connection = await self._new_job_connection()
        else:
            self._poller = None
        try:
            taken = job_connection.take(
                await job_connection.connection.reserve_with_timeout(BLOCKING_RESERVE_S)
            )
        except errors.TimedOut:
            self.is_free(job_connection)
            return None
        except Exception:
            job_connection.hang_up()  # Above all when nothing waits any more.
            raise
        self._poller = self._poller or job_connection
        return taken

    async def _new_job_connection(self) -> JobConnection:
        job_connection = JobConnection(self)
        await connectProtocol(self.way.endpoint, job_connection.connection)
        self._open.add(job_connection)
        await job_connection.watch()
        return job_connection
