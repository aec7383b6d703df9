"""
From a log of ours to a directory that beanstalkd loads.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.records import State
from binlog_tools.logs.stored import StoredJob
from binlog_tools.tube_names import is_tube_name, quoted
from binlog_tools.v7 import records
from binlog_tools.v7.filemaker import DEFAULT_FILE_BYTES, DEFAULT_MAX_BODY_SIZE, FileMaker, Spool
from binlog_tools.v7.records import CRLF, NS, READY, Fields, encode

FLOOR_TUBE: Final = b"default"
"""The tube of the record that only keeps ids from being given again; it is always there."""


class NotHeld(NamedTuple):
    """
    A job that no beanstalkd could load, or whose tube nobody could name there.
    """

    job_id: int
    why: str


class Tally:
    """
    What an export has to hold.

    :ivar states: how many jobs in each state.
    :ivar max_body_size: of the largest body, with its CR LF.
    :ivar not_held: jobs that cannot be in it.
    :ivar unusable: of those, how many are in each tube that no client may name.
    """

    def __init__(self) -> None:
        self.states = {"ready": 0, "delayed": 0, "buried": 0}
        self.body_bytes = 0
        self.max_job_id = 0
        self.max_body_size = 0
        self.not_held: list[NotHeld] = []
        self.unusable: Counter[bytes] = Counter()

    def take(self, job: StoredJob) -> bool:
        """
        :return: whether the job can be in it.
        """
        body_size = len(job.body) + len(CRLF)
        if body_size > records.MAX_BODY_SIZE:
            most = records.MAX_BODY_SIZE - len(CRLF)
            why = f"its body has {len(job.body)} bytes, and beanstalkd loads at most {most}"
            self.not_held.append(NotHeld(job.job_id, why))
            return False
        if not is_tube_name(job.tube):
            self.unusable[job.tube] += 1
            why = f"no client may use the name of its tube, {quoted(job.tube)}"
            self.not_held.append(NotHeld(job.job_id, why))
            return False
        self.states[job.state.name.lower()] += 1
        self.body_bytes += len(job.body)
        self.max_job_id = max(self.max_job_id, job.job_id)
        self.max_body_size = max(self.max_body_size, body_size)
        return True

    @property
    def jobs(self) -> int:
        """
        How many jobs are in it.
        """
        return sum(self.states.values())

    @property
    def needs_max_job_size(self) -> int:
        """
        The ``-z`` that beanstalkd needs to load it, 0 if the default will do.
        """
        return self.max_body_size if self.max_body_size > DEFAULT_MAX_BODY_SIZE else 0


class Exported(NamedTuple):
    """
    What an export made.
    """

    files: int
    bytes: int


class _Exporter:
    """
    Hands jobs over to a `FileMaker`.
    """

    def __init__(self, directory: Directory, tally: Tally, shift_ns: int, file_bytes: int) -> None:
        self._maker = FileMaker(directory, file_bytes)
        self._spool = Spool(directory)
        self._tally = tally
        self._shift_ns = shift_ns

    def add(self, job: StoredJob) -> None:
        """
        Write a job, or put it aside if it is buried.
        """
        if not self._tally.take(job):
            return
        fields = self._fields(job)
        record = encode(fields, job.tube, job.body)
        if job.state is State.BURIED:
            self._spool.add(record, fields.body_size, job.deadline_ns, job.job_id)
        else:
            self._maker.add(record, fields.body_size)

    def _fields(self, job: StoredJob) -> Fields:
        deadline_ns = self._shifted(job.deadline_ns) if job.state is State.DELAYED else 0
        return Fields(
            job.job_id, job.priority, job.delay_s * NS, job.ttr_s * NS,
            len(job.body) + len(CRLF), self._shifted(job.created_ns), deadline_ns, job.reserves,
            job.timeouts, job.releases, job.buries, job.kicks, job.state,
        )  # fmt: skip

    def _shifted(self, time_ns: int) -> int:
        return min(max(time_ns + self._shift_ns, 0), records.MAX_TIME_NS)

    def finish(self, next_job_id: int, now_ns: int) -> Exported:
        """
        Write the buried jobs in their order, and see that ids go on where they were.
        """
        for record, body_size in self._spool.records():
            self._maker.add(record, body_size)
        if next_job_id > self._tally.max_job_id + 1:
            self._keep_ids_below(next_job_id, now_ns)
        self._maker.finish()
        return Exported(self._maker.files, self._maker.bytes)

    def _keep_ids_below(self, next_job_id: int, now_ns: int) -> None:
        """
        A job with the highest id that was given, and its deletion: beanstalkd goes on behind it.
        """
        last = Fields(next_job_id - 1, 0, 0, NS, len(CRLF), now_ns, 0, 0, 0, 0, 0, 0, READY)
        self._maker.add(encode(last, FLOOR_TUBE, b""))
        self._maker.add(encode(last._replace(state=records.GONE), b"", b""))

    def close(self) -> None:
        """
        Let go of what was not finished.
        """
        self._maker.close()
        self._spool.close()


def export_jobs(
    jobs: Iterable[StoredJob], directory: Directory, tally: Tally, *, next_job_id: int,
    log_ns: int, wall_ns: int, file_bytes: int = DEFAULT_FILE_BYTES,
) -> Exported:  # fmt: skip
    """
    Write the jobs into an empty directory.

    :param jobs: none is reserved.
    :param tally: an empty one.
    :param log_ns: the time in the log at which these are the jobs; ahead of the wall clock if that
        was set back.  Delays that remain and ages are the same by the wall clock.
    :param wall_ns: the wall clock at that moment.
    :raise OSError: it cannot be written.
    """
    exporter = _Exporter(directory, tally, wall_ns - log_ns, file_bytes)
    try:
        for job in jobs:
            exporter.add(job)
        return exporter.finish(next_job_id, wall_ns)
    finally:
        exporter.close()
