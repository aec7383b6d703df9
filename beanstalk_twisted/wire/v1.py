"""
The first protocol, v1, from before tubes, delays and TTRs: one more table beside `commands`.

- Each row names an operation of `commands`, so rules, log and counters are shared.  A field that v1
  does not write has a fixed value (`grammar.implied`): delay 0, and the server's TTR.
- A row has a function that writes its replies where v1 writes them differently.
- A command is a whole word, since v1's words are starts of later ones (``peek-ready`` is none of
  v1).  A waiting `reserve` does not end when a TTR is about to.  Connections use and watch
  `default` only.

v1 has no reply for a `reserve` that ends without a job because the peer has closed its sending
side: the connection is closed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from beanstalk_twisted.wire import grammar, replies, rights, yaml
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.dialects import Dialect
from beanstalk_twisted.wire.replies import Document, Found, Inserted, Reply, Reserved, Word
from beanstalk_twisted.wire.rights import Needs

NAME: Final = "v1"

DEFAULT_TTR_S: Final = 120
"""TTR of jobs put in this dialect, seconds, unless told: what its servers gave all jobs."""

MIN_TTR_S: Final = 1
MAX_TTR_S: Final = grammar.MAX_U32
"""The protocol's own bounds for a TTR, where 0 means 1."""

INSERTED: Final = Word(b"INSERTED")
NOT_INSERTED: Final = Word(b"NOT_INSERTED")
NOT_RELEASED: Final = Word(b"NOT_RELEASED")

REFUSALS: Final = (replies.JOB_TOO_BIG, replies.DRAINING, replies.OUT_OF_MEMORY)
"""Answers to a `put` that have one word here: its body was read and dropped."""

WORDLESS: Final = (replies.TIMED_OUT, replies.DEADLINE_SOON)
"""Ends of a `reserve` without a job.  The queue gives the first to half-closed connections only."""

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
    return replies.statistics((key, values[key]) for key in keys)


def rows(ttr_s: int) -> tuple[Command, ...]:
    """The table."""
    put = (
        grammar.PRIORITY, grammar.implied("delay", 0), grammar.implied("ttr", ttr_s), grammar.BYTES,
    )  # fmt: skip
    release = (grammar.JOB_ID, grammar.PRIORITY, grammar.implied("delay", 0))
    bury = (grammar.JOB_ID, grammar.PRIORITY)
    one_job = (grammar.JOB_ID,)
    row = partial(Command, is_whole_word=True)
    return (
        row(b"put ", put, has_body=True, write=_write_put, needs=Needs(rights.PUT, rights.USED)),
        row(b"reserve", write=_write_reserve, needs=Needs(rights.RESERVE, rights.WATCHED)),
        row(b"delete ", one_job, needs=Needs(rights.RESERVE, rights.HELD)),
        row(b"release ", release, write=_write_release, needs=Needs(rights.RESERVE, rights.JOB)),
        row(b"bury ", bury, needs=Needs(rights.RESERVE, rights.JOB)),
        row(
            b"peek",
            operation="peek-buried",
            write=_write_peek,
            needs=Needs(rights.LOOK, rights.USED),
        ),
        row(b"peek ", one_job, write=_write_peek, needs=Needs(rights.LOOK, rights.JOB)),
        row(b"kick ", (grammar.COUNT,), needs=Needs(rights.MANAGE, rights.USED)),
        row(b"stats", write=_write_server, needs=Needs(rights.LOOK, rights.SOME)),
        row(
            b"stats ",
            one_job,
            operation="stats-job",
            write=_write_job,
            needs=Needs(rights.LOOK, rights.JOB),
        ),
    )


def dialect(ttr_s: int = DEFAULT_TTR_S) -> Dialect:
    """
    The dialect of ports whose jobs get this TTR.

    :param ttr_s: seconds, `MIN_TTR_S` to `MAX_TTR_S`.
    """
    return Dialect(NAME, rows(ttr_s), hears_deadlines=False)
