"""Reading bodies back from the log, in a real and in a simulated directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.bodies import (
    MAX_INDEXES,
    MAX_READ_BYTES,
    READ_BYTES,
    LogBodyReader,
)
from beanstalk_twisted.binlog.directory import Directory, RealDirectory
from beanstalk_twisted.binlog.errors import BodyLost
from beanstalk_twisted.binlog.records.jobs import BodyPlace, Kind
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.binlog.tags import NO_TAGS
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, delete, image, put, read_body

Bodies = Mapping[int, bytes]
Make = Callable[[Bodies], tuple[LogBodyReader, dict[int, BodyPlace]]]


def in_log(directory: Directory, bodies: Bodies) -> dict[int, BodyPlace]:
    """Put these jobs, each in a frame of its own."""
    scribe = Scribe(directory, segment_bytes=1 << 20)
    scribe.write(DEFAULT_TUBE)
    return {
        job_id: BodyPlace(scribe.log.segment, scribe.write(put(job_id, body)))
        for job_id, body in bodies.items()
    }


@pytest.fixture(params=["real", "simulated"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a reader of jobs with these bodies, and says where they are."""
    directory = RealDirectory(str(tmp_path)) if request.param == "real" else MemoryDirectory()
    return lambda bodies: (LogBodyReader(directory), in_log(directory, bodies))


# On either directory.


def test_a_body_is_read_where_its_record_is(make: Make) -> None:
    reader, places = make({1: b"one", 2: b"", 3: b"x" * 5000})
    assert read_body(reader, places[3], 3) == b"x" * 5000
    assert read_body(reader, places[1], 1) == b"one"
    assert read_body(reader, places[2], 2) == b""
    assert read_body(reader, places[1], 1) == b"one"


def test_the_body_of_another_job_is_never_given(make: Make) -> None:
    reader, places = make({1: b"one", 2: b"two"})
    with pytest.raises(BodyLost):
        read_body(reader, places[1], 2)
    assert read_body(reader, places[2], 2) == b"two"


@pytest.mark.parametrize("lsn", [0, 1_000_000])
def test_a_record_that_is_not_there_is_lost(make: Make, lsn: int) -> None:
    reader, places = make({1: b"one"})
    with pytest.raises(BodyLost):
        read_body(reader, places[1]._replace(lsn=lsn), 1)


def test_many_are_read_as_one_by_one(make: Make) -> None:
    bodies = {job_id: b"%d" % job_id * 700 for job_id in range(1, 200)}
    reader, places = make(bodies)
    asked = [(places[job_id], job_id) for job_id in (*bodies, 7, 199, 1)]
    asked[5] = places[1], 6
    *read, wrong = reader.read_all([*asked[:5], *asked[6:], asked[5]])
    assert read == [bodies[job_id] for _, job_id in [*asked[:5], *asked[6:]]]
    assert isinstance(wrong, BodyLost)
    assert reader.read_all([]) == []


# Logs.


def test_each_of_many_frames_and_of_many_records_of_one_is_found() -> None:
    scribe = Scribe(segment_bytes=1 << 20)
    scribe.write(DEFAULT_TUBE)
    reader, places = LogBodyReader(scribe.directory), dict[int, BodyPlace]()
    for first in range(1, 1001, 10):
        jobs = [put(job_id, b"%d" % job_id * 50) for job_id in range(first, first + 10)]
        last = scribe.write(*jobs)
        places |= {first + at: BodyPlace(scribe.log.segment, last - 9 + at) for at in range(10)}
    assert len(scribe.directory.read(segment_name(1))) > 2 * READ_BYTES
    for job_id in [*range(1, 1001), *range(1000, 0, -7)]:
        assert read_body(reader, places[job_id], job_id) == b"%d" % job_id * 50


def finished(jobs: int) -> tuple[MemoryDirectory, dict[int, BodyPlace]]:
    """A finished segment, one frame of 3 KB for each job."""
    directory = MemoryDirectory()
    scribe = Scribe(directory, segment_bytes=1 << 20)
    scribe.write(DEFAULT_TUBE)
    places = {
        job_id: BodyPlace(1, scribe.write(put(job_id, b"%d" % (job_id + 100) * 1000)))
        for job_id in range(1, jobs + 1)
    }
    scribe.end_segment()
    return directory, places


