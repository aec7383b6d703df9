"""
Jobs that come back to be dead letters, and whose bodies are in the log only.

A dead letter is written whole, so its body is read first.  Until then the job is delayed, so that
nobody is given it.
"""

from itertools import islice
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import JobImage, Reason, State
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.moves import Moves
from beanstalk_twisted.rules.timekeeping import Slices, Timekeeping

NS: Final = 1_000_000_000

WAIT_NS: Final = 60 * NS
"""
How long such a job is delayed, ns: by then it is known whether its body can ever be read.  A server
that starts again in between, or a disk that is full for so long, makes it ready.
"""

REST_NS: Final = 5_000_000
"""From one look whether bodies were read to the next, ns: a read from the page cache takes less."""

FULL_REST_NS: Final = 1 * NS
"""The same on a full disk, ns."""

LOOK_JOBS: Final = 128
LOOK_BYTES: Final = 1 << 20
"""The jobs, and the bytes of their bodies, that are read and written together."""


class _Waiting(NamedTuple):
    """
    :ivar deadline_ns: of the job while it waits, which tells whether it still does.
    :ivar reason: the policy that says so; ``how`` as `Moves.dead_letter` takes it.
    """

    deadline_ns: int
    reason: Reason
    how: Reason | None


class UnreadLetters:
    """Makes dead letters of jobs when their bodies were read."""

    def __init__(self, state: QueueState, timekeeping: Timekeeping, moves: Moves) -> None:
        self._state = state
        self._timekeeping = timekeeping
        self._moves = moves
        self._waiting: dict[int, _Waiting] = {}
        self._is_working = False

    def take_back(
        self, image: JobImage, reason: Reason, how: Reason | None, now_ns: int
    ) -> int:  # fmt: skip
        """
        A job comes back to be a dead letter, and its body is not in memory.

        :return: the record's LSN.
        """
        deadline_ns = now_ns + WAIT_NS
        delayed = image._replace(state=State.DELAYED, deadline_ns=deadline_ns)
        lsn = self._timekeeping.change(delayed, now_ns)
        self._waiting[image.job_id] = _Waiting(deadline_ns, reason, how)
        if not self._is_working:
            self._is_working = True
            self._timekeeping.work_in_slices(self._end_all())
        return lsn

    def _end_all(self) -> Slices:
        due_ns: int | None = None
        while self._waiting:
            now_ns = yield due_ns
            due_ns = now_ns + (FULL_REST_NS if self._moves.is_short else REST_NS)
            self._timekeeping.begin_slice()
            left = LOOK_BYTES
            for job_id, waiting in list(islice(self._waiting.items(), LOOK_JOBS)):
                job = self._job(job_id, waiting)
                if job is None or self._is_over(job, waiting, now_ns):
                    del self._waiting[job_id]
                    self._timekeeping.slice_left -= 1
                else:
                    left -= job.body_bytes
                if left < 0 or self._timekeeping.slice_left <= 0:
                    break
        self._is_working = False

    def _job(self, job_id: int, waiting: _Waiting) -> Job | None:
        """:return: None if something else has become of the job."""
        job = self._state.jobs.get(job_id)
        if job is None or job.state is not State.DELAYED:
            return None
        return job if job.deadline_ns == waiting.deadline_ns else None

    def _is_over(self, job: Job, waiting: _Waiting, now_ns: int) -> bool:
        """Make a dead letter of a job; one whose body cannot be read stays as it is."""
        is_dead = self._moves.dead_letter(job, waiting.reason, now_ns, waiting.how)
        return is_dead or self._state.bodies.is_unreadable(job.job_id, now_ns)
