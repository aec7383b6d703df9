"""
The open log: numbers, batches, segments, seals; no I/O.
"""

import zlib
from collections.abc import Sequence
from itertools import pairwise

import pytest

from beanstalk_twisted.binlog.format import (
    INDEX_STRIDE_BYTES,
    MIN_SEGMENT_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from beanstalk_twisted.binlog.log import Batch, Log, Opening, Position, RehomedFrame
from beanstalk_twisted.binlog.records import (
    CleanStop,
    Counters,
    Data,
    Kind,
    Pause,
    Record,
    TubeDef,
)
from tests.binlog import independent_reader
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    MS,
    SALT,
    T0,
    UUID,
    WRITER,
    Scribe,
    delete,
    image,
    put,
)

NOW = T0 + 5 * MS


def new_log(
    position: Position = FIRST, segment_bytes: int = 1 << 20, opening: Sequence[Record] = (),
    next_job_id: int = 1,
) -> Log:  # fmt: skip
    """
    A log with a fixed salt.
    """
    return Log(
        position, segment_bytes, lambda seq, now: Opening(next_job_id, opening), lambda: SALT,
        WRITER,
    )  # fmt: skip


def taken(log: Log, now_ns: int = NOW) -> Batch:
    """
    The batch that is there.
    """
    batch = log.take(now_ns)
    assert batch is not None
    return batch


def header_of(batch: Batch) -> SegmentHeader:
    """
    The header that a batch begins with.
    """
    found = decode_segment_header(batch.chunks[0])
    assert isinstance(found, SegmentHeader)
    return found


def frame_of(chunk: bytes) -> independent_reader.Fields:
    """
    A frame as the other reader sees it.
    """
    frame = independent_reader.read_frame(chunk, 0, SALT)
    assert frame is not None
    return frame


def test_records_are_numbered_without_gaps_from_1() -> None:
    log = new_log()
    assert [log.append(put(n)) for n in (1, 2, 3)] == [1, 2, 3]
    taken(log)
    assert log.append(delete(1)) == 4
    assert log.last_lsn == 4
    assert log.records_written == 4


def test_the_first_batch_begins_a_segment_even_without_records() -> None:
    log = new_log()
    assert log.has_open
    batch = taken(log)
    assert (batch.seq, batch.offset, batch.begins, batch.seals) == (1, 0, True, False)
    assert batch.chunks == (header_of(batch).encode(),)
    assert batch.end == SEGMENT_HEADER_BYTES


def test_a_header_says_where_the_log_goes_on() -> None:
    position = Position(7, 31, 4711, 3, UUID, 1, 4, T0)
    found = header_of(taken(new_log(position, next_job_id=99)))
    assert found == SegmentHeader(7, 31, T0, 4711, 3, 99, UUID, SALT, 1, 4, WRITER)


def test_batches_follow_each_other_without_a_gap() -> None:
    log = new_log()
    batches = []
    for n in range(1, 6):
        log.append(put(n, b"x" * n))
        batches.append(taken(log))
    assert [batch.begins for batch in batches] == [True] + [False] * 4
    for before, after in pairwise(batches):
        assert after.offset == before.end
        assert after.last_lsn == before.last_lsn + 1


def test_there_is_no_batch_without_records() -> None:
    log = new_log()
    taken(log)
    assert not log.has_open
    assert log.take(NOW) is None


@pytest.mark.parametrize(
    ("records", "commits"),
    [
        ([put()], True),
        ([image(Kind.RESERVE)], False),
        ([image(Kind.RESERVE), delete()], True),
        ([DEFAULT_TUBE], False),
    ],
)
def test_a_batch_says_whether_replies_wait_for_it(records: list[Record], commits: bool) -> None:
    log = new_log()
    taken(log)
    for record in records:
        log.append(record)
    assert taken(log).commits is commits
    log.append(DEFAULT_TUBE)
    assert not taken(log).commits, "the next batch is another matter"


def test_each_frame_carries_what_is_durable_when_it_is_built() -> None:
    log = new_log()
    marks = []
    for lsn in range(1, 5):
        log.append(put(lsn))
        marks.append(frame_of(taken(log).chunks[-1])["durable_lsn"])
        log.durable(lsn)
    assert marks == [0, 1, 2, 3]
    log.durable(2)
    assert log.durable_lsn == 4, "it never goes back"


