"""
What differs between two logs.

Both are gone through side by side, ascending by id, so no more is held of them than of one.
"""

import zlib
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from binlog_tools.console.wording import text_of
from binlog_tools.inspect.dumping import Fields, job_fields, tags_text
from binlog_tools.inspect.listing import chosen_jobs
from binlog_tools.logs.loading import Loaded
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.stored import StoredJob

FIELDS: Final = (
    "tube", "state", "priority", "delay_s", "ttr_s", "created", "deadline", "reserves", "timeouts",
    "releases", "buries", "kicks", "body", "tags",
)  # fmt: skip
"""What is compared."""


class Difference(NamedTuple):
    """
    A job that is not the same on both sides.

    :ivar where: ``a``: only in the first, ``b``: only in the second, ``both``: it differs.
    :ivar fields: the values that differ, first and second.
    """

    job_id: int
    where: str
    fields: dict[str, tuple[object, object]]


def compare_logs(
    a: Loaded, b: Loaded, selection: Selection, ignored: Collection[str] = ()
) -> Iterator[Difference]:
    """The jobs that a server would load from one log and not from the other, or otherwise."""
    left, right = chosen_jobs(a, selection), chosen_jobs(b, selection)
    one, two = next(left, None), next(right, None)
    while one is not None or two is not None:
        if two is None or (one is not None and one.job_id < two.job_id):
            assert one is not None
            yield Difference(one.job_id, "a", {})
            one = next(left, None)
        elif one is None or two.job_id < one.job_id:
            yield Difference(two.job_id, "b", {})
            two = next(right, None)
        else:
            found = _differing(values_of(one), values_of(two), ignored)
            if found:
                yield Difference(one.job_id, "both", found)
            one, two = next(left, None), next(right, None)


def _differing(
    one: Fields, two: Fields, ignored: Collection[str]
) -> dict[str, tuple[object, object]]:
    return {
        name: (one[name], two[name])
        for name in FIELDS
        if name not in ignored and one[name] != two[name]
    }


def values_of(job: StoredJob) -> Fields:
    """What is compared of a job; of the body, its size and checksum."""
    return {
        "tube": text_of(job.tube), **job_fields(job), "body": _summary(job.body),
        "tags": tags_text(job.tags),
    }  # fmt: skip


def _summary(body: bytes) -> str:
    return f"{len(body)} bytes, CRC {zlib.crc32(body):08x}"
