"""What is in the queue, as values: for looking at it without asking over a connection."""

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import WITHHELD_NS, State
from beanstalk_twisted.jobs.failed_reads import Unread
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.storage.clock import NS

STATES: Final = ("ready", "reserved", "delayed", "buried")
"""The states of a job, in the order in which they are shown."""


class JobView(NamedTuple):
    """
    A job as it is.

    :ivar state: one of `STATES`.
    :ivar age: seconds since it was put.
    :ivar time_left: seconds until its delay or its TTR ends; 0 for other jobs, and for those that
        wait for a group.
    :ivar connection: number of the connection that has it reserved, 0 for none.
    """

    id: int
    tube: str
    state: str
    body: bytes
    priority: int
    delay: int
    ttr: int
    age: float
    time_left: float
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    connection: int


def look(state: QueueState, now_ns: int) -> list[JobView]:
    """
    Give all jobs, by tube and state, and in each as they come up: ready ones in the order in which
    they are reserved, delayed and reserved ones by the time left, buried ones as they are kicked.
    """
    read: dict[int, bytes | Unread | None] = {}
    for number in state.jobs:
        if not state.bodies.is_unreadable(number, now_ns):
            state.bodies.look_at(number, partial(read.__setitem__, number))
    jobs = [job for number in state.jobs if (job := state.jobs.look(number)) is not None]
    jobs.sort(key=lambda job: (state.tubes.by_id(job.tube_id).place, *_place(job)))
    return [_view(job, state, now_ns, read.get(job.job_id)) for job in jobs]


def _place(job: Job) -> tuple[int, int, int]:
    first = job.priority if job.state is State.READY else job.deadline_ns
    return STATES.index(job.state.name.lower()), first, job.job_id


def _view(job: Job, state: QueueState, now_ns: int, read: bytes | Unread | None) -> JobView:
    body = job.body or (read if isinstance(read, bytes) else b"")
    has_time_left = job.state in (State.RESERVED, State.DELAYED) and job.deadline_ns < WITHHELD_NS
    return JobView(
        job.job_id, state.tubes.by_id(job.tube_id).name.decode(), job.state.name.lower(),
        body, job.priority, job.delay_s, job.ttr_s, (now_ns - job.created_ns) / NS,
        (job.deadline_ns - now_ns) / NS if has_time_left else 0.0,
        job.reserves, job.timeouts, job.releases, job.buries, job.kicks, job.holder,
    )  # fmt: skip


def chosen(
    jobs: Iterable[JobView], tube: str | None = None, state: str | None = None
) -> list[JobView]:
    """
    Choose among jobs.

    :raise ValueError: there is no such state.
    """
    if state is not None and state not in STATES:
        raise ValueError(f"a job is {', '.join(STATES)}, and never {state!r}")
    return [
        job for job in jobs
        if (tube is None or job.tube == tube) and (state is None or job.state == state)
    ]  # fmt: skip
