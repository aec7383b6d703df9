"""The commands that beanstalkd does not have, and their replies (docs/extensions.md)."""

from collections.abc import Sequence
from typing import ClassVar, Final

from beanstalk_twisted.wire import grammar, rights
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.grammar import CRLF, MAX_BATCH_JOBS, Field, ParseError, number
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
    MAX_REPLY_LINE_BYTES,
    Line,
    Refusal,
    Reply,
    Reserved,
    Word,
)
from beanstalk_twisted.wire.rights import OPEN, Needs
from beanstalk_twisted.wire.tags import (
    MAX_TAGGED_LINE_BYTES,
    OPTIONAL_BATCH_KEY,
    OPTIONAL_TAGS,
    TAG_WORDS,
    TAGS,
)

MAX_BATCH_LINE_BYTES: Final = 21_000
"""A `delete-batch` line with its CR LF: 1,000 ids of 19 digits take 20,014 bytes."""

MAX_POLICY_LINE_BYTES: Final = 1024
"""A `tube-policy` line with its CR LF: a long name and all keys take some 800 bytes."""

MIN_PIECE_BYTES: Final = 4 << 10
"""Bytes of a body that a batch's reply does not copy: 1,000 smaller ones are copied in 2 ms."""

MAX_PAGE_JOBS: Final = 1000
"""Jobs of a page of `list-jobs`: some 5 ms, while others wait."""

MAX_WEIGHT: Final = 1000
"""Of a watched tube: with more, one of weight 1 would wait for tens of thousands of jobs.

Differs from Tuber: 9,999 there.
"""


def _seconds(text: bytes) -> int | None:
    """:return: nanoseconds; None if there is no such field on the line."""
    timeout_ns: int | None = grammar.TIMEOUT.convert(text) if text else None
    return timeout_ns


def _job_ids(text: bytes) -> tuple[int, ...]:
    ids = text.split()
    if len(ids) > MAX_BATCH_JOBS:
        raise ParseError(BAD_FORMAT)
    return tuple(map(_job_id, ids))


def _job_id(text: bytes) -> int:
    """Python refuses to convert numbers of thousands of digits, and zeros count as digits."""
    job_id: int = grammar.JOB_ID.convert(text.lstrip(b"0")[:MAX_LINE_BYTES] or b"0")
    return job_id


OPTIONAL_SECONDS: Final = Field("seconds", rb"((?: ++[0-9]++)?+)", _seconds, is_optional=True)
JOB_IDS: Final = Field("ids", rb" *+([0-9]++(?: ++[0-9]++)*+)", _job_ids)


def _pairs(text: bytes) -> tuple[tuple[str, str], ...]:
    pairs = []
    for pair in text.decode("ascii").split():
        key, _, value = pair.partition("=")
        pairs.append((key, value))
    return tuple(pairs)


WEIGHT: Final = Field("weight", rb" ([0-9]++)", lambda text: number(text, MAX_WEIGHT, 1))
MODE: Final = Field("mode", rb"(fifo|weighted-fair|weighted)", bytes)
WATCHED: Final = Field("tube", rb"([^ ]*+)", grammar.TUBE.convert)


def _row(
    word: bytes, fields: Sequence[Field] = (), *, operation: str = "", has_jobs: bool = False,
    ends_wait: bool = False, max_line_bytes: int = MAX_LINE_BYTES, form: str = "",
    needs: Needs,
) -> Command:  # fmt: skip
    prefix = word + b" " if fields else word
    return Command(
        prefix, fields, operation=operation, is_whole_word=True, is_counted=False,
        has_jobs=has_jobs, ends_wait=ends_wait, max_line_bytes=max_line_bytes, form=form,
        needs=needs,
    )  # fmt: skip


FLUSHED_STATE: Final = Field(
    "state", rb"(?: (ready|delayed|buried|all))?+", lambda text: text or b"all", is_optional=True
)
LISTED_STATE: Final = Field("state", rb" (ready|reserved|delayed|buried|all)", bytes)
LIMIT: Final = Field("limit", rb" ([0-9]++)", lambda text: number(text, MAX_PAGE_JOBS, 1))
CURSOR: Final = Field(
    "cursor", rb"(?: ([a-z0-9-]++))?+", lambda text: text or b"", is_optional=True
)

GROUP: Final = grammar.TUBE_WORD._replace(name="group")
POLICY_PAIRS: Final = Field(
    "policy", rb"((?: ++[a-z-]++=[\x21-\x7e]++)*+) *+", _pairs, is_optional=True
)
TARGET: Final = Field("tube", rb" ([A-Za-z0-9\-+/;.$_()]++)", grammar.TUBE.convert)
UNIQUE_KEY: Final = TARGET._replace(name="key")
SUCCESSOR: Final = Field(
    "standby", rb"([\x21-\x7e]++|(?<! ))", lambda text: text or b"", is_optional=True
)
"""After a blank there is a name: an empty one is a mistake, and not whichever has the most."""

DEAD_BOUND: Final = Field("bound", rb" ([0-9]++)", grammar.COUNT.convert)

