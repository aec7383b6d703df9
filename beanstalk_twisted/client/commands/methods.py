"""One method for each row of the command table, for whatever can send a command.

The names are the commands' with ``_`` for ``-``; `tests/client/commands/test_methods.py` holds
methods and rows equal.  Wrong arguments raise at once (`TypeError`, `ValueError`), and nothing is
sent.  All else that goes wrong comes through the Deferred, as an `errors.ClientError`.
"""

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, FirstError
from twisted.python.failure import Failure

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import DEFAULT_TTR_S, CommandSpec, Job
from beanstalk_twisted.client.stats import JobStats, ServerStats, TubeStats

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


def first_error(failure: Failure) -> BaseException | None:
    """Give the error with which a `gatherResults` has failed."""
    failure.trap(FirstError)
    assert isinstance(failure.value, FirstError)
    return failure.value.subFailure.value


class Commands:
    """The methods.  Each gives a Deferred of what the server answers.  Those that are given a job
    as `reserve` has given it fail with `ReservationLost` when the connection that had reserved it
    has ended.
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

    def _send_of(self, spec: CommandSpec, job: AnyJob, *args: object) -> Deferred[None]:
        """Send a command about a job.  What is more than its number is true of one connection
        only.
        """
        reserved_on = job.reserved_on if isinstance(job, Job) else None
        return self.send(spec, (job_number(job), *args), reserved_on=reserved_on)

    # For whoever puts jobs in.

    def put(
        self, body: bytes, *, tube: str | bytes | None = None,
        priority: int = DEFAULT_PRIORITY, delay: int = 0, ttr: int = DEFAULT_TTR_S,
    ) -> Deferred[int]:  # fmt: skip
        """Put a job into a tube.

        :param tube: this one, for this job alone; None for the one in use.  A `use` is sent right
            before it if it is needed, and other commands find the tube that was in use for them.
        :param priority: 0 is the most urgent.
        :param delay: seconds until it is ready.
        :param ttr: seconds a worker has for it; the server makes 0 to 1.
        :return: the job's number.
        :raise Draining, JobTooBig, OutOfMemory: there is no job.
        :raise Buried: there is one, but it is buried.
        :raise Unanswered: with a ``tube`` that the server has refused to use: it may be in another.
        """
        if not isinstance(body, bytes):
            raise TypeError(f"put: the body is bytes, not {type(body).__name__}: encode it")
        place = None if tube is None else tube_bytes(tube)
        if place is not None:
            specs.USE.line((place,))  # Wrong names are refused before anything is sent.
        return self.send(specs.PUT, (priority, delay, ttr, len(body)), body, place)

    def use(self, tube: str | bytes) -> Deferred[str]:
        """Let later puts go into this tube, kicks and peeks look into it.

        :return: its name.
        """
        return self.send(specs.USE, (tube_bytes(tube),))

    # For workers.

    def reserve(self) -> Deferred[Job]:
        """Get a job from one of the tubes watched, as soon as there is one.

        While it waits, the server answers nothing that was sent on this connection behind it, and
        no deadline runs.

        :raise DeadlineSoon: the TTR of one reserved before is about to end.
        """
        return self.send(specs.RESERVE)

    def reserve_with_timeout(self, seconds: int) -> Deferred[Job]:
        """Get a job from one of the tubes watched, if there is one in that time; 0 does not wait.

        :raise TimedOut: there was none.
        :raise DeadlineSoon: the TTR of one reserved before is about to end.
        """
        return self.send(specs.RESERVE_WITH_TIMEOUT, (seconds,))

    def reserve_job(self, job: AnyJob) -> Deferred[Job]:
        """Get this job, in whichever tube it is.

        :raise NotFound: there is none, or it is reserved.
        """
        return self.send(specs.RESERVE_JOB, (job_number(job),))

    def delete(self, job: AnyJob) -> Deferred[None]:
        """End a job: one that is reserved by us, or any that nobody has.

        :raise NotFound: there is none, or somebody else has it.
        :raise ReservationLost: as above; with its number instead of the job, it is deleted all the
            same, if nobody has it.
        """
        return self._send_of(specs.DELETE, job)

    def release(
        self, job: AnyJob, *, priority: int = DEFAULT_PRIORITY, delay: int = 0
    ) -> Deferred[None]:
        """Give back a job that we have reserved.

        :raise NotFound: we have not, or no longer.
        """
        return self._send_of(specs.RELEASE, job, priority, delay)

    def bury(self, job: AnyJob, *, priority: int = DEFAULT_PRIORITY) -> Deferred[None]:
        """Put aside a job that we have reserved, until it is kicked.

        :raise NotFound: we have not, or no longer.
        """
        return self._send_of(specs.BURY, job, priority)

    def touch(self, job: AnyJob) -> Deferred[None]:
        """Let the TTR of a job that we have reserved begin anew.

        :raise NotFound: we have not, or no longer.
        """
        return self._send_of(specs.TOUCH, job)

    def watch(self, tube: str | bytes) -> Deferred[int]:
        """Let later reserves take from this tube too.

        :return: how many tubes are watched.
        """
        return self.send(specs.WATCH, (tube_bytes(tube),))

    def ignore(self, tube: str | bytes) -> Deferred[int]:
        """Let later reserves no longer take from this tube.

        :return: how many tubes are watched.
        :raise NotIgnored: it is the last one.
        """
        return self.send(specs.IGNORE, (tube_bytes(tube),))

    # For whoever looks after the queue.

    def peek(self, job: AnyJob) -> Deferred[Job]:
        """Look at a job, in any tube and state.

        :raise NotFound: there is none.
        """
        return self.send(specs.PEEK, (job_number(job),))

    def peek_ready(self) -> Deferred[Job]:
        """Look at the first ready job of the tube in use.

        :raise NotFound: there is none.
        """
        return self.send(specs.PEEK_READY)

    def peek_delayed(self) -> Deferred[Job]:
        """Look at the delayed job of the tube in use that is due first.

        :raise NotFound: there is none.
        """
        return self.send(specs.PEEK_DELAYED)

    def peek_buried(self) -> Deferred[Job]:
        """Look at the job of the tube in use that was buried first.

        :raise NotFound: there is none.
        """
        return self.send(specs.PEEK_BURIED)

    def kick(self, bound: int) -> Deferred[int]:
        """Make up to so many jobs of the tube in use ready: buried ones, or if there are none
        delayed ones.

        :return: how many there were.
        """
        return self.send(specs.KICK, (bound,))

    def kick_job(self, job: AnyJob) -> Deferred[None]:
        """Make a buried or delayed job ready.

        :raise NotFound: there is none, or it is neither.
        """
        return self.send(specs.KICK_JOB, (job_number(job),))

    def pause_tube(self, tube: str | bytes, seconds: int) -> Deferred[None]:
        """Let nobody reserve from a tube for so long; 0 ends a pause.

        :raise NotFound: there is no such tube.
        """
        return self.send(specs.PAUSE_TUBE, (tube_bytes(tube), seconds))

    def stats(self) -> Deferred[ServerStats]:
        """Ask for facts about the server."""
        return self.send(specs.STATS)

    def stats_tube(self, tube: str | bytes) -> Deferred[TubeStats]:
        """Ask for facts about a tube.

        :raise NotFound: there is none.
        """
        return self.send(specs.STATS_TUBE, (tube_bytes(tube),))

    def stats_job(self, job: AnyJob) -> Deferred[JobStats]:
        """Ask for facts about a job.

        :raise NotFound: there is none.
        """
        return self.send(specs.STATS_JOB, (job_number(job),))

    def list_tubes(self) -> Deferred[tuple[str, ...]]:
        """Ask for the names of all tubes."""
        return self.send(specs.LIST_TUBES)

    def list_tube_used(self) -> Deferred[str]:
        """Ask for the name of the tube in use."""
        return self.send(specs.LIST_TUBE_USED)

    def list_tubes_watched(self) -> Deferred[tuple[str, ...]]:
        """Ask for the names of the tubes watched."""
        return self.send(specs.LIST_TUBES_WATCHED)

    def quit(self) -> Deferred[None]:
        """Part, when all that was asked before is answered."""
        return self.send(specs.QUIT)
