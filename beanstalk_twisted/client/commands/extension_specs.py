"""The specs of the commands that beanstalkd does not have (docs/extensions.md), derived from their
rows as `specs` does it, and the values that are theirs alone.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self, cast

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import (
    BARE,
    DOCUMENT,
    JOB,
    NAME,
    NUMBER,
    PUT,
    TEXT,
    TUBES,
    CommandSpec,
    Job,
    Reply,
    Shape,
    check_tube,
    job_of,
    no_result,
    number,
    stats_as,
    value_of,
)
from beanstalk_twisted.client.commands.tags import (
    STATES,
    Inserted,
    Tags,
    check_whole,
    name_bytes,
    on_wire,
    words_of,
)
from beanstalk_twisted.client.stats import (
    ConnectionStats,
    GroupStats,
    ListedJob,
    ReplicationStats,
    TubePolicy,
)
from beanstalk_twisted.wire import extensions, grammar, yaml
from beanstalk_twisted.wire.extensions import AUTH, EXTENSIONS, TAGGED_PUT
from beanstalk_twisted.wire.grammar import CRLF, MAX_BATCH_JOBS, MAX_U32, MAX_U64, Field
from beanstalk_twisted.wire.tags import (
    OPTIONAL_BATCH_KEY,
    OPTIONAL_TAGS,
    TAGS,
    BatchKey,
    PutTags,
    write_batch_key,
    write_tags,
)

FLUSH_S: Final = 600.0
"""What a flush or a `kick-dead` may take, seconds: a million jobs take 30 s on a busy one."""


class NewJob(NamedTuple):
    """A job of a batch to put; what is None is as the arguments of `put_batch`."""

    body: bytes
    priority: int | None = None
    delay: int | None = None
    ttr: int | None = None
    tags: Tags | None = None


class JobCount(int):
    """How many jobs follow a `put-batch`, and the tags of each."""

    tags: tuple[PutTags | None, ...] = ()

    @classmethod
    def of(cls, jobs: Sequence[NewJob]) -> Self:
        count = cls(len(jobs))
        count.tags = tuple(on_wire(job.tags) for job in jobs)
        return count


class BatchDeleted(NamedTuple):
    """:ivar not_found: how many jobs were not there, or are reserved by others."""

    deleted: int
    not_found: int


class JobPage(NamedTuple):
    """Maybe empty; ``cursor`` is where the next page begins, None after the last."""

    jobs: tuple[ListedJob, ...]
    cursor: str | None


# Lines.

_Write = Callable[[str, Any], bytes]
"""Writes a value; also given is what to call it in errors.  Empty if it is left out."""


def _whole(least: int, most: int) -> _Write:
    def write(what: str, value: object) -> bytes:
        check_whole(what, value, least, most)
        return b"%d" % cast(int, value)

    return write


def _optional(write: _Write) -> _Write:
    return lambda what, value: b"" if value is None else write(what, value)


def _token(what: str, value: object) -> bytes:
    """A wrong one is not shown: it may be a secret with a typing error."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]{1,200}", value):
        raise ValueError(f"{what} is 1 to 200 characters of ASCII without spaces")
    return value.encode()


def _policy(what: str, value: object) -> bytes:
    if not isinstance(value, tuple) or not all(map(_is_pair, value)):
        raise TypeError(f"{what} is keys and values, not {value!r}")
    words = ["=".join(pair) for pair in value]
    for word in words:
        if not re.fullmatch(r"[a-z-]+=[!-~]+", word):
            raise ValueError(f"{what}: there can be no {word!r}")
    return " ".join(words).encode()


def _is_pair(value: object) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair and all(isinstance(each, str) for each in cast(Any, value))


def _target(what: str, value: object) -> bytes:
    check_tube(grammar.TUBE, value)
    return cast(bytes, value)


def _ids(what: str, value: object) -> bytes:
    if not isinstance(value, tuple):
        raise TypeError(f"{what} are a tuple, not {value!r}")
    if not 1 <= len(value) <= MAX_BATCH_JOBS:
        raise ValueError(f"{what} are 1 to {MAX_BATCH_JOBS} jobs, not {len(value)}")
    return b" ".join([_job_id(what, job_id) for job_id in value])