# They have no counters, since `stats` has no new keys.  A line is one of them if its first word is:
# ``reserve-batch 5`` is no `reserve`, so these rows stand before beanstalkd's.  A `watch` with a
# weight and a `put` with tags are other forms: a `watch` is looked at again if it is BAD_FORMAT to
# beanstalkd, and the row of a `put` with tags is used where `put` finds tags after the size.
EXTENSIONS: Final = (
    _row(b"capabilities", needs=OPEN),
    _row(
        b"put-at",
        (grammar.PRIORITY, grammar.UNIX_SECONDS, grammar.TTR, grammar.BYTES, OPTIONAL_TAGS),
        has_jobs=True, max_line_bytes=MAX_TAGGED_LINE_BYTES, needs=Needs(rights.PUT, rights.USED),
    ),
    _row(
        b"put-batch", (grammar.BATCH_COUNT, OPTIONAL_BATCH_KEY), has_jobs=True,
        needs=Needs(rights.PUT, rights.USED),
    ),
    _row(
        b"reserve-batch", (grammar.BATCH_COUNT, OPTIONAL_SECONDS),
        needs=Needs(rights.RESERVE, rights.WATCHED),
    ),
    _row(
        b"delete-batch", (JOB_IDS,), max_line_bytes=MAX_BATCH_LINE_BYTES,
        needs=Needs(rights.RESERVE, rights.HELD_JOBS),
    ),
    _row(b"peek-reserved", needs=Needs(rights.LOOK, rights.USED)),
    _row(
        b"list-jobs", (grammar.TUBE_WORD, LISTED_STATE, LIMIT, CURSOR),
        needs=Needs(rights.LOOK, rights.NAMED),
    ),
    _row(
        b"flush-tube", (grammar.TUBE_WORD, FLUSHED_STATE),
        needs=Needs(rights.MANAGE, rights.NAMED),
    ),
    _row(b"flush-buried", (grammar.TUBE_WORD,), needs=Needs(rights.MANAGE, rights.NAMED)),
    _row(b"forget-key", (grammar.TUBE_WORD, UNIQUE_KEY), needs=Needs(rights.MANAGE, rights.NAMED)),
    _row(b"move-job", (grammar.JOB_ID, TARGET), needs=Needs(rights.MANAGE, rights.MOVED)),
    _row(
        b"update-job",
        (grammar.JOB_ID, grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.OPTIONAL_BYTES),
        has_jobs=True, needs=Needs(rights.MANAGE, rights.JOB),
    ),
    _row(b"wait-job", (grammar.JOB_ID, grammar.SECONDS), needs=Needs(rights.LOOK, rights.JOB)),
    _row(b"cancel-reserve", ends_wait=True, needs=OPEN),
    _row(b"stats-group", (GROUP,), needs=Needs(rights.LOOK, rights.EVERY)),
    _row(
        b"watch", (WATCHED, WEIGHT), operation="watch-weighted", form="watch <weight>",
        needs=Needs(rights.RESERVE, rights.NAMED),
    ),
    _row(b"reserve-mode", (MODE,), needs=OPEN),
    _row(
        b"tube-policy", (grammar.TUBE_WORD, POLICY_PAIRS), max_line_bytes=MAX_POLICY_LINE_BYTES,
        needs=Needs(rights.MANAGE, rights.POLICY),
    ),
    _row(b"kick-dead", (grammar.TUBE_WORD, DEAD_BOUND), needs=Needs(rights.MANAGE, rights.NAMED)),
    _row(b"list-connections", needs=Needs(rights.LOOK, rights.EVERY)),
    _row(b"drain", needs=Needs(rights.MANAGE, rights.EVERY)),
    _row(b"undrain", needs=Needs(rights.MANAGE, rights.EVERY)),
    _row(b"promote", (SUCCESSOR,), needs=Needs(rights.MANAGE, rights.EVERY)),
    _row(b"stats-replication", needs=Needs(rights.LOOK, rights.SOME)),
)  # fmt: skip

TOKEN: Final = Field("token", rb"([\x21-\x7e]++)", bytes)

AUTH: Final = _row(b"auth", (TOKEN,), needs=OPEN)
"""Known only to a server that has an access file: to all others it is an unknown command."""

AUTHORIZED: Final = Word(b"AUTHORIZED")
UNAUTHORIZED: Final = Refusal(b"UNAUTHORIZED")

HIDDEN: Final = b"auth (hidden)"


def without_secret(line: bytes) -> bytes:
    """:return: the same; `HIDDEN` if it may have a token in it."""
    return HIDDEN if line[:16].lstrip()[:4].lower() == AUTH.name.encode() else line


TAGGED_PUT: Final = Command(
    b"put ", (grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.BYTES, TAGS),
    operation="put-tagged", has_jobs=True, max_line_bytes=MAX_TAGGED_LINE_BYTES,
    needs=Needs(rights.PUT, rights.USED),
)  # fmt: skip
"""A `put` whose size is followed by tags."""

