"""A client for several servers, over which tubes are split."""

from collections.abc import Callable, Iterable
from functools import partial, wraps
from operator import methodcaller
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar, Unpack

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.calls import checked_tube
from beanstalk_twisted.client.commands.specs import (
    AUTH_TOKEN,
    DEFAULT_PRIORITY,
    DEFAULT_TTR_S,
    Inserted,
    Job,
)
from beanstalk_twisted.client.commands.tags import (
    HashedValue,
    Key,
    NewJob,
    Tags,
    TagValues,
    check_seconds,
)
from beanstalk_twisted.client.connection import GRACE_S
from beanstalk_twisted.client.endpoints import the_reactor, way_to
from beanstalk_twisted.client.pool.connections import (
    PATIENCE_S,
    JobConnection,
    JobConnections,
    Misplaced,
    PoolJob,
    PoolMember,
    PoolStats,
    misplaced_on,
    stats_of,
)
from beanstalk_twisted.client.pool.hashing import A_TUBE, Split, listed
from beanstalk_twisted.client.pool.reserving import BlockingReserves, Source
from beanstalk_twisted.client.service import Client, tell
from beanstalk_twisted.client.stats import JobStats
from beanstalk_twisted.wire.tags import DEFAULT_BATCH_KEY_S

P = ParamSpec("P")
T = TypeVar("T")
Tube = str | bytes

A_SERVER: Final = '["127.0.0.1:11300"]'
"""What to write, in an error message."""


class Server(NamedTuple):
    """:ivar endpoint: an address such as ``10.0.0.1:11300``, or an endpoint of Twisted's.
    :ivar name: which tubes it has follows from this.  None: the address, written in full,
        ``tcp:10.0.0.1:11300`` or ``tls://queue.example:11300``, without a token and files.
    :ivar weight: its share of the tubes, against those of the others.
    """

    endpoint: str | IStreamClientEndpoint
    name: str | None = None
    weight: int = 1