def test_frames_never_go_back_in_time() -> None:
    log = new_log()
    times = []
    for n, now_ns in enumerate([NOW, NOW - MS, NOW + MS, T0 - MS], start=1):
        log.append(put(n))
        times.append(frame_of(taken(log, now_ns).chunks[-1])["time_ns"])
    assert times == [NOW, NOW, NOW + MS, NOW + MS]


def test_a_sync_mark_is_an_empty_frame_with_the_newest_watermark() -> None:
    log = new_log()
    log.append(put())
    written = taken(log)
    log.durable(1)
    mark = log.mark()
    frame = frame_of(mark.chunks[0])
    assert (frame["n_rec"], frame["base_lsn"], frame["durable_lsn"]) == (0, 2, 1)
    assert (mark.offset, mark.last_lsn, mark.commits, mark.seals) == (written.end, 1, False, False)
    log.append(put(2))
    assert taken(log).offset == mark.end
    assert frame["frame_len"] == 64


def test_open_bytes_are_those_of_the_next_batch() -> None:
    log = new_log()
    taken(log)
    assert log.open_bytes == 0
    log.append(put(body=b"x" * 20))
    assert log.open_bytes == 100
    taken(log)
    assert log.open_bytes == 0


# Segments.


def test_the_batch_that_fills_a_segment_seals_it() -> None:
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES)
    room = MIN_SEGMENT_BYTES - SEGMENT_HEADER_BYTES - 64 - 80
    log.append(put(1, b"x" * (room - 8)))
    almost = taken(log)
    assert (almost.end, almost.seals) == (MIN_SEGMENT_BYTES - 8, False)
    log.append(put(2, b""))
    full = taken(log)
    assert full.seals
    assert log.segment == 2
    assert full.last_lsn == 3, "the seal has an LSN of its own"


def test_a_segment_exactly_full_is_sealed() -> None:
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES)
    log.append(put(1, b"x" * (MIN_SEGMENT_BYTES - SEGMENT_HEADER_BYTES - 64 - 80)))
    assert taken(log).seals


def test_the_next_segment_opens_with_the_state_of_that_moment() -> None:
    counters = Counters(1, T0, {"cmd-delete": 1})
    opening: list[Record] = [TubeDef(1, b"default"), Pause(1, 5, NOW, T0), counters]
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES, opening=opening, next_job_id=9)
    log.append(put(1, b"x" * 9000))
    first = taken(log)
    assert log.has_open, "it is to be written even if nothing else happens"
    second = taken(log)
    assert (second.seq, second.offset, second.begins) == (2, 0, True)
    found = header_of(second)
    sealed_at = first.end - 40
    assert (found.seq, found.first_lsn, found.prev_end) == (2, first.last_lsn + 1, sealed_at)
    assert (found.flags, found.incarnation, found.next_job_id) == (0, 1, 9)
    frame = frame_of(second.chunks[1])
    assert [r["type"] for r in frame["records"]] == [32, 33, 40]
    assert log.last_lsn == first.last_lsn + 3


def test_a_segment_takes_as_much_as_it_opens_with() -> None:
    opening = [TubeDef(n, b"t" * 200) for n in range(1, 100)]
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES, opening=opening)
    start = taken(log)
    assert start.end > 2 * MIN_SEGMENT_BYTES
    assert not start.seals
    again = start.end - 4096 - 64 * len(start.chunks)
    log.append(put(1, b"x" * (again - 64 - 80 - 200)))
    assert not taken(log).seals
    log.append(put(2, b"x" * 200))
    assert taken(log).seals


def test_a_batch_larger_than_a_segment_overshoots_it_once() -> None:
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES)
    for n in range(1, 20):
        log.append(put(n, b"x" * 1000))
    batch = taken(log)
    assert batch.seals
    assert batch.last_lsn == 20
    assert taken(log).seq == 2


# A segment that ends though it is not full.


def test_a_segment_ends_on_request_with_what_was_appended() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.log.append(put(2))
    scribe.log.rotate()
    scribe.write(put(3))
    scribe.write(put(4))
    segments = independent_reader.read_log(scribe.files())["segments"].values()
    types = [[r["type"] for f in s["frames"] for r in f["records"]] for s in segments]
    assert types == [[32, 1, 1, 1, 49], [32, 1]]


