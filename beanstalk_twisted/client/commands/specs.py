"""Commands as clients send them: what a server has to announce first, what its replies mean, and
the results that have a class of their own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.tags import JobCount, NewJob, Tags, on_wire, words_of
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
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.extensions import BY_OPERATION
from beanstalk_twisted.wire.forms import BatchDeleted as BatchDeleted
from beanstalk_twisted.wire.forms import Inserted as Inserted
from beanstalk_twisted.wire.forms import ReplyForm
from beanstalk_twisted.wire.grammar import CRLF, JOB_ID, Whole
from beanstalk_twisted.wire.tags import BatchKey, PutTags

DEFAULT_PRIORITY: Final = 1 << 16
"""Of jobs put, released or buried, unless told: what other clients take; below 1024 is urgent."""

DEFAULT_TTR_S: Final = 60
"""Time to run, seconds, unless told: what other clients take."""


Args = tuple[Any, ...]
"""The values of a command's fields."""


class _NumberAndBody(NamedTuple):
    id: int
    body: bytes


class Job(_NumberAndBody):
    """:ivar reserved_on: the connection that has reserved it; None if it was only looked at."""

    reserved_on: object = None


_job: Final[Callable[[tuple[int, bytes]], Job]] = partial(tuple.__new__, Job)


class JobPage(NamedTuple):
    """Maybe empty; ``cursor`` is where the next page begins, None after the last."""

    jobs: tuple[ListedJob, ...]
    cursor: str | None


def _names(body: bytes) -> tuple[str, ...]:
    # A log may have brought a name that no client could use.
    return tuple(name.decode("ascii", "backslashreplace") for name in yaml.read_listing(body))


def _words(body: bytes) -> frozenset[str]:
    return frozenset(word.decode() for word in yaml.read_listing(body))


def _page(body: bytes) -> JobPage:
    items, more = yaml.read_records("jobs", body)
    return JobPage(tuple(map(ListedJob.of, items)), dict(more).get("cursor"))


def _connections(body: bytes) -> tuple[ConnectionStats, ...]:
    items, _ = yaml.read_records("connections", body)
    return tuple(map(ConnectionStats.of, items))


_DOCUMENTS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "capabilities": _words, "list-connections": _connections, "list-jobs": _page,
    "list-tubes": _names, "list-tubes-watched": _names, "stats": ServerStats,
    "stats-group": GroupStats, "stats-job": JobStats, "stats-replication": ReplicationStats,
    "stats-tube": TubeStats, "tube-policy": TubePolicy,
}  # fmt: skip
"""What the documents of commands, which they answer with OK, are read as."""


def _compiled(row: Command) -> Callable[..., bytes]:
    """Compile what writes the lines of a command that has only whole numbers: a loop over the
    fields takes longer than all else that a client does for a `put`.
    """
    if not row.fields:
        line = row.line(())
        return lambda: line
    limits = [field.write for field in row.fields if isinstance(field.write, Whole)]
    if len(limits) != len(row.fields):
        return lambda *args: row.line(args)
    names = ", ".join(f"field{at}" for at in range(len(limits)))
    tests = " and ".join(
        f"type(field{at}) is int and {each.least} <= field{at} <= {each.most}"
        for at, each in enumerate(limits)
    )
    template = b" ".join([row.name.encode(), *[b"%d"] * len(limits)]) + CRLF
    source = f"lambda {names}: {template!r} % ({names},) if {tests} else written(({names},))"
    made: Callable[..., bytes] = eval(source, {"written": row.line})  # noqa: S307 - of the table.
    # The values of a `put` are mostly those of the one before it; True is no 1.
    return lru_cache(maxsize=1024, typed=True)(made) if row.has_body else made


