"""One method for each row of the command table, for whatever can send a command.

The names are the commands' with ``_`` for ``-``; `tests/client/commands/test_methods.py` holds
methods and rows equal.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, overload

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import extension_specs as extended
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.extension_specs import (
    BatchDeleted,
    JobCount,
    JobPage,
    NewJob,
)
from beanstalk_twisted.client.commands.specs import DEFAULT_TTR_S, CommandSpec, Job
from beanstalk_twisted.client.commands.tags import (
    HashedValue,
    Inserted,
    Key,
    Tags,
    batch_key,
    on_wire,
)
from beanstalk_twisted.client.stats import (
    ConnectionStats,
    GroupStats,
    JobStats,
    ListedJob,
    ReplicationStats,
    ServerStats,
    TubePolicy,
    TubeStats,
)
from beanstalk_twisted.wire.extensions import MAX_PAGE_JOBS
from beanstalk_twisted.wire.tags import DEFAULT_BATCH_KEY_S

DEFAULT_PRIORITY: Final = 1 << 16
"""Of jobs put, released or buried, unless told: what other clients take; below 1024 is urgent."""

Args = tuple[Any, ...]
"""The values of a command's fields."""

AnyJob = Job | int
"""A job, or its number."""


def job_number(job: AnyJob) -> int:
    return job.id if isinstance(job, Job) else job


def tube_bytes(name: str | bytes) -> bytes:
    if isinstance(name, str):
        try:
            return name.encode("ascii")
        except UnicodeEncodeError:
            raise ValueError(f"not the name of a tube: {name!r}; only ASCII is allowed") from None
    return name


def watch_only(connection: "Commands", tubes: Sequence[str | bytes]) -> list[Deferred[Any]]:
    """Let a new connection, which watches ``default``, reserve from these tubes alone.

    :return: what each of the commands gives.
    """
    asked: list[Deferred[Any]] = [connection.watch(tube) for tube in tubes]
    if not {"default", b"default"} & set(tubes):
        asked.append(connection.ignore("default"))
    return asked


