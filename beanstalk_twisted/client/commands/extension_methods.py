"""One method for each command that beanstalkd does not have (docs/extensions.md), as `methods` has
them for its own.

The first of them on a connection asks the server with `capabilities` what it knows; whatever is
sent behind it meanwhile waits for the answer.  On a server that has not announced a command, its
method fails with `errors.NotAnnounced`, and nothing of it is sent.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import overload

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
from beanstalk_twisted.client.commands.methods import (
    DEFAULT_PRIORITY,
    AnyJob,
    Commands,
    job_number,
    tube_bytes,
)
from beanstalk_twisted.client.commands.specs import DEFAULT_TTR_S, Job
from beanstalk_twisted.client.commands.tags import Inserted, Tags, on_wire
from beanstalk_twisted.client.stats import (
    ConnectionStats,
    GroupStats,
    ListedJob,
    ReplicationStats,
    TubePolicy,
)
from beanstalk_twisted.wire.extensions import MAX_PAGE_JOBS


def _nothing_announced(failure: Failure) -> frozenset[str]:
    failure.trap(errors.UnknownCommand, errors.BadFormat)
    return frozenset()


def _trusts_everybody(failure: Failure) -> None:
    failure.trap(errors.UnknownCommand)


class ExtensionCommands(Commands):
    """The methods.  Each gives a Deferred of what the server answers."""

    def probe(self) -> Deferred[frozenset[str]]:
        """Ask what the server knows beside beanstalkd's own commands.

        :return: the words; none, if it does not know the question.
        """
        asked: Deferred[frozenset[str]] = self.send(extended.CAPABILITIES)
        return asked.addErrback(_nothing_announced)

    def auth(self, token: str) -> Deferred[None]:
        """Be on this connection whose token this is; a server that asks nobody for rights takes
        any.  `service.Client` shows the token that it was given on each connection by itself.

        :raise Unauthorized: it is nobody's; all is as it was.
        :raise ValueError: there can be no such token.
        """
        shown: Deferred[None] = self.send(extended.AUTH_TOKEN, (token,))
        return shown.addErrback(_trusts_everybody)

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
        """Put a job into a tube; see `Commands.put`.

        :param tags: None: any server takes it.
        :return: the job's number; with tags an `Inserted`, which says whether the job is new.
        :raise NotAnnounced: there are tags, and the server does not know one of them.
        """
        if tags is None:
            return super().put(body, tube=tube, priority=priority, delay=delay, ttr=ttr)
        args = (priority, delay, ttr, _size("put", body), on_wire(tags))
        return self.send(extended.PUT_TAGGED, args, body, _place(tube))

    def put_at(
        self, body: bytes, unix_seconds: int, *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, ttr: int = DEFAULT_TTR_S, tags: Tags | None = None,
    ) -> Deferred[Inserted]:  # fmt: skip
        """Put a job that is ready at that moment of the wall clock, at once if it is past.

        :param unix_seconds: since 1970 UTC: ``int(moment.timestamp())`` of a `datetime`; before
            that, too, it is past.
        :return: the job's number, which says whether the job is new.
        :raise BadFormat: the moment is more than 4,294,967,295 seconds ahead.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.
        """
        args = (priority, _moment(unix_seconds), ttr, _size("put-at", body), on_wire(tags))
        return self.send(extended.PUT_AT, args, body, _place(tube))

    def put_batch(
        self, jobs: Iterable[bytes | NewJob], *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S,
        tags: Tags | None = None,
    ) -> Deferred[tuple[Inserted, ...]]:  # fmt: skip
        """Put 1 to 1,000 jobs into a tube, all or none.

        :param jobs: their bodies, or `NewJob`s for those that differ from the others.
        :return: the jobs' numbers, in their order, which say whether each is new.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.  The bodies may also be too large
            together.
        """
        if isinstance(jobs, bytes | NewJob):
            raise TypeError("put-batch: give a list of jobs, not one")
        batch = [extended.new_job(job, priority, delay, ttr, tags) for job in jobs]
        body = extended.job_lines(batch)
        return self.send(extended.PUT_BATCH, (JobCount.of(batch),), body, _place(tube))

    def wait_job(self, job: AnyJob, seconds: int) -> Deferred[str]:
        """Wait until a job is deleted or buried; 0 does not wait.  Meanwhile the server answers
        nothing that was sent on this connection behind it.

        :return: ``deleted`` or ``buried``.
        :raise TimedOut: it was neither in that time.
        :raise NotFound: there is none, so it may be deleted already.
        """
        return self.send(extended.WAIT_JOB, (job_number(job), seconds))

    # For workers.

    def watch(self, tube: str | bytes, weight: int | None = None) -> Deferred[int]:
        """Let later reserves take from this tube too.

        :param weight: its share of the reserves in the modes that choose by weight, 1 to 1,000.
            None: 1, on any server.
        :return: how many tubes are watched.
        :raise NotAnnounced: there is a weight, and the server knows none.
        """
        if weight is None:
            return super().watch(tube)
        return self.send(extended.WATCH_WEIGHTED, (tube_bytes(tube), weight))

    def reserve_mode(self, mode: str) -> Deferred[str]:
        """Say how later reserves choose among the tubes watched.

        :param mode: ``fifo``, the best job of all; ``weighted``, so many jobs of each tube as the
            weights say; ``weighted-fair``, so much time of workers.
        """
        return self.send(extended.RESERVE_MODE, (mode,))

    def reserve_batch(self, count: int, seconds: int | None = None) -> Deferred[tuple[Job, ...]]:
        """Get up to so many ready jobs of the tubes watched.

        :param count: 1 to 1,000.
        :param seconds: wait so long for the first; None does not wait, and may give none.
        :raise TimedOut: there was none in that time.
        :raise DeadlineSoon: the TTR of one reserved before is about to end.
        """
        return self.send(extended.RESERVE_BATCH, (count, seconds))

    def cancel_reserve(self) -> Deferred[None]:
        """End the `reserve`, `reserve_with_timeout`, `reserve_batch` or `wait_job` that waits, if
        it was the last command before this one: it fails with `TimedOut`, or gives a job that has
        come before, and then this one is answered.

        :raise NotAnnounced: also if one waits, and the server was not asked before it what it
            knows: await `probe` first.
        """
        return self.send(extended.CANCEL_RESERVE)

    def delete_batch(self, jobs: Iterable[AnyJob]) -> Deferred[BatchDeleted]:
        """End 1 to 1,000 jobs, each as by a `delete` of its own.

        :return: how many there were.
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
        :raise NotFound: there is none, or somebody else has it.
        """
        return self._send_of(extended.MOVE_JOB, job, tube_bytes(tube))

    def update_job(
        self, job: AnyJob, priority: int, delay: int, ttr: int, *, body: bytes | None = None
    ) -> Deferred[None]:
        """Give a job other values, and another body if there is one.  One that we have reserved
        stays so, and its TTR begins anew.

        :raise NotFound: there is none, or somebody else has it.
        :raise JobTooBig: nothing was changed.
        """
        size = None if body is None else _size("update-job", body)
        reserved_on = job.reserved_on if isinstance(job, Job) else None
        args = (job_number(job), priority, delay, ttr, size)
        return self.send(extended.UPDATE_JOB, args, body, reserved_on=reserved_on)

    # For whoever looks after the queue.

    def kick_dead(self, tube: str | bytes, bound: int) -> Deferred[int]:
        """Let up to so many dead letters of a tube be tried again there, those that died first.

        :return: how many there were.
        """
        return self.send(extended.KICK_DEAD, (tube_bytes(tube), bound))

    def list_jobs(
        self, tube: str | bytes, state: str = "all", limit: int = MAX_PAGE_JOBS,
        cursor: str | None = None,
    ) -> Deferred[JobPage]:  # fmt: skip
        """Describe some jobs of a tube.

        :param state: ``ready``, ``reserved``, ``delayed``, ``buried`` or ``all``.
        :param limit: how many at most, 1 to 1,000.
        :param cursor: of the page before; None for the first.
        :raise NotFound: there is no such tube.
        """
        return self.send(extended.LIST_JOBS, (tube_bytes(tube), state, limit, cursor))

    async def each_job(self, tube: str | bytes, state: str = "all") -> AsyncIterator[ListedJob]:
        """Describe all jobs of a tube, page by page, as `list_jobs` does.  For coroutines of
        Twisted.
        """
        cursor: str | None = None
        while True:
            page = await self.list_jobs(tube, state, cursor=cursor)
            for job in page.jobs:
                yield job
            if page.cursor is None:
                return
            cursor = page.cursor

    def flush_tube(self, tube: str | bytes, state: str = "all") -> Deferred[int]:
        """Delete all jobs of a tube that nobody has reserved.

        :param state: ``ready``, ``delayed``, ``buried`` or ``all``.
        :return: how many there were.
        :raise NotFound: there is no such tube.
        """
        return self.send(extended.FLUSH_TUBE, (tube_bytes(tube), state))

    def forget_key(self, tube: str | bytes, key: str | bytes) -> Deferred[None]:
        """Forget the unique key of a deleted job, so that another put of it makes a new job.

        :raise NotFound: the key is not remembered; a living job may have it.
        """
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
        """Ask how many jobs a group has, and how many wait for it.

        :raise NotFound: it has no job, and none waits for it.
        """
        return self.send(extended.STATS_GROUP, (group,))

    def list_connections(self) -> Deferred[tuple[ConnectionStats, ...]]:
        """Describe all connections of the server."""
        return self.send(extended.LIST_CONNECTIONS)

    def drain(self) -> Deferred[None]:
        """Let the server take no new jobs."""
        return self.send(extended.DRAIN)

    def undrain(self) -> Deferred[None]:
        """Let the server take new jobs again."""
        return self.send(extended.UNDRAIN)

    def promote(self, standby: str | None = None) -> Deferred[str]:
        """Let the active server of a replicated queue hand over to a standby; it parts a moment
        later.

        :param standby: a name or address of it; None for whichever has the most.
        :return: the name of the standby that is handed over to.
        :raise CannotHandOver: that cannot be; says why, and which standbys there are.
        """
        return self.send(extended.PROMOTE, (standby,))

    def stats_replication(self) -> Deferred[ReplicationStats]:
        """Ask how replication is, as this server knows it; answered though the stream is silent."""
        return self.send(extended.STATS_REPLICATION)


def _moment(unix_seconds: int) -> int:
    """Give a moment as a line can have it: all that is past is the same to the server."""
    is_before_1970 = isinstance(unix_seconds, int) and unix_seconds < 0
    return 0 if is_before_1970 else unix_seconds


def _size(command: str, body: object) -> int:
    if not isinstance(body, bytes):
        raise TypeError(f"{command}: the body is bytes, not {type(body).__name__}: encode it")
    return len(body)


def _place(tube: str | bytes | None) -> bytes | None:
    """Give the tube that a job is put into; wrong names are refused before anything is sent."""
    if tube is None:
        return None
    place = tube_bytes(tube)
    specs.USE.line((place,))
    return place
