"""The open log: numbers, batches, segments, seals; no I/O."""

from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog.batches import Batch, Opening, Position
from beanstalk_twisted.binlog.log import MAX_WAITING_RECORDS, Log
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import CleanStop, Counters, Pause, Record, TubeDef
from beanstalk_twisted.binlog.segments.format import (
    FRAME_TARGET_BYTES,
    INDEX_STRIDE_BYTES,
    MAX_FRAME_BYTES,
    MIN_SEGMENT_BYTES,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.binlog.space_budget import (
    FRAME_BYTES,
    MAX_RUN_RECORDS,
    PreallocatedSegment,
    new_job_bytes,
    whole_bytes,
)
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    MS,
    SALT,
    T0,
    UUID,
    WRITER,
    Files,
    Scribe,
    delete,
    image,
    put,
    quiet,
    run_of,
)
from tests.sampling import share

NOW = T0 + 5 * MS


def new_log(
    position: Position = FIRST, segment_bytes: int = 1 << 20, opening: Sequence[Record] = (),
    next_job_id: int = 1,
) -> Log:  # fmt: skip
    return Log(
        position, segment_bytes, lambda seq, now: Opening(next_job_id, opening), lambda: SALT,
        WRITER,
    )  # fmt: skip


def taken(log: Log, now_ns: int = NOW) -> Batch:
    batch = log.take(now_ns)
    assert batch is not None
    return batch


def begun_log(segment_bytes: int = 1 << 20, opening: Sequence[Record] = ()) -> Log:
    """A log whose first segment is begun."""
    log = new_log(segment_bytes=segment_bytes, opening=opening)
    taken(log)
    return log


def header_of(batch: Batch) -> SegmentHeader:
    found = decode_segment_header(batch.chunks[0])
    assert isinstance(found, SegmentHeader)
    return found


def frame_of(chunk: bytes) -> independent_reader.Fields:
    frame = independent_reader.read_frame(chunk, 0, SALT)
    assert frame is not None
    return frame


def test_a_header_says_where_the_log_goes_on() -> None:
    position = Position(7, 31, 4711, 3, UUID, 1, 4, T0)
    found = header_of(taken(new_log(position, next_job_id=99)))
    assert found == SegmentHeader(7, 31, T0, 4711, 3, 99, UUID, SALT, 1, 4, WRITER)


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
    log = begun_log()
    for record in records:
        log.append(record)
    assert taken(log).commits is commits
    log.append(DEFAULT_TUBE)
    assert not taken(log).commits, "the next batch is another matter"


def test_each_frame_carries_what_is_durable_and_a_time_that_never_goes_back() -> None:
    log = new_log()
    marks = []
    for lsn, now_ns in enumerate([NOW, NOW - MS, NOW + MS, T0 - MS], start=1):
        log.append(put(lsn))
        frame = frame_of(taken(log, now_ns).chunks[-1])
        marks.append((frame["durable_lsn"], frame["time_ns"]))
        log.durable(lsn)
    assert marks == [(0, NOW), (1, NOW), (2, NOW + MS), (3, NOW + MS)]
    log.durable(2)
    assert log.durable_lsn == 4, "it never goes back"


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


@pytest.mark.parametrize("kind", [Kind.RESERVE, Kind.KICK])
def test_a_batch_says_whether_replies_wait_for_a_run(kind: Kind) -> None:
    log = begun_log()
    log.append_run(lambda: run_of([image(kind), image(kind)]))
    assert taken(log).commits is (kind is Kind.KICK)


