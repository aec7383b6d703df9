"""The table: every command once, with its fields, its body and its counter.  The parser, the
client's specs, the counters of `stats` and the table in docs/protocol.md derive from it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from beanstalk_twisted.wire import grammar, rights
from beanstalk_twisted.wire.grammar import Field
from beanstalk_twisted.wire.replies import Reply
from beanstalk_twisted.wire.rights import OPEN, Needs

MAX_LINE_BYTES: Final = 224
"""A command line with its CR LF: ``pause-tube``, a name of 200 bytes and 4294967295 (beanstalkd
dat.h, LINE_BUF_SIZE).
"""


class Command:
    """One command.

    :ivar prefix: what its lines start with; ends in a space where the word must be followed by one.
    :ivar fields: what follows; nothing else may, if there are none.
    :ivar operation: the name of the modern command that does the same.
    :ivar has_body: the last field is the size of a body that follows the line.
    :ivar has_jobs: one job or more follow the line: a body, if one field is its size, else N job
        lines with their bodies.
    :ivar is_batch: job lines with their bodies follow.
    :ivar is_update: the new body of a job follows, if the line says its size.
    :ivar form: its name in `capabilities` if it is another form of the command of the same prefix:
        its lines are those that are none of that one; otherwise empty.
    :ivar is_whole_word: its lines are those whose first word, up to a space, is the command's;
        otherwise those that start with the prefix.
    :ivar ends_connection: whatever follows on the line is ignored.
    :ivar ends_wait: as the next one after a command that waits, it ends that wait.
    :ivar ends_run: what follows the line is no command: it has jobs, or ends the connection.
    :ivar manages: an operator's command, which is logged in the audit.
    :ivar counter: its key in `stats`, None if it has none.
    :ivar max_line_bytes: with the CR LF.
    :ivar write: gives the bytes of an answer, and none if the dialect has no word for it; None
        where replies encode themselves.
    """

    # Attributes in slots are read in 10 ns, those of a NamedTuple in 27 (unoptimised CPython 3.11).
    __slots__ = (
        "counter", "ends_connection", "ends_run", "ends_wait", "fields", "form", "has_body",
        "has_jobs", "is_batch", "is_update", "is_whole_word", "manages", "max_line_bytes", "name",
        "needs", "operation", "pattern", "prefix", "write",
    )  # fmt: skip

    def __init__(
        self, prefix: bytes, fields: Sequence[Field] = (), *, needs: Needs, operation: str = "",
        has_body: bool = False, has_jobs: bool = False, is_whole_word: bool = False,
        ends_connection: bool = False, ends_wait: bool = False, is_counted: bool = True,
        max_line_bytes: int = MAX_LINE_BYTES, form: str = "",
        write: Callable[[Reply], bytes] | None = None,
    ) -> None:  # fmt: skip
        self.prefix = prefix
        self.name = prefix.decode().strip()
        self.fields = tuple(fields)
        self.operation = operation or self.name
        self.form = form
        self.has_body = has_body
        self.has_jobs = has_jobs
        self.is_batch = has_jobs and grammar.BATCH_COUNT in fields
        self.is_update = grammar.OPTIONAL_BYTES in fields
        self.is_whole_word = is_whole_word
        self.ends_connection = ends_connection
        self.ends_wait = ends_wait
        self.needs = needs
        self.manages = needs.manages
        self.ends_run = ends_connection or has_jobs
        self.counter = f"cmd-{self.name}" if is_counted else None
        self.max_line_bytes = max_line_bytes
        self.pattern = grammar.line_pattern(fields)
        self.write = write

    def __repr__(self) -> str:
        return f"<Command {self.name}>"


_PUT_FIELDS = (grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.BYTES)
_RELEASE_FIELDS = (grammar.JOB_ID, grammar.PRIORITY, grammar.DELAY)

# As in beanstalkd, the first row, in this order, whose prefix the line starts with is its command.
# So ``stats-job`` without an argument is a ``stats`` with something after it, hence BAD_FORMAT and
# not UNKNOWN_COMMAND.
COMMANDS: Final = (
    Command(b"put ", _PUT_FIELDS, has_body=True, needs=Needs(rights.PUT, rights.USED)),
    Command(b"peek ", (grammar.JOB_ID,), needs=Needs(rights.LOOK, rights.JOB)),
    Command(b"peek-ready", needs=Needs(rights.LOOK, rights.USED)),
    Command(b"peek-delayed", needs=Needs(rights.LOOK, rights.USED)),
    Command(b"peek-buried", needs=Needs(rights.LOOK, rights.USED)),
    Command(
        b"reserve-with-timeout ", (grammar.TIMEOUT,), needs=Needs(rights.RESERVE, rights.WATCHED)
    ),
    Command(
        b"reserve-job ",
        (grammar.JOB_ID,),
        is_counted=False,
        needs=Needs(rights.RESERVE, rights.JOB),
    ),
    Command(b"reserve", needs=Needs(rights.RESERVE, rights.WATCHED)),
    Command(b"delete ", (grammar.JOB_ID,), needs=Needs(rights.RESERVE, rights.HELD)),
    Command(b"release ", _RELEASE_FIELDS, needs=Needs(rights.RESERVE, rights.JOB)),
    Command(b"bury ", (grammar.JOB_ID, grammar.PRIORITY), needs=Needs(rights.RESERVE, rights.JOB)),
    Command(b"kick ", (grammar.BOUND,), needs=Needs(rights.MANAGE, rights.USED)),
    Command(
        b"kick-job ", (grammar.JOB_ID,), is_counted=False, needs=Needs(rights.MANAGE, rights.JOB)
    ),
    Command(b"touch ", (grammar.JOB_ID,), needs=Needs(rights.RESERVE, rights.JOB)),
    Command(b"stats-job ", (grammar.JOB_ID,), needs=Needs(rights.LOOK, rights.JOB)),
    Command(b"stats-tube ", (grammar.TUBE,), needs=Needs(rights.LOOK, rights.NAMED)),
    Command(b"stats", needs=Needs(rights.LOOK, rights.SOME)),
    Command(b"use ", (grammar.TUBE,), needs=OPEN),
    Command(b"watch ", (grammar.TUBE,), needs=Needs(rights.RESERVE, rights.NAMED)),
    Command(b"ignore ", (grammar.TUBE,), needs=OPEN),
    Command(b"list-tubes-watched", needs=OPEN),
    Command(b"list-tube-used", needs=OPEN),
    Command(b"list-tubes", needs=Needs(rights.LOOK, rights.SOME)),
    Command(b"quit", ends_connection=True, is_counted=False, needs=OPEN),
    Command(
        b"pause-tube", (grammar.TUBE_THEN, grammar.PAUSE), needs=Needs(rights.MANAGE, rights.NAMED)
    ),
)

# `stats` shows the counters in an order of its own (beanstalkd prot.c, fmt_stats).
COUNTERS: Final = (
    "cmd-put", "cmd-peek", "cmd-peek-ready", "cmd-peek-delayed", "cmd-peek-buried", "cmd-reserve",
    "cmd-reserve-with-timeout", "cmd-delete", "cmd-release", "cmd-use", "cmd-watch", "cmd-ignore",
    "cmd-bury", "cmd-kick", "cmd-touch", "cmd-stats", "cmd-stats-job", "cmd-stats-tube",
    "cmd-list-tubes", "cmd-list-tube-used", "cmd-list-tubes-watched", "cmd-pause-tube",
)  # fmt: skip

assert set(COUNTERS) == {row.counter for row in COMMANDS} - {None}