class Commands:
    """The methods.  Each gives a Deferred of what the server answers.

    Wrong arguments raise immediately (`TypeError`, `ValueError`), and nothing is sent.  All else
    that goes wrong comes through the Deferred, as an `errors.ClientError`: `NotFound` if there is
    none of that name, or it is not in a state for this, such as not reserved by us; `DeadlineSoon`
    from a reserve if the TTR of a job reserved before is about to end; `ReservationLost` for a job
    as `reserve` has given it when the connection that had reserved it has ended.

    The first command that beanstalkd does not have asks the server with `capabilities` what it
    knows; whatever is sent after it waits for the answer.  What the server has not announced fails
    with `NotAnnounced`, and nothing of it is sent.
    """

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Deferred[Any]:  # fmt: skip
        """Send a command, behind all that were sent before.

        :param args: the values of its fields.
        :param tube: the tube to use for it alone; None for the one in use.
        :param reserved_on: the only connection to send it on; None for whichever there is.
        """
        raise NotImplementedError

    def _send_of(
        self, spec: CommandSpec, job: AnyJob, *args: object, body: bytes | None = None
    ) -> Deferred[None]:
        """Send a command about a job; more than its number is true of one connection only."""
        reserved_on = job.reserved_on if isinstance(job, Job) else None
        return self.send(spec, (job_number(job), *args), body, reserved_on=reserved_on)

    # For whoever puts jobs in.

    @overload
    def put(
        self, body: bytes, *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S,
        tags: None = None,
    ) -> Deferred[int]: ...  # fmt: skip

    @overload
    def put(
        self, body: bytes, *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S, tags: Tags,
    ) -> Deferred[Inserted]: ...  # fmt: skip

    def put(
        self, body: bytes, *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S,
        tags: Tags | None = None,
    ) -> Deferred[int] | Deferred[Inserted]:  # fmt: skip
        """Put a job into a tube.

        :param tube: for this job alone; None for the one in use.  A `use` is sent right before it
            if it is needed, and other commands find the tube that was in use for them.
        :param priority: 0 is the most urgent.
        :param delay: seconds until it is ready.
        :param ttr: seconds a worker has for it; the server makes 0 to 1.
        :param tags: None: any server takes it.
        :return: the job's number; with tags an `Inserted`, which says whether the job is new.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.
        :raise Buried: there is one, but it is buried.
        :raise NotAnnounced: there are tags, and the server does not know one of them.
        :raise Unanswered: with a ``tube`` that the server has refused to use: it may be in another.
        """
        args = (priority, delay, ttr, _size("put", body))
        if tags is None:
            return self.send(specs.PUT, args, body, _place(tube))
        return self.send(extended.PUT_TAGGED, (*args, on_wire(tags)), body, _place(tube))

    def use(self, tube: str | bytes) -> Deferred[str]:
        """Let later puts go into this tube, kicks and peeks look into it; gives its name."""
        return self.send(specs.USE, (tube_bytes(tube),))

    # For workers.

    def reserve(self) -> Deferred[Job]:
        """Get a job from one of the tubes watched, as soon as there is one.

        While it waits, the server answers nothing that was sent on this connection behind it, and
        no deadline runs.
        """
        return self.send(specs.RESERVE)

    def reserve_with_timeout(self, seconds: int) -> Deferred[Job]:
        """Get a job from one of the tubes watched, if there is one in that time; 0 does not wait.

        :raise TimedOut: there was none.
        """
        return self.send(specs.RESERVE_WITH_TIMEOUT, (seconds,))

    def reserve_job(self, job: AnyJob) -> Deferred[Job]:
        """Get this job, in whichever tube it is."""
        return self.send(specs.RESERVE_JOB, (job_number(job),))

    def delete(self, job: AnyJob) -> Deferred[None]:
        """End a job: one that is reserved by us, or any that nobody has.

        :raise ReservationLost: given its number instead of the job, it is deleted all the same, if
            nobody has it.
        """
        return self._send_of(specs.DELETE, job)

    def release(
        self, job: AnyJob, *, priority: int = DEFAULT_PRIORITY, delay: int = 0
    ) -> Deferred[None]:
        """Give back a job that we have reserved."""
        return self._send_of(specs.RELEASE, job, priority, delay)

    def bury(self, job: AnyJob, *, priority: int = DEFAULT_PRIORITY) -> Deferred[None]:
        """Put aside a job that we have reserved, until it is kicked."""
        return self._send_of(specs.BURY, job, priority)

    def touch(self, job: AnyJob) -> Deferred[None]:
        """Let the TTR of a job that we have reserved begin again."""
        return self._send_of(specs.TOUCH, job)

    def watch(self, tube: str | bytes, weight: int | None = None) -> Deferred[int]:
        """Let later reserves take from this tube too.

        :param weight: its share of the reserves in the modes that choose by weight, 1 to 1,000.
            None: 1, on any server.
        :return: how many tubes are watched.
        :raise NotAnnounced: there is a weight, and the server knows none.
        """
        if weight is None:
            return self.send(specs.WATCH, (tube_bytes(tube),))
        return self.send(extended.WATCH_WEIGHTED, (tube_bytes(tube), weight))

    def ignore(self, tube: str | bytes) -> Deferred[int]:
        """Let later reserves no longer take from this tube; gives how many tubes are watched.

        :raise NotIgnored: it is the last one.
        """
        return self.send(specs.IGNORE, (tube_bytes(tube),))

    # For whoever looks after the queue.

    def peek(self, job: AnyJob) -> Deferred[Job]:
        """Look at a job, in any tube and state."""
        return self.send(specs.PEEK, (job_number(job),))

    def peek_ready(self) -> Deferred[Job]:
        """Look at the first ready job of the tube in use."""
        return self.send(specs.PEEK_READY)

    def peek_delayed(self) -> Deferred[Job]:
        """Look at the delayed job of the tube in use that is due first."""
        return self.send(specs.PEEK_DELAYED)

    def peek_buried(self) -> Deferred[Job]:
        """Look at the job of the tube in use that was buried first."""
        return self.send(specs.PEEK_BURIED)

    def peek_reserved(self) -> Deferred[Job]:
        """Look at the reserved job of the tube in use that has the smallest id."""
        return self.send(extended.PEEK_RESERVED)

    def kick(self, bound: int) -> Deferred[int]:
        """Make up to ``bound`` jobs of the tube in use ready: buried ones, or if there are none
        delayed ones.  Gives how many there were.
        """
        return self.send(specs.KICK, (bound,))

    def kick_job(self, job: AnyJob) -> Deferred[None]:
        """Make a buried or delayed job ready."""
        return self.send(specs.KICK_JOB, (job_number(job),))

    def pause_tube(self, tube: str | bytes, seconds: int) -> Deferred[None]:
        """Let nobody reserve from a tube for some time; 0 ends a pause."""
        return self.send(specs.PAUSE_TUBE, (tube_bytes(tube), seconds))

    def stats(self) -> Deferred[ServerStats]:
        return self.send(specs.STATS)

    def stats_tube(self, tube: str | bytes) -> Deferred[TubeStats]:
        return self.send(specs.STATS_TUBE, (tube_bytes(tube),))

    def stats_job(self, job: AnyJob) -> Deferred[JobStats]:
        return self.send(specs.STATS_JOB, (job_number(job),))

    def list_tubes(self) -> Deferred[tuple[str, ...]]:
        return self.send(specs.LIST_TUBES)

    def list_tube_used(self) -> Deferred[str]:
        return self.send(specs.LIST_TUBE_USED)

    def list_tubes_watched(self) -> Deferred[tuple[str, ...]]:
        return self.send(specs.LIST_TUBES_WATCHED)

    def quit(self) -> Deferred[None]:
        """Part, when all that was asked before is answered."""
        return self.send(specs.QUIT)

    # Commands that beanstalkd does not have (docs/extensions.md).

    def probe(self) -> Deferred[frozenset[str]]:
        """Ask what the server knows besides beanstalkd's own commands; gives its words."""

        def nothing_announced(failure: Failure) -> frozenset[str]:
            failure.trap(errors.UnknownCommand, errors.BadFormat)
            return frozenset()

        asked: Deferred[frozenset[str]] = self.send(extended.CAPABILITIES)
        return asked.addErrback(nothing_announced)

    def auth(self, token: str) -> Deferred[None]:
        """Show a token on this connection; a server that asks nobody for rights takes any.
        `service.Client` shows the token that it was given on each connection by itself.

        :raise Unauthorized: it is nobody's; nothing has changed.
        """

        def trusts_everybody(failure: Failure) -> None:
            failure.trap(errors.UnknownCommand)

        shown: Deferred[None] = self.send(extended.AUTH_TOKEN, (token,))
        return shown.addErrback(trusts_everybody)

    def put_at(
        self, body: bytes, unix_seconds: int, *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, ttr: int = DEFAULT_TTR_S, tags: Tags | None = None,
    ) -> Deferred[Inserted]:  # fmt: skip
        """Put a job that is ready at that moment of the wall clock, at once if it is past.

        :param unix_seconds: since 1970 UTC: ``int(moment.timestamp())`` of a `datetime`; before
            that, too, it is past.
        :raise BadFormat: the moment is more than 4,294,967,295 seconds ahead.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.
        """
        if isinstance(unix_seconds, int) and unix_seconds < 0:
            unix_seconds = 0  # All that is past is the same to the server.
        args = (priority, unix_seconds, ttr, _size("put-at", body), on_wire(tags))
        return self.send(extended.PUT_AT, args, body, _place(tube))

    def put_batch(
        self, jobs: Iterable[bytes | NewJob], *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S,
        tags: Tags | None = None, unique: Key | None = None,
        unique_by: HashedValue | None = None, unique_seconds: int = DEFAULT_BATCH_KEY_S,
    ) -> Deferred[tuple[Inserted, ...]]:  # fmt: skip
        """Put 1 to 1,000 jobs into a tube, all or none.

        :param jobs: their bodies, or `NewJob`s for those that differ from the others.
        :param unique: a key of the whole batch, or ``unique_by`` a value that is hashed into one:
            while the key is remembered, another batch with it puts nothing, and gives the numbers
            of the first one's jobs.
        :param unique_seconds: how long it is remembered, 1 to 4,294,967,295.
        :return: the jobs' numbers, in their order, which say whether each is new.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.  The bodies may also be too large
            together.
        """
        if isinstance(jobs, bytes | NewJob):
            raise TypeError("put-batch: give a list of jobs, not one")
        batch = [extended.new_job(job, priority, delay, ttr, tags) for job in jobs]
        body = extended.job_lines(batch)
        key = batch_key(unique, unique_by, unique_seconds)
        return self.send(extended.PUT_BATCH, (JobCount.of(batch), key), body, _place(tube))

    def wait_job(self, job: AnyJob, seconds: int) -> Deferred[str]:
        """Wait until a job is deleted or buried; 0 does not wait.  Meanwhile the server answers
        nothing that was sent on this connection behind it.

        :return: ``deleted`` or ``buried``.
        :raise TimedOut: it was neither in that time.
        :raise NotFound: there is none, so it may be deleted already.
        """
        return self.send(extended.WAIT_JOB, (job_number(job), seconds))

    def reserve_mode(self, mode: str) -> Deferred[str]:
        """Choose how later reserves choose among the tubes watched.

        :param mode: ``fifo``, the best job of all; by the weights ``weighted``, jobs of each tube,
            or ``weighted-fair``, time of workers.
        """
        return self.send(extended.RESERVE_MODE, (mode,))

    def reserve_batch(self, count: int, seconds: int | None = None) -> Deferred[tuple[Job, ...]]:
        """Get up to ``count`` ready jobs of the tubes watched, 1 to 1,000.

        :param seconds: how long to wait for the first; None does not wait.
        :return: the jobs; empty if there was none in that time.
        """
        return self.send(extended.RESERVE_BATCH, (count, seconds))

    def cancel_reserve(self) -> Deferred[None]:
        """End the `reserve`, `reserve_with_timeout`, `reserve_batch` or `wait_job` that waits, if
        it was the last command before this one: it fails with `TimedOut` (a `reserve_batch` gives
        no job), or gives a job that has come before, and then this one is answered.

        :raise NotAnnounced: also if one waits, and the server was not asked before it what it
            knows: await `probe` first.
        """
        return self.send(extended.CANCEL_RESERVE)

    def delete_batch(self, jobs: Iterable[AnyJob]) -> Deferred[BatchDeleted]:
        """End 1 to 1,000 jobs, each as by a `delete` of its own.

        :raise ReservationLost: as of `delete`; then none of them was.
        """
        if isinstance(jobs, Job | bytes):
            raise TypeError("delete-batch: give a list of jobs, not one")
        batch = list(jobs)
        holders = {each.reserved_on for each in batch if isinstance(each, Job)} - {None}
        # Of two connections one has ended, and no connection is this object.
        reserved_on = object() if len(holders) > 1 else next(iter(holders), None)
        args = (tuple(map(job_number, batch)),)
        return self.send(extended.DELETE_BATCH, args, reserved_on=reserved_on)

    def move_job(self, job: AnyJob, tube: str | bytes) -> Deferred[None]:
        """Take a job into another tube, as it is; one that we have reserved is ready there.

        :raise Duplicate: a job there has its unique key, or had it; that one is its ``job_id``.
        """
        return self._send_of(extended.MOVE_JOB, job, tube_bytes(tube))

    def update_job(
        self, job: AnyJob, priority: int, delay: int, ttr: int, *, body: bytes | None = None
    ) -> Deferred[None]:
        """Give a job other values, and another body if there is one.  One that we have reserved
        stays so, and its TTR begins anew.

        :raise JobTooBig: nothing was changed.
        """
        size = None if body is None else _size("update-job", body)
        return self._send_of(extended.UPDATE_JOB, job, priority, delay, ttr, size, body=body)

    def kick_dead(self, tube: str | bytes, bound: int) -> Deferred[int]:
        """Let up to ``bound`` dead letters of a tube be tried again there, those that died first.
        Gives how many there were.
        """
        return self.send(extended.KICK_DEAD, (tube_bytes(tube), bound))

    def list_jobs(
        self, tube: str | bytes, state: str = "all", limit: int = MAX_PAGE_JOBS,
        cursor: str | None = None,
    ) -> Deferred[JobPage]:  # fmt: skip
        """Describe some jobs of a tube.

        :param state: ``ready``, ``reserved``, ``delayed``, ``buried`` or ``all``.
        :param limit: 1 to 1,000.
        :param cursor: of the page before; None for the first.
        """
        return self.send(extended.LIST_JOBS, (tube_bytes(tube), state, limit, cursor))

    async def each_job(self, tube: str | bytes, state: str = "all") -> AsyncIterator[ListedJob]:
        """Describe all jobs of a tube, page by page, for coroutines of Twisted."""
        cursor: str | None = None
        while True:
            page = await self.list_jobs(tube, state, cursor=cursor)
            for job in page.jobs:
                yield job
            if page.cursor is None:
                return
            cursor = page.cursor

    def flush_tube(self, tube: str | bytes, state: str = "all") -> Deferred[int]:
        """Delete all jobs of a tube that are not reserved; gives how many there were.

        :param state: ``ready``, ``delayed``, ``buried`` or ``all``.
        """
        return self.send(extended.FLUSH_TUBE, (tube_bytes(tube), state))

    def flush_buried(self, tube: str | bytes) -> Deferred[int]:
        """Delete all buried jobs of a tube; gives how many there were."""
        return self.send(extended.FLUSH_BURIED, (tube_bytes(tube),))

    def forget_key(self, tube: str | bytes, key: str | bytes) -> Deferred[None]:
        """Forget the unique key of a deleted job, so that another put of it makes a new job."""
        return self.send(extended.FORGET_KEY, (tube_bytes(tube), key))

    def tube_policy(
        self, tube: str | bytes, changes: Mapping[str, int | str | None] | None = None
    ) -> Deferred[TubePolicy | None]:
        """Show the policy of a tube, or change it.

        :param changes: the keys to set, such as ``max-reserves``, and their values; None as a value
            removes what was set.
        :return: what holds, or None after a change.
        :raise BadFormat: there is no such key or value; nothing was changed.
        :raise OutOfMemory: the server has no room for it.
        """
        for key, value in (changes or {}).items():
            if isinstance(value, bool) or not isinstance(value, int | str | None):
                raise TypeError(f"tube-policy: {key} is a number, text or None, not {value!r}")
        pairs = tuple(
            (key, "-" if value is None else str(value)) for key, value in (changes or {}).items()
        )
        if changes is not None and not pairs:
            raise ValueError("tube-policy: there are no changes")
        return self.send(extended.TUBE_POLICY, (tube_bytes(tube), pairs))

    def stats_group(self, group: str | bytes) -> Deferred[GroupStats]:
        """Ask how many jobs a group has, and how many wait for it."""
        return self.send(extended.STATS_GROUP, (group,))

    def list_connections(self) -> Deferred[tuple[ConnectionStats, ...]]:
        return self.send(extended.LIST_CONNECTIONS)

    def drain(self) -> Deferred[None]:
        """Let the server take no new jobs."""
        return self.send(extended.DRAIN)

    def undrain(self) -> Deferred[None]:
        """Let the server take new jobs again."""
        return self.send(extended.UNDRAIN)

    def promote(self, standby: str | None = None) -> Deferred[str]:
        """Let the active server of a replicated queue hand over to a standby; gives its name.

        :param standby: its name or address; None for the one that has the most.
        :raise CannotHandOver: that cannot be; says why, and which standbys there are.
        """
        return self.send(extended.PROMOTE, (standby,))

    def stats_replication(self) -> Deferred[ReplicationStats]:
        """Ask how replication is, as this server knows it; answered though the stream is silent."""
        return self.send(extended.STATS_REPLICATION)


def _size(command: str, body: object) -> int:
    if not isinstance(body, bytes):
        raise TypeError(f"{command}: the body is bytes, not {type(body).__name__}: encode it")
    return len(body)


def _place(tube: str | bytes | None) -> bytes | None:
    """Refuse wrong names before anything is sent."""
    if tube is None:
        return None
    place = tube_bytes(tube)
    specs.USE.line((place,))
    return place
