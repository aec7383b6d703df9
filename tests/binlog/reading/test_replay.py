"""What a log says of its jobs: newest first gives the same as one record after the other."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Pause, Record, RememberedKey, TubeDef
from beanstalk_twisted.binlog.segments.format import (
    AFTER_UNCLEAN_STOP,
    EXTENSIONS,
    REHOMED,
    segment_name,
)
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    FIRST,
    MS,
    NS,
    T0,
    Scribe,
    delete,
    image,
    put,
    quiet,
)
from tests.sampling import share
from tests.storage.test_opening import Started

ONE, TWO = segment_name(1), segment_name(2)
NOW = T0 + 100 * NS


def read(scribe: Scribe) -> Replay:
    return replay.read(MemoryDirectory(scribe.files()), quiet)


def survivors(*batches: list[Record], now_ns: int = NOW) -> dict[int, JobImage]:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(DEFAULT_TUBE)
    for batch in batches:
        scribe.write(*batch)
    return {each.image.job_id: each.image for each in read(scribe).survivors(now_ns)}


# Random histories.

AFTER: dict[State, list[tuple[Kind, State]]] = {
    State.READY: [(Kind.RESERVE, State.RESERVED), (Kind.DELETE, State.GONE)],
    State.RESERVED: [
        (Kind.RELEASE, State.READY), (Kind.RELEASE, State.DELAYED), (Kind.BURY, State.BURIED),
        (Kind.TOUCH, State.RESERVED), (Kind.DELETE, State.GONE), (Kind.TTR_EXPIRED, State.READY),
        (Kind.DISCONNECT_RELEASE, State.READY),
    ],
    State.DELAYED: [(Kind.KICK, State.READY), (Kind.DELETE, State.GONE),
                    (Kind.RESERVE, State.RESERVED)],
    State.BURIED: [(Kind.KICK, State.READY), (Kind.DELETE, State.GONE)],
}  # fmt: skip
"""What may follow in each state; a COPY of it may follow in any."""


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Records as a server could have written them, drawn from the jobs that live."""
    alive: dict[int, State] = {}
    records: list[Record] = [TubeDef(n, b"tube-%d" % n) for n in (1, 2, 3)]
    for at in range(draw(st.integers(0, 40))):
        job_id = draw(st.sampled_from(sorted(alive) * 3 + [len(records) + 100]))
        if job_id not in alive:
            kind, state = Kind.PUT, draw(st.sampled_from([State.READY, State.DELAYED]))
        elif draw(st.integers(0, 4)) == 0:
            kind, state = Kind.COPY, alive[job_id]
        else:
            kind, state = draw(st.sampled_from(AFTER[alive[job_id]]))
        alive[job_id] = state
        if state is State.GONE:
            del alive[job_id]
        records.append(draw(some_image(kind, job_id, state, at)))
    return records


@st.composite
def some_image(draw: st.DrawFn, kind: Kind, job_id: int, state: State, at: int) -> JobImage:
    small = st.integers(0, 9)
    full = kind in (Kind.PUT, Kind.COPY)
    return image(
        kind, job_id, state=state, priority=draw(small), ts_ns=T0 + at, delay_s=draw(small),
        deadline_ns=0 if state is State.READY else T0 + 1000 * at, ttr_s=draw(small),
        tube_id=draw(st.integers(1, 3)), reserves=draw(small), timeouts=draw(small),
        releases=draw(small), buries=draw(small), kicks=draw(small),
        body=draw(st.binary(max_size=600)) if full else b"",
    )  # fmt: skip


def forward(records: list[Record], now_ns: int) -> dict[int, JobImage]:
    """One record after the other, and then what a start does to each job."""
    jobs: dict[int, JobImage] = {}
    for record in records:
        if isinstance(record, JobImage):
            old = jobs.pop(record.job_id, None)
            if record.state is State.GONE:
                continue
            if record.kind in (Kind.PUT, Kind.COPY) or old is None:
                jobs[record.job_id] = record
            else:
                jobs[record.job_id] = record._replace(body=old.body, ts_ns=old.ts_ns)
    return {job_id: as_loaded(job, now_ns) for job_id, job in jobs.items()}