def _tags(what: str, value: object) -> bytes:
    if not isinstance(value, PutTags):
        raise TypeError(f"{what} are Tags, not {value!r}")
    return write_tags(value)


def _batch_key(what: str, value: object) -> bytes:
    if not isinstance(value, BatchKey):
        raise TypeError(f"{what} is a BatchKey, not {value!r}")
    return write_batch_key(value)


def _text_of(pattern: str, wanted: str) -> _Write:
    def write(what: str, value: object) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"{what} is text, not {value!r}")
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{what} is {wanted}, not {value!r}")
        return value.encode()

    return write


def _one_of(*names: str) -> _Write:
    return _text_of("|".join(names), f"one of {', '.join(names)}")


_job_id: Final = _whole(0, MAX_U64)
_u32: Final = _whole(0, MAX_U32)
_wait: Final = _whole(0, grammar.MAX_TIMEOUT_S)
_cursor: Final = _text_of("[a-z0-9-]+", "what list-jobs has given")
_standby: Final = _text_of(r"[\x21-\x7e]+", "a name such as host:11300")
_WRITES: Final[Mapping[Field, _Write]] = {
    grammar.JOB_ID: _job_id, grammar.PRIORITY: _u32, grammar.DELAY: _u32, grammar.TTR: _u32,
    grammar.BYTES: _u32, grammar.UNIX_SECONDS: _whole(0, MAX_U64),
    grammar.BATCH_COUNT: _whole(1, MAX_BATCH_JOBS), grammar.SECONDS: _wait,
    extensions.OPTIONAL_SECONDS: _optional(_wait), extensions.JOB_IDS: _ids,
    extensions.FLUSHED_STATE: _one_of("ready", "delayed", "buried", "all"),
    extensions.LISTED_STATE: _one_of("ready", "reserved", "delayed", "buried", "all"),
    extensions.LIMIT: _whole(1, extensions.MAX_PAGE_JOBS), extensions.CURSOR: _optional(_cursor),
    TAGS: _tags, OPTIONAL_TAGS: _optional(_tags), OPTIONAL_BATCH_KEY: _optional(_batch_key),
    extensions.TARGET: _target, extensions.POLICY_PAIRS: _policy, extensions.DEAD_BOUND: _u32,
    grammar.OPTIONAL_BYTES: _optional(_u32), extensions.GROUP: name_bytes,
    extensions.UNIQUE_KEY: name_bytes,
    extensions.WEIGHT: _whole(1, extensions.MAX_WEIGHT),
    extensions.TOKEN: _token, extensions.SUCCESSOR: _optional(_standby),
    extensions.MODE: _one_of("fifo", "weighted", "weighted-fair"),
}  # fmt: skip
_FAILURES: Final[Mapping[type[errors.ErrorReply], Shape]] = {
    errors.Duplicate: NUMBER, errors.CannotHandOver: TEXT,
}  # fmt: skip
_WAITS: Final = (grammar.SECONDS, extensions.OPTIONAL_SECONDS)


