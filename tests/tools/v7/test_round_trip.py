"""From our log to theirs and back."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog.records.jobs import State
from binlog_tools.logs.stored import StoredJob
from binlog_tools.v7.conversion import Exported, Tally, export_jobs, stored_jobs
from binlog_tools.v7.files import DEFAULT_MAX_BODY_SIZE, MIN_FILE_BYTES, SPOOL
from binlog_tools.v7.records import MAX_BODY_SIZE
from tests.binlog.memory import MemoryDirectory
from tests.sampling import share
from tests.tools.v7.theirs import NS, T0, read

NOW_NS = T0 + 10**6 * NS
U32 = 2**32 - 1


def stored(job_id: int, state: State = State.READY, **changes: object) -> StoredJob:
    deadline_ns = {State.DELAYED: NOW_NS + 5 * NS, State.BURIED: NOW_NS - job_id}.get(state, 0)
    job = StoredJob(job_id, b"default", state, 7, 5, 60, T0, deadline_ns, b"hello")
    return job._replace(**changes)  # type: ignore[arg-type]


def exported(
    jobs: list[StoredJob], file_bytes: int = MIN_FILE_BYTES, next_job_id: int = 0,
    log_ns: int = NOW_NS,
) -> tuple[dict[str, bytes], Tally, Exported]:  # fmt: skip
    directory, tally = MemoryDirectory(), Tally()
    last = max((job.job_id for job in jobs), default=0)
    made = export_jobs(
        jobs, directory, tally, next_job_id=next_job_id or last + 1, log_ns=log_ns,
        wall_ns=NOW_NS, file_bytes=file_bytes,
    )  # fmt: skip
    safe = directory.after_power_loss()
    assert safe.names() == directory.names(), "all of it is durable"
    files = {name: bytes(safe.read(name)) for name in safe.names()}
    assert (made.files, made.bytes) == (len(files), sum(map(len, files.values())))
    return files, tally, made


def again(files: Mapping[str, bytes]) -> dict[int, StoredJob]:
    """The jobs of these files, as an import has them."""
    found = read(files)
    assert found.findings.verdict == "sound"
    return {job.job_id: job for job in stored_jobs(found, NOW_NS)}


TUBES = st.sampled_from([b"default", b"a", b"+/;.$_()-aZ9", b"t" * 200])
BODIES = st.binary(max_size=60) | st.sampled_from([b"", b"\r\n", bytes(30), b"x" * 5000])
STATES = st.sampled_from([State.READY, State.DELAYED, State.BURIED])
COUNTERS = st.tuples(*[st.integers(0, U32)] * 5)
TIMES = st.integers(0, 4 * 10**18)


@st.composite
def jobs_of_ours(draw: st.DrawFn) -> list[StoredJob]:
    ids = draw(st.sets(st.integers(1, 50) | st.integers(1, 2**62), max_size=12))
    jobs = []
    for at, job_id in enumerate(sorted(ids)):
        state = draw(STATES)
        deadline_ns = {State.DELAYED: draw(TIMES), State.BURIED: NOW_NS + at}.get(state, 0)
        jobs.append(
            StoredJob(
                job_id,
                draw(TUBES),
                state,
                draw(st.integers(0, U32)),
                draw(st.integers(0, U32)),
                draw(st.integers(1, U32)),
                draw(TIMES),
                deadline_ns,
                draw(BODIES),
                *draw(COUNTERS),
            )
        )
    return jobs


@settings(max_examples=share(60), deadline=None)
@given(jobs_of_ours(), st.integers(MIN_FILE_BYTES, 12_000), st.integers(0, 3))
def test_every_job_comes_back(jobs: list[StoredJob], file_bytes: int, more_ids: int) -> None:
    next_job_id = max((job.job_id for job in jobs), default=0) + 1 + more_ids
    files, tally, _ = exported(jobs, file_bytes, next_job_id)
    found = read(files)
    assert found.findings.verdict == "sound"
    assert found.next_job_id == next_job_id
    back = {job.job_id: job for job in stored_jobs(found, NOW_NS)}
    anonymous = [job._replace(deadline_ns=0) if job.state is State.BURIED else job for job in jobs]
    assert [
        back[job.job_id]._replace(deadline_ns=0) if job.state is State.BURIED else back[job.job_id]
        for job in jobs
    ] == anonymous
    assert len(back) == len(jobs) == tally.jobs
    order = sorted((job for job in back.values() if job.state is State.BURIED),
                   key=lambda job: job.deadline_ns)  # fmt: skip
    assert [job.job_id for job in order] == [j.job_id for j in jobs if j.state is State.BURIED]


def test_files_are_not_larger_than_asked_for_and_no_record_is_divided() -> None:
    jobs = [stored(job_id, body=b"b" * 500) for job_id in range(1, 40)]
    files, _, _ = exported(jobs)
    assert len(files) == 7
    assert all(len(content) <= MIN_FILE_BYTES for content in files.values())
    assert all(read(content).findings.verdict == "sound" for content in files.values())


def test_a_record_that_just_fits_does_and_one_byte_more_does_not() -> None:
    head = 4 + 4 + len(b"default") + 80 + 2
    room = MIN_FILE_BYTES - head - (head - 4)
    for body, count in ((b"b" * room, 1), (b"b" * (room + 1), 2)):
        files, _, _ = exported([stored(1, body=b""), stored(2, body=body)])
        assert len(files) == count


def test_a_job_larger_than_a_file_has_one_that_grows() -> None:
    jobs = [stored(1), stored(2, body=b"b" * 20_000), stored(3)]
    files, tally, _ = exported(jobs)
    assert [len(content) for content in files.values()] == [102, 20_097, 102]
    assert tally.needs_max_job_size == 0
    assert list(again(files)) == [1, 2, 3]


@pytest.mark.parametrize("state", [State.READY, State.BURIED])
def test_a_body_above_the_default_limit_has_a_file_of_its_own(state: State) -> None:
    most = DEFAULT_MAX_BODY_SIZE - 2
    for size, count, needs in ((most, 1, 0), (most + 1, 3, DEFAULT_MAX_BODY_SIZE + 1)):
        jobs = [stored(n, state) for n in (1, 2, 3)]
        jobs[1] = jobs[1]._replace(body=b"b" * size)
        files, tally, _ = exported(jobs, 1 << 20)
        assert (len(files), tally.needs_max_job_size) == (count, needs)
        assert sorted(again(files)) == [1, 2, 3]


class Huge(bytes):
    """A body that says that it is huge."""

    said = MAX_BODY_SIZE - 2

    def __len__(self) -> int:
        return self.said


def test_a_body_that_no_beanstalkd_loads_is_named_and_the_others_are_written() -> None:
    class TooLarge(Huge):
        """One byte more."""

        said = Huge.said + 1

    tally = Tally()
    assert tally.take(stored(1, body=Huge()))
    assert not tally.take(stored(2, body=TooLarge()))
    assert tally.jobs == 1 and tally.needs_max_job_size == MAX_BODY_SIZE
    files, tally, _ = exported([stored(1), stored(2, body=TooLarge()), stored(3)])
    assert list(again(files)) == [1, 3]
    (lost,) = tally.not_held
    assert lost == (2, "its body has 1073741823 bytes, and beanstalkd loads at most 1073741822")


def test_jobs_whose_tube_no_client_may_name_are_named_and_the_others_are_written() -> None:
    jobs = [stored(1), stored(2, tube=b"a b"), stored(3, tube=b"x\r\nquit"), stored(4, tube=b"a b")]
    files, tally, _ = exported([*jobs, stored(5)])
    assert list(again(files)) == [1, 5]
    assert tally.unusable == {b"a b": 2, b"x\r\nquit": 1}
    assert tally.not_held[1] == (3, r"no client may use the name of its tube, 'x\r\nquit'")


def test_the_highest_id_that_an_import_takes_comes_back() -> None:
    highest = (1 << 63) - 2
    files, _, _ = exported([stored(highest)])
    assert list(again(files)) == [highest]
    files, _, _ = exported([stored(1)], next_job_id=highest + 1)
    assert read(files).next_job_id == highest + 1
    assert read(files).findings.verdict == "sound"


def test_a_log_ahead_of_the_wall_clock_keeps_what_remains_of_delays_and_ages() -> None:
    ahead_ns = 3600 * NS
    job = stored(1, State.DELAYED, deadline_ns=NOW_NS + ahead_ns + 5 * NS)
    files, _, _ = exported([job], log_ns=NOW_NS + ahead_ns)
    back = again(files)[1]
    assert back.deadline_ns == NOW_NS + 5 * NS
    assert back.created_ns == T0 - ahead_ns


def test_a_spool_that_cannot_be_written_leaves_nothing_open() -> None:
    class Full(MemoryDirectory):
        """Its disk is full."""

        def before(self, operation: str, name: str) -> None:
            if operation == "write" and name == SPOOL:
                raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        export_jobs([stored(1, State.BURIED)], Full(), Tally(), next_job_id=2, log_ns=0, wall_ns=0)
