"""Every reply of the protocol, as a value with its bytes."""

from collections.abc import Iterable
from typing import ClassVar, Final

from beanstalk_twisted.wire import yaml

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


class Inserted(Line):
    """A job was put: its id."""

    __slots__ = ()
    template = b"INSERTED %d\r\n"


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
