"""
The lines of jobs that are put together, and what is still known of a line that is wrong.

Whoever has sent a wrong line may have sent the body behind it: as long as its size can be
understood, the body can be read and dropped, and is not taken for commands.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from beanstalk_twisted.wire.grammar import (
    BYTES,
    DELAY,
    JOB_ID,
    MAX_U32,
    PRIORITY,
    TTR,
    Field,
    ParseError,
    line_pattern,
)
from beanstalk_twisted.wire.tags import PutTags, parse_tags

MAX_BATCH_BYTES: Final = 15 << 20
"""
Bytes of all bodies of a batch.  A batch is one frame of the log, of 16 MiB at most: 1 MiB is left
for 1,000 records of up to 1,048 bytes, whatever they come to carry beside the body.
"""

FIELDS: Final = (PRIORITY, DELAY, TTR, BYTES)
"""What a job's line in a batch says."""

UPDATE_FIELDS: Final = (JOB_ID, PRIORITY, DELAY, TTR, BYTES)
"""What the line of an `update-job` with a body says."""

_JOB: Final = line_pattern(FIELDS)
_UPDATE: Final = line_pattern(UPDATE_FIELDS)


class JobLine(NamedTuple):
    """
    What a job's line says.

    :ivar size: bytes of the body that follows, without its CR LF; None: nobody knows.
    :ivar values: of the fields before the size; None if one of them is wrong.
    :ivar has_junk: whether something follows the size that is no tags, or wrong ones.
    :ivar tags: that follow the size; None if there are none.
    """

    size: int | None
    values: tuple[Any, ...] | None
    has_junk: bool
    tags: PutTags | None = None


NO_LINE: Final = JobLine(None, None, False)
"""What an empty line says."""


def parse_job_line(line: bytes, fields: Sequence[Field] = FIELDS) -> JobLine:
    """
    Understand a job's line, or at least its size.

    :param line: without a command's word and its CR LF.
    :param fields: the first three are what stands before the size; all are numbers.
    """
    match = _JOB.fullmatch(line)
    if match is None:
        words = line.split()
        return JobLine(_u32(words[3]) if len(words) > 3 else None, None, False)
    *texts, size_text, rest = match.groups()
    size, values = _u32(size_text), _values(fields, texts)
    if values is None or not rest:
        return JobLine(size, values, bool(rest))
    tags = _tags(rest)
    return JobLine(size, values, tags is None, tags)


def parse_update_line(line: bytes) -> JobLine | None:
    """
    Understand the line of an `update-job`, or at least the size of its body.

    :param line: without the command's word and its CR LF.
    :return: None if it says no size: no body follows.
    """
    words = line.split()
    if len(words) < len(UPDATE_FIELDS):
        return None
    match = _UPDATE.fullmatch(line)
    if match is None:
        return JobLine(_u32(words[len(UPDATE_FIELDS) - 1]), None, False)
    *texts, size_text, rest = match.groups()
    return JobLine(_u32(size_text), _values(UPDATE_FIELDS, texts), bool(rest))


def _values(fields: Sequence[Field], texts: Sequence[bytes]) -> tuple[Any, ...] | None:
    """
    :param texts: of the first fields.
    :return: None: one of them is wrong.
    """
    try:
        values = [field.convert(text) for field, text in zip(fields, texts, strict=False)]
    except ParseError:
        return None
    return tuple(values)


def _tags(rest: bytes) -> PutTags | None:
    """
    :param rest: what follows the size.
    :return: None: it is no tags, or wrong ones.
    """
    try:
        return parse_tags(rest)
    except ParseError:
        return None


def parse_count(line: bytes) -> int | None:
    """
    How many jobs follow, though they may be too many.

    :param line: without the command's word.
    :return: None: nobody knows.
    """
    words = line.split()
    return _u32(words[0]) if len(words) == 1 else None


def _u32(text: bytes) -> int | None:
    """A number below 2**32; None of anything else."""
    if not text.isdigit():
        return None
    value = int(text)
    return value if value <= MAX_U32 else None
