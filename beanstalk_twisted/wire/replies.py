"""Every reply of the protocol, as a value with its bytes."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from beanstalk_twisted.wire import yaml

CRLF: Final = b"\r\n"
"""Ends each line, and each body."""

MAX_REPLY_LINE_BYTES: Final = 1024
"""The line of a reply with its CR LF: what some clients take.  ``CANNOT_HAND_OVER`` may use all of
it; of beanstalkd's, ``USING`` is the longest, with 208.
"""


class Reply:
    """Something the server says; equal to another one of its class with the same fields.

    Objects with slots are made in half the time of a `NamedTuple` (80 instead of 160 ns).
    """

    __slots__ = ()

    def encode(self) -> bytes:
        """:return: the reply's bytes, its CR LF included."""
        raise NotImplementedError

    def fields(self) -> tuple[object, ...]:
        """:return: in the order of its class's arguments."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Reply)
            and type(self) is type(other)
            and self.fields() == other.fields()
        )

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.fields()))})"


class Word(Reply):
    """A reply that is one word."""

    __slots__ = ("_line", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._line = text + b"\r\n"

    def encode(self) -> bytes:
        return self._line

    def fields(self) -> tuple[object, ...]:
        return (self.text,)


class Refusal(Word):
    """A reply that is counted as an error: the command was not carried out."""

    __slots__ = ()


DELETED: Final = Word(b"DELETED")
RELEASED: Final = Word(b"RELEASED")
BURIED: Final = Word(b"BURIED")
TOUCHED: Final = Word(b"TOUCHED")
KICKED_JOB: Final = Word(b"KICKED")
PAUSED: Final = Word(b"PAUSED")
NOT_FOUND: Final = Refusal(b"NOT_FOUND")
NOT_IGNORED: Final = Refusal(b"NOT_IGNORED")
TIMED_OUT: Final = Word(b"TIMED_OUT")
DEADLINE_SOON: Final = Refusal(b"DEADLINE_SOON")
DRAINING: Final = Refusal(b"DRAINING")
EXPECTED_CRLF: Final = Refusal(b"EXPECTED_CRLF")
JOB_TOO_BIG: Final = Refusal(b"JOB_TOO_BIG")
BAD_FORMAT: Final = Refusal(b"BAD_FORMAT")
UNKNOWN_COMMAND: Final = Refusal(b"UNKNOWN_COMMAND")
OUT_OF_MEMORY: Final = Refusal(b"OUT_OF_MEMORY")
INTERNAL_ERROR: Final = Refusal(b"INTERNAL_ERROR")


class Inserted(Reply):
    """A job was put: its id."""

    __slots__ = ("job_id",)

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id

    def encode(self) -> bytes:
        return b"INSERTED %d\r\n" % self.job_id

    def fields(self) -> tuple[object, ...]:
        return (self.job_id,)


class Line(Reply):
    """A reply that is one line with one value."""

    __slots__ = ("value",)
    template: ClassVar[bytes]

    def __init__(self, value: int | bytes) -> None:
        self.value = value

    def encode(self) -> bytes:
        return self.template % self.value

    def fields(self) -> tuple[object, ...]:
        return (self.value,)


class Kicked(Line):
    """How many jobs were kicked."""

    __slots__ = ()
    template = b"KICKED %d\r\n"


class Using(Line):
    """The tube that puts go into."""

    __slots__ = ()
    template = b"USING %s\r\n"


class Watching(Line):
    """How many tubes are watched."""

    __slots__ = ()
    template = b"WATCHING %d\r\n"


class JobReply(Reply):
    """A reply that carries a job.

    :ivar priority: only v1 writes it.
    """

    __slots__ = ("body", "job_id", "priority")
    word: ClassVar[bytes]

    def __init__(self, job_id: int, body: bytes, priority: int) -> None:
        self.job_id = job_id
        self.body = body
        self.priority = priority

    def line(self) -> bytes:
        return b"%s %d %d\r\n" % (self.word, self.job_id, len(self.body))

    def encode(self) -> bytes:
        return b"%s %d %d\r\n%s\r\n" % (self.word, self.job_id, len(self.body), self.body)

    def fields(self) -> tuple[object, ...]:
        return (self.job_id, self.body, self.priority)


class Reserved(JobReply):
    """Here is a job; it is yours until its TTR ends."""

    __slots__ = ()
    word = b"RESERVED"


class Found(JobReply):
    """Here is a job to look at."""

    __slots__ = ()
    word = b"FOUND"


class Document(Reply):
    """An answer in YAML."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def encode(self) -> bytes:
        return b"OK %d\r\n%s\r\n" % (len(self.content), self.content)

    def fields(self) -> tuple[object, ...]:
        return (self.content,)


def statistics(text: str) -> Document:
    """Answer a stats command with what a `Layout` has written."""
    return Document(text.encode())


def mapping(pairs: Iterable[yaml.Pair]) -> Document:
    return Document(yaml.mapping(pairs))


def names(tubes: Iterable[bytes]) -> Document:
    """Answer a list command."""
    return Document(yaml.listing(tubes))


# Of commands that beanstalkd does not have (docs/extensions.md).

MIN_PIECE_BYTES: Final = 4 << 10
"""Bytes of a body that a batch's reply does not copy: 1,000 smaller ones are copied in 2 ms."""

AUTHORIZED: Final = Word(b"AUTHORIZED")
UNAUTHORIZED: Final = Refusal(b"UNAUTHORIZED")
CANCELLED: Final = Word(b"CANCELLED")
RETURNED: Final = Word(b"RETURNED")
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


LINES: Final = frozenset({Word, Inserted, Kicked, Using, Watching, Flushed})
"""Replies of one line that say that all went well."""
