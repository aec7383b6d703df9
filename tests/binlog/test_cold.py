"""Jobs without tags, cut from the records of many in columns."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.cold import MAX_COUNT, ColdJobs, Records, kicks, values
from beanstalk_twisted.binlog.records.jobs import (
    MAX_COUNTER,
    NEVER_NS,
    WITHHELD_NS,
    Flag,
    JobImage,
    Kind,
    Reason,
    State,
    as_loaded,
)
from tests.binlog.scribe import NS, T0, image, put, run_of

NOW = T0 + 100 * NS

TUBES = {1, 2}


def encoded(record: JobImage, offset: int, flags: int = 0, length: int | None = None) -> bytes:
    size = len(record.body) if length is None else length
    raw = bytearray(record.encode((offset, size, 0)))
    raw[2] |= flags
    return bytes(raw)


def taken(*frames: tuple[bytes, bytes]) -> tuple[list[tuple[int, bytes]], list[int]]:
    """Ids and bodies of the cold jobs of these pairs of record array and heap, whose ids are 0, 1,
    2 and so on; and which records are not of such.
    """
    records, count = Records(), 0
    for array, heap in frames:
        size = len(array) // 80
        records.add(range(count, count + size), [memoryview(array)], memoryview(heap))
        count += size
    jobs, others = records.take(TUBES, 9, NOW)
    assert jobs.segment == 9
    both = zip(jobs.job_ids, jobs.bodies, strict=True)
    return [(job_id, body) for job_id, body in both if body is not None], list(others)


ODD = {
    "reserved too often": encoded(put(reserves=MAX_COUNT + 1), 0),
    "timed out too often": encoded(put(timeouts=MAX_COUNT + 1), 0),
    "released too often": encoded(put(releases=MAX_COUNT + 1), 0),
    "buried too often": encoded(put(buries=MAX_COUNT + 1), 0),
    "kicked too often": encoded(put(kicks=MAX_COUNT + 1), 0),
    "gone": encoded(put(state=State.GONE), 0),
    "extended": encoded(put(), 0, Flag.EXT),
    "of a tube without a name": encoded(put(tube_id=3), 0),
    "of an unknown state": encoded(put(), 0).replace(b"\1", b"\t", 2),
    "longer than its frame": encoded(put(), 0, length=6),
    "outside its frame": encoded(put(), 1),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_not_plainly_a_cold_job_is_left_to_be_read_by_itself(
    odd: bytes, count: int
) -> None:
    plain = encoded(put(), 0)
    assert taken((odd * count, b"hello"), (plain, b"after")) == (
        [(count, b"after")], list(range(count)),
    )  # fmt: skip
    assert taken((plain, b"first"), (odd, b"hello"), (plain, b"after")) == (
        [(0, b"first"), (2, b"after")], [1],
    )  # fmt: skip


STATES = [State.READY, State.DELAYED, State.BURIED, State.RESERVED]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("has_newer", [False, True])
@pytest.mark.parametrize(
    "deadline_ns", [NOW - 1, NOW + 5 * NS, NOW + 5 * NS + 1, WITHHELD_NS + 3, NEVER_NS]
)
def test_jobs_stand_where_their_newest_records_say_as_a_start_takes_them(
    state: State, has_newer: bool, deadline_ns: int
) -> None:
    now = image(
        Kind.COPY, state=state, body=b"hello", priority=3, delay_s=5, ttr_s=6, tube_id=2,
        deadline_ns=0 if state is State.READY else deadline_ns, ts_ns=8 if has_newer else 7,
        reserves=1, timeouts=2, releases=3, buries=4, kicks=MAX_COUNT,
    )  # fmt: skip
    full, newest = encoded(put(ts_ns=7) if has_newer else now, 0), encoded(now, 0)
    records = Records()
    records.add([7], [memoryview(full)], memoryview(b"hello"), newest=[newest] * has_newer)
    jobs, others = records.take(TUBES, 1, NOW)
    assert not others
    expected, standing = as_loaded(now, NOW), jobs.standing
    assert standing is not None
    assert (*standing.states, *standing.deadlines_ns) == (expected.state, expected.deadline_ns)
    assert [list(column) for column in standing[2:]] == [[1], [2], [3], [4], [MAX_COUNT]]
    columns = (jobs.created_low, jobs.priority, jobs.delay_s, jobs.ttr_s, jobs.tube_id)
    assert [list(column) for column in columns] == [[7], [3], [5], [6], [2]]
    assert jobs.bodies == [b"hello"]


def test_a_newest_record_that_has_no_place_for_data_and_says_so_is_left_to_be_read() -> None:
    newest = encoded(put(), 0, Flag.EXT)
    records = Records()
    records.add([7], [memoryview(encoded(put(), 0))], memoryview(b"hello"), newest=[newest])
    jobs, others = records.take(TUBES, 1, NOW)
    assert (list(jobs.job_ids), list(others)) == ([], [0])


def test_bodies_are_those_of_their_own_frames_wherever_they_stand_there() -> None:
    one = encoded(put(body=b"ab"), 3) + encoded(put(body=b"cde"), 0) + encoded(put(body=b""), 0)
    two = encoded(put(body=b"f"), 0)
    assert taken((one, b"cdeab"), (two, b"f"), (one, b"CDEAB")) == (
        [(0, b"ab"), (1, b"cde"), (2, b""), (3, b"f"), (4, b"AB"), (5, b"CDE"), (6, b"")], [],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("places", "bodies"),
    [
        ([(0, 2), (2, 3)], [b"ab", b"cde"]),
        ([(0, 2), (2, 0), (2, 4)], [b"ab", b"", b"cdef"]),
        ([(0, 2), (1, 3)], [b"ab", b"bcd"]),
        ([(0, 2), (3, 2)], [b"ab", b"de"]),
        ([(1, 2), (3, 3)], [b"bc", b"def"]),
        ([(0, 5)], [b"abcde"]),
    ],
    ids=["with a rest", "to the end", "overlapping", "with a gap", "not from the start", "alone"],
)
@pytest.mark.parametrize("has_another", [False, True])
def test_bodies_are_where_records_say_in_a_row_or_not(
    places: list[tuple[int, int]], bodies: list[bytes], has_another: bool
) -> None:
    heap = b"abcdef"
    frame = b"".join(encoded(put(), offset, length=length) for offset, length in places), heap
    another = [(encoded(put(body=b"xy"), 0), b"xyz")] * has_another
    assert taken(frame, *another) == (
        list(enumerate(bodies + [b"xy"] * has_another)), [],
    )  # fmt: skip


@pytest.mark.parametrize("offset", [0, 1], ids=["in a row", "not in a row"])
def test_bodies_are_left_where_they_are_if_all_lsns_are_known(offset: int) -> None:
    array = encoded(put(body=b"ab"), offset) + encoded(put(body=b""), offset + 2)
    for lsn, expected in ((5, [None, b""]), (0, [b"ab", b""])):
        records = Records()
        lsns = range(lsn, lsn + 2) if lsn else [0, 0]
        records.add([7, 8], [memoryview(array)], memoryview(b"ab" if not offset else b"-ab"), lsns)
        jobs, _ = records.take(TUBES, 1, NOW, leaves_bodies=True)
        assert (jobs.bodies, jobs.are_left, jobs.body_bytes) == (expected, bool(lsn), 2)
        assert list(jobs.lsns) == list(lsns)


def test_the_columns_are_what_the_records_say() -> None:
    largest = (1 << 32) - 1
    records = Records()
    images = [
        put(body=b"", priority=largest, delay_s=1, ttr_s=2, tube_id=2, ts_ns=(5 << 32) + 6),
        put(body=b"", priority=0, delay_s=largest, ttr_s=largest, tube_id=1, ts_ns=-1),
    ]
    records.add([7, 8], [memoryview(encoded(each, 0)) for each in images], memoryview(b""))
    jobs, _ = records.take(TUBES, 1, NOW)
    assert isinstance(jobs, ColdJobs)
    assert list(jobs.priority) == [largest, 0]
    assert list(jobs.delay_s) == [1, largest]
    assert list(jobs.ttr_s) == [2, largest]
    assert list(jobs.tube_id) == [2, 1]
    assert list(jobs.created_low) == [6, largest]
    assert list(jobs.created_high) == [5, largest]


@pytest.mark.parametrize("numbers", [[1], [1, 1, 1], [1, 2, 1], [1 << 24, 1]])
def test_the_values_of_a_column_are_told_once_each(numbers: list[int]) -> None:
    column = memoryview(b"".join(n.to_bytes(4, "little") for n in numbers)).cast("I")
    assert sorted(values(column)) == sorted(set(numbers))
    assert sorted(values(column[::2])) == sorted(set(numbers[::2]))


TUBE = 3
CONNECTION = 9
NOW_NS = 1 << 60

U32 = st.integers(0, (1 << 32) - 1)
COUNTER = st.one_of(st.integers(0, 9), st.integers(MAX_COUNTER - 1, MAX_COUNTER + 1))


@dataclass
class Kicked:
    """What is asked of a job."""

    job_id: int
    priority: int
    delay_s: int
    ttr_s: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int


JOBS = st.builds(
    Kicked, st.integers(1, (1 << 64) - 1), U32, U32, U32, COUNTER, COUNTER, COUNTER, COUNTER,
    COUNTER,
)  # fmt: skip


@given(st.lists(JOBS, min_size=1, max_size=9))
def test_kicks_are_packed_as_their_images_are_one_by_one(jobs: list[Kicked]) -> None:
    images = [
        image(
            Kind.KICK, job.job_id, state=State.READY, reason=Reason.CLIENT, priority=job.priority,
            ts_ns=NOW_NS, deadline_ns=0, delay_s=job.delay_s, ttr_s=job.ttr_s, tube_id=TUBE,
            reserves=job.reserves, timeouts=job.timeouts, releases=job.releases,
            buries=job.buries, kicks=job.kicks + 1, connection=CONNECTION,
        )
        for job in jobs
    ]  # fmt: skip
    run = kicks(jobs, TUBE, CONNECTION, NOW_NS)
    assert run == run_of(images) and run.commits
    assert run.n_rec == len(jobs)
