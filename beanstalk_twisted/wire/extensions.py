"""
The commands that beanstalkd does not have, and their replies (docs/extensions.md).

They have no counters, since `stats` has no new keys.  A line is one of them if its first word is:
``reserve-batch 5`` is no `reserve`, so these rows stand before beanstalkd's.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from beanstalk_twisted.wire import grammar
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.grammar import (
    BATCH_COUNT,
    BYTES,
    CRLF,
    JOB_ID,
    MAX_BATCH_JOBS,
    PRIORITY,
    SECONDS,
    TTR,
    UNIX_SECONDS,
    Field,
    ParseError,
)
from beanstalk_twisted.wire.replies import BAD_FORMAT, Line, Reply, Reserved, Word

MAX_BATCH_LINE_BYTES: Final = 21_000
"""A `delete-batch` line with its CR LF: 1,000 ids of 19 digits take 20,014 bytes."""

MIN_PIECE_BYTES: Final = 4 << 10
"""Bytes of a body that a batch's reply does not copy: 1,000 smaller ones are copied in 2 ms."""


MAX_PAGE_JOBS: Final = 1000
"""Jobs of a page of `list-jobs`: some 5 ms, while others wait."""


def _seconds(text: bytes) -> int | None:
    """
    :return: nanoseconds; None if there is no such field on the line.
    """
    timeout_ns: int | None = grammar.TIMEOUT.convert(text) if text else None
    return timeout_ns


def _job_ids(text: bytes) -> tuple[int, ...]:
    ids = text.split()
    if len(ids) > MAX_BATCH_JOBS:
        raise ParseError(BAD_FORMAT)
    return tuple(map(_job_id, ids))


def _job_id(text: bytes) -> int:
    """
    Python refuses to convert numbers of thousands of digits, and zeros count as digits.
    """
    job_id: int = grammar.JOB_ID.convert(text.lstrip(b"0")[:MAX_LINE_BYTES] or b"0")
    return job_id


OPTIONAL_SECONDS: Final = Field("seconds", rb"((?: ++[0-9]++)?+)", _seconds, is_optional=True)
JOB_IDS: Final = Field("ids", rb" *+([0-9]++(?: ++[0-9]++)*+)", _job_ids)


def _limit(text: bytes) -> int:
    limit = int(text)
    if not 1 <= limit <= MAX_PAGE_JOBS:
        raise ParseError(BAD_FORMAT)
    return limit


def _row(
    word: bytes, fields: Sequence[Field] = (), *, operation: str = "", has_jobs: bool = False,
    ends_wait: bool = False, max_line_bytes: int = MAX_LINE_BYTES,
) -> Command:  # fmt: skip
    prefix = word + b" " if fields else word
    return Command(
        prefix, fields, operation=operation, is_whole_word=True, is_counted=False,
        has_jobs=has_jobs, ends_wait=ends_wait, max_line_bytes=max_line_bytes,
    )  # fmt: skip


FLUSHED_STATE: Final = Field(
    "state", rb"(?: (ready|delayed|buried|all))?+", lambda text: text or b"all", is_optional=True
)
LISTED_STATE: Final = Field("state", rb" (ready|reserved|delayed|buried|all)", bytes)
LIMIT: Final = Field("limit", rb" ([0-9]++)", _limit)
CURSOR: Final = Field(
    "cursor", rb"(?: ([a-z0-9-]++))?+", lambda text: text or b"", is_optional=True
)

_FLUSH_FIELDS: Final = (grammar.TUBE_THEN, FLUSHED_STATE)

EXTENSIONS: Final = (
    _row(b"capabilities"),
    _row(b"put-at", (PRIORITY, UNIX_SECONDS, TTR, BYTES), has_jobs=True),
    _row(b"put-batch", (BATCH_COUNT,), has_jobs=True),
    _row(b"reserve-batch", (BATCH_COUNT, OPTIONAL_SECONDS)),
    _row(b"delete-batch", (JOB_IDS,), max_line_bytes=MAX_BATCH_LINE_BYTES),
    _row(b"list-jobs", (grammar.TUBE_THEN, LISTED_STATE, LIMIT, CURSOR)),
    _row(b"flush-tube", _FLUSH_FIELDS),
    _row(b"truncate", _FLUSH_FIELDS, operation="flush-tube"),
    _row(b"wait-job", (JOB_ID, SECONDS)),
    _row(b"cancel-reserve", ends_wait=True),
    _row(b"list-connections"),
    _row(b"drain"),
    _row(b"undrain"),
)

CANCELLED: Final = Word(b"CANCELLED")


class ReservedBatch(Reply):
    """
    Here are jobs; each is yours until its TTR ends.
    """

    __slots__ = ("jobs",)
    template: ClassVar[bytes] = b"RESERVED_BATCH %d\r\n"

    def __init__(self, jobs: Sequence[Reserved]) -> None:
        self.jobs = tuple(jobs)

    def encode(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """
        The reply's bytes in pieces; large bodies are not copied.
        """
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


class DeletedBatch(Reply):
    """
    So many jobs were deleted, and so many not found.
    """

    __slots__ = ("deleted", "not_found")
    template: ClassVar[bytes] = b"DELETED_BATCH %d %d\r\n"

    def __init__(self, deleted: int, not_found: int) -> None:
        self.deleted = deleted
        self.not_found = not_found

    def encode(self) -> bytes:
        return self.template % (self.deleted, self.not_found)

    def fields(self) -> tuple[object, ...]:
        return self.deleted, self.not_found


NOT_DRAINING: Final = Word(b"NOT_DRAINING")


class InsertedBatch(Reply):
    """
    The jobs of a batch were put: the first one's id, the others' follow, and how many.
    """

    __slots__ = ("count", "first_id")

    def __init__(self, first_id: int, count: int) -> None:
        self.first_id = first_id
        self.count = count

    def encode(self) -> bytes:
        """
        :return: the reply's bytes, its CR LF included.
        """
        ids = range(self.first_id, self.first_id + self.count)
        return b"INSERTED_BATCH %d\r\n" % self.count + b"".join(
            [b"INSERTED %d\r\n" % job_id for job_id in ids]
        )

    def fields(self) -> tuple[object, ...]:
        """
        What it says, in the order of its class's arguments.
        """
        return self.first_id, self.count


class Flushed(Line):
    """
    So many jobs were flushed.
    """

    __slots__ = ()
    template = b"FLUSHED %d\r\n"