def as_loaded(job: JobImage, now_ns: int) -> JobImage:
    """Reserved jobs are ready; a delay is no longer than it was asked for."""
    if job.state is State.RESERVED:
        return job._replace(state=State.READY, deadline_ns=0)
    if job.state is State.DELAYED:
        return job._replace(deadline_ns=min(job.deadline_ns, now_ns + job.delay_s * NS))
    return job


def essence(job: JobImage) -> tuple[Any, ...]:
    return tuple(job._replace(kind=Kind.PUT, reason=Reason.NONE, connection=0))


@settings(max_examples=share(200, 8), deadline=None)
@given(histories(), st.data())
def test_replay_is_the_same_as_one_record_after_the_other(
    records: list[Record], data: st.DataObject
) -> None:
    scribe = Scribe(opening=records[:3])
    rest = list(records)
    while rest:
        size = data.draw(st.integers(1, 5), label="records in the batch")
        scribe.write(*rest[:size], sync=data.draw(st.booleans(), label="synced"))
        del rest[:size]
    found = read(scribe)
    now_ns = data.draw(st.sampled_from([T0, T0 + NS, NOW]), label="now")
    jobs = [each.image for each in found.survivors(now_ns)]
    expected = forward(records, now_ns)
    assert [job.job_id for job in jobs] == sorted(expected)
    assert [essence(job) for job in jobs] == [essence(expected[k]) for k in sorted(expected)]


@settings(max_examples=share(50), deadline=None)
@given(histories())
def test_the_other_readers_replay_agrees(records: list[Record]) -> None:
    scribe = Scribe(opening=records[:3])
    for record in records:
        scribe.write(record)
    seen = independent_reader.jobs_of(independent_reader.read_log(scribe.files())["records"])
    for job in (each.image for each in read(scribe).survivors(NOW)):
        theirs = seen.pop(job.job_id)
        assert theirs["body"] == job.body
        assert theirs["born_ns"] == job.ts_ns
        assert [theirs[name] for name in ("priority", "ttr_s", "tube_id", "reserves", "kicks")] == [
            job.priority, job.ttr_s, job.tube_id, job.reserves, job.kicks,
        ]  # fmt: skip
    assert not seen


