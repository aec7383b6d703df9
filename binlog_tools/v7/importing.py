"""From a directory of beanstalkd to a log of ours."""

import errno
from collections.abc import Iterator
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import holder_of
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.segments.format import DEFAULT_SEGMENT_BYTES, IMPORTED
from binlog_tools.logs.new_log import Floors, NewLog, Origin, OriginSource, Written
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.stored import StoredJob, loaded_jobs
from binlog_tools.v7.records import NS
from binlog_tools.v7.survivors import Job, Survivors

PROGRESS_JOBS: Final = 4_096
"""How many jobs pass between two calls of a `Progress`."""


def refuse_running(path: str) -> None:
    """:raise OSError: a beanstalkd runs on this directory."""
    pid = holder_of(path)
    if pid:
        who = f"process {pid}" if pid > 0 else "a process that cannot be named"
        raise OSError(
            errno.EBUSY,
            f"a beanstalkd runs on it ({who}), so what is read now is soon not true; nothing was "
            f"touched. Stop that server, or look at a copy of the directory: cp -a {path} COPY",
            path,
        )


class Imported(NamedTuple):
    """
    What an import made.

    :ivar loaded: how many jobs a server loads from it, read back from the disk.
    """

    written: Written
    loaded: int


def stored_jobs(found: Survivors, now_ns: int) -> Iterator[StoredJob]:
    """
    The surviving jobs as our log has them; buried ones were buried just before now, in their order.
    """
    for job in found.ready_and_delayed():
        is_delayed = job.fields.state == State.DELAYED
        yield _stored(found, job, job.fields.deadline_ns if is_delayed else 0)
    buried = [*found.buried(), *found.doubtful()]
    for age, job in zip(range(len(buried), 0, -1), buried, strict=True):
        yield _stored(found, job, now_ns - age)


def _stored(found: Survivors, job: Job, deadline_ns: int) -> StoredJob:
    fields = job.fields
    return StoredJob(
        fields.job_id, job.tube, State(fields.state), fields.priority, fields.delay_ns // NS,
        max(1, fields.ttr_ns // NS), fields.created_ns, deadline_ns, found.body(job),
        fields.reserves, fields.timeouts, fields.releases, fields.buries, fields.kicks,
    )  # fmt: skip


def import_log(
    found: Survivors, path: str, now_ns: int, progress: Progress,
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
) -> Imported:  # fmt: skip
    """
    Write a new log with the surviving jobs, and read it back.

    :param path: the new log; must not exist, or be an empty directory.
    :param now_ns: the wall clock.
    :raise OSError: it cannot be written.
    """
    origin = Origin("import-v7", [OriginSource(found.path, "", 0)])
    floors = Floors(next_job_id=found.max_job_id + 1)
    total = len(found.jobs) + found.doubtful_jobs
    with NewLog(
        path, origin, floors=floors, segment_bytes=segment_bytes, flags=IMPORTED, now_ns=now_ns
    ) as log:
        for done, job in enumerate(stored_jobs(found, now_ns), start=1):
            log.add(job)
            if not done % PROGRESS_JOBS:
                progress(done, total)
        written = log.finish()
    survey = open_source(path).survey()
    return Imported(written, sum(1 for _ in loaded_jobs(survey, now_ns)))