class ExtensionSpec(CommandSpec):
    """A command that beanstalkd does not have.

    None of them is frequent for each job, so lines are written field by field, without a template.

    :ivar form: as `capabilities` calls it, but for tags.
    """

    def __init__(
        self, form: str, success: bytes, shape: Shape, result: Callable[[Reply], Any],
        *failures: type[errors.ErrorReply], is_repeatable: bool = False, also: bytes = b"",
        takes_s: float = 0.0,
    ) -> None:  # fmt: skip
        """:param also: another word that is no error.
        :param takes_s: how long the server may work, seconds.
        """
        shapes = {kind.word: _FAILURES.get(kind, BARE) for kind in failures}
        if also:
            shapes[also] = BARE
        row = _ROWS[form]
        super().__init__(row, success, shape, result, shapes, is_repeatable=is_repeatable)
        self.successes = frozenset((success, also or success))
        self.form: str = form
        self.is_extended = True
        self._takes_s = takes_s
        if row.name in ("auth", "capabilities"):
            # Sent to any server: before a token nothing else may be asked.
            self._words = frozenset()

    def line(self, args: tuple[Any, ...]) -> bytes:
        given = zip(self.row.fields, args, strict=True)
        words = [self.row.name.encode(), *(self._word(field, value) for field, value in given)]
        line = b" ".join(filter(None, words)) + CRLF
        if len(line) > self.row.max_line_bytes:
            most = self.row.max_line_bytes
            raise ValueError(f"{self.name}: its line would have {len(line)} bytes; {most} may be")
        return line

    def _word(self, field: Field, value: Any) -> bytes:
        if field in TUBES:
            check_tube(field, value)
            return bytes(value)
        return _WRITES[field](f"{self.name}: {field.name}", value)

    def needs(self, args: Sequence[Any]) -> frozenset[str]:
        words = self._words.union(*(words_of(tags) for tags in _tags_in(args) if tags is not None))
        return words if _batch_key_in(args) is None else words | {"put-batch idp:"}

    def unique_s(self, args: Sequence[Any]) -> int:
        key = _batch_key_in(args)
        if key is not None:
            return key.seconds
        return min((0 if tags is None else tags.unique_s for tags in _tags_in(args)), default=0)

    def server_time_s(self, args: Sequence[Any]) -> float | None:
        for field, value in zip(self.row.fields, args, strict=True):
            if field in _WAITS:
                return float(value or 0)
        return self._takes_s


def _tags_in(args: Sequence[Any]) -> Iterator[PutTags | None]:
    """Give the tags of each job that is put; None for one of a batch without."""
    for value in args:
        if isinstance(value, JobCount):
            yield from value.tags
        elif isinstance(value, PutTags):
            yield value


def _batch_key_in(args: Sequence[Any]) -> BatchKey | None:
    return next((value for value in args if isinstance(value, BatchKey)), None)


# Bodies.


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
    job: "bytes | NewJob", priority: int, delay: int, ttr: int, tags: Tags | None = None
) -> NewJob:
    """Fill in what a job leaves out.  :raise TypeError: its body is not bytes."""
    said = job if isinstance(job, NewJob) else NewJob(job)
    if not isinstance(said.body, bytes):
        raise TypeError(f"put-batch: a body is bytes, not {type(said.body).__name__}: encode it")
    own = {name: value for name, value in said._asdict().items() if value is not None}
    return NewJob(said.body, priority, delay, ttr, tags)._replace(**own)


# Replies.


def _count(text: bytes) -> int:
    return number(text, MAX_BATCH_JOBS)


def _two_counts(text: bytes) -> BatchDeleted:
    deleted, _, not_found = text.partition(b" ")
    return BatchDeleted(_count(deleted), _count(not_found))


_STATES: Final = {state.upper().encode(): state for state in STATES}


def _inserted(text: bytes) -> Inserted:
    job_id, is_there, state = text.partition(b" ")
    inserted = Inserted(number(job_id))
    if is_there:
        if state not in _STATES:
            raise ValueError
        inserted.state = _STATES[state]
    return inserted


_ONE_INSERTED: Final = Shape(_inserted)
_INSERTED: Final = Shape(_count, parts={b"INSERTED": _ONE_INSERTED})
_RESERVED: Final = Shape(_count, parts={b"RESERVED": JOB})
_DELETED: Final = Shape(_two_counts)


def _jobs_of(reply: Reply) -> tuple[Job, ...]:
    return tuple(map(job_of, reply.parts))


def _words(reply: Reply) -> frozenset[str]:
    return frozenset(word.decode() for word in yaml.read_listing(reply.body))


def _page(reply: Reply) -> JobPage:
    items, more = yaml.read_records("jobs", reply.body)
    return JobPage(tuple(map(ListedJob.of, items)), dict(more).get("cursor"))


def _connections(reply: Reply) -> tuple[ConnectionStats, ...]:
    items, _ = yaml.read_records("connections", reply.body)
    return tuple(map(ConnectionStats.of, items))


def _policy_of(reply: Reply) -> TubePolicy | None:
    return TubePolicy(reply.body) if reply.word == b"OK" else None


_ROWS: Final = {row.form or row.name: row for row in (*EXTENSIONS, AUTH)} | {
    "put <tags>": TAGGED_PUT
}
_PUT_FAILS: Final = (errors.ExpectedCrlf, errors.JobTooBig, errors.Draining)