class CommandSpec:
    """A row of the table, and what a client makes of it.

    :ivar name: in errors, and in what a server announces; that of another form has its argument.
    :ivar is_extended: beanstalkd does not have it, so it is sent only to a server that has
        announced it: an older one may take the body after an unknown line for commands.
    :ivar is_simple: it neither has to be announced nor changes what is sent after it.
    """

    def __init__(self, row: Command) -> None:
        self.row = row
        self.name = row.form or row.name
        self.success = row.success
        self.replies = row.replies
        self.is_repeatable = row.is_repeatable
        self.is_extended = row.is_extension
        self.is_in_use = row.is_in_use
        self.is_simple = not row.is_extension and row.operation not in ("use", "quit")
        self.server_time_s = row.server_time_s
        # Those that may be sent to any server are asked before all others; of a put the tags count.
        is_asked_first = row.is_extension and row.operation not in ("auth", "capabilities")
        self._words = frozenset((self.name,) if is_asked_first and self.name != "put" else ())
        self._read = _DOCUMENTS.get(row.operation)
        self._job_at = row.fields.index(JOB_ID) if JOB_ID in row.fields else None

    def __repr__(self) -> str:
        return f"<CommandSpec {self.name}>"

    def write(self, *args: Any) -> bytes:
        """Write the command's line, its CR LF included.

        :raise TypeError: a value is of another kind, or there are too many or too few.
        :raise ValueError: one is outside its limits, or likewise.
        """
        self.write = _compiled(self.row)  # type: ignore[method-assign]
        return self.write(*args)

    def line(self, args: Args) -> bytes:
        return self.write(*args)

    def result(self, args: Sequence[Any], form: ReplyForm, value: Any) -> Any:
        """Give what a reply means.

        :raise ErrorReply: the reply is an error.
        :raise BadReply: its body is not what it should be.
        """
        if form.is_error:
            raise self._error(args, form, value)
        if form.is_line:
            return value
        if form.parts is not None:
            return tuple(self.result(args, part, each) for part, each in value)
        if self._read is None:
            return _job(value)
        try:
            return self._read(value[1])
        except ValueError as error:
            raise errors.BadReply(f"{self.name}: {error}") from None

    def _error(self, args: Sequence[Any], form: ReplyForm, value: Any) -> errors.ErrorReply:
        job_id, about = self.job_id(args), None
        if job_id is None:  # A command with both is about the job.
            given = zip(self.row.fields, args, strict=True)
            about = next((name.decode() for field, name in given if field.name == "tube"), None)
        return errors.BY_WORD[form.word].told(self.name, value, job_id, about)

    def job_id(self, args: Sequence[Any]) -> int | None:
        return None if self._job_at is None else int(args[self._job_at])

    def needs(self, args: Sequence[Any]) -> frozenset[str]:
        """Name what a server has to announce before it is sent this."""
        words = self._words.union(*(words_of(tags) for tags in _tags_in(args) if tags is not None))
        return words if _key_in(args) is None else words | {"put-batch idp:"}

    def unique_s(self, args: Sequence[Any]) -> int:
        """Give the seconds for which sending this again certainly puts no second job."""
        key = _key_in(args)
        if key is not None:
            return key.seconds
        return min((0 if tags is None else tags.unique_s for tags in _tags_in(args)), default=0)


def _tags_in(args: Sequence[Any]) -> Iterator[PutTags | None]:
    """Give the tags of each job that is put; None for one of a batch without."""
    for value in args:
        if isinstance(value, JobCount):
            yield from value.tags
        elif isinstance(value, PutTags):
            yield value


def _key_in(args: Sequence[Any]) -> BatchKey | None:
    return next((value for value in args if isinstance(value, BatchKey)), None)


SPECS: Final = {operation: CommandSpec(row) for operation, row in BY_OPERATION.items()}
"""All of them, by their operations."""

PUT: Final = SPECS["put"]
PUT_TAGGED: Final = SPECS["put-tagged"]
RESERVE: Final = SPECS["reserve"]
RESERVE_WITH_TIMEOUT: Final = SPECS["reserve-with-timeout"]
RESERVE_JOB: Final = SPECS["reserve-job"]
RESERVE_BATCH: Final = SPECS["reserve-batch"]
DELETE: Final = SPECS["delete"]
DELETE_BATCH: Final = SPECS["delete-batch"]
RELEASE: Final = SPECS["release"]
BURY: Final = SPECS["bury"]
TOUCH: Final = SPECS["touch"]
CANCEL_JOB: Final = SPECS["cancel-job"]
RETURN_JOB: Final = SPECS["return-job"]
MOVE_JOB: Final = SPECS["move-job"]
USE: Final = SPECS["use"]
WATCH: Final = SPECS["watch"]
WATCH_WEIGHTED: Final = SPECS["watch-weighted"]
IGNORE: Final = SPECS["ignore"]
RESERVE_MODE: Final = SPECS["reserve-mode"]
CANCEL_RESERVE: Final = SPECS["cancel-reserve"]
QUIT: Final = SPECS["quit"]
STATS_JOB: Final = SPECS["stats-job"]

CAPABILITIES: Final = SPECS["capabilities"]
"""Asks for the words that a server knows besides beanstalkd's.  It is one bare line, so a server
that does not know it does no more than say so.
"""

AUTH_TOKEN: Final = SPECS["auth"]
"""Shows a token.  A server that trusts everybody does not know it, and says so."""


# What follows a put-batch.


def job_lines(jobs: Iterable[NewJob]) -> bytes:
    """Write what follows a `put-batch`, except the CR LF of the last body.

    :raise TypeError, ValueError: a job is not what it should be.
    """
    written = []
    for job in jobs:
        # The fields and limits are those of a `put`.
        values = (job.priority, job.delay, job.ttr, len(job.body))
        tags = on_wire(job.tags)
        line = PUT.line(values) if tags is None else PUT_TAGGED.line((*values, tags))
        written.append(line.removeprefix(PUT.row.prefix) + job.body)
    return CRLF.join(written)


def new_job(
    job: bytes | NewJob, priority: int, delay: int, ttr: int, tags: Tags | None = None
) -> NewJob:
    """Fill in what a job leaves out.  :raise TypeError: its body is not bytes."""
    said = job if isinstance(job, NewJob) else NewJob(job)
    if not isinstance(said.body, bytes):
        raise TypeError(f"put-batch: a body is bytes, not {type(said.body).__name__}: encode it")
    own = {name: value for name, value in said._asdict().items() if value is not None}
    return NewJob(said.body, priority, delay, ttr, tags)._replace(**own)