def test_a_segment_ends_on_request_without_another_record() -> None:
    log = new_log()
    log.append(put(1))
    taken(log)
    assert not log.has_open
    log.rotate()
    assert log.has_open
    batch = taken(log)
    assert (batch.seals, batch.begins, batch.commits, batch.last_lsn) == (True, False, False, 2)
    assert taken(log).begins
    assert log.take(NOW) is None, "one segment for each request"


def test_a_request_that_comes_twice_ends_one_segment() -> None:
    log = new_log()
    log.append(put(1))
    taken(log)
    log.rotate()
    log.rotate()
    assert [taken(log).seals, taken(log).seals] == [True, False]
    assert log.take(NOW) is None


def test_a_segment_that_fills_up_after_a_request_ends_once() -> None:
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES)
    log.rotate()
    log.append(put(1, b"x" * 9000))
    assert [taken(log).seals, taken(log).seals] == [True, False]


def test_an_ordered_stop_after_a_request_seals_once() -> None:
    log = new_log()
    log.append(put(1))
    taken(log)
    log.rotate()
    batch = log.finish(NOW)
    types = [r["type"] for chunk in batch.chunks[:-1] for r in frame_of(chunk)["records"]]
    assert types == [CleanStop.kind, 49]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (put(1), True),
        (delete(1), True),
        (image(Kind.RESERVE), True),
        (image(Kind.TTR_EXPIRED), True),
        (image(Kind.COPY, body=b"x"), False),
        (TubeDef(2, b"mail"), False),
        (Pause(1, 5, NOW, T0), False),
        (Counters(0, T0, {"cmd-put": 1}), False),
        (CleanStop(T0), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_segment_knows_whether_a_job_was_changed_in_it(record: Record, expected: bool) -> None:
    log = new_log(opening=[DEFAULT_TUBE])
    assert not log.has_changes
    log.append(record)
    taken(log)
    assert log.has_changes is expected
    log.rotate()
    taken(log)
    assert not log.has_changes, "it is another segment"


def test_re_homed_changes_count_too() -> None:
    log = new_log(rehomed_position())
    taken(log)
    assert log.has_changes


# Seals.


def sealed_segment(scribe: Scribe, seq: int = 1) -> independent_reader.Fields:
    """
    A segment as the other reader sees it.
    """
    segment = independent_reader.read_segment(scribe.files()[f"{seq:020d}.tql"])
    assert segment is not None
    assert segment["trailer"] is not None
    return segment


def check_seal(segment: independent_reader.Fields) -> independent_reader.Fields:
    """
    All that a seal says of its segment is so.
    """
    records = [r for frame in segment["frames"] for r in frame["records"]]
    index = independent_reader.read_index(records[-1]["data"])
    before, images = records[:-1], [r for r in records[:-1] if r["type"] < 17]
    trailer = segment["trailer"]
    assert index["length"] == len(records[-1]["data"]), "there is nothing behind it"
    assert index["n_rec"] == trailer["n_rec"] == len(before)
    assert index["types"] == {
        kind: sum(r["type"] == kind for r in before) for kind in {r["type"] for r in before}
    }
    ids, times = [r["job_id"] for r in images], [r["ts_ns"] for r in images]
    assert index["job_ids"] == [min(ids, default=0), max(ids, default=0)]
    assert index["times"] == [min(times, default=0), max(times, default=0)]
    assert index["tubes"] == {r["tube_id"]: r["data"].decode() for r in before if r["type"] == 32}
    assert (trailer["seal_at"], trailer["seal_lsn"]) == (
        segment["frames"][-1]["offset"], records[-1]["lsn"],
    )  # fmt: skip
    assert trailer["n_index"] == len(index["frames"])
    known = {f["offset"]: [f["base_lsn"], f["time_ns"], f["offset"]] for f in segment["frames"]}
    assert all(known[entry[2]] == entry for entry in index["frames"])
    return index


def test_a_seal_says_what_its_segment_holds() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(3, ts_ns=T0 + 3), TubeDef(2, b"mail", T0))
    scribe.write(image(Kind.RESERVE, 3, ts_ns=T0 + 9), put(5, ts_ns=T0 - 4, tube_id=2))
    scribe.write(put(4, b"x" * 5000))
    index = check_seal(sealed_segment(scribe))
    assert index["job_ids"] == [3, 5]
    assert index["times"] == [T0 - 4, T0 + 9]
    assert index["tubes"] == {1: "default", 2: "mail"}
    assert index["types"] == {1: 3, 2: 1, 32: 2}


