"""
The commands that beanstalkd does not have, and their replies (docs/extensions.md).

They have no counters, since `stats` has no new keys.  A line is one of them if its first word is:
``reserve-batch 5`` is no `reserve`, so these rows stand before beanstalkd's.
"""

from collections.abc import Sequence
from typing import Final

from beanstalk_twisted.wire import grammar
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.grammar import JOB_ID, SECONDS, Field, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT, Line, Word

MAX_PAGE_JOBS: Final = 1000
"""Jobs of a page of `list-jobs`: some 5 ms, while others wait."""


def _limit(text: bytes) -> int:
    limit = int(text)
    if not 1 <= limit <= MAX_PAGE_JOBS:
        raise ParseError(BAD_FORMAT)
    return limit


def _row(
    word: bytes, fields: Sequence[Field] = (), *, operation: str = "", ends_wait: bool = False
) -> Command:
    prefix = word + b" " if fields else word
    return Command(
        prefix, fields, operation=operation, is_whole_word=True, is_counted=False,
        ends_wait=ends_wait,
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
NOT_DRAINING: Final = Word(b"NOT_DRAINING")


class Flushed(Line):
    """
    So many jobs were flushed.
    """

    __slots__ = ()
    template = b"FLUSHED %d\r\n"
