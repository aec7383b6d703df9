"""The bodies that a survey has left: each damaged one is found, with its job and its LSN, in a
thread while a start loads the jobs, whatever becomes of the thread.
"""

from __future__ import annotations

import errno
import threading

import pytest

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading.survey import Segment, Survey
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.segments.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    segment_name,
)
from beanstalk_twisted.storage.body_checks import (
    CHECK_BYTES,
    BadHeap,
    Slice,
    StartCheck,
    check_bodies,
)
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import T0, Files, Scribe, put, quiet

ONE = segment_name(1)


def written(*bodies: bytes) -> Files:
    """A segment with a frame for each body, and one behind it."""
    scribe = Scribe(opening=[TubeDef(1, b"default", T0)], segment_bytes=8 << 20)
    for job_id, body in enumerate(bodies, start=1):
        scribe.write(put(job_id, body))
    scribe.end_segment()
    scribe.write(put(len(bodies) + 1, b"newest"))
    return scribe.files()


def first_of(files: Files) -> tuple[MemoryDirectory, Segment]:
    """The directory, and its first segment as a start finds it."""
    directory = MemoryDirectory(files)
    (segment,) = Survey(directory, quiet, leaves_bodies=True).unchecked
    return directory, segment


def changed(files: Files, at: int) -> Files:
    raw = files[ONE]
    return {**files, ONE: raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]}


def bad_of(slices: list[Slice]) -> list[BadHeap]:
    return [bad for each in slices for bad in each.bad]


def test_of_a_sound_segment_all_is_looked_at() -> None:
    directory, segment = first_of(written(*[b"body" * 100] * 50))
    slices = list(check_bodies(directory, segment))
    assert sum(each.size for each in slices) == segment.ending.offset - SEGMENT_HEADER_BYTES
    assert bad_of(slices) == []


def test_a_segment_is_read_in_slices_of_whole_frames() -> None:
    large = [b"x" * (CHECK_BYTES // 2)] * 3 + [b"y" * (2 * CHECK_BYTES)] + [b"z"] * 3
    directory, segment = first_of(written(*large))
    ends = {SEGMENT_HEADER_BYTES}
    for each in check_bodies(directory, segment):
        assert each.size <= CHECK_BYTES or each.size > 2 * CHECK_BYTES
        ends.add(max(ends) + each.size)
    assert ends <= {*segment.frame_offsets, segment.ending.offset}
    assert len(ends) == 6


def test_each_damaged_body_is_found_with_its_job_and_its_place() -> None:
    files = written(*(b"<%d>" % n * 10 for n in range(1, 9)))
    places = {n: files[ONE].index(b"<%d>" % n * 10) for n in (2, 7)}
    spoilt = changed(changed(files, places[2]), places[7] + 5)
    directory, segment = first_of(spoilt)
    bad = bad_of(list(check_bodies(directory, segment)))
    # LSN 1 is the tube's name, which shares a frame with nothing.
    assert [jobs for _, jobs in bad] == [[(2, 3)], [(7, 8)]]
    assert all(each.offset in segment.frame_offsets for each in bad)


def test_of_many_bodies_in_a_frame_those_that_are_damaged_are_named() -> None:
    scribe = Scribe(opening=[TubeDef(1, b"default", T0)])
    scribe.write(put(100, b"first"))
    scribe.write(*(put(n, b"<%d>" % n) for n in range(1, 9)))
    scribe.end_segment()
    scribe.write(put(101, b"newest"))
    files = scribe.files()
    directory, segment = first_of(changed(files, files[ONE].index(b"<5>")))
    (bad,) = bad_of(list(check_bodies(directory, segment)))
    assert [job_id for job_id, _ in bad.jobs] == [5]


def test_frames_that_are_no_longer_sound_are_not_gone_past() -> None:
    files = written(*[b"body" * 100] * 5)
    _, segment = first_of(files)
    for at, why in ((20, "header"), (FRAME_HEADER_BYTES + 8, "records")):
        place = segment.frame_offsets[3]
        directory = MemoryDirectory(changed(files, place + at))
        with pytest.raises(Damaged, match=f"{ONE}: offset {place}: .*checksum of its {why}"):
            list(check_bodies(directory, segment))


def test_a_segment_that_has_become_shorter_is_damaged() -> None:
    files = written(*[b"body" * 100] * 5)
    _, segment = first_of(files)
    for end in (segment.frame_offsets[3], segment.frame_offsets[3] + 7):
        directory = MemoryDirectory({**files, ONE: files[ONE][:end]})
        with pytest.raises(Damaged, match="ends here"):
            list(check_bodies(directory, segment))


def test_what_the_disk_cannot_read_raises() -> None:
    directory, segment = first_of(written(b"body"))

    def fail(name: str) -> None:
        raise OSError(errno.EIO, "Input/output error", name)

    directory.read_fault = fail
    with pytest.raises(OSError, match="Input/output"):
        next(check_bodies(directory, segment))


FILES = written(*(b"<%d>" % n * 10 for n in range(1, 9)))
SPOILT = changed(FILES, FILES[ONE].index(b"<5>"))


class Failing(MemoryDirectory):
    """The first reads of parts fail."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__(FILES)
        self.threads: list[threading.Thread] = []
        self._error = error
        self._times = times

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        self.threads.append(threading.current_thread())
        self._times -= 1
        if self._times >= 0:
            raise self._error
        return super().copy_part(name, start, end)


def test_bodies_are_looked_at_in_another_thread() -> None:
    directory = Failing(OSError(), 0)
    check = StartCheck(directory, [first_of(FILES)[1]])
    check.start()
    assert check.is_sound()
    assert set(directory.threads).isdisjoint({threading.current_thread()})


def test_one_damaged_body_is_enough() -> None:
    directory, segment = first_of(SPOILT)
    check = StartCheck(directory, [segment])
    check.start()
    assert not check.is_sound()


def test_without_segments_there_is_no_thread() -> None:
    before = threading.active_count()
    check = StartCheck(MemoryDirectory(), [])
    check.start()
    assert threading.active_count() == before
    assert check.is_sound()


def test_what_had_no_memory_in_the_thread_is_looked_at_without_it() -> None:
    directory = Failing(MemoryError(), 1)
    check = StartCheck(directory, [first_of(FILES)[1]])
    check.start()
    assert check.is_sound()
    assert directory.threads[-1] is threading.current_thread()


def test_a_read_that_fails_is_told() -> None:
    check = StartCheck(Failing(OSError(5, "broken"), 1), [first_of(FILES)[1]])
    check.start()
    with pytest.raises(OSError, match="broken"):
        check.is_sound()


def test_what_nobody_wants_to_know_any_more_ends_soon() -> None:
    directory = Failing(OSError(), 0)
    check = StartCheck(directory, [first_of(FILES)[1]] * 1000)
    check.leave()
    check.start()
    assert not check.is_sound()
    assert len(directory.threads) == 1
