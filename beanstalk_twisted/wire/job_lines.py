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
    MAX_U32,
    PRIORITY,
    TTR,
    Field,
    ParseError,
    line_pattern,
)

MAX_BATCH_BYTES: Final = 15 << 20
"""
Bytes of all bodies of a batch.  A batch is one frame of the log, of 16 MiB at most: 1 MiB is left
for 1,000 records of up to 1,048 bytes, whatever they come to carry beside the body.
"""

FIELDS: Final = (PRIORITY, DELAY, TTR, BYTES)
"""What a job's line in a batch says."""

_JOB: Final = line_pattern(FIELDS)


class JobLine(NamedTuple):
    """
    What a job's line says.

    :ivar size: bytes of the body that follows, without its CR LF; None: nobody knows.
    :ivar values: of the fields before the size; None if one of them is wrong.
    :ivar has_junk: whether something follows the size.
    """

    size: int | None
    values: tuple[Any, ...] | None
    has_junk: bool


def parse_job_line(line: bytes, fields: Sequence[Field] = FIELDS) -> JobLine:
    """
    Understand a job's line, or at least its size.

    :param line: without a command's word and its CR LF.
    :param fields: four; the last is the size, and all are numbers.
    """
    match = _JOB.fullmatch(line)
    if match is None:
        words = line.split()
        return JobLine(_u32(words[3]) if len(words) > 3 else None, None, False)
    *texts, size_text, rest = match.groups()
    size = _u32(size_text)
    try:
        values = [field.convert(text) for field, text in zip(fields, texts, strict=False)]
    except ParseError:
        return JobLine(size, None, bool(rest))
    return JobLine(size, tuple(values), bool(rest))


def parse_count(line: bytes) -> int | None:
    """
    How many jobs follow, though they may be too many.

    :param line: without the command's word.
    :return: None: nobody knows.
    """
    words = line.split()
    return _u32(words[0]) if len(words) == 1 else None


def _u32(text: bytes) -> int | None:
    """
    A number below 2**32; None of anything else.
    """
    if not text.isdigit():
        return None
    value = int(text)
    return value if value <= MAX_U32 else None