_form: Final = ExtensionSpec
_again: Final = partial(ExtensionSpec, is_repeatable=True)

CAPABILITIES: Final = _again("capabilities", b"OK", DOCUMENT, _words)
"""Asks for the words that a server knows besides beanstalkd's.  It is one bare line, so a server
that does not know it does no more than say so.
"""

AUTH_TOKEN: Final = _again("auth", b"AUTHORIZED", BARE, no_result)
"""Shows a token.  A server that trusts everybody does not know it, and says so."""

PUT_TAGGED: Final = _form("put <tags>", b"INSERTED", _ONE_INSERTED, value_of, *_PUT_FAILS)
PUT_AT: Final = _form("put-at", b"INSERTED", _ONE_INSERTED, value_of, *_PUT_FAILS)
PUT_BATCH: Final = _form(
    "put-batch", b"INSERTED_BATCH", _INSERTED,
    lambda reply: tuple(part.value for part in reply.parts), *_PUT_FAILS,
)  # fmt: skip
DELETE_BATCH: Final = _form("delete-batch", b"DELETED_BATCH", _DELETED, value_of)
FLUSH_TUBE: Final = _form("flush-tube", b"FLUSHED", NUMBER, value_of, takes_s=FLUSH_S)
FLUSH_BURIED: Final = _form("flush-buried", b"FLUSHED", NUMBER, value_of, takes_s=FLUSH_S)
FORGET_KEY: Final = _form("forget-key", b"FORGOTTEN", BARE, no_result, errors.NotFound)
MOVE_JOB: Final = _form("move-job", b"MOVED", BARE, no_result, errors.Duplicate, errors.NotFound)
UPDATE_JOB: Final = _form(
    "update-job", b"UPDATED", BARE, no_result, errors.NotFound, errors.ExpectedCrlf,
    errors.JobTooBig,
)  # fmt: skip
KICK_DEAD: Final = _form("kick-dead", b"KICKED", NUMBER, value_of, takes_s=FLUSH_S)
TUBE_POLICY: Final = _form("tube-policy", b"OK", DOCUMENT, _policy_of, also=b"POLICY")
DRAIN: Final = _form("drain", b"DRAINING", BARE, no_result)
PROMOTE: Final = _form("promote", b"HANDING_OVER", TEXT, value_of, errors.CannotHandOver)
UNDRAIN: Final = _form("undrain", b"NOT_DRAINING", BARE, no_result)

# These may be sent again, as beanstalkd's that reserve or only look.  `cancel-reserve` comes right
# after the `reserve` that is sent again, or finds none: jobs are asked for again after it.
RESERVE_BATCH: Final = _again(
    "reserve-batch", b"RESERVED_BATCH", _RESERVED, _jobs_of, errors.DeadlineSoon
)
PEEK_RESERVED: Final = _again("peek-reserved", b"FOUND", JOB, job_of, errors.NotFound)
LIST_JOBS: Final = _again("list-jobs", b"OK", DOCUMENT, _page, errors.NotFound)
WAIT_JOB: Final = _again(
    "wait-job", b"DELETED", BARE, lambda reply: reply.word.decode().lower(), errors.TimedOut,
    errors.NotFound, also=b"BURIED",
)  # fmt: skip
CANCEL_RESERVE: Final = _again("cancel-reserve", b"CANCELLED", BARE, no_result)
WATCH_WEIGHTED: Final = _again("watch <weight>", b"WATCHING", NUMBER, value_of)
RESERVE_MODE: Final = _again("reserve-mode", b"USING", NAME, value_of)
STATS_GROUP: Final = _again("stats-group", b"OK", DOCUMENT, stats_as(GroupStats), errors.NotFound)
LIST_CONNECTIONS: Final = _again("list-connections", b"OK", DOCUMENT, _connections)
STATS_REPLICATION: Final = _again("stats-replication", b"OK", DOCUMENT, stats_as(ReplicationStats))

SPECS: Final = {
    spec.form: spec for spec in list(globals().values()) if isinstance(spec, ExtensionSpec)
}
"""All of them, by their forms."""
