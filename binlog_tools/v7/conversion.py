"""Between logs of ours and directories that beanstalkd loads."""

import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory, holder_of
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.segments.format import DEFAULT_SEGMENT_BYTES, IMPORTED
from beanstalk_twisted.binlog.tags import NO_TAGS
from binlog_tools.logs.new_log import Floors, NewLog, Origin, OriginSource, Written
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.stored import StoredJob, loaded_jobs, without_group
from binlog_tools.tube_names import is_tube_name, quoted
from binlog_tools.v7 import records
from binlog_tools.v7.files import DEFAULT_FILE_BYTES, DEFAULT_MAX_BODY_SIZE, FileMaker, Spool
from binlog_tools.v7.records import CRLF, READY, Fields, encode
from binlog_tools.v7.survivors import Job, Survivors

FLOOR_TUBE: Final = b"default"
"""For the record that only keeps ids from being given again: it is always there."""


class NotHeld(NamedTuple):
    """A job that no beanstalkd could load, or whose tube nobody could name there."""

    job_id: int
    why: str


DROPPED: Final[Mapping[str, str]] = {
    "unique_key": "a put with the key of one of these jobs makes another job",
    "concurrency_key": "more of these jobs may be reserved at once than was asked for",
    "group": "jobs are of no group",
    "after": "those jobs that wait for the end of a group are buried; kick them when it has come",
    "metadata": "nothing says what was said of these jobs beside their bodies",
    "dead_letters": "these jobs are buried, and nothing says from which tube they came, or why",
    "keys": "a put with the key of a job that was deleted makes another job",
    "policies": "tubes have no limits, delays between attempts or dead-letter tubes",
}
"""What beanstalkd has nothing for, and what comes of it."""


class Tally:
    """:ivar dropped: how much of `DROPPED` there is.
    :ivar max_body_size: of the largest body, with its CR LF.
    :ivar unusable: of those not held, how many are in each tube that no client may name.
    """

    def __init__(self) -> None:
        self.states = {"ready": 0, "delayed": 0, "buried": 0}
        self.body_bytes = 0
        self.max_job_id = 0
        self.max_body_size = 0
        self.dropped = dict.fromkeys(DROPPED, 0)
        self.not_held: list[NotHeld] = []
        self.unusable: Counter[bytes] = Counter()

    def take(self, job: StoredJob) -> bool:
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
        tags = job.tags or NO_TAGS
        for name in ("unique_key", "concurrency_key", "group", "after", "metadata"):
            self.dropped[name] += bool(getattr(tags, name))
        self.dropped["dead_letters"] += bool(tags.dead_from)
        self.states[without_group(job).state.name.lower()] += 1
        self.body_bytes += len(job.body)
        self.max_job_id = max(self.max_job_id, job.job_id)
        self.max_body_size = max(self.max_body_size, body_size)
        return True

    @property
    def jobs(self) -> int:
        return sum(self.states.values())

    @property
    def needs_max_job_size(self) -> int:
        """The ``-z`` that beanstalkd needs to load it, 0 if the default will do."""
        return self.max_body_size if self.max_body_size > DEFAULT_MAX_BODY_SIZE else 0


class Exported(NamedTuple):
    files: int
    bytes: int


def export_jobs(
    jobs: Iterable[StoredJob], directory: Directory, tally: Tally, *, next_job_id: int,
    log_ns: int, wall_ns: int, file_bytes: int = DEFAULT_FILE_BYTES,
) -> Exported:  # fmt: skip
    """Write the jobs into an empty directory.

    :param jobs: none is reserved.
    :param log_ns: the time in the log at which these are the jobs; ahead of the wall clock if that
        was set back.  Delays that remain and ages are the same by the wall clock.
    :raise OSError: it cannot be written.
    """
    shift_ns = wall_ns - log_ns
    with closing(FileMaker(directory, file_bytes)) as maker, closing(Spool(directory)) as spool:
        for job in map(without_group, filter(tally.take, jobs)):
            fields = _fields(job, shift_ns)
            record = encode(fields, job.tube, job.body)
            if job.state is State.BURIED:
                spool.add(record, fields.body_size, job.deadline_ns, job.job_id)
            else:
                maker.add(record, fields.body_size)
        for record, body_size in spool.records():
            maker.add(record, body_size)
        if next_job_id > tally.max_job_id + 1:
            # A job with the highest id that was given, and its deletion: beanstalkd goes on there.
            last = Fields(next_job_id - 1, 0, 0, NS, len(CRLF), wall_ns, 0, 0, 0, 0, 0, 0, READY)
            maker.add(encode(last, FLOOR_TUBE, b""))
            maker.add(encode(last._replace(state=records.GONE), b"", b""))
        maker.finish()
        return Exported(maker.files, maker.bytes)


def _fields(job: StoredJob, shift_ns: int) -> Fields:
    def shifted(time_ns: int) -> int:
        return min(max(time_ns + shift_ns, 0), records.MAX_TIME_NS)

    return Fields(
        job.job_id, job.priority, job.delay_s * NS, job.ttr_s * NS, len(job.body) + len(CRLF),
        shifted(job.created_ns), shifted(job.deadline_ns) if job.state is State.DELAYED else 0,
        job.reserves, job.timeouts, job.releases, job.buries, job.kicks, job.state,
    )  # fmt: skip


PROGRESS_JOBS: Final = 4_096


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
    """``loaded`` is how many jobs a server loads from it, read back from the disk."""

    written: Written
    loaded: int


def stored_jobs(found: Survivors, now_ns: int) -> Iterator[StoredJob]:
    """Buried ones were buried just before now, in their order."""
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
    """Write a new log with the surviving jobs, and read it back.

    :param path: the new log; must not exist, or be an empty directory.
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
