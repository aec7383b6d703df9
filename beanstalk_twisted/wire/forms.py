"""The replies to commands as clients read them: each reply's word, what follows it, and whether it
is an error.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS, MAX_U64, is_tube_name

MAX_BODY_BYTES: Final = 1 << 30
"""The body of a reply, bytes: the largest job that a beanstalkd can be told to take (-z)."""


class Inserted(int):
    """The number of a job that a put has made, or that was there with its unique key.

    :ivar state: None: the job is new.  Otherwise nothing was put, and the job is ``ready``,
        ``reserved``, ``delayed``, ``buried`` or ``deleted``.
    """

    state: str | None = None

    @property
    def is_new(self) -> bool:
        """Return True if this put has made the job."""
        return self.state is None


class BatchDeleted(NamedTuple):
    """:ivar not_found: how many jobs were not there, or are reserved by others."""

    deleted: int
    not_found: int


STATES: Final = frozenset(("ready", "reserved", "delayed", "buried", "deleted"))
"""Of the job that has the unique key already."""


def _nothing(text: bytes) -> None:
    if text:
        raise ValueError


def _no_words(text: bytes) -> frozenset[str]:
    _nothing(text)
    return frozenset()


def _word(word: str) -> Callable[[bytes], str]:
    def read(text: bytes) -> str:
        _nothing(text)
        return word

    return read


def number(text: bytes, limit: int = MAX_U64) -> int:
    """:raise ValueError: it is no number, or above the limit."""
    # int() alone would take "+1", "1_0" and blanks.
    if not text.isdigit() or (value := int(text)) > limit:
        raise ValueError
    return value


def tube(text: bytes) -> str:
    """:raise ValueError: it is no name of a tube."""
    if not is_tube_name(text):
        raise ValueError
    return text.decode()


def words(text: bytes) -> str:
    return text.decode("ascii", "replace")


def _size(text: bytes) -> tuple[None, int]:
    return None, number(text, MAX_BODY_BYTES)


def _job_and_size(text: bytes) -> tuple[int, int]:
    job_id, _, size = text.partition(b" ")
    if not (job_id.isdigit() and size.isdigit()):
        raise ValueError
    found = int(job_id), int(size)
    if found[0] > MAX_U64 or found[1] > MAX_BODY_BYTES:
        raise ValueError
    return found


def _count(text: bytes) -> int:
    return number(text, MAX_BATCH_JOBS)


def _two_counts(text: bytes) -> BatchDeleted:
    deleted, _, not_found = text.partition(b" ")
    return BatchDeleted(_count(deleted), _count(not_found))


def _new(text: bytes) -> Inserted:
    if not text.isdigit() or (inserted := Inserted(text)) > MAX_U64:
        raise ValueError
    return inserted


def _inserted(text: bytes) -> Inserted:
    job_id, is_there, state = text.partition(b" ")
    inserted = _new(job_id)
    if is_there:
        name = state.decode("ascii", "replace").lower()
        if name not in STATES or not state.isupper():
            raise ValueError
        inserted.state = name
    return inserted


class ReplyForm:
    """What a reply to a command looks like.

    :ivar read: gives the value of what follows the word, or raises ValueError.
    :ivar is_error: the command was not carried out; `client.errors` has a class with the word.
    :ivar is_shown: the server answers with it: it is in the tables of the docs.
    :ivar has_body: a body follows; ``read`` then gives (value, size of the body).
    :ivar parts: the forms of replies that follow, by their words; the value is their number.
    :ivar is_line: nothing follows the line.
    """

    __slots__ = ("has_body", "is_error", "is_line", "is_shown", "parts", "read", "word")

    def __init__(
        self, word: bytes, read: Callable[[bytes], Any] = _nothing, *, is_error: bool = False,
        is_shown: bool = True, has_body: bool = False,
        parts: "Mapping[bytes, ReplyForm] | None" = None,
    ) -> None:  # fmt: skip
        self.word = word
        self.read = read
        self.is_error = is_error
        self.is_shown = is_shown
        self.has_body = has_body
        self.parts = parts
        self.is_line = not has_body and parts is None


def error(word: bytes, read: Callable[[bytes], Any] = _nothing) -> ReplyForm:
    return ReplyForm(word, read, is_error=True)


def by_word(forms: "Sequence[ReplyForm]") -> dict[bytes, ReplyForm]:
    return {form.word: form for form in forms}


BURIED: Final = ReplyForm(b"BURIED")
DELETED: Final = ReplyForm(b"DELETED")
DELETED_BATCH: Final = ReplyForm(b"DELETED_BATCH", _two_counts)
DOCUMENT: Final = ReplyForm(b"OK", _size, has_body=True)
FLUSHED: Final = ReplyForm(b"FLUSHED", number)
FOUND: Final = ReplyForm(b"FOUND", _job_and_size, has_body=True)
INSERTED: Final = ReplyForm(b"INSERTED", _new)
INSERTED_OR_THERE: Final = ReplyForm(b"INSERTED", _inserted)
INSERTED_BATCH: Final = ReplyForm(b"INSERTED_BATCH", _count, parts=by_word([INSERTED_OR_THERE]))
KICKED: Final = ReplyForm(b"KICKED", number)
RESERVED: Final = ReplyForm(b"RESERVED", _job_and_size, has_body=True)
RESERVED_BATCH: Final = ReplyForm(b"RESERVED_BATCH", _count, parts=by_word([RESERVED]))
USING: Final = ReplyForm(b"USING", tube)
WATCHING: Final = ReplyForm(b"WATCHING", number)
WAS_BURIED: Final = ReplyForm(b"BURIED", _word("buried"))
WAS_DELETED: Final = ReplyForm(b"DELETED", _word("deleted"))


NOT_FOUND: Final = error(b"NOT_FOUND")
NOT_IGNORED: Final = error(b"NOT_IGNORED")
TIMED_OUT: Final = error(b"TIMED_OUT")
DEADLINE_SOON: Final = error(b"DEADLINE_SOON")
EXPECTED_CRLF: Final = error(b"EXPECTED_CRLF")
JOB_TOO_BIG: Final = error(b"JOB_TOO_BIG")
DRAINING: Final = error(b"DRAINING")
DUPLICATE: Final = error(b"DUPLICATE", number)
CANNOT_HAND_OVER: Final = error(b"CANNOT_HAND_OVER", words)
OUT_OF_MEMORY: Final = error(b"OUT_OF_MEMORY")
UNAUTHORIZED: Final = error(b"UNAUTHORIZED")
BAD_FORMAT: Final = error(b"BAD_FORMAT")
UNKNOWN_COMMAND: Final = error(b"UNKNOWN_COMMAND")

# Only beanstalkd, when it has no memory for its queue.
BURIED_INSTEAD: Final = ReplyForm(b"BURIED", is_error=True, is_shown=False)
BURIED_NEW_JOB: Final = ReplyForm(b"BURIED", number, is_error=True, is_shown=False)

NOT_ASKED: Final = ReplyForm(b"UNKNOWN_COMMAND", is_shown=False)
"""Of a server that asks nobody for rights."""

ANNOUNCES_NOTHING: Final = (
    ReplyForm(b"UNKNOWN_COMMAND", _no_words, is_shown=False),
    ReplyForm(b"BAD_FORMAT", _no_words, is_shown=False),
)
"""Of a server that does not know `capabilities`."""

ANY_COMMAND: Final = (
    BAD_FORMAT, UNKNOWN_COMMAND, error(b"INTERNAL_ERROR"), OUT_OF_MEMORY, UNAUTHORIZED,
)  # fmt: skip
"""What may come in answer to anything (protocol.txt, "Error responses"; docs/access.md)."""

PUT_FAILS: Final = (EXPECTED_CRLF, JOB_TOO_BIG, DRAINING)
JOB_REPLIES: Final = (FOUND, NOT_FOUND)
DOCUMENT_REPLIES: Final = (DOCUMENT, NOT_FOUND)
