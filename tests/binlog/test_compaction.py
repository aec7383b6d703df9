"""When to compact, and what has to move."""

import errno
import os
from collections.abc import Callable

import pytest

from beanstalk_twisted.binlog.compaction import SLICE_BYTES, Policy, Pressure, full_records
from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.files import TO_END
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, delete, put

NAME = "00000000000000000001.tql"


POLICY = Policy(factor=2, spare_segments=2, spare_files=100)


@pytest.mark.parametrize(
    ("asked", "bound", "more"),
    [
        (POLICY.should_compact, Pressure(2 * 100 + 2 * 50, live=100, segment=50), "total"),
        (POLICY.is_urgent, Pressure(3 * 100 + 2 * 50, live=100, segment=50), "total"),
        (
            POLICY.should_compact,
            Pressure(0, live=5 * 50, segment=50, segments=100 + 2 * 5),
            "segments",
        ),
        (Policy().should_compact, Pressure(6000, 4000, 1000, is_short=True), "total"),
    ],
    ids=["bytes", "urgent", "small segments", "on a full disk"],
)
def test_a_log_at_its_bound_is_left_alone_and_one_more_is_not(
    asked: Callable[[Pressure], bool], bound: Pressure, more: str
) -> None:
    assert not asked(bound)
    assert asked(bound._replace(**{more: getattr(bound, more) + 1}))


def test_only_on_a_full_disk_the_log_is_kept_smaller() -> None:
    assert not Policy().should_compact(Pressure(6001, 4000, 1000))


def written_log() -> MemoryDirectory:
    directory = MemoryDirectory()
    server = MemoryServer(directory=directory)
    client = server.connect()
    client.ask(b"put 0 0 1 1\r\na\r\nput 0 0 1 1\r\nb\r\nreserve\r\ndelete 1\r\n")
    return directory


def test_the_full_records_of_a_segment_are_found() -> None:
    directory = written_log()
    slices = full_records(directory, 1, frames_end(directory))
    assert [job_id for ids in slices for job_id in ids] == [1, 2]


class OnlyParts(MemoryDirectory):
    """Has no memory for a whole segment."""

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        if end == TO_END:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return super().read(name, start, end)


def test_a_segment_is_read_part_by_part_since_memory_may_be_short() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], segment_bytes=16 * SLICE_BYTES)
    sizes = [100, SLICE_BYTES // 3, 2 * SLICE_BYTES, 0, SLICE_BYTES - 200, SLICE_BYTES // 2, 10]
    for job_id, size in enumerate(sizes, start=1):
        scribe.write(put(job_id, bytes(size)))
        scribe.write(delete(job_id))
    files = scribe.files()
    slices = list(full_records(OnlyParts(files), 1, frames_end(MemoryDirectory(files))))
    assert [job_id for ids in slices for job_id in ids] == list(range(1, len(sizes) + 1))
    assert len(slices) > 3


def test_damage_is_named_with_its_place() -> None:
    directory = written_log()
    spoilt = bytearray(directory.read(NAME))
    spoilt[4100] ^= 1
    broken = MemoryDirectory({NAME: bytes(spoilt)})
    with pytest.raises(Damaged, match=f"{NAME}: offset 4096: .*binlog-inspect check"):
        list(full_records(broken, 1, frames_end(directory)))


def frames_end(directory: MemoryDirectory) -> int:
    return Survey(directory, lambda done, total: None).segments[0].ending.offset
