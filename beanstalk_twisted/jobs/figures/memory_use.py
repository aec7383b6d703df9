"""What jobs, tubes and remembered keys take of memory."""

from typing import Final

from beanstalk_twisted.binlog.tags import Tags

RESTING_JOB_BYTES: Final = 140
"""
What a resting job takes of memory beside its body, its place in its tube's queue included, and that
its body is an object.  This and what follows was measured (CPython 3.11;
tests/jobs/figures/test_memory_use.py compares it).
"""

BODY_OBJECT_BYTES: Final = 30
"""What a body takes of that, which is not in memory."""

HOT_JOB_BYTES: Final = 512
"""What a `Job` takes; 400 to 500, and 380 where this is compiled."""

HELD_BYTES: Final = HOT_JOB_BYTES - RESTING_JOB_BYTES
"""How much more a job takes as a `Job`."""

TAGS_BYTES: Final = 100
"""What tags take beside the job, with `TAG_BYTES` for each byte that they take in the log."""

TAG_BYTES: Final = 8
"""A key of 19 bytes is kept twice, with entries of two to four dictionaries."""

TUBE_BYTES: Final = 900
"""What a tube takes of memory beside its jobs; measured as the others."""

WATCH_BYTES: Final = 300
"""
The same of a tube that a session watches beside its first, with what it takes when that reserves:
100 to be watched, and of many, or by weights, 200 more to be found.
"""

WAITERS_BYTES: Final = 700
"""The same of a tube's queue of sessions that wait, which stays when it is empty."""

KEY_BYTES: Final = 600
"""The same of a unique key of 20 bytes that is remembered."""


def tags_memory_bytes(tags: Tags) -> int:
    """:return: what a job's tags take of memory."""
    return TAGS_BYTES + TAG_BYTES * tags.encoded_bytes


def data_memory_bytes(body_bytes: int, tags: Tags | None) -> int:
    """
    :param body_bytes: of its body, as far as that is in memory.
    :return: what a job takes of memory beside itself.
    """
    return body_bytes if tags is None else body_bytes + tags_memory_bytes(tags)