def test_a_run_counts_as_its_records_wherever_they_are_counted() -> None:
    """Before it and behind it are records, and the segment ends with all of them in one batch."""
    plain, quick = new_log(segment_bytes=1 << 20), new_log(segment_bytes=1 << 20)
    records = [delete(job_id, ts_ns=T0 + job_id) for job_id in (9, 3, 5)]
    run = [record._replace(ts_ns=T0 + 2 * MS) for record in records]
    for log in (plain, quick):
        taken(log)
        log.append(put(7))
    for record in run:
        plain.append(record)
    quick.append_run(lambda: run_of(run))
    for log in (plain, quick):
        assert log.append(put(8)) == log.last_lsn
        log.rotate()
    sealed = taken(quick)
    assert (sealed.seals, sealed) == (True, taken(plain))
    assert taken(quick) == taken(plain), "the header of the next segment"
    assert quick.open_bytes == plain.open_bytes == 0
    assert quick.records_written == plain.records_written
    assert quick.budget.rest == plain.budget.rest


def test_a_record_pays_for_the_frame_that_it_begins() -> None:
    log = begun_log(segment_bytes=4 << 20)
    assert log.budget.run_records == MAX_RUN_RECORDS
    body = bytes(FRAME_TARGET_BYTES - MAX_RUN_RECORDS * RECORD_BYTES - 2 * RECORD_BYTES)
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: log.append_run(lambda: run_of([delete(1)] * MAX_RUN_RECORDS)), FRAME_BYTES),
        (lambda: log.append(put(2, body)), 0),
        (lambda: log.append_job(*delete(2)[:16]), 0),
        (lambda: log.append_job(*delete(2)[:16]), FRAME_BYTES),
        (lambda: log.append_job(*put(3, bytes(FRAME_TARGET_BYTES))[:17]), FRAME_BYTES),
        (lambda: log.append_whole([delete(3)] * 2), FRAME_BYTES),
    ]
    for step, frame_bytes in steps:
        rest, open_bytes = log.budget.rest, log.open_bytes
        step()
        assert rest - log.budget.rest == log.open_bytes - open_bytes + frame_bytes
    batch = taken(log)
    assert len(batch.chunks) == 4
    assert log.budget.rest >= rest - 200


@pytest.mark.parametrize("image", [put(1, b"body"), put(1, b""), delete(1), image(Kind.RELEASE)])
def test_a_job_is_appended_as_its_image_is(image: JobImage) -> None:
    saturated = image._replace(kicks=(1 << 32) + 5)
    logs = begun_log(), begun_log()
    assert logs[0].append(image) == logs[1].append_job(*image[:17])
    assert logs[0].append(saturated) == logs[1].append_job(*saturated[:17])
    assert logs[0].budget.rest == logs[1].budget.rest
    assert taken(logs[0]) == taken(logs[1])


def test_runs_fill_a_large_segment_but_do_not_outgrow_it() -> None:
    appending = Appending(3 << 20)
    for most in (1, 9_000, *[1 << 30] * 20):
        appending.delete_many(most)
        promised = appending.log.budget.rest
        appending.take_all()
        assert appending.log.budget.rest >= promised
    assert appending.log.budget.rest < RECORD_BYTES + FRAME_BYTES
    appending.finish()
    assert len(appending.files[segment_name(1)]) > (3 << 20) * 0.95


def test_the_largest_batch_of_a_client_fits_into_a_frame() -> None:
    log = begun_log(segment_bytes=MIN_SEGMENT_BYTES)
    size, more = divmod(MAX_BATCH_BYTES, MAX_BATCH_JOBS)
    jobs = [put(at, bytes(size + more * (at == 1))) for at in range(1, MAX_BATCH_JOBS + 1)]
    log.make_room(whole_bytes(len(jobs), MAX_BATCH_BYTES), NOW)
    log.append(TubeDef(1, b"t" * 200, NOW))
    log.append_whole(jobs)
    taken(log)
    large = taken(log)
    assert large.file is not None and large.end <= large.file.size
    frame = frame_of(large.chunks[-1])
    assert frame["n_rec"] == MAX_BATCH_JOBS
    # What a job may come to carry beside its body has room there too.
    assert frame["frame_len"] + 900 * MAX_BATCH_JOBS <= MAX_FRAME_BYTES


