"""The methods of every client: one for each command of the table, called as it is with ``_`` for
``-``.
"""

# mypy: disable-error-code="no-any-return"
# What `send` gives differs by the kind of client: `Method` says so.

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Unpack

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.calls import (
    AnyJob,
    Awaiting,
    Call,
    Name,
    Sender,
    about,
    asking,
    checked_tube,
    job_number,
    method,
    tube_bytes,
)
from beanstalk_twisted.client.commands.specs import (
    DEFAULT_PRIORITY,
    DEFAULT_TTR_S,
    SPECS,
    BatchDeleted,
    Inserted,
    Job,
    JobPage,
    job_lines,
    new_job,
)
from beanstalk_twisted.client.commands.tags import (
    HashedValue,
    JobCount,
    Key,
    NewJob,
    Tags,
    TagValues,
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


def watch_only(connection: "Commands", tubes: Sequence[Name]) -> list[Any]:
    """Let a new connection, which watches ``default``, reserve from these tubes alone.

    :return: what each of the commands gives.
    """
    asked = [connection.watch(tube) for tube in tubes]
    if not {"default", b"default"} & set(tubes):
        asked.append(connection.ignore("default"))
    return asked


class Commands(Sender):
    """The methods.  Each gives what the server answers: at once, or through a Deferred, or awaited,
    as the client is.

    Wrong arguments raise immediately (`TypeError`, `ValueError`), and nothing is sent.  All else
    that goes wrong is an `errors.ClientError`: `NotFound` if there is
    none of that name, or it is not in a state for this, such as not reserved by us; `DeadlineSoon`
    from a reserve if the TTR of a job reserved before is about to end; `ReservationLost` for a job
    as `reserve` has given it when the connection that had reserved it has ended.

    The first command that beanstalkd does not have asks the server with `capabilities` what it
    knows; whatever is sent after it waits for the answer.  What the server has not announced fails
    with `NotAnnounced`, and nothing of it is sent.
    """

    # For whoever puts jobs in.

    @method
    def put(
        self, body: bytes, *, tube: Name | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S,
        tags: Tags | None = None, **tag_values: Unpack[TagValues],
    ) -> Call[Inserted]:  # fmt: skip
        """Put a job into a tube.

        :param tube: for this job alone; None for the one in use.  A `use` is sent right before it
            if it is needed, and other commands find the tube that was in use for them.
        :param priority: 0 is the most urgent.
        :param delay: seconds until it is ready.
        :param ttr: seconds a worker has for it; the server makes 0 to 1.
        :param tags: None: any server takes it.  The fields of `Tags`, such as ``unique_by``, may be
            given here too.
        :return: the job's number, an int, which says whether the job is new.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.
        :raise Buried: there is one, but it is buried.
        :raise NotAnnounced: there are tags, and the server does not know one of them.
        :raise Unanswered: with a ``tube`` that the server has refused to use: it may be in another.
        """
        args = (priority, delay, ttr, _size("put", body))
        if tags is None and not tag_values:
            return self.send(specs.PUT, args, body, checked_tube(tube))
        tagged = (*args, on_wire(tags, tag_values))
        return self.send(specs.PUT_TAGGED, tagged, body, checked_tube(tube))

    @method
    def use(self, tube: Name) -> Call[str]:
        """Let later puts go into this tube, kicks and peeks look into it; gives its name."""
        return self.send(specs.USE, (tube_bytes(tube),))

    # For workers.

    @method
    def reserve(self) -> Call[Job]:
        """Get a job from one of the tubes watched, as soon as there is one.

        While it waits, the server answers nothing that was sent on this connection behind it, and
        no deadline runs.
        """
        return self.send(specs.RESERVE)

    @method
    def reserve_with_timeout(self, seconds: int) -> Call[Job]:
        """Get a job from one of the tubes watched, if there is one in that time; 0 does not wait.

        :raise TimedOut: there was none.
        """
        return self.send(specs.RESERVE_WITH_TIMEOUT, (seconds,))

    @method
    def reserve_job(self, job: AnyJob) -> Call[Job]:
        """Get this job, in whichever tube it is."""
        return self.send(specs.RESERVE_JOB, (job_number(job),))

    @method
    def delete(self, job: AnyJob) -> Call[None]:
        """End a job: one that is reserved by us, or any that nobody has.

        :raise ReservationLost: given its number instead of the job, it is deleted all the same, if
            nobody has it.
        """
        number, reserved_on = about(job)
        return self.send(specs.DELETE, (number,), reserved_on=reserved_on)

    @method
    def release(
        self, job: AnyJob, *, priority: int = DEFAULT_PRIORITY, delay: int = 0
    ) -> Call[None]:
        number, reserved_on = about(job)
        return self.send(specs.RELEASE, (number, priority, delay), reserved_on=reserved_on)

    @method
    def bury(self, job: AnyJob, *, priority: int = DEFAULT_PRIORITY) -> Call[None]:
        number, reserved_on = about(job)
        return self.send(specs.BURY, (number, priority), reserved_on=reserved_on)

    @method
    def touch(self, job: AnyJob) -> Call[None]:
        number, reserved_on = about(job)
        return self.send(specs.TOUCH, (number,), reserved_on=reserved_on)

    @method
    def watch(self, tube: Name, weight: int | None = None) -> Call[int]:
        """Let later reserves take from this tube too.

        :param weight: its share of the reserves in the modes that choose by weight, 1 to 1,000.
            None: 1, on any server.
        :return: how many tubes are watched.
        :raise NotAnnounced: there is a weight, and the server knows none.
        """
        if weight is None:
            return self.send(specs.WATCH, (tube_bytes(tube),))
        return self.send(specs.WATCH_WEIGHTED, (tube_bytes(tube), weight))

    @method
    def ignore(self, tube: Name) -> Call[int]:
        """Let later reserves no longer take from this tube; gives how many tubes are watched.

        :raise NotIgnored: it is the last one.
        """
        return self.send(specs.IGNORE, (tube_bytes(tube),))

    # For whoever looks after the queue.

    @method
    def peek(self, job: AnyJob) -> Call[Job]:
        return self.send(SPECS["peek"], (job_number(job),))

    peek_ready = asking("peek-ready", Job)
    peek_delayed = asking("peek-delayed", Job)
    peek_buried = asking("peek-buried", Job)
    peek_reserved = asking("peek-reserved", Job)

    @method
    def kick(self, bound: int) -> Call[int]:
        """Make up to ``bound`` jobs of the tube in use ready: buried ones, or if there are none
        delayed ones.  Gives how many there were.
        """
        return self.send(SPECS["kick"], (bound,))

    @method
    def kick_job(self, job: AnyJob) -> Call[None]:
        return self.send(SPECS["kick-job"], (job_number(job),))

    @method
    def pause_tube(self, tube: Name, seconds: int) -> Call[None]:
        return self.send(SPECS["pause-tube"], (tube_bytes(tube), seconds))

    stats = asking("stats", ServerStats)

    @method
    def stats_tube(self, tube: Name) -> Call[TubeStats]:
        return self.send(SPECS["stats-tube"], (tube_bytes(tube),))

    @method
    def stats_job(self, job: AnyJob) -> Call[JobStats]:
        return self.send(specs.STATS_JOB, (job_number(job),))

    list_tubes = asking("list-tubes", tuple[str, ...])
    list_tube_used = asking("list-tube-used", str)
    list_tubes_watched = asking("list-tubes-watched", tuple[str, ...])

    @method
    def quit(self) -> Call[None]:
        """Part, when all that was asked before is answered."""
        return self.send(specs.QUIT)

    # Commands that beanstalkd does not have (docs/extensions.md).

    @method
    def probe(self) -> Call[frozenset[str]]:
        """Ask what the server knows besides beanstalkd's own commands; gives its words."""
        return self.send(specs.CAPABILITIES)

    @method
    def auth(self, token: str) -> Call[None]:
        """Show a token on this connection; a server that asks nobody for rights takes any.
        `service.Client` shows the token that it was given on each connection by itself.

        :raise Unauthorized: it is nobody's; nothing has changed.
        """
        return self.send(SPECS["auth"], (token,))

    @method
    def put_at(
        self, body: bytes, unix_seconds: int, *, tube: Name | None = None,
        priority: int = DEFAULT_PRIORITY, ttr: int = DEFAULT_TTR_S, tags: Tags | None = None,
        **tag_values: Unpack[TagValues],
    ) -> Call[Inserted]:  # fmt: skip
        """Put a job that is ready at that moment of the wall clock, at once if it is past.

        :param unix_seconds: since 1970 UTC: ``int(moment.timestamp())`` of a `datetime`; before
            that, too, it is past.
        :raise BadFormat: the moment is more than 4,294,967,295 seconds ahead.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.
        """
        if isinstance(unix_seconds, int) and unix_seconds < 0:
            unix_seconds = 0  # All that is past is the same to the server.
        args = (priority, unix_seconds, ttr, _size("put-at", body), on_wire(tags, tag_values))
        return self.send(SPECS["put-at"], args, body, checked_tube(tube))

    @method
    def put_batch(
        self, jobs: Iterable[bytes | NewJob], *, tube: Name | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S,
        tags: Tags | None = None, unique: Key | None = None,
        unique_by: HashedValue | None = None, unique_seconds: int = DEFAULT_BATCH_KEY_S,
    ) -> Call[tuple[Inserted, ...]]:  # fmt: skip
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
        batch = [new_job(job, priority, delay, ttr, tags) for job in jobs]
        key, count = batch_key(unique, unique_by, unique_seconds), JobCount.of(batch)
        if key is not None and any(each is not None and each.unique_key for each in count.tags):
            raise ValueError("put-batch: its jobs have unique keys, so it can have none itself")
        return self.send(SPECS["put-batch"], (count, key), job_lines(batch), checked_tube(tube))

    @method
    def wait_job(self, job: AnyJob, seconds: int) -> Call[str]:
        """Wait until a job is deleted or buried; 0 does not wait.  Meanwhile the server answers
        nothing that was sent on this connection behind it.

        :return: ``deleted`` or ``buried``.
        :raise TimedOut: it was neither in that time.
        :raise NotFound: there is none, so it may be deleted already.
        """
        return self.send(SPECS["wait-job"], (job_number(job), seconds))

    @method
    def reserve_mode(self, mode: str) -> Call[str]:
        """Choose how later reserves choose among the tubes watched.

        :param mode: ``fifo``, the best job of all; by the weights ``weighted``, jobs of each tube,
            or ``weighted-fair``, time of workers.
        """
        return self.send(specs.RESERVE_MODE, (mode,))

    @method
    def reserve_batch(self, count: int, seconds: int | None = None) -> Call[tuple[Job, ...]]:
        """Get up to ``count`` ready jobs of the tubes watched, 1 to 1,000.

        :param seconds: how long to wait for the first; None does not wait.
        :return: the jobs; empty if there was none in that time.
        """
        return self.send(specs.RESERVE_BATCH, (count, seconds))

    @method
    def cancel_reserve(self) -> Call[None]:
        """End the `reserve`, `reserve_with_timeout`, `reserve_batch` or `wait_job` that waits, if
        it was the last command before this one: it fails with `TimedOut` (a `reserve_batch` gives
        no job), or gives a job that has come before, and then this one is answered.

        :raise NotAnnounced: also if one waits, and the server was not asked before it what it
            knows: await `probe` first.
        """
        return self.send(specs.CANCEL_RESERVE)

    @method
    def delete_batch(self, jobs: Iterable[AnyJob]) -> Call[BatchDeleted]:
        """End 1 to 1,000 jobs, each as by a `delete` of its own.

        :raise ReservationLost: as of `delete`; then none of them was.
        """
        if isinstance(jobs, Job | bytes):
            raise TypeError("delete-batch: give a list of jobs, not one")
        batch = list(jobs)
        holders = {each.reserved_on for each in batch if isinstance(each, Job)} - {None}
        # Of two connections one has ended, and no connection is this object.
        reserved_on = object() if len(holders) > 1 else next(iter(holders), None)
        ids = tuple(map(job_number, batch))
        return self.send(specs.DELETE_BATCH, (ids,), reserved_on=reserved_on)

    @method
    def cancel_job(self, job: AnyJob) -> Call[None]:
        """End a job, whoever has reserved it; that worker's next command about it is NOT_FOUND."""
        return self.send(specs.CANCEL_JOB, (job_number(job),))

    @method
    def return_job(self, job: AnyJob, *, delay: int = 0) -> Call[None]:
        """Give back a job that we have reserved, as if it had not been reserved.

        :param delay: seconds until it is ready again.
        """
        number, reserved_on = about(job)
        return self.send(specs.RETURN_JOB, (number, delay), reserved_on=reserved_on)

    @method
    def move_job(self, job: AnyJob, tube: Name) -> Call[None]:
        """Take a job into another tube, as it is; one that we have reserved is ready there.

        :raise Duplicate: a job there has its unique key, or had it; that one is its ``job_id``.
        """
        number, reserved_on = about(job)
        return self.send(specs.MOVE_JOB, (number, tube_bytes(tube)), reserved_on=reserved_on)

    @method
    def update_job(
        self, job: AnyJob, priority: int, delay: int, ttr: int, *, body: bytes | None = None
    ) -> Call[None]:
        """Give a job other values, and another body if there is one.  One that we have reserved
        stays so, and its TTR begins anew.

        :raise JobTooBig: nothing was changed.
        """
        size = None if body is None else _size("update-job", body)
        number, reserved_on = about(job)
        args = (number, priority, delay, ttr, size)
        return self.send(SPECS["update-job"], args, body, reserved_on=reserved_on)

    @method
    def kick_dead(self, tube: Name, bound: int) -> Call[int]:
        """Let up to ``bound`` dead letters of a tube be tried again there, those that died first.
        Gives how many there were.
        """
        return self.send(SPECS["kick-dead"], (tube_bytes(tube), bound))

    @method
    def list_jobs(
        self, tube: Name, state: str = "all", limit: int = MAX_PAGE_JOBS,
        cursor: str | None = None,
    ) -> Call[JobPage]:  # fmt: skip
        """Describe some jobs of a tube.

        :param state: ``ready``, ``reserved``, ``delayed``, ``buried`` or ``all``.
        :param limit: 1 to 1,000.
        :param cursor: of the page before; None for the first.
        """
        return self.send(SPECS["list-jobs"], (tube_bytes(tube), state, limit, cursor))

    @method
    def flush_tube(self, tube: Name, state: str = "all") -> Call[int]:
        """Delete all jobs of a tube that are not reserved; gives how many there were.

        :param state: ``ready``, ``delayed``, ``buried`` or ``all``.
        """
        return self.send(SPECS["flush-tube"], (tube_bytes(tube), state))

    @method
    def flush_buried(self, tube: Name) -> Call[int]:
        """Delete all buried jobs of a tube; gives how many there were."""
        return self.send(SPECS["flush-buried"], (tube_bytes(tube),))

    @method
    def forget_key(self, tube: Name, key: Name) -> Call[None]:
        return self.send(SPECS["forget-key"], (tube_bytes(tube), key))

    @method
    def tube_policy(
        self, tube: Name, changes: Mapping[str, int | str | None] | None = None
    ) -> Call[TubePolicy | None]:
        """Show the policy of a tube, or change it.

        :param changes: the keys to set, such as ``max-reserves``, and their values; None as a value
            removes what was set.
        :return: what holds, or None after a change.
        :raise BadFormat: there is no such key or value; nothing was changed.
        :raise OutOfMemory: the server has no room for it.
        """
        if not isinstance(changes, Mapping | None):
            raise TypeError(f"tube-policy: changes are keys and values, not {changes!r}")
        for key, value in (changes or {}).items():
            if isinstance(value, bool) or not isinstance(value, int | str | None):
                raise TypeError(f"tube-policy: {key} is a number, text or None, not {value!r}")
        pairs = tuple(
            (key, "-" if value is None else str(value)) for key, value in (changes or {}).items()
        )
        if changes is not None and not pairs:
            raise ValueError("tube-policy: there are no changes")
        return self.send(SPECS["tube-policy"], (tube_bytes(tube), pairs))

    @method
    def stats_group(self, group: Name) -> Call[GroupStats]:
        return self.send(SPECS["stats-group"], (group,))

    list_connections = asking("list-connections", tuple[ConnectionStats, ...])

    @method
    def drain(self) -> Call[None]:
        return self.send(SPECS["drain"])

    @method
    def undrain(self) -> Call[None]:
        return self.send(SPECS["undrain"])

    @method
    def promote(self, standby: str | None = None) -> Call[str]:
        """Let the active server of a replicated queue hand over to a standby; gives its name.

        :param standby: its name or address; None for the one that has the most.
        :raise CannotHandOver: that cannot be; says why, and which standbys there are.
        """
        return self.send(SPECS["promote"], (standby,))

    stats_replication = asking("stats-replication", ReplicationStats)


class AwaitedCommands(Commands, Awaiting):
    """The same, of which each gives what is awaited."""

    async def each_job(self, tube: Name, state: str = "all") -> AsyncIterator[ListedJob]:
        """Describe all jobs of a tube, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list_jobs(tube, state, cursor=cursor)
            for job in page.jobs:
                yield job
            if page.cursor is None:
                return
            cursor = page.cursor


def _size(command: str, body: object) -> int:
    if not isinstance(body, bytes):
        raise TypeError(f"{command}: the body is bytes, not {type(body).__name__}: encode it")
    return len(body)
