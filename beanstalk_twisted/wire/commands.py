"""The table: every command once, with all that is to be known of it.  The parser, the server's
methods, rights, the clients' commands, the counters of `stats` and the tables of the docs derive
from it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from beanstalk_twisted.wire import grammar, rights
from beanstalk_twisted.wire.forms import (
    ANY_COMMAND,
    BURIED,
    BURIED_INSTEAD,
    BURIED_NEW_JOB,
    DEADLINE_SOON,
    DELETED,
    DOCUMENT,
    DOCUMENT_REPLIES,
    INSERTED,
    JOB_REPLIES,
    KICKED,
    NOT_FOUND,
    NOT_IGNORED,
    PUT_FAILS,
    RESERVED,
    TIMED_OUT,
    USING,
    WATCHING,
    ReplyForm,
    by_word,
)
from beanstalk_twisted.wire.grammar import CRLF, Field
from beanstalk_twisted.wire.replies import Reply
from beanstalk_twisted.wire.rights import OPEN, Needs

MAX_LINE_BYTES: Final = 224
"""A command line with its CR LF: ``pause-tube``, a name of 200 bytes and 4294967295 (beanstalkd
dat.h, LINE_BUF_SIZE).
"""

LOOKS: Final = "looks"
"""It only looks: one that has failed has changed nothing."""

CHANGES: Final = "changes"
"""Its reply waits for the log."""

RESERVES: Final = "reserves"
"""Likewise, but a client may send it again: a reservation ends with its connection."""

SESSION: Final = "session"
"""It is about the connection alone, so it may be sent again on the next one."""

ACTS: Final = "acts"
"""It does something else."""


class Command:
    """One command.

    :ivar prefix: what its lines start with; ends in a space where the word must be followed by one.
    :ivar fields: what follows; nothing else may, if there are none.
    :ivar operation: the name of the modern command that does the same.
    :ivar text: what it does, in a sentence of the docs.
    :ivar method: of `WorkQueue`, or of a part of it; empty for one that the server does itself.
    :ivar effect: `LOOKS`, `CHANGES`, `RESERVES`, `SESSION` or `ACTS`.
    :ivar changes: its reply waits for the log; while changes are refused, it is.
    :ivar is_own: it is about the connection or this server alone: its reply says nothing of the
        queue, so it is true whichever server is active.
    :ivar is_repeatable: a client may send it again, without knowing whether it was carried out.
    :ivar is_in_use: it is about the tube in use.
    :ivar replies: what may be answered, by the words.
    :ivar success: the word of the first one that is no error; empty if there is none.
    :ivar takes_s: how long the server may work on it, besides what a field says, seconds; None for
        ever.
    :ivar has_body: the last field is the size of a body that follows the line.
    :ivar has_jobs: one job or more follow the line: a body, if one field is its size, else N job
        lines with their bodies.
    :ivar is_batch: job lines with their bodies follow.
    :ivar is_update: the new body of a job follows, if the line says its size.
    :ivar is_extension: beanstalkd does not have it.
    :ivar form: its name in `capabilities` if it is another form of the command of the same prefix:
        its lines are those that are none of that one; otherwise empty.
    :ivar is_whole_word: its lines are those whose first word, up to a space, is the command's;
        otherwise those that start with the prefix.
    :ivar ends_connection: whatever follows on the line is ignored.
    :ivar ends_wait: as the next one after a command that waits, it ends that wait.
    :ivar takes_job: what follows the line is no command, but a job or several.
    :ivar is_collected: how long that is, the line does not say.
    :ivar manages: an operator's command, which is logged in the audit.
    :ivar counter: its key in `stats`, None if it has none.
    :ivar max_line_bytes: with the CR LF.
    :ivar write: gives the bytes of an answer, and none if the dialect has no word for it; None
        where replies encode themselves.
    """

    # Attributes in slots are read in 10 ns, those of a NamedTuple in 27 (unoptimised CPython 3.11).
    __slots__ = (
        "_wait_at", "changes", "counter", "effect", "ends_connection",
        "ends_wait", "fields", "form", "forms", "has_body", "has_jobs", "is_batch", "is_collected",
        "is_extension", "is_in_use", "is_own", "is_repeatable", "is_update", "is_whole_word",
        "manages", "max_line_bytes", "method", "name", "needs", "operation", "pattern", "prefix",
        "replies", "success", "takes_job", "takes_s", "text", "write",
    )  # fmt: skip

    def __init__(
        self, prefix: bytes, fields: Sequence[Field] = (), replies: Sequence[ReplyForm] = (), *,
        needs: Needs, effect: str, text: str = "", method: str = "", operation: str = "",
        has_body: bool = False, has_jobs: bool = False, is_whole_word: bool = False,
        ends_connection: bool = False, ends_wait: bool = False, is_counted: bool = True,
        is_own: bool = False, is_in_use: bool = False, is_extension: bool = False,
        takes_s: float | None = 0.0, max_line_bytes: int = MAX_LINE_BYTES, form: str = "",
        write: Callable[[Reply], bytes] | None = None,
    ) -> None:  # fmt: skip
        self.prefix = prefix
        self.name = prefix.decode().strip()
        self.fields = tuple(fields)
        self.operation = operation or self.name
        self.text = text
        self.method = method
        self.effect = effect
        self.changes = effect in (CHANGES, RESERVES)
        self.is_own = is_own
        self.is_repeatable = effect in (LOOKS, RESERVES, SESSION)
        self.is_in_use = is_in_use or needs.of == rights.USED
        self.forms = tuple(replies)
        self.replies = by_word(ANY_COMMAND) | by_word(replies)
        self.success = next((each.word for each in replies if not each.is_error), b"")
        self.takes_s = takes_s
        self.form = form
        self.has_body = has_body
        self.has_jobs = has_jobs
        self.is_batch = has_jobs and grammar.BATCH_COUNT in fields
        self.is_update = grammar.OPTIONAL_BYTES in fields
        self.is_extension = is_extension
        self.is_whole_word = is_whole_word
        self.ends_connection = ends_connection
        self.ends_wait = ends_wait
        self.needs = needs
        self.manages = needs.manages
        self.takes_job = has_body or has_jobs
        self.is_collected = self.is_batch or self.is_update
        self.counter = f"cmd-{self.name}" if is_counted else None
        self.max_line_bytes = max_line_bytes
        self.pattern = grammar.line_pattern(fields)
        self.write = write
        names = [field.name for field in fields]
        self._wait_at = names.index("seconds") if "seconds" in names else None

    def __repr__(self) -> str:
        return f"<Command {self.name}>"

    @property
    def sentence(self) -> str:
        """What it does, without links."""
        return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", self.text)

    # For clients.

    def line(self, args: tuple[Any, ...]) -> bytes:
        """Write the command's line, its CR LF included.

        :raise TypeError: a value is of another kind.
        :raise ValueError: one is outside its limits, or there are too many or too few.
        """
        name, words = self.form or self.name, [self.name.encode()]
        for field, value in zip(self.fields, args, strict=True):
            assert field.write is not None
            words.append(field.write(f"{name}: {field.name}", value))
        line = b" ".join([word for word in words if word]) + CRLF
        if len(line) > self.max_line_bytes:
            most = self.max_line_bytes
            raise ValueError(f"{name}: its line would have {len(line)} bytes; {most} may be")
        return line

    @property
    def waits(self) -> bool:
        """Whether the answer may be long in coming."""
        return self._wait_at is not None or self.takes_s is None

    def server_time_s(self, args: Sequence[Any]) -> float | None:
        """Give the seconds that we let the server take; None if for ever."""
        if self._wait_at is None:
            return self.takes_s
        return float(args[self._wait_at] or 0)


_JOB_ID: Final = (grammar.JOB_ID,)
_TUBE: Final = (grammar.TUBE,)
_PUT_FIELDS: Final = (grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.BYTES)
_RELEASE_FIELDS: Final = (grammar.JOB_ID, grammar.PRIORITY, grammar.DELAY)

_LOOK_AT_USED: Final = Needs(rights.LOOK, rights.USED)
_LOOK_AT_JOB: Final = Needs(rights.LOOK, rights.JOB)
_LOOK_AT_SOME: Final = Needs(rights.LOOK, rights.SOME)
_RESERVE_WATCHED: Final = Needs(rights.RESERVE, rights.WATCHED)
_RESERVE_JOB: Final = Needs(rights.RESERVE, rights.JOB)

# As in beanstalkd, the first row, in this order, whose prefix the line starts with is its command.
# So ``stats-job`` without an argument is a ``stats`` with something after it, hence BAD_FORMAT and
# not UNKNOWN_COMMAND.
COMMANDS: Final = (
    Command(
        b"put ", _PUT_FIELDS, (INSERTED, *PUT_FAILS, BURIED_NEW_JOB), effect=CHANGES,
        method="puts.put", has_body=True, needs=Needs(rights.PUT, rights.USED),
        text="Puts a job into the tube in use.",
    ),
    Command(
        b"peek ", _JOB_ID, JOB_REPLIES, effect=LOOKS, method="looks.peek", needs=_LOOK_AT_JOB,
        text="Shows a job of any tube and state.",
    ),
    Command(
        b"peek-ready", (), JOB_REPLIES, effect=LOOKS, method="looks.peek_ready",
        needs=_LOOK_AT_USED, text="Shows the first ready job of the tube in use, even if paused.",
    ),
    Command(
        b"peek-delayed", (), JOB_REPLIES, effect=LOOKS, method="looks.peek_delayed",
        needs=_LOOK_AT_USED, text="Shows the delayed job of the tube in use that is due first.",
    ),
    Command(
        b"peek-buried", (), JOB_REPLIES, effect=LOOKS, method="looks.peek_buried",
        needs=_LOOK_AT_USED, text="Shows the job of the tube in use that was buried first.",
    ),
    Command(
        b"reserve-with-timeout ", (grammar.TIMEOUT,), (RESERVED, TIMED_OUT, DEADLINE_SOON),
        effect=RESERVES, method="reservations.reserve_with_timeout", needs=_RESERVE_WATCHED,
        text="As `reserve`, waiting no longer; 0: not at all.",
    ),
    Command(
        b"reserve-job ", _JOB_ID, (RESERVED, NOT_FOUND), effect=RESERVES, method="reserve_job",
        is_counted=False, needs=_RESERVE_JOB,
        text="Reserves this job, unless it is reserved; its tube may be paused.",
    ),
    Command(
        b"reserve", (), (RESERVED, DEADLINE_SOON, TIMED_OUT), effect=RESERVES,
        method="reservations.reserve", needs=_RESERVE_WATCHED, takes_s=None,
        text="Reserves the first ready job of the tubes watched, or waits.",
    ),
    Command(
        b"delete ", _JOB_ID, (DELETED, NOT_FOUND), effect=CHANGES, method="delete",
        needs=Needs(rights.RESERVE, rights.HELD),
        text="Deletes a job that is unreserved or reserved by this connection.",
    ),
    Command(
        b"release ", _RELEASE_FIELDS, (ReplyForm(b"RELEASED"), NOT_FOUND, BURIED_INSTEAD),
        effect=CHANGES, method="release", needs=_RESERVE_JOB,
        text="Gives back a job of this connection.",
    ),
    Command(
        b"bury ", (grammar.JOB_ID, grammar.PRIORITY), (BURIED, NOT_FOUND), effect=CHANGES,
        method="bury", needs=_RESERVE_JOB, text="Puts a job of this connection aside.",
    ),
    Command(
        b"kick ", (grammar.BOUND,), (KICKED,), effect=CHANGES, method="kick",
        needs=Needs(rights.MANAGE, rights.USED),
        text="Makes up to this many buried jobs of the tube in use ready, or if none, delayed "
        "ones.",
    ),
    Command(
        b"kick-job ", _JOB_ID, (ReplyForm(b"KICKED"), NOT_FOUND), effect=CHANGES, method="kick_job",
        is_counted=False, needs=Needs(rights.MANAGE, rights.JOB),
        text="Makes this buried or delayed job ready.",
    ),
    Command(
        b"touch ", _JOB_ID, (ReplyForm(b"TOUCHED"), NOT_FOUND), effect=ACTS, method="touch",
        needs=_RESERVE_JOB, text="Restarts the TTR of a job of this connection.",
    ),
    Command(
        b"stats-job ", _JOB_ID, DOCUMENT_REPLIES, effect=LOOKS, method="looks.stats_job",
        needs=_LOOK_AT_JOB, text="[Facts about a job](#stats-job).",
    ),
    Command(
        b"stats-tube ", _TUBE, DOCUMENT_REPLIES, effect=LOOKS, method="looks.stats_tube",
        needs=Needs(rights.LOOK, rights.NAMED), text="[Facts about a tube](#stats-tube).",
    ),
    Command(
        b"stats", (), (DOCUMENT,), effect=LOOKS, method="stats", needs=_LOOK_AT_SOME,
        text="[Facts about the server](#stats).",
    ),
    Command(
        b"use ", _TUBE, (USING,), effect=SESSION, is_own=True, method="watching.use", needs=OPEN,
        text="Later puts go into this tube; at first `default`.",
    ),
    Command(
        b"watch ", _TUBE, (WATCHING,), effect=SESSION, is_own=True, method="watching.watch",
        needs=Needs(rights.RESERVE, rights.NAMED),
        text="Later reserves take from this tube too; at first `default`.",
    ),
    Command(
        b"ignore ", _TUBE, (WATCHING, NOT_IGNORED), effect=SESSION, is_own=True,
        method="watching.ignore", needs=OPEN, text="Ends a `watch`; not of the last tube.",
    ),
    Command(
        b"list-tubes-watched", (), (DOCUMENT,), effect=LOOKS, is_own=True,
        method="looks.list_tubes_watched", needs=OPEN, text="Lists the tubes watched.",
    ),
    Command(
        b"list-tube-used", (), (USING,), effect=LOOKS, is_own=True, is_in_use=True,
        method="looks.list_tube_used", needs=OPEN, text="Names the tube in use.",
    ),
    Command(
        b"list-tubes", (), (DOCUMENT,), effect=LOOKS, method="looks.list_tubes",
        needs=_LOOK_AT_SOME, text="Lists all tubes.",
    ),
    Command(
        b"quit", effect=ACTS, ends_connection=True, is_counted=False, needs=OPEN,
        text="Closes the connection and drops what follows; if that is much, unread replies may "
        "be lost, as with beanstalkd.",
    ),
    Command(
        b"pause-tube", (grammar.TUBE_THEN, grammar.PAUSE), (ReplyForm(b"PAUSED"), NOT_FOUND),
        effect=CHANGES, method="pause_tube", needs=Needs(rights.MANAGE, rights.NAMED),
        text="Pauses reserves from the tube for this many seconds; 0 ends the pause.",
    ),
)  # fmt: skip

# `stats` shows the counters in an order of its own (beanstalkd prot.c, fmt_stats).
COUNTERS: Final = (
    "cmd-put", "cmd-peek", "cmd-peek-ready", "cmd-peek-delayed", "cmd-peek-buried", "cmd-reserve",
    "cmd-reserve-with-timeout", "cmd-delete", "cmd-release", "cmd-use", "cmd-watch", "cmd-ignore",
    "cmd-bury", "cmd-kick", "cmd-touch", "cmd-stats", "cmd-stats-job", "cmd-stats-tube",
    "cmd-list-tubes", "cmd-list-tube-used", "cmd-list-tubes-watched", "cmd-pause-tube",
)  # fmt: skip

assert set(COUNTERS) == {row.counter for row in COMMANDS} - {None}