def test_the_frames_of_a_finished_segment_are_not_gone_through() -> None:
    (directory, places), reads = finished(300), list[str]()
    directory.read_fault = reads.append
    reader = LogBodyReader(directory)
    assert read_body(reader, places[300], 300) == b"400" * 1000
    assert len(reads) <= 5, "its header, the trailer, the seal, and twice from where it is"
    for job_id, place in places.items():
        assert read_body(reader, place, job_id) == b"%d" % (job_id + 100) * 1000


@pytest.mark.parametrize("damage", [-1, -100], ids=["trailer", "seal"])
def test_if_its_seal_is_damaged_they_are(damage: int) -> None:
    directory, places = finished(300)
    content = bytearray(directory.read(segment_name(1)))
    content[damage] ^= 0x40
    directory.replace(segment_name(1), bytes(content))
    reader = LogBodyReader(directory)
    for job_id in (300, 1, 150):
        assert read_body(reader, places[job_id], job_id) == b"%d" % (job_id + 100) * 1000


def test_if_its_seal_cannot_be_read_they_are() -> None:
    directory, places = finished(300)
    reads: list[str] = []

    def fail(name: str) -> None:
        reads.append(name)
        if len(reads) == 2:
            raise OSError(5, "Input/output error", name)

    directory.read_fault = fail
    assert read_body(LogBodyReader(directory), places[300], 300) == b"400" * 1000
    assert len(reads) > 10


def test_what_is_appended_later_is_found_too() -> None:
    scribe = Scribe(segment_bytes=1 << 20)
    scribe.write(DEFAULT_TUBE)
    reader = LogBodyReader(scribe.directory)
    for job_id in range(1, 200):
        place = BodyPlace(1, scribe.write(put(job_id, b"%d" % job_id * 300)))
        assert read_body(reader, place, job_id) == b"%d" % job_id * 300


def test_a_body_behind_tags_is_read_without_them() -> None:
    scribe = Scribe(segment_bytes=1 << 20, has_extensions=True)
    scribe.write(DEFAULT_TUBE)
    lsn = scribe.write(put(1, b"body", tags=NO_TAGS._replace(unique_key=b"key")))
    assert read_body(LogBodyReader(scribe.directory), BodyPlace(1, lsn), 1) == b"body"


def test_only_full_records_have_bodies() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE, put(1))
    lsn = scribe.write(image(Kind.TOUCH, 1), delete(1))
    for each in (lsn, lsn - 1):
        with pytest.raises(BodyLost, match="this is no full record of job 1"):
            read_body(LogBodyReader(scribe.directory), BodyPlace(1, each), 1)


def test_no_more_indexes_are_kept_than_may_be() -> None:
    directory = MemoryDirectory()
    scribe = Scribe(directory)
    scribe.write(DEFAULT_TUBE)
    places = {}
    for job_id in range(1, MAX_INDEXES + 2):
        places[job_id] = BodyPlace(scribe.log.segment, scribe.write(put(job_id, b"%d" % job_id)))
        scribe.end_segment()
    reader, reads = LogBodyReader(directory), list[str]()
    for job_id, place in [*places.items(), (1, places[1])]:
        assert read_body(reader, place, job_id) == b"%d" % job_id
    directory.read_fault = reads.append
    read_body(reader, places[3], 3)
    known = len(reads)
    read_body(reader, places[2], 2)
    assert len(reads) - known > known


def test_every_damaged_byte_of_a_body_is_found_and_costs_nobody_else_his() -> None:
    """Whatever byte of its record or body is another: its own error, and the others are read."""
    directory = MemoryDirectory()
    places = in_log(directory, {1: b"one", 2: b"damaged", 3: b"three"})
    name = segment_name(1)
    sound = bytes(directory.read(name))
    start = sound.index(b"damaged")
    for at in range(start, start + 7):
        broken = bytearray(sound)
        broken[at] ^= 0x40
        directory.replace(name, bytes(broken))
        reader = LogBodyReader(directory)
        with pytest.raises(
            BodyLost, match=r"offset \d+: the checksum of the body of job 2 is wrong"
        ):
            read_body(reader, places[2], 2)
        assert (read_body(reader, places[1], 1), read_body(reader, places[3], 3)) == (
            b"one",
            b"three",
        )


