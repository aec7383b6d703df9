"""The first protocol, v1, from before tubes, delays and TTRs: another table of the same operations.
Connections use and watch `default` only.
"""

from collections.abc import Callable, Sequence
from typing import Final

from beanstalk_twisted.wire import grammar, replies, yaml
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.dialects import Dialect
from beanstalk_twisted.wire.extensions import BY_OPERATION
from beanstalk_twisted.wire.grammar import Field
from beanstalk_twisted.wire.replies import Document, Found, Inserted, Reply, Reserved, Word

NAME: Final = "v1"

TTR_S: Final = 120
"""TTR of jobs put in v1, seconds: what its servers gave all jobs, and its workers expect."""

INSERTED: Final = Word(b"INSERTED")
NOT_INSERTED: Final = Word(b"NOT_INSERTED")
NOT_RELEASED: Final = Word(b"NOT_RELEASED")

REFUSALS: Final = (replies.JOB_TOO_BIG, replies.DRAINING, replies.OUT_OF_MEMORY)
"""Answers to a `put` that have one word here: its body was read and dropped."""

WORDLESS: Final = (replies.TIMED_OUT, replies.DEADLINE_SOON)
"""Ends of a `reserve` without a job: v1 has no reply for them, and the connection is closed.  The
queue gives the first to half-closed connections only.
"""

SERVER_KEYS: Final = (
    "current-jobs-ready", "current-jobs-reserved", "current-jobs-buried", "cmd-put", "cmd-peek",
    "cmd-reserve", "cmd-delete", "cmd-release", "cmd-bury", "cmd-kick", "cmd-stats",
    "job-timeouts", "current-connections", "current-workers", "current-producers",
)  # fmt: skip
"""What `stats` shows, in order; the numbers are the whole server's, all dialects together."""

JOB_KEYS: Final = ("id", "state", "age", "time-left", "timeouts")
"""What `stats` shows of a job, in order."""


def _write_put(reply: Reply) -> bytes:
    """BURIED: the job is stored, and its producer has no use for more."""
    if isinstance(reply, Inserted) or reply == replies.BURIED:
        return INSERTED.encode()
    return (NOT_INSERTED if reply in REFUSALS else reply).encode()


def _write_reserve(reply: Reply) -> bytes:
    if isinstance(reply, Reserved):
        return _with_priority(b"RESERVED", reply)
    return b"" if reply in WORDLESS else reply.encode()


def _write_release(reply: Reply) -> bytes:
    return (NOT_RELEASED if reply == replies.BURIED else reply).encode()


def _write_peek(reply: Reply) -> bytes:
    return _with_priority(b"FOUND", reply) if isinstance(reply, Found) else reply.encode()


def _with_priority(word: bytes, job: Reserved | Found) -> bytes:
    line = b"%s %d %d %d" % (word, job.job_id, job.priority, len(job.body))
    return b"%s\r\n%s\r\n" % (line, job.body)


def _write_server(reply: Reply) -> bytes:
    return _only(SERVER_KEYS, reply).encode()


def _write_job(reply: Reply) -> bytes:
    return _only(JOB_KEYS, reply).encode()


def _only(keys: Sequence[str], reply: Reply) -> Reply:
    """A document with these of its keys; any other reply is left as it is."""
    if not isinstance(reply, Document):
        return reply
    values = dict(yaml.read_mapping(reply.content))
    return replies.mapping((key, values[key]) for key in keys)


_PUT: Final = (
    grammar.PRIORITY, grammar.implied("delay", 0), grammar.implied("ttr", TTR_S), grammar.BYTES,
)  # fmt: skip
_RELEASE: Final = (grammar.JOB_ID, grammar.PRIORITY, grammar.implied("delay", 0))
_BURY: Final = (grammar.JOB_ID, grammar.PRIORITY)
_ONE_JOB: Final = (grammar.JOB_ID,)


def _row(
    prefix: bytes, fields: Sequence[Field] = (), *, operation: str = "", has_body: bool = False,
    write: Callable[[Reply], bytes] | None = None,
) -> Command:  # fmt: skip
    """Make a row of a command that does what the modern one does."""
    modern = BY_OPERATION[operation or prefix.decode().strip()]
    return Command(
        prefix, fields, operation=modern.operation, effect=modern.effect, needs=modern.needs,
        has_body=has_body, is_whole_word=True, write=write,
    )  # fmt: skip


ROWS: Final = (
    _row(b"put ", _PUT, has_body=True, write=_write_put),
    _row(b"reserve", write=_write_reserve),
    _row(b"delete ", _ONE_JOB),
    _row(b"release ", _RELEASE, write=_write_release),
    _row(b"bury ", _BURY),
    _row(b"peek", operation="peek-buried", write=_write_peek),
    _row(b"peek ", _ONE_JOB, write=_write_peek),
    _row(b"kick ", (grammar.COUNT,)),
    _row(b"stats", write=_write_server),
    _row(b"stats ", _ONE_JOB, operation="stats-job", write=_write_job),
)
"""All commands: whole words, since v1's words are starts of later ones (``peek-ready`` is none)."""

DIALECT: Final = Dialect(NAME, ROWS, hears_deadlines=False)