def test_both_readers_pass_over_states_of_jobs_whose_full_record_is_trimmed() -> None:
    """The segment with the PUT is gone; the COPY comes later, or the job was deleted."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(image(Kind.BURY, 9, state=State.BURIED), image(Kind.KICK, 8))
    scribe.write(image(Kind.COPY, 9, body=b"moved", kicks=1), delete(8))
    scribe.write(image(Kind.KICK, 9, kicks=2))
    theirs = independent_reader.jobs_of(independent_reader.read_log(scribe.files())["records"])
    ours = {each.image.job_id: each.image for each in read(scribe).survivors(NOW)}
    assert list(theirs) == list(ours) == [9]
    assert (theirs[9]["body"], theirs[9]["kicks"]) == (ours[9].body, ours[9].kicks) == (b"moved", 2)


# Single rules.


def test_a_reserved_job_is_ready_again_and_keeps_its_counts() -> None:
    held = image(
        Kind.TOUCH, 1, state=State.RESERVED, deadline_ns=NOW + NS, reserves=3, timeouts=2,
        releases=1, buries=4, kicks=5,
    )  # fmt: skip
    job = survivors([put(1)], [held])[1]
    assert (job.state, job.reason, job.deadline_ns) == (State.READY, Reason.RESTART, 0)
    assert (job.reserves, job.timeouts, job.releases, job.buries, job.kicks) == (3, 2, 1, 4, 5)


def test_a_job_without_its_body_is_damage() -> None:
    with pytest.raises(Damaged, match=r"2 jobs have state but no body in the log \(ids 3, 9\)"):
        survivors([put(1)], [image(Kind.KICK, 9)], [image(Kind.KICK, 3)])


def test_a_job_in_a_tube_without_a_name_is_damage() -> None:
    with pytest.raises(Damaged, match="job 4 is in tube number 8, whose name is not in the log"):
        survivors([put(4, tube_id=8)])


# Time.


def delayed(deadline_ns: int, delay_s: int) -> list[Record]:
    return [put(1, state=State.DELAYED, deadline_ns=deadline_ns, delay_s=delay_s)]


@pytest.mark.parametrize(
    ("now_ns", "due_ns"),
    [
        (T0, T0 + 60 * NS),
        (T0 + 59 * NS, T0 + 60 * NS),
        (T0 + 3600 * NS, T0 + 60 * NS),
        (T0 - 1, T0 - 1 + 60 * NS),
        (T0 - 3600 * NS, T0 - 3540 * NS),
    ],
)
def test_no_delay_is_longer_than_it_was_asked_for(now_ns: int, due_ns: int) -> None:
    assert survivors(delayed(T0 + 60 * NS, 60), now_ns=now_ns)[1].deadline_ns == due_ns


@pytest.mark.parametrize(
    ("now_ns", "until_ns"),
    [
        (T0, T0 + 60 * NS),
        (T0 + 60 * NS - 1, T0 + 60 * NS),
        (T0 + 60 * NS, None),
        (T0 - 3600 * NS, T0 - 3540 * NS),
    ],
)
def test_no_pause_is_longer_than_it_was_asked_for(now_ns: int, until_ns: int | None) -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE, Pause(1, 60, T0 + 60 * NS, T0))
    assert [pause.until_ns for pause, _ in read(scribe).others(now_ns)] == (
        [] if until_ns is None else [until_ns]
    )


@pytest.mark.parametrize(("newest", "until"), [((5, T0 + 5 * NS), [T0 + 5 * NS]), ((0, 0), [])])
def test_the_newest_pause_holds(newest: tuple[int, int], until: list[int]) -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE, Pause(1, 60, T0 + 60 * NS, T0))
    scribe.write(Pause(1, *newest, T0))
    assert [pause.until_ns for pause, _ in read(scribe).others(T0)] == until


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_clock_set_between_two_runs_makes_no_job_wait_longer(jump_s: int) -> None:
    directory = MemoryDirectory()
    first = Started(directory, now_ns=T0)
    session = first.connect()
    first.put(session, delay_s=60)
    first.queue.pause_tube(session, T0, b"default", 60)
    first.commit()
    second = Started(directory.after_kill(), now_ns=T0 + jump_s * NS)
    before_ns = second.clock.now_ns()
    second.now_ns += 60 * NS
    second.queue.tick(second.clock.now_ns())
    assert second.clock.now_ns() - before_ns == 60 * NS
    assert second.jobs()[1][0] is State.READY
    assert second.queue.state.default().pause_until_ns == 0


# Order and numbers.


def test_a_job_buried_after_a_restart_comes_behind_those_buried_before() -> None:
    directory = MemoryDirectory()
    first = Started(directory)
    session = first.connect()
    old, new = first.put(session), first.put(session)
    first.queue.reserve_job(session, first.now_ns + 500 * NS, old)
    first.queue.bury(session, first.now_ns + 500 * NS, old, 1)
    first.commit()
    second = Started(directory.after_kill(), now_ns=T0)
    session = second.connect()
    second.queue.reserve_job(session, second.clock.now_ns(), new)
    second.queue.bury(session, second.clock.now_ns(), new, 1)
    images = {each.image.job_id: each.image for each in _survivors(second)}
    assert images[old].deadline_ns < images[new].deadline_ns


def _survivors(started: Started) -> list[replay.Survivor]:
    started.commit()
    found = replay.read(started.directory.after_kill(), quiet)
    return list(found.survivors(started.clock.now_ns()))


# How the log goes on.


def test_after_an_ordered_stop_nothing_is_re_homed() -> None:
    scribe = Scribe()
    scribe.write(put(1))
    scribe.finish()
    position = read(scribe).position(b"")
    end = independent_reader.segment_of(scribe.files()[ONE])
    assert position == FIRST._replace(
        seq=2, first_lsn=4, prev_end=end["end"], incarnation=2, time_ns=T0 + 2 * MS, rehomed=[],
        ends={1: end["end"]},
    )  # fmt: skip


def test_all_that_is_not_known_durable_is_re_homed_as_it_was() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE)
    scribe.write(put(1, b"one"), put(2, b"two"), sync=False)
    scribe.write(delete(1), sync=False)
    position = read(scribe).position(b"")
    assert position.flags == AFTER_UNCLEAN_STOP | REHOMED
    assert (position.first_lsn, position.next_lsn) == (2, 5)
    assert [(f.base_lsn, f.n_rec, f.heap) for f in position.rehomed] == [
        (2, 2, b"onetwo"), (4, 1, b""),
    ]  # fmt: skip
    assert position.prev_end == 4096 + 64 + 80 + 8, "behind the frame with LSN 1"


def test_remembered_keys_are_read_with_the_segment_that_will_hold_them() -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], features=EXTENSIONS)
    scribe.write(put(1), put(2), delete(1), RememberedKey(1, b"known", 1, T0 + 60 * NS, T0))
    scribe.write(delete(2), RememberedKey(1, b"not known", 2, T0 + 90 * NS, T0), sync=False)
    found = read(scribe)
    assert [(key.key, home) for key, home in found.others(T0)] == [(b"known", 1), (b"not known", 2)]
    position = found.position(b"")
    assert position.incompat == EXTENSIONS, "the frame that moves has some"
    assert [key.key for key, _ in found.others(T0 + 60 * NS)] == [b"not known"]


@pytest.mark.parametrize(("now_ns", "until_ns"), [(T0 + NS, T0 + 60 * NS), (T0 - NS, T0 + 59 * NS)])
def test_no_key_is_remembered_longer_than_was_asked_for(now_ns: int, until_ns: int) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE], features=EXTENSIONS)
    scribe.write(RememberedKey(1, b"k", 1, T0 + 60 * NS, T0))
    assert [key.until_ns for key, _ in read(scribe).others(now_ns)] == [until_ns]


def test_the_segment_of_a_job_is_where_its_body_will_be() -> None:
    scribe = Scribe()
    scribe.write(DEFAULT_TUBE, put(1))
    scribe.write(put(2), sync=False)
    scribe.write(image(Kind.KICK, 1), sync=False)
    segments = {each.image.job_id: each.segment_seq for each in read(scribe).survivors(NOW)}
    assert segments == {1: 1, 2: 2}, "what is not known durable moves into the next segment"
    scribe.write(put(3))
    segments = {each.image.job_id: each.segment_seq for each in read(scribe).survivors(NOW)}
    assert segments == {1: 1, 2: 2, 3: 2}, "a sync that no later frame tells of is not known"
    scribe.mark()
    segments = {each.image.job_id: each.segment_seq for each in read(scribe).survivors(NOW)}
    assert segments == {1: 1, 2: 1, 3: 1}


# Tidying up.


def test_an_orderly_end_is_made_durable_before_it_is_built_on() -> None:
    """Its last sync may never have ended."""
    scribe = Scribe()
    scribe.write(put(1))
    finish = scribe.log.finish(T0)
    # Written, and killed before the sync.
    scribe.writer.write(finish._replace(seals=False), False)
    found = replay.read(scribe.memory, quiet)
    assert found.small.is_clean
    found.tidy(scribe.memory)
    assert replay.read(scribe.memory.after_power_loss(), quiet).small.is_clean