def test_a_log_is_behind_while_more_than_the_limit_waits_for_the_disk() -> None:
    log = begun_log(segment_bytes=1 << 16)
    before = log.last_lsn
    while log.last_lsn - before < MAX_WAITING_RECORDS:
        log.append(delete(1))
        assert not log.is_behind
    log.append(delete(1))
    assert log.is_behind
    while log.has_open:
        taken(log)
    assert not log.is_behind


# Segments.


def filling(log: Log, job_id: int, left: int = 0) -> Record:
    """A record that leaves so many bytes of the segment free."""
    return put(job_id, b"x" * (log.budget.rest - RECORD_BYTES - FRAME_BYTES - left))


def test_a_record_that_just_fits_seals_nothing_and_the_next_one_does() -> None:
    log = begun_log(segment_bytes=MIN_SEGMENT_BYTES)
    log.append(filling(log, 1))
    assert (log.segment, log.budget.rest) == (1, 0)
    assert not taken(log).seals
    assert not log.has_open
    log.append(delete(1))
    seal = taken(log)
    assert (seal.seq, seal.seals, seal.commits, len(seal.chunks)) == (1, True, False, 2)
    assert taken(log).commits


def test_a_record_one_byte_too_large_seals_the_segment_and_begins_the_next() -> None:
    log = begun_log(segment_bytes=MIN_SEGMENT_BYTES)
    log.append(put(1))
    log.append(filling(log, 2, left=-FRAME_BYTES - 1))
    assert log.segment == 2
    first, second = taken(log), taken(log)
    assert (first.seq, first.seals, first.last_lsn) == (1, True, 2), "the seal has an LSN"
    assert (second.seq, second.begins, second.seals, second.last_lsn) == (2, True, False, 3)
    assert header_of(second).first_lsn == 3
    assert log.take(NOW) is None


def test_room_for_two_records_is_made_in_one_segment() -> None:
    log = begun_log(segment_bytes=MIN_SEGMENT_BYTES)
    left = new_job_bytes(5)
    log.append(filling(log, 1, left))
    assert log.budget.rest == left
    log.make_room(5, NOW)
    assert log.segment == 1
    log.make_room(6, NOW)
    assert log.segment == 2
    log.make_room(6, NOW)
    assert log.segment == 2, "an empty segment is not left for another"


def test_the_next_segment_opens_with_the_state_of_that_moment() -> None:
    counters = Counters(1, T0, {"cmd-delete": 1})
    opening: list[Record] = [TubeDef(1, b"default"), Pause(1, 5, NOW, T0), counters]
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES, opening=opening, next_job_id=9)
    taken(log)
    log.append(put(1))
    opening.append(TubeDef(2, b"named since"))
    log.append(put(2, b"x" * 9000))
    opening.clear()
    first, second = taken(log), taken(log)
    assert (second.seq, second.offset, second.begins) == (2, 0, True)
    found = header_of(second)
    sealed_at = first.end - 40
    assert (found.seq, found.first_lsn, found.prev_end) == (2, first.last_lsn + 1, sealed_at)
    assert (found.flags, found.incarnation, found.next_job_id) == (0, 1, 9)
    frame = frame_of(second.chunks[1])
    assert [r["type"] for r in frame["records"]] == [32, 33, 40, 32, 1]
    assert log.last_lsn == first.last_lsn + 5