def test_a_seal_of_a_segment_without_jobs_says_so() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    scribe.finish()
    index = check_seal(sealed_segment(scribe))
    assert (index["job_ids"], index["times"]) == ([0, 0], [0, 0])


def test_the_index_is_sparse() -> None:
    scribe = Scribe(segment_bytes=1 << 20)
    for n in range(1, 40):
        scribe.write(put(n, b"x" * 10_000))
    scribe.finish()
    segment = sealed_segment(scribe)
    offsets = [entry[2] for entry in check_seal(segment)["frames"]]
    assert offsets[0] == SEGMENT_HEADER_BYTES
    assert 5 <= len(offsets) <= 7
    for before, after in pairwise(offsets):
        behind = [f["offset"] for f in segment["frames"] if before < f["offset"] < after]
        assert after - before >= INDEX_STRIDE_BYTES
        assert all(offset - before < INDEX_STRIDE_BYTES for offset in behind)


def test_a_seal_says_what_its_segment_holds_of_re_homed_records_too() -> None:
    scribe = Scribe(position=rehomed_position(), opening=[DEFAULT_TUBE])
    scribe.write()
    scribe.finish()
    index = check_seal(sealed_segment(scribe, seq=2))
    assert index["job_ids"] == [8, 9]


# The end.


def test_an_ordered_stop_ends_the_log_with_a_seal() -> None:
    scribe = Scribe()
    scribe.write(put())
    scribe.finish()
    segment = sealed_segment(scribe)
    assert [r["type"] for f in segment["frames"] for r in f["records"]] == [1, 52, 49]
    assert check_seal(segment)["n_rec"] == 2


def test_an_ordered_stop_of_a_segment_that_is_just_full_adds_no_second_seal() -> None:
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES)
    log.append(put(1, b"x" * (MIN_SEGMENT_BYTES - SEGMENT_HEADER_BYTES - 2 * 64 - 2 * 80)))
    assert not taken(log).seals
    batch = log.finish(NOW)
    assert batch.seals
    types = [r["type"] for chunk in batch.chunks[:-1] for r in frame_of(chunk)["records"]]
    assert types == [CleanStop.kind, 49]
    assert len(batch.chunks[-1]) == 40


def test_an_ordered_stop_right_after_a_rotation_ends_the_new_segment() -> None:
    scribe = Scribe()
    scribe.write(put(1, b"x" * 9000))
    scribe.finish()
    assert scribe.directory.names() == [f"{n:020d}.tql" for n in (1, 2)]
    records = independent_reader.read_log(scribe.files())["records"]
    assert [r["type"] for r in records] == [1, 49, 52, 49]


# Re-homing.


def rehomed_position() -> Position:
    """
    A log that goes on behind LSN 5, with two frames that were not known durable.
    """
    array = [put(8).encode(_data(0)) + put(9).encode(_data(5)), delete(8).encode(_data(0))]
    lost = [
        RehomedFrame(array[0], b"helloworld", 2, 80, 6, 5, T0 + MS),
        RehomedFrame(array[1][:64] + bytes(12) + array[1][76:], b"", 1, 80, 8, 5, T0 + 2 * MS),
    ]
    return Position(2, 6, 5000, 1, UUID, 4, 2, T0 + 2 * MS, lost)


def _data(offset: int) -> Data:
    return Data(offset, 5, zlib.crc32(b"helloworld"[offset : offset + 5]))


def test_re_homed_frames_keep_their_numbers_times_and_watermarks() -> None:
    log = new_log(rehomed_position(), opening=[DEFAULT_TUBE])
    assert (log.durable_lsn, log.last_lsn) == (5, 9), "the opening follows them"
    batch = taken(log)
    found = header_of(batch)
    assert (found.first_lsn, found.prev_end, found.flags) == (6, 5000, 4)
    first, second, opening = (frame_of(chunk) for chunk in batch.chunks[1:])
    assert [r["lsn"] for r in first["records"]] == [6, 7]
    assert [r["data"] for r in first["records"]] == [b"hello", b"world"]
    assert (first["time_ns"], first["durable_lsn"]) == (T0 + MS, 5)
    assert [r["lsn"] for r in second["records"]] == [8]
    assert [(r["lsn"], r["type"]) for r in opening["records"]] == [(9, 32)]