def _of_tube(
    method: Callable[Concatenate[Client, P], Deferred[T]],
) -> "Callable[Concatenate[Pool, P], Deferred[T]]":
    """Make the pool's method for a command about a tube that it names: that of its server."""
    name = method.__name__
    command = name.replace("_", "-")

    @wraps(method)
    def send(self: "Pool", /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        tube: Any = args[0] if args else kwargs.get("tube")
        ask = methodcaller(name, *args, **kwargs)
        return self._at(tube).send(command, ask)

    return send


class Pool(Service):
    """The client, as a service: it connects when it is started.

    Each tube is on one server, by its name, whatever happens: a server that is down keeps its
    tubes, and what is asked of them fails with `ServerDown`.  Jobs come from all servers that have
    any of the pool's tubes, to callers in the order in which they have asked.

    Methods are those of `Client`, given the tube or a `PoolJob`.
    """

    _log = Logger(namespace="beanstalk_twisted.client.pool.pool")

    def __init__(
        self, servers: Iterable[str | Server], tubes: Iterable[Tube] = (), *,
        former: Iterable[str | Server] = (), patience_s: float = PATIENCE_S,
        changed: Callable[[], object] = lambda: None,
        lost: Callable[[str, tuple[int, ...]], object] = lambda server, jobs: None,
        reactor: Any = None, grace_s: float = GRACE_S,
        make_client: Callable[..., Client] = Client, token: str | None = None,
    ) -> None:  # fmt: skip
        """:param servers: all servers; all clients of the same tubes have to name the same.
        :param tubes: where `reserve` takes jobs from.
        :param former: the servers over which tubes were split before.  `reserve` takes jobs from
            those too; nothing is put there.
        :param patience_s: for how long a server may be missing before it is down, seconds.
        :param changed: called when a server is up, missing or down.
        :param lost: called with a server's name and the jobs that we had reserved there, when a
            connection is lost; the server gives them to others.
        :param token: shown on each connection before anything else, unless the server's address has
            one; None for none.
        :raise ValueError: there is no server, two have the same name, or something about one, or
            the name of a tube, is not what it should be.
        :raise TypeError: ``servers``, ``tubes`` or ``former`` is one instead of a list, or what is
            in it is none.
        """
        if token is not None:
            AUTH_TOKEN.line((token,))
        check_seconds("patience_s", patience_s)
        now, before = named(servers), named(former, "former")
        self.split = Split({name: server.weight for name, server in now.items()})
        self._clock = reactor or the_reactor()
        self._splits = [self.split]
        if before:
            self._splits.append(Split({name: each.weight for name, each in before.items()}))
        self._changed = changed
        client_of = partial(make_client, reactor=self._clock, grace_s=grace_s, logs=False)
        ways = {
            name: way_to(self._clock, server.endpoint) for name, server in (before | now).items()
        }
        ways = {name: way._replace(token=way.token or token) for name, way in ways.items()}
        self._members = {
            name: PoolMember(
                name, self._clock, partial(client_of, way.endpoint, token=way.token), patience_s,
                self._member_changed,
            )
            for name, way in ways.items()
        }  # fmt: skip
        taken_from = self.by_server(tubes)
        job_connections = (
            JobConnections(
                name, self._clock, ways[name], each, grace_s, partial(tell, self._log, lost)
            )
            for name, each in taken_from.items()
        )
        self._reserves = BlockingReserves(
            self._clock, [Source(self._members[each.name], each) for each in job_connections]
        )
        self._takes = bool(taken_from)

    # Where things are.

    def server_of(self, tube: Tube) -> str:
        return self.split.server_of(tube)

    def by_server(self, tubes: Iterable[Tube]) -> dict[str, list[Tube]]:
        """Sort tubes by the servers that may have jobs of them, former ones included.

        :raise ValueError: there can be no such tube.
        :raise TypeError: it is one tube instead of a list, or what is in it is none.
        """
        found: dict[str, list[Tube]] = {}
        for tube in listed("tubes", tubes, A_TUBE):
            tube_name(tube)
            for name in {split.server_of(tube): None for split in self._splits}:
                found.setdefault(name, []).append(tube)
        return found

    @property
    def up(self) -> list[str]:
        """Give the servers that there is a connection to."""
        return [name for name, member in self._members.items() if member.is_up]

    @property
    def down(self) -> list[str]:
        return [name for name, member in self._members.items() if member.is_down]

    # Starting and stopping.

    def startService(self) -> None:
        super().startService()
        self._reserves.start()
        for member in self._members.values():
            member.start()

    def stopService(self) -> Deferred[None]:
        """Close all connections.  What waits fails; jobs that are reserved are ready again."""
        super().stopService()
        stopped = [self._reserves.stop(), *(member.stop() for member in self._members.values())]
        return gatherResults(stopped).addCallback(lambda _: None)

    # By tubes.

    def put(
        self, tube: Tube, body: bytes, *, priority: int = DEFAULT_PRIORITY, delay: int = 0,
        ttr: int = DEFAULT_TTR_S, tags: Tags | None = None, **tag_values: Unpack[TagValues],
    ) -> Deferred[PoolJob]:  # fmt: skip
        """See `Commands.put`.  Concurrency keys and groups count within one server.

        :return: a job whose `id` is an `Inserted`.
        :raise ServerDown: its server is down.
        """
        name = self.server_of(tube)
        number = self._members[name].send(
            "put",
            lambda client: client.put(
                body, tube=tube, priority=priority, delay=delay, ttr=ttr, tags=tags, **tag_values
            ),
        )
        return number.addCallback(lambda found: PoolJob(name, found, body))

    def put_at(
        self, tube: Tube, body: bytes, unix_seconds: int, *, priority: int = DEFAULT_PRIORITY,
        ttr: int = DEFAULT_TTR_S, tags: Tags | None = None, **tag_values: Unpack[TagValues],
    ) -> Deferred[PoolJob]:  # fmt: skip
        name = self.server_of(tube)
        number = self._members[name].send(
            "put-at",
            lambda client: client.put_at(
                body, unix_seconds, tube=tube, priority=priority, ttr=ttr, tags=tags, **tag_values
            ),
        )  # fmt: skip
        return number.addCallback(lambda found: PoolJob(name, found, body))

    def put_batch(
        self, tube: Tube, jobs: Iterable[bytes | NewJob], *, priority: int = DEFAULT_PRIORITY,
        delay: int = 0, ttr: int = DEFAULT_TTR_S, tags: Tags | None = None,
        unique: Key | None = None, unique_by: HashedValue | None = None,
        unique_seconds: int = DEFAULT_BATCH_KEY_S,
    ) -> Deferred[tuple[PoolJob, ...]]:  # fmt: skip
        """See `Commands.put_batch`.

        :return: without bodies if the key is that of a batch with another number of jobs.
        """
        name = self.server_of(tube)
        batch = [job if isinstance(job, NewJob) else NewJob(job) for job in jobs]
        numbers = self._members[name].send(
            "put-batch",
            lambda client: client.put_batch(
                batch, tube=tube, priority=priority, delay=delay, ttr=ttr, tags=tags,
                unique=unique, unique_by=unique_by, unique_seconds=unique_seconds,
            ),
        )  # fmt: skip

        def put(found: tuple[Inserted, ...]) -> tuple[PoolJob, ...]:
            if len(found) != len(batch):
                return tuple(PoolJob(name, number) for number in found)
            pairs = zip(found, batch, strict=True)
            return tuple(PoolJob(name, number, job.body) for number, job in pairs)

        return numbers.addCallback(put)

    list_jobs = _of_tube(Client.list_jobs)
    flush_tube = _of_tube(Client.flush_tube)
    flush_buried = _of_tube(Client.flush_buried)
    forget_key = _of_tube(Client.forget_key)
    kick_dead = _of_tube(Client.kick_dead)
    pause_tube = _of_tube(Client.pause_tube)
    stats_tube = _of_tube(Client.stats_tube)

    def room(self, tube: Tube) -> Deferred[None]:
        return self._at(tube).send("room", lambda client: client.room())

    def kick(self, tube: Tube, bound: int) -> Deferred[int]:
        return self._in(tube, "kick", bound)

    def peek_ready(self, tube: Tube) -> Deferred[PoolJob]:
        return self._peek(tube, "peek-ready")

    def peek_delayed(self, tube: Tube) -> Deferred[PoolJob]:
        return self._peek(tube, "peek-delayed")

    def peek_buried(self, tube: Tube) -> Deferred[PoolJob]:
        return self._peek(tube, "peek-buried")

    def peek_reserved(self, tube: Tube) -> Deferred[PoolJob]:
        return self._peek(tube, "peek-reserved")

    def _peek(self, tube: Tube, operation: str) -> Deferred[PoolJob]:
        found: Deferred[Job] = self._in(tube, operation)
        return found.addCallback(lambda job: PoolJob(self.server_of(tube), job.id, job.body))

    def _in(self, tube: Tube, operation: str, *args: int) -> Deferred[Any]:
        """Send a command about the tube in use, for this one."""
        spec, name = specs.SPECS[operation], checked_tube(tube)
        return self._at(tube).send(spec.name, lambda client: client.send(spec, args, tube=name))

    # Jobs, from whichever server has any.

    def reserve(self) -> Deferred[PoolJob]:
        """Get a job from one of the pool's tubes, as soon as there is one on any server.

        :raise ValueError: the pool was given no tubes.
        """
        return self._take("reserve", None)

    def reserve_with_timeout(self, seconds: float) -> Deferred[PoolJob]:
        """Get a job from one of the pool's tubes, if there is one in that time.  0 asks the servers
        that are there and does not wait for others; only while none is, it waits for one, as other
        commands do.

        :raise TimedOut: through the Deferred: there was none on the servers that are there.
        :raise ServerDown: through the Deferred: none of them was there.
        :raise ValueError: the pool was given no tubes, or the time is below 0.
        """
        if seconds < 0:
            raise ValueError(f"reserve-with-timeout: seconds is 0 or more, not {seconds}")
        return self._take("reserve-with-timeout", seconds)

    def _take(self, command: str, seconds: float | None) -> Deferred[PoolJob]:
        if not self._takes:
            raise ValueError(f"{command}: the pool was given no tubes to take jobs from")
        return self._reserves.take(command, seconds)

    # By jobs.

    def delete(self, job: PoolJob) -> Deferred[None]:
        """See `Commands.delete`.

        :raise NotCarriedOut: through the Deferred: the connection that had reserved it is lost.
        """
        if job.job_connection is None:
            return self._of(job).send("delete", lambda client: client.delete(job.id))
        return job.job_connection.end(job.id, job.job_connection.connection.delete(job.id))

    def release(
        self, job: PoolJob, *, priority: int = DEFAULT_PRIORITY, delay: int = 0
    ) -> Deferred[None]:
        job_connection = reserved_on(job, "release")
        sent = job_connection.connection.release(job.id, priority=priority, delay=delay)
        return job_connection.end(job.id, sent)

    def bury(self, job: PoolJob, *, priority: int = DEFAULT_PRIORITY) -> Deferred[None]:
        job_connection = reserved_on(job, "bury")
        return job_connection.end(job.id, job_connection.connection.bury(job.id, priority=priority))

    def return_job(self, job: PoolJob, *, delay: int = 0) -> Deferred[None]:
        job_connection = reserved_on(job, "return-job")
        sent = job_connection.connection.return_job(job.id, delay=delay)
        return job_connection.end(job.id, sent)

    def cancel_job(self, job: PoolJob) -> Deferred[None]:
        sent = self._of(job).send("cancel-job", lambda client: client.cancel_job(job.id))
        return sent if job.job_connection is None else job.job_connection.end(job.id, sent)

    def touch(self, job: PoolJob) -> Deferred[None]:
        return reserved_on(job, "touch").touch(job.id)

    def kick_job(self, job: PoolJob) -> Deferred[None]:
        return self._of(job).send("kick-job", lambda client: client.kick_job(job.id))

    def stats_job(self, job: PoolJob) -> Deferred[JobStats]:
        return self._of(job).send("stats-job", lambda client: client.stats_job(job.id))

    def peek(self, job: PoolJob) -> Deferred[PoolJob]:
        found = self._of(job).send("peek", lambda client: client.peek(job.id))
        return found.addCallback(
            lambda seen: PoolJob(job.server, seen.id, seen.body, job.job_connection)
        )

    # All servers.

    def stats(self) -> Deferred[PoolStats]:
        return Deferred.fromCoroutine(stats_of(self._members.values()))

    def misplaced(self) -> Deferred[tuple[Misplaced, ...]]:
        """Look for tubes with jobs on a server that is not theirs, as after a server was added."""
        return Deferred.fromCoroutine(misplaced_on(self._members.values(), self.split))

    def _member_changed(self, member: PoolMember) -> None:
        self._reserves.server_changed(member)
        tell(self._log, self._changed)

    def _of(self, job: PoolJob) -> PoolMember:
        member = self._members.get(job.server)
        if member is None:
            raise ValueError(f"the pool has no server {job.server!r}")
        return member

    def _at(self, tube: Tube) -> PoolMember:
        return self._members[self.server_of(tube)]


def named(servers: Iterable[str | Server], argument: str = "servers") -> dict[str, Server]:
    """:raise ValueError: a server has no name, or two have the same.
    :raise TypeError: it is one server instead of a list, or what is in it is none.
    """
    if isinstance(servers, Server):
        raise TypeError(f"{argument}: give a list, such as [{servers!r}], not {servers!r}")
    found: dict[str, Server] = {}
    for each in listed(argument, servers, A_SERVER):
        server = Server(each) if isinstance(each, str) else each
        if not isinstance(server, Server):
            raise TypeError(f"{argument}: each is HOST:PORT or a Server, not {each!r}")
        name = server.name
        if name is None:
            if not isinstance(server.endpoint, str):
                raise ValueError(f"a server needs a name: {server.endpoint!r}")
            name = Address.parse(server.endpoint).pool_name
        if name in found:
            raise ValueError(f"two servers of a pool are called {name!r}")
        found[name] = server
    return found


def tube_name(tube: Tube) -> bytes:
    """:raise ValueError: there can be no such tube.
    :raise TypeError: it is no text.
    """
    name = tube.encode() if isinstance(tube, str) else tube
    specs.USE.line((name,))
    return name


def reserved_on(job: PoolJob, command: str) -> JobConnection:
    """:raise ValueError: no connection of the pool's has reserved the job."""
    if job.job_connection is None:
        raise ValueError(f"{command}: {job} was not reserved through a pool")
    return job.job_connection
