"""Reading bodies back from the log, in a real and in a simulated directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.bodies import (
    DIGITS,
    MAX_DEPTH,
    MAX_INDEXES,
    MAX_JSON_BYTES,
    MAX_READ_BYTES,
    READ_BYTES,
    SHAPE_CHARACTERS,
    LogBodyReader,
    fingerprint,
)
from beanstalk_twisted.binlog.directory import Directory, RealDirectory
from beanstalk_twisted.binlog.errors import BodyLost
from beanstalk_twisted.binlog.records.jobs import BodyPlace, Kind
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.binlog.tags import EXTENSIONS, NO_TAGS
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, delete, image, put, read_body

Bodies = Mapping[int, bytes]
Make = Callable[[Bodies], tuple[LogBodyReader, dict[int, BodyPlace]]]


def in_log(directory: Directory, bodies: Bodies) -> dict[int, BodyPlace]:
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
        assert reader.read_all([(place, job_id)]) == [b"%d" % job_id * 300]


def test_a_body_behind_tags_is_read_without_them() -> None:
    scribe = Scribe(segment_bytes=1 << 20, features=EXTENSIONS)
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


def test_a_page_that_cannot_be_read_costs_only_the_bodies_in_it() -> None:
    bodies = {job_id: b"%d" % job_id * 400 for job_id in range(100, 116)}

    class Bad(MemoryDirectory):
        """A disk that cannot read one byte."""

        bad = -1

        def copy_part(self, name: str, start: int, end: int) -> bytes:
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"send 17 to 4", b"SEND 9  to\t1000"),
        (
            b"user 0b5cad00-0000-4000-8000-00000000000a",
            b"user 1b5cad00-1234-4000-8000-0000fffff00a",
        ),
        (b'{"to": "a@example.org", "n": 1}', b'{"n":[2,3],"to":"b@example.org"}'),
        (b'{"type": "mail", "args": [1]}', b' {"args": [], "type": "Mail"}'),
        (b'{"a": {"b": 1}}', b'{"a": {"b": "x"}}'),
        (b'{"task": "resize-1"}', b'{"task": "resize-27"}'),
        (b"x" * 512 + b"a", b"x" * 512 + b"b"),
    ],
)
def test_bodies_of_one_kind_have_the_same(one: bytes, other: bytes) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"send", b"receive"),
        (b'{"type": "mail"}', b'{"type": "resize"}'),
        (b'{"a": 1}', b'{"b": 1}'),
        (b'{"a": {"b": 1}}', b'{"a": {"c": 1}}'),
        (b'{"a": {"b": 1}}', b'{"a": 1, "b": 1}'),
        (b'{"a": 1', b'{"a": 1}'),
        (b"\xff", b"\xfe"),
        (b"", b"x"),
    ],
)
def test_bodies_of_two_kinds_have_not(one: bytes, other: bytes) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_an_object_is_read_up_to_a_size() -> None:
    words = [b'{"a": "%s", "b": "%s"}' % (word, b"x" * 4080) for word in (b"p", b"q")]
    assert len(words[0]) > MAX_JSON_BYTES
    assert fingerprint(words[0]) != fingerprint(words[1])
    whole = [each[:-2][: MAX_JSON_BYTES - 2] + b'"}' for each in words]
    assert len(whole[0]) == MAX_JSON_BYTES
    assert fingerprint(whole[0]) == fingerprint(whole[1])


def nested(depth: int, key: str) -> bytes:
    value: object = {key: 1}
    for _ in range(depth - 1):
        value = {"in": value}
    return json.dumps(value).encode()


def test_keys_count_down_to_a_depth() -> None:
    assert fingerprint(nested(MAX_DEPTH, "a")) != fingerprint(nested(MAX_DEPTH, "b"))
    assert fingerprint(nested(MAX_DEPTH + 1, "a")) == fingerprint(nested(MAX_DEPTH + 1, "b"))


@given(
    st.binary(max_size=600) | st.text(max_size=50).map(lambda text: json.dumps({text: 1}).encode())
)
def test_any_body_has_one_and_a_long_beginning_of_it_the_same(body: bytes) -> None:
    mark = fingerprint(body)
    assert len(mark) == DIGITS and int(mark, 16) >= 0
    long = body + b" " * (MAX_JSON_BYTES + 1)
    assert fingerprint(long) == fingerprint(long[: MAX_JSON_BYTES + 1])


@pytest.mark.parametrize(
    "body",
    [b'{"a":' * 800 + b"1" + b"}" * 800, b'{"a":1' + b"0" * 4080 + b"}", b'{"\\ud800": 1}',
     b'{"type": "\\ud800"}'],
)  # fmt: skip
def test_what_is_hard_to_read_has_one_too(body: bytes) -> None:
    assert len(fingerprint(body)) == DIGITS


def keyed(count: int, last: str) -> bytes:
    """An object with keys of 8 letters, and one that comes behind them."""
    keys = [f"{at:08d}".translate(LETTERS) for at in range(count)]
    return json.dumps(dict.fromkeys([*keys, last], 1)).encode()


LETTERS = str.maketrans("0123456789", "abcdefghij")


def test_keys_count_up_to_a_length() -> None:
    # With its line end each key has 9 characters.
    few, many = SHAPE_CHARACTERS // 9, SHAPE_CHARACTERS // 9 + 1
    assert fingerprint(keyed(few, "zy")) != fingerprint(keyed(few, "zz"))
    assert fingerprint(keyed(many, "zy")) == fingerprint(keyed(many, "zz"))
