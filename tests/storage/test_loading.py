"""A start loads most jobs many at once: it gives the same queue as `QueueState.apply` of one job
after the other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog import cold
from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.cold import MAX_COUNT, ColdJobs
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.files import TO_END
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.reading.replay import PART_BYTES, Replay, parts
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import Record, TubeDef
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.segments.frames import Buffer
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.ordered import BLOCK_KEYS, ID_MASK, LEAST
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from tests.binlog.memory import MemoryDirectory
from tests.binlog.reading.test_replay import AFTER
from tests.binlog.scribe import NS, T0, Files, Scribe, delete, image, put, quiet, read_body
from tests.jobs.test_table import FIELDS
from tests.sampling import share

NOW = T0 + 100 * NS
TUBES: list[Record] = [TubeDef(n, b"tube-%d" % n, T0) for n in (1, 2, 3)]


# Two ways to load.


def read(files: Files) -> Replay:
    return replay.read(MemoryDirectory(files), quiet)


def read_or_reject(files: Files) -> Replay:
    """Replay a log; an example that no server would start on counts for nothing."""
    try:
        return read(files)
    except BinlogError:
        reject()


def tubes_of(found: Replay) -> QueueState:
    state = QueueState()
    state.load_tubes(found.small.tubes, 1, 1)
    return state


def one_by_one(found: Replay, with_lsns: bool = False) -> QueueState:
    """What the rule says: an image is applied, then the next."""
    state = tubes_of(found)
    for survivor in found.survivors(NOW):
        lsn = survivor.lsn if with_lsns else 0
        state.apply(survivor.image, lsn, survivor.segment_seq)
    return state


def in_bulk(found: Replay, with_lsns: bool = False) -> QueueState:
    state = tubes_of(found)
    for each in found.survivors_in_bulk(NOW, with_lsns):
        if isinstance(each, ColdJobs):
            state.apply_cold(each)
        else:
            state.apply(each.image, each.lsn if with_lsns else 0, each.segment_seq)
    return state


def fields_of(job: Job | None) -> dict[str, Any]:
    return {name: getattr(job, name) for name in FIELDS}


def drained(state: QueueState, tube: Tube) -> list[int]:
    keys = []
    while (key := tube.ready.first()) is not None:
        keys.append(key)
        state.apply(delete(key & ID_MASK, tube_id=tube.tube_id))
    return keys


def all_of(state: QueueState) -> dict[str, Any]:
    """All that can be seen of a queue; it is empty of ready jobs afterwards."""
    tubes = state.tubes.in_order
    seen: dict[str, Any] = {
        "jobs": {job_id: fields_of(state.jobs.look(job_id)) for job_id in state.jobs},
        "count": len(state.jobs),
        "counts": dict(state.counts),
        "urgent": (state.urgent, [tube.urgent for tube in tubes]),
        "last_buried_ns": state.last_buried_ns,
        "live": [state.live.of(segment) for segment in range(20)],
        "live_bytes": state.live.live_bytes,
        "standing": [(t.ready.count, t.delayed.count, t.buried.count, t.reserved) for t in tubes],
        "buried": [tube.buried.behind(LEAST, tube.buried.count) for tube in tubes],
        "delayed": [tube.delayed.behind(LEAST, tube.delayed.count) for tube in tubes],
    }
    seen["order"] = [drained(state, tube) for tube in tubes]
    seen["afterwards"] = (len(state.jobs), state.urgent, state.live.live_bytes)
    return seen


# Random histories.


@st.composite
def histories(draw: st.DrawFn, delay_s: int = 0) -> list[JobImage]:
    """Records as a server could have written them: most jobs are only put, a few at once, and
    nearly in the order of their ids; some are changed, deleted or stated again.

    :param delay_s: at most so long is a job delayed; by default some are for longer than was asked.
    """
    alive: dict[int, JobImage] = {}
    records: list[JobImage] = []
    next_id = draw(st.sampled_from([1, 60, 1 << 40]))
    for at in range(draw(st.integers(1, 25))):
        step = draw(st.sampled_from(["puts", "puts", "change", "copies"]))
        if step == "puts" or not alive:
            ids = list(range(next_id, next_id + draw(st.integers(1, 70))))
            next_id = ids[-1] + draw(st.sampled_from([1, 1, 2, 200]))
            unusual = draw(
                st.dictionaries(st.sampled_from(ids), unlike(at, delay_s or 5), max_size=3)
            )
            common = {"ts_ns": T0 + at, "delay_s": delay_s}
            usual = {job_id: put(job_id, b"usual", **common) for job_id in ids}
            made = [usual[n]._replace(**unusual.get(n, {})) for n in draw(rarely_turned(ids))]
        elif step == "change":
            made = [draw(changes(alive[draw(st.sampled_from(sorted(alive)))], at))]
        else:
            some = draw(st.lists(st.sampled_from(sorted(alive)), max_size=20, unique=True))
            made = [alive[job_id]._replace(kind=Kind.COPY) for job_id in some]
        for record in made:
            known = alive.pop(record.job_id, record)
            if record.state is not State.GONE:
                alive[record.job_id] = record._replace(body=known.body, ts_ns=known.ts_ns)
        records += made
    return records


def rarely_turned(ids: list[int]) -> st.SearchStrategy[list[int]]:
    """A put whose body is long in coming is overtaken by others."""
    return st.integers(-5, len(ids) - 1).map(lambda n: ids[max(n, 0) :] + ids[: max(n, 0)])


def unlike(at: int, delay_s: int) -> st.SearchStrategy[dict[str, Any]]:
    waits = {"state": State.DELAYED, "deadline_ns": NOW + at, "delay_s": delay_s}
    return st.one_of(
        st.just(waits),
        st.fixed_dictionaries({"tube_id": st.sampled_from([2, 3])}),
        st.fixed_dictionaries({
            "body": st.binary(max_size=40), "ttr_s": st.sampled_from([0, (1 << 32) - 1]),
            "priority": st.integers(0, 30) | st.just((1 << 32) - 1),
        }),
    )  # fmt: skip


def changes(job: JobImage, at: int) -> st.SearchStrategy[JobImage]:
    return st.sampled_from(AFTER[job.state]).map(
        lambda to: job._replace(
            kind=to[0], state=to[1], ts_ns=T0 + 50 + at, body=b"", reserves=job.reserves + 1,
            deadline_ns=0 if to[1] is State.READY else NOW + at,
        )
    )  # fmt: skip


@st.composite
def logs(draw: st.DrawFn, delay_s: int = 0) -> Files:
    """The files of a log with such a history, which may end in the middle.

    :param delay_s: see `histories`.
    """
    scribe = Scribe(opening=TUBES, segment_bytes=draw(st.sampled_from([8192, 1 << 20])))
    scribe.write(*TUBES)
    rest: list[Record] = [*draw(histories(delay_s))]
    while rest:
        size = draw(st.sampled_from([1, 30, 200, 500]))
        scribe.write(*rest[:size], sync=draw(st.booleans()))
        del rest[:size]
        if draw(st.integers(0, 9)) == 0:
            scribe.end_segment()
    files = scribe.files()
    newest = max(name for name in files if name.endswith(".tql"))
    if draw(st.booleans(), label="cut"):
        files[newest] = files[newest][: draw(st.integers(SEGMENT_HEADER_BYTES, len(files[newest])))]
    return files


@settings(max_examples=share(60), deadline=None)
@given(logs(), st.booleans())
def test_jobs_loaded_many_at_once_are_the_same_as_those_applied_one_by_one(
    files: Files, with_lsns: bool
) -> None:
    found = read_or_reject(files)
    assert all_of(in_bulk(found, with_lsns)) == all_of(one_by_one(found, with_lsns))


# What is left to the log.


def leave_all_to_the_log(files: Files, found: Replay) -> None:
    """Load all jobs, let go of their bodies, and look whether each is where its job says."""
    state, reader = tubes_of(found), LogBodyReader(MemoryDirectory(files))
    bodies = {job.image.job_id: job.image.body for job in found.survivors(NOW)}
    for each in found.survivors_in_bulk(NOW, with_lsns=True):
        if isinstance(each, ColdJobs):
            state.apply_cold(each)
            state.bodies.loaded(each.job_ids, 0)
        else:
            state.apply(each.image, each.lsn, each.segment_seq)
            state.bodies.loaded([each.image.job_id], 0)
    assert state.jobs.loaded_bytes == 0
    newest = max(segment.header.seq for segment in found.survey.segments)
    for job_id, body in bodies.items():
        place = state.jobs.place(job_id)
        assert (place is not None) == bool(body)
        # What is not known durable is about to be written to the next segment.
        if place is not None and place.segment <= newest:
            assert read_body(reader, place, job_id) == body


@settings(max_examples=share(40), deadline=None)
@given(logs())
def test_each_body_that_a_start_leaves_to_the_log_is_found_there(files: Files) -> None:
    leave_all_to_the_log(files, read_or_reject(files))


def test_the_same_of_jobs_among_others_that_are_loaded_one_by_one() -> None:
    scribe = Scribe(opening=TUBES, segment_bytes=1 << 20)
    scribe.write(*TUBES)
    scribe.write(*(
        image(Kind.COPY, n, body=b"%d" % n, reserves=MAX_COUNT + (n % 3 == 0)) for n in range(1, 50)
    ))  # fmt: skip
    scribe.finish()
    leave_all_to_the_log(scribe.files(), read(scribe.files()))


# What is taken in bulk.


def bulk_of(write: Callable[[Scribe], None]) -> tuple[list[int], list[int]]:
    """The ids of the jobs that are loaded many at once, and of the others."""
    scribe = Scribe(opening=TUBES, segment_bytes=1 << 20)
    scribe.write(*TUBES)
    write(scribe)
    scribe.finish()
    many: list[int] = []
    others: list[int] = []
    found = read(scribe.files())
    for each in found.survivors_in_bulk(NOW):
        if isinstance(each, ColdJobs):
            many += each.job_ids
        else:
            others.append(each.image.job_id)
    assert all_of(in_bulk(found)) == all_of(one_by_one(found))
    return many, others


def test_jobs_without_tags_are_loaded_many_at_once_whatever_is_between_them() -> None:
    def write(scribe: Scribe) -> None:
        scribe.write(put(1), put(2, state=State.DELAYED, deadline_ns=NOW), put(3, tube_id=2))
        scribe.write(delete(1), put(4), image(Kind.COPY, 5, body=b"copied", reserves=MAX_COUNT + 1))
        scribe.write(image(Kind.RESERVE, 4, state=State.RESERVED, reserves=1))
        scribe.write(image(Kind.COPY, 6, body=b"copied"))

    many, others = bulk_of(write)
    assert (sorted(many), others) == ([2, 3, 4, 6], [5])


@pytest.mark.parametrize("more", [0, 1])
def test_a_run_ends_when_it_is_long_enough(more: int) -> None:
    scribe = Scribe(opening=TUBES, segment_bytes=1 << 20)
    scribe.write(*TUBES)
    for job_id in range(1, cold.RUN_RECORDS + more + 1):
        scribe.write(put(job_id))
    scribe.finish()
    found = read(scribe.files())
    runs = [each.job_ids for each in found.survivors_in_bulk(NOW) if isinstance(each, ColdJobs)]
    assert [len(ids) for ids in runs] == [cold.RUN_RECORDS] + [more] * more
    assert [n for run in reversed(runs) for n in run] == list(range(1, cold.RUN_RECORDS + more + 1))
    assert all_of(in_bulk(found)) == all_of(one_by_one(found))


@settings(max_examples=share(25), deadline=None)
@given(logs(), st.sampled_from([1, 300, 2000]))
def test_parts_are_all_frames_of_a_segment_the_last_one_first(files: Files, most: int) -> None:
    for segment in read_or_reject(files).survey.segments:
        found = list(parts(segment, most))
        assert [n for part in reversed(found) for n in part.offsets] == [*segment.frame_offsets]
        ends = [segment.ending.offset, *(part.start for part in found)]
        assert [part.end for part in found] == ends[: len(found)]
        assert all(part.end - part.start <= most or len(part.offsets) == 1 for part in found)


class Counted(MemoryDirectory):
    """Counts the parts of files that somebody has in memory.

    :ivar most: the most bytes at a time, once segments are no longer read as a whole.
    """

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.parts: list[weakref.ref[Any]] = []
        self.most = 0

    def read(self, name: str, start: int = 0, end: int = TO_END) -> Buffer:
        if end == TO_END:
            return super().read(name)
        self.parts = [each for each in self.parts if each() is not None]
        part = memoryview(super().read(name, start, end))
        self.parts.append(weakref.ref(part))
        self.most = max(self.most, sum(len(known) for each in self.parts if (known := each())))
        return part


def test_a_start_holds_little_of_the_log_at_a_time_however_much_there_is() -> None:
    scribe = Scribe(opening=TUBES, segment_bytes=8 * PART_BYTES)
    scribe.write(*TUBES)
    for job_id in range(1, 201):
        delay = {"state": State.DELAYED, "deadline_ns": NOW} if job_id % 3 == 0 else {}
        scribe.write(put(job_id, bytes(60_000), **delay))
    scribe.finish()
    directory = Counted(scribe.files())
    found = replay.read(directory, quiet)
    directory.most = 0
    state = tubes_of(found)
    for each in found.survivors_in_bulk(NOW):
        if isinstance(each, ColdJobs):
            assert sum(each.sizes) <= PART_BYTES
            state.apply_cold(each)
        else:
            state.apply(each.image, segment=each.segment_seq)
    assert len(state.jobs) == 200
    assert directory.most <= 2 * PART_BYTES
    found.position(bytes(16))
    assert directory.most <= 2 * PART_BYTES


COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("past", [0, 1])
def test_jobs_that_have_too_large_a_count_are_loaded_one_by_one(counter: str, past: int) -> None:
    count = {counter: MAX_COUNT + past}

    def write(scribe: Scribe) -> None:
        scribe.write(*(image(Kind.COPY, n, body=b"x", **count) for n in range(1, 50)))

    ids = list(range(1, 50))
    assert bulk_of(write) == (([], ids) if past else (ids, []))


@pytest.mark.parametrize("state", [State.DELAYED, State.BURIED, State.READY, State.RESERVED])
def test_jobs_that_were_reserved_are_loaded_many_at_once(state: State) -> None:
    deadline_ns = 0 if state is State.READY else NOW + 7

    def write(scribe: Scribe) -> None:
        scribe.write(*(put(n, b"%d" % n) for n in range(1, 50)))
        kind = Kind.RESERVE if state is State.RESERVED else Kind.RELEASE
        kind = Kind.BURY if state is State.BURIED else kind
        newest = {"state": state, "deadline_ns": deadline_ns, "delay_s": 9, "reserves": 1}
        scribe.write(*(image(kind, n, **newest) for n in range(49, 0, -1)))

    many, others = bulk_of(write)
    assert (sorted(many), others) == (list(range(1, 50)), [])


def test_jobs_of_many_priorities_are_loaded_in_their_order() -> None:
    scribe = Scribe(opening=TUBES, segment_bytes=1 << 20)
    scribe.write(*TUBES)
    # The copies come last and have the lowest ids: those before them cannot just be put in front.
    records = [put(n, priority=n * 7919 % 97 % 19) for n in range(1000, 1000 + 6 * BLOCK_KEYS)]
    scribe.write(*records)
    scribe.write(*(image(Kind.COPY, n, priority=n % 30, body=b"x") for n in range(1, 200)))
    found = read(scribe.files())
    assert all_of(in_bulk(found)) == all_of(one_by_one(found))
