"""Records of many jobs as bytes, compared with one record after the other."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.binlog.cold import kicks
from beanstalk_twisted.binlog.records.jobs import MAX_COUNTER, Kind, Reason, State
from beanstalk_twisted.binlog.segments.format import RECORD_BYTES
from tests.binlog.scribe import image, records_of, run_of

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
    assert run == run_of(images)
    assert (run.n_rec, run.data_bytes) == (len(jobs), (len(jobs) - 1) * RECORD_BYTES)


def test_a_run_of_kicks_is_waited_for() -> None:
    job = Kicked(1, 2, 3, 4, 5, 6, 7, 8, 9)
    run = kicks([job], TUBE, CONNECTION, NOW_NS)
    assert run.commits
    (record,) = records_of(run)
    assert record.commits and record.kind is Kind.KICK