@pytest.mark.parametrize("tubes", [1, 13, 14, 100])
def test_as_much_is_free_as_a_segment_opens_with_and_half_of_its_size(tubes: int) -> None:
    opening = [TubeDef(n, b"t" * 200) for n in range(tubes)]
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES, opening=opening)
    head = tubes * (RECORD_BYTES + 200)
    least = max(head, MIN_SEGMENT_BYTES // 2)
    assert log.budget.rest >= least
    if log.budget.usual_bytes > MIN_SEGMENT_BYTES:
        assert log.budget.rest == least


@pytest.mark.parametrize("body_bytes", [MIN_SEGMENT_BYTES, 100_000, (1 << 20) + 1, 3 << 20])
def test_a_record_larger_than_a_segment_gets_a_file_of_its_own_size(body_bytes: int) -> None:
    log = begun_log(segment_bytes=MIN_SEGMENT_BYTES, opening=[DEFAULT_TUBE])
    log.append(put(1, b"small"))
    log.append(put(2, b"x" * body_bytes))
    assert taken(log).seals
    large = taken(log)
    assert large.file is not None
    assert body_bytes < large.end <= large.file.size < body_bytes + MIN_SEGMENT_BYTES
    log.append(put(3, b"x" * 1000))
    sealed, after = taken(log), taken(log)
    assert sealed.seals and sealed.end <= large.file.size
    assert after.file is not None and after.file.size < 2 * MIN_SEGMENT_BYTES, "as usual again"


def test_a_spare_that_is_ready_is_taken_before_one_is_made() -> None:
    log = begun_log(segment_bytes=MIN_SEGMENT_BYTES)
    small, large = (
        PreallocatedSegment(7, MIN_SEGMENT_BYTES, True),
        PreallocatedSegment(8, 20_000, True),
    )
    log.budget.add(small)
    log.budget.add(large)
    log.append(put(1, b"x" * 14_000))
    taken(log)
    assert taken(log).file == large, "the other one is too small"
    log.append(put(3, b"x" * 1500))
    taken(log)
    assert taken(log).file == small


def test_a_first_segment_can_be_shrunk_as_long_as_a_job_still_fits() -> None:
    log = new_log(segment_bytes=1 << 16)
    batch = taken(log)
    sizes = []
    while (smaller := log.shrink(batch)) is not None:
        batch = smaller
        assert batch.file is not None
        assert log.budget.rest >= new_job_bytes(0)
        sizes.append(batch.file.size)
    assert sizes == [1 << 15, 1 << 14, 1 << 13]


@pytest.mark.parametrize("size", [524_208, 600_000, 1_040_000, 1 << 20, 1_600_000, 3 << 20])
@pytest.mark.parametrize("more", [0, 1, 45, 91, 92])
def test_a_job_and_its_tube_are_in_one_segment_however_scarce_its_room(
    size: int, more: int
) -> None:
    appending = Appending(8 << 20)
    appending.fill_up_to(new_job_bytes(size) + more)
    appending.put(size, tube_id=1, name_bytes=200)


class Appending:
    """Any use of a log, whose batches are written into a memory of exactly the space each was
    given.
    """

    def __init__(self, segment_bytes: int) -> None:
        self.tubes: dict[int, bytes] = {}
        self.wholes: list[tuple[int, int]] = []
        self.job_id = self.marks = self.last_restart = 0
        self.salts = count(1)
        self.segment_bytes = segment_bytes
        self.log = self._log(FIRST)
        self.files: Files = {}
        self.now_ns = T0
        self.unsafe: list[Batch] = []
        self.take_all()

    def _log(self, position: Position) -> Log:
        return Log(position, self.segment_bytes, self._open, lambda: next(self.salts), WRITER)

    def _open(self, seq: int, now_ns: int) -> Opening:
        tubes = [TubeDef(number, name) for number, name in self.tubes.items()]
        return Opening(self.job_id + 1, [*tubes, Counters(0, now_ns, {"cmd-put": self.job_id})])

    def put(self, size: int, tube_id: int, name_bytes: int) -> None:
        """As the queue does: room for both, then the tube if it is new, then the job."""
        self.log.make_room(size, self.now_ns)
        segment = self.log.segment
        if tube_id not in self.tubes:
            self.tubes[tube_id] = b"t" * name_bytes
            self.log.append(TubeDef(tube_id, self.tubes[tube_id]))
        self.job_id += 1
        self.log.append(put(self.job_id, bytes(size), tube_id=tube_id))
        assert self.log.segment == segment, "both are in one segment"

    def fill(self) -> None:
        left = self.log.budget.rest - RECORD_BYTES - FRAME_BYTES
        if left >= 0:
            segment = self.log.segment
            self.log.append(image(Kind.COPY, 1, body=bytes(left), tube_id=0))
            assert (self.log.segment, self.log.budget.rest >= 0) == (segment, True)

    def fill_up_to(self, rest: int) -> None:
        """A record that leaves so many bytes, and a frame that is as good as full."""
        left = self.log.budget.rest - rest - RECORD_BYTES - FRAME_BYTES
        self.log.append(image(Kind.COPY, 1, body=bytes(left), tube_id=0))
        assert self.log.budget.rest == rest

    def delete(self) -> None:
        self.log.append(image(Kind.DELETE, 1, state=State.GONE, tube_id=0))

    def delete_many(self, count: int) -> None:
        segment, lsn = self.log.segment, self.log.last_lsn
        count = min(count, self.log.budget.run_records)
        if count:
            record = image(Kind.DELETE, 1, state=State.GONE, tube_id=0)
            assert self.log.append_run(lambda: run_of([record] * count)) == lsn + 1
            assert (self.log.segment, self.log.last_lsn) == (segment, lsn + count)
            assert self.log.budget.rest >= 0

    def put_whole(self, sizes: list[int], tube_id: int, name_bytes: int) -> None:
        """As the queue puts a batch: room for all, then the tube if it is new, then all jobs."""
        self.log.make_room(whole_bytes(len(sizes), sum(sizes)), self.now_ns)
        segment = self.log.segment
        if tube_id not in self.tubes:
            self.tubes[tube_id] = b"t" * name_bytes
            self.log.append(TubeDef(tube_id, self.tubes[tube_id]))
        first = self.job_id + 1
        self.job_id += len(sizes)
        jobs = [put(first + at, bytes(size), tube_id=tube_id) for at, size in enumerate(sizes)]
        first_lsn = self.log.append_whole(jobs)
        self.wholes.append((first_lsn, self.log.last_lsn))
        assert self.log.last_lsn == first_lsn + len(sizes) - 1
        assert (self.log.segment, self.log.budget.rest >= 0) == (segment, True)

    def take(self, keeps: bool) -> None:
        self.now_ns += MS
        batch = self.log.take(self.now_ns)
        if batch is not None:
            self.marks = 0
            self._write(batch)
            if keeps or batch.begins or batch.seals:
                self.log.durable(batch.last_lsn)

    def take_all(self) -> None:
        while self.log.has_open:
            self.take(keeps=True)

    def mark(self) -> None:
        """As the committer does: when nothing is open, and not again until something was."""
        if not self.log.has_open and self.marks < 2:
            self.marks += 1
            self._write(self.log.mark())

    def add_spare(self, size: int) -> None:
        self.log.budget.add(PreallocatedSegment(next(self.salts), size, True))

    def restart(self) -> None:
        """The process ends: the next one frames again what is not known durable."""
        directory = MemoryDirectory(self.files)
        found = replay.read(directory, quiet)
        position = found.position(UUID)
        self.log = self._log(position)
        self.last_restart, self.marks = position.seq, 0
        self.wholes = [whole for whole in self.wholes if whole[1] < position.next_lsn]
        self.take(keeps=True)
        found.release(directory)
        self.files |= {name: bytes(directory.read(name)) for name in directory.names()}

    def finish(self) -> None:
        self.take_all()
        self._write(self.log.finish(self.now_ns))

    def _write(self, batch: Batch) -> None:
        name = segment_name(batch.seq)
        if batch.file is not None:
            self.files[name] = bytes(batch.file.size)
        raw, content = self.files[name], b"".join(batch.chunks)
        assert batch.end == batch.offset + len(content) <= len(raw), "it lies within its space"
        self.files[name] = raw[: batch.offset] + content + raw[batch.end :]
        if batch.seals:
            self.files[name] = self.files[name][: batch.end]


APPENDING = st.one_of(
    st.tuples(
        st.just(Appending.put),
        st.one_of(st.integers(0, 400), st.integers(0, 12_000), st.sampled_from([600_000, 1 << 20])),
        st.integers(1, 6), st.sampled_from([1, 200]),
    ),
    st.tuples(
        st.just(Appending.put_whole),
        st.lists(
            st.one_of(st.integers(0, 9_000), st.sampled_from([300_000, 524_000, 1 << 20])),
            min_size=1, max_size=5,
        ),
        st.integers(1, 6), st.sampled_from([1, 200]),
    ),
    st.tuples(st.just(Appending.fill)),
    st.tuples(st.just(Appending.delete)),
    st.tuples(st.just(Appending.delete_many), st.sampled_from([1, 2, 50, 1 << 30])),
    st.tuples(st.just(Appending.take), st.booleans()),
    st.tuples(st.just(Appending.take_all)),
    st.tuples(st.just(Appending.mark)),
    st.tuples(st.just(Appending.add_spare), st.integers(1, 40_000)),
    st.tuples(st.just(Appending.restart)),
)  # fmt: skip


@settings(deadline=None, max_examples=share(150))
@given(
    st.sampled_from([MIN_SEGMENT_BYTES, 10_000, 1 << 15]),
    st.lists(APPENDING, max_size=40),
)
def test_however_a_log_is_used_no_segment_outgrows_its_space(
    segment_bytes: int, uses: list[tuple[Any, ...]]
) -> None:
    appending = Appending(segment_bytes)
    for use, *arguments in uses:
        use(appending, *arguments)
    appending.finish()
    read = independent_reader.read_log(appending.files)
    assert read["verdict"] == "sound"
    lsns = [record["lsn"] for record in read["records"]]
    assert lsns == list(range(1, appending.log.last_lsn + 1))
    for segment in read["segments"].values():
        records = [record for frame in segment["frames"] for record in frame["records"]]
        named = {record["tube_id"] for record in records if record["type"] == TubeDef.kind}
        used = {record["tube_id"] for record in records if record["type"] in set(Kind)}
        assert used - {0} <= named
        assert segment["trailer"] or segment["header"]["seq"] < appending.last_restart
    frames = [frame for each in read["segments"].values() for frame in each["frames"]]
    spans = [(frame["base_lsn"], frame["base_lsn"] + frame["n_rec"]) for frame in frames]
    for first, last in appending.wholes:
        assert any(start <= first and last < end for start, end in spans), "it is in one frame"


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


@pytest.mark.parametrize("requests", [1, 2])
def test_a_segment_ends_once_on_request_without_another_record(requests: int) -> None:
    log = new_log()
    log.append(put(1))
    taken(log)
    assert not log.has_open
    for _ in range(requests):
        log.rotate()
    assert log.has_open
    batch = taken(log)
    assert (batch.seals, batch.begins, batch.commits, batch.last_lsn) == (True, False, False, 2)
    assert taken(log).begins
    assert log.take(NOW) is None


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


# Seals.


def sealed_segment(scribe: Scribe, seq: int = 1) -> independent_reader.Fields:
    segment = independent_reader.segment_of(scribe.files()[f"{seq:020d}.tql"])
    assert segment["trailer"] is not None
    return segment


def check_seal(segment: independent_reader.Fields) -> independent_reader.Fields:
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
    assert index["types"] == {1: 2, 2: 1, 32: 2}, "what had no room there is in the next"


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


# The end.


def test_an_ordered_stop_of_a_segment_that_is_just_full_adds_no_second_seal() -> None:
    log = new_log(segment_bytes=MIN_SEGMENT_BYTES)
    file = taken(log).file
    log.append(filling(log, 1))
    assert not taken(log).seals
    log.mark(), log.mark()
    batch = log.finish(NOW)
    assert batch.seals and file is not None and batch.end <= file.size
    types = [r["type"] for chunk in batch.chunks[:-1] for r in frame_of(chunk)["records"]]
    assert types == [CleanStop.kind, 49]
    assert len(batch.chunks[-1]) == 40