CAPABILITIES: Final = (
    *[(row.form or row.name).encode() for row in EXTENSIONS],
    *[TAGGED_PUT.prefix + word for word in TAG_WORDS],
    b"put-batch idp:",
)
"""What `capabilities` lists."""

CANCELLED: Final = Word(b"CANCELLED")
POLICY: Final = Word(b"POLICY")


class ReservedBatch(Reply):
    """Here are jobs; each is yours until its TTR ends."""

    __slots__ = ("jobs",)
    template: ClassVar[bytes] = b"RESERVED_BATCH %d\r\n"

    def __init__(self, jobs: Sequence[Reserved]) -> None:
        self.jobs = tuple(jobs)

    def encode(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """:return: the reply's bytes; large bodies are not copied."""
        pieces: list[bytes] = []
        copied = [self.template % len(self.jobs)]
        for job in self.jobs:
            copied.append(job.line())
            if len(job.body) < MIN_PIECE_BYTES:
                copied += (job.body, CRLF)
            else:
                pieces += (b"".join(copied), job.body)
                copied = [CRLF]
        return [*pieces, b"".join(copied)]

    def fields(self) -> tuple[object, ...]:
        return self.jobs


NO_JOBS: Final = ReservedBatch(())
"""The answer to a `reserve-batch` that got no job, whether or not it has waited."""


class DeletedBatch(Reply):
    """How many jobs were deleted, and how many not found."""

    __slots__ = ("deleted", "not_found")
    template: ClassVar[bytes] = b"DELETED_BATCH %d %d\r\n"

    def __init__(self, deleted: int, not_found: int) -> None:
        self.deleted = deleted
        self.not_found = not_found

    def encode(self) -> bytes:
        return self.template % (self.deleted, self.not_found)

    def fields(self) -> tuple[object, ...]:
        return self.deleted, self.not_found


FORGOTTEN: Final = Word(b"FORGOTTEN")
MOVED: Final = Word(b"MOVED")
UPDATED: Final = Word(b"UPDATED")


class Duplicate(Refusal):
    """Nothing was moved, since a job with its unique key is there: that one's id."""

    __slots__ = ("job_id",)

    def __init__(self, job_id: int) -> None:
        super().__init__(b"DUPLICATE")
        self.job_id = job_id

    def encode(self) -> bytes:
        return b"DUPLICATE %d\r\n" % self.job_id

    def fields(self) -> tuple[object, ...]:
        return (self.job_id,)


DRAINS: Final = Word(b"DRAINING")
"""The answer to `drain`; that to a refused `put` has the same word."""

NOT_DRAINING: Final = Word(b"NOT_DRAINING")

MAX_WHY_BYTES: Final = MAX_REPLY_LINE_BYTES - len(b"CANNOT_HAND_OVER \r\n")
"""Of the text of a `CannotHandOver`."""


class HandingOver(Line):
    """The queue is handed over: the name of the standby."""

    __slots__ = ()
    template = b"HANDING_OVER %s\r\n"


class CannotHandOver(Refusal):
    """The queue is not handed over, and nothing was changed.

    :ivar why: for people, at most `MAX_WHY_BYTES`.
    """

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        super().__init__(b"CANNOT_HAND_OVER")
        self.why = why.encode("ascii", "replace")[:MAX_WHY_BYTES]

    def encode(self) -> bytes:
        return b"CANNOT_HAND_OVER %s\r\n" % self.why

    def fields(self) -> tuple[object, ...]:
        return (self.why,)


class InsertedDuplicate(Reply):
    """Nothing was put, since there is a job with this key: its id and its state."""

    __slots__ = ("job_id", "state")
    template: ClassVar[bytes] = b"INSERTED %d %s\r\n"

    def __init__(self, job_id: int, state: bytes) -> None:
        """:param state: READY, RESERVED, DELAYED, BURIED or DELETED."""
        self.job_id = job_id
        self.state = state

    def encode(self) -> bytes:
        return self.template % (self.job_id, self.state)

    def fields(self) -> tuple[object, ...]:
        return self.job_id, self.state


class InsertedBatch(Reply):
    """The jobs of a batch were put.

    :ivar ids: of each, in order.
    :ivar states: of each, None for one that was put; empty if all were.
    """

    __slots__ = ("ids", "states")

    def __init__(self, ids: Sequence[int], states: Sequence[bytes | None] = ()) -> None:
        """:param ids: a range, if all were put."""
        self.ids = ids
        self.states = states

    def encode(self) -> bytes:
        lines = [b"INSERTED %d\r\n" % job_id for job_id in self.ids]
        for at, state in enumerate(self.states):
            if state is not None:
                lines[at] = InsertedDuplicate(self.ids[at], state).encode()
        return b"INSERTED_BATCH %d\r\n" % len(lines) + b"".join(lines)

    def fields(self) -> tuple[object, ...]:
        return tuple(self.ids), tuple(self.states)


class Flushed(Line):
    """How many jobs were flushed."""

    __slots__ = ()
    template = b"FLUSHED %d\r\n"