@pytest.mark.parametrize("left", [0, 100, 4096, 4200])
def test_a_segment_that_was_cut_is_an_error_and_never_ends_the_process(
    tmp_path: Path, left: int
) -> None:
    directory = RealDirectory(str(tmp_path))
    places = in_log(directory, {1: b"one" * 500})
    directory.cut(segment_name(1), left)
    with pytest.raises(BodyLost, match="Run 'binlog-inspect check"):
        read_body(LogBodyReader(directory), places[1], 1)


def test_a_segment_that_is_gone_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_body(LogBodyReader(RealDirectory(str(tmp_path))), BodyPlace(1, 1), 1)


def test_bodies_side_by_side_are_read_together() -> None:
    directory, reads = MemoryDirectory(), list[str]()
    bodies = {job_id: b"%d" % job_id * 50 for job_id in range(100, 116)}
    places = in_log(directory, bodies)
    directory.read_fault = reads.append
    reader = LogBodyReader(directory)
    assert reader.read_all([(places[each], each) for each in bodies]) == list(bodies.values())
    together = len(reads)
    for job_id in bodies:
        assert read_body(reader, places[job_id], job_id) == bodies[job_id]
    assert together <= (len(reads) - together) / 2


def test_no_more_is_read_at_once_than_may_be_and_what_is_larger_alone() -> None:
    class Sizes(MemoryDirectory):
        """Notes how long each piece is."""

        def copy_part(self, name: str, start: int, end: int) -> bytes:
            """See `Directory.copy_part`."""
            part = super().copy_part(name, start, end)
            sizes.append(len(part))
            return part

    sizes: list[int] = []
    directory, large = Sizes(), MAX_READ_BYTES + 1
    bodies = {job_id: b"%d" % job_id * 2000 for job_id in range(100, 200)} | {200: bytes(large)}
    places = in_log(directory, bodies)
    read = LogBodyReader(directory).read_all([(places[each], each) for each in bodies])
    assert read == list(bodies.values())
    assert set(filter(lambda size: size > MAX_READ_BYTES, sizes)) == {large}
    assert MAX_READ_BYTES in sizes and len(sizes) < 20


def test_what_was_written_since_is_read() -> None:
    scribe = Scribe(segment_bytes=1 << 20)
    scribe.write(DEFAULT_TUBE)
    reader, lsns = LogBodyReader(scribe.directory), list[int]()
    for job_id in range(1, 20):
        lsns.append(scribe.write(put(job_id, b"%d" % job_id * 50)))
        asked = [(BodyPlace(1, lsn), at) for at, lsn in enumerate(lsns, start=1)]
        assert reader.read_all(asked)[-1] == b"%d" % job_id * 50


def test_a_page_that_cannot_be_read_costs_only_the_bodies_in_it() -> None:
    bodies = {job_id: b"%d" % job_id * 400 for job_id in range(100, 116)}

    class Bad(MemoryDirectory):
        """A disk that cannot read one byte."""

        bad = -1

        def copy_part(self, name: str, start: int, end: int) -> bytes:
            """See `Directory.copy_part`."""
            part = super().copy_part(name, start, end)
            if start <= self.bad < start + len(part):
                raise OSError(5, "Input/output error", name)
            return part

    directory = Bad()
    places = in_log(directory, bodies)
    directory.bad = bytes(directory.read(segment_name(1))).index(bodies[110]) + 7
    asked, reader = [(places[each], each) for each in bodies], LogBodyReader(directory)
    *read, error = reader.read_all(asked)
    assert read == [bodies[each] for each in range(100, 110)]
    assert isinstance(error, OSError)
    assert reader.read_all(asked[11:]) == [bodies[each] for each in range(111, 116)]
