"""The surviving jobs with their bodies, read from where they are."""

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from beanstalk_twisted.binlog.records.decoding import NotUnderstood
from beanstalk_twisted.binlog.segments.format import RECORD
from binlog_tools.inspect.hidden import HiddenRecords, Why
from binlog_tools.logs.stored import StoredJob
from binlog_tools.spark.definitions.errors import SourceError, unreadable
from binlog_tools.spark.files.opening import BadRange, LogFile, open_file
from binlog_tools.spark.segments.decoding import Damage
from binlog_tools.spark.surviving.live_jobs import LiveJobs, Survivor
from binlog_tools.spark.surviving.survivors import damaged

_DATA_CRC: Final = 18
"""Where among a record's fields the checksum of its data is."""


class Restoring:
    """
    Makes whole jobs of survivors.

    :ivar lost: jobs whose body cannot be read, and ``flaws``, what is wrong with them.
    :ivar doubtful: by reason, jobs that records that cannot be read may have changed.
    """

    def __init__(
        self, live: LiveJobs, hidden: HiddenRecords, paths: Mapping[int, str], damage: Damage,
        now_ns: int,
    ) -> None:  # fmt: skip
        """
        :param hidden: what cannot be read of the log.
        :param paths: of segments, by their numbers.
        :param now_ns: log time at which a server would load them.
        """
        self.lost: list[int] = list(live.lost)
        self.flaws: list[str] = []
        self.doubtful: dict[Why, list[int]] = {}
        self._hidden = hidden
        self._live = live
        self._tubes = live.tubes()
        self._paths = paths
        self._damage = damage
        self._now_ns = now_ns

    def jobs(self) -> Iterator[StoredJob]:
        """:raise SourceError: a job cannot be read."""
        for seq, jobs in groupby(self._live, lambda job: job.seq):
            with contextlib.ExitStack() as stack:
                file = self._opened(seq)
                if file is not None:
                    stack.enter_context(file)
                for job in jobs:
                    data = None if file is None else self._data_of(job, file)
                    if data is None:
                        self._leave_out(job)
                    else:
                        yield self._stored(job, data)

    def _leave_out(self, job: Survivor) -> None:
        path = self._paths[job.seq]
        if self._damage == "fail":
            raise damaged(path, job.at, f"the checksum of the body of job {job.job_id} is wrong")
        self.lost.append(job.job_id)
        self.flaws.append(f"{path}: byte {job.at}: the body of job {job.job_id} is damaged")

    def _stored(self, job: Survivor, data: bytes) -> StoredJob:
        path = self._paths[job.seq]
        try:
            image = job.as_loaded(data, self._now_ns)
        except NotUnderstood as problem:
            what = f"{path}: job {job.job_id}: {problem}; nothing was written"
            raise SourceError("BINLOG_UNKNOWN_FORMAT", what) from None
        name = self._tubes.get(image.tube_id)
        if name is None:
            what = f"nothing says the name of tube {image.tube_id}, which has job {job.job_id}"
            raise damaged(path, job.at, what)
        doubt = self._hidden.doubt(job.job_id, job.full_lsn, job.lsn)
        if doubt is not None:
            self.doubtful.setdefault(doubt.why, []).append(job.job_id)
        return StoredJob.of(image, name)

    def _data_of(self, job: Survivor, file: LogFile) -> bytes | None:
        """The data of a job's newest full record; None if they are not those that were written."""
        if not job.size:
            return b""
        try:
            data = file.read(job.at, job.at + job.size)
        except OSError as problem:
            raise unreadable(problem, self._paths[job.seq]) from None
        crc = RECORD.unpack(job.full)[_DATA_CRC]
        return data if len(data) == job.size and zlib.crc32(data) == crc else None

    def _opened(self, seq: int) -> LogFile | None:
        """None if it cannot be read, and that is tolerated."""
        try:
            file = open_file(self._paths[seq])
            if not file.is_local:
                # All at once: a request for each body would take days.
                file.view(file.size, 0, file.size)
            return file
        except BadRange as problem:
            if self._damage == "skip":
                return None
            raise unreadable(problem, self._paths[seq]) from None
        except FileNotFoundError:
            raise SourceError(
                "BINLOG_TRIMMED",
                f"{self._paths[seq]}: it was there a moment ago and is gone now: the server has "
                f"trimmed it; nothing was written; run this again, with the archive among the "
                f"paths if there is one",
            ) from None
        except OSError as problem:
            raise unreadable(problem, self._paths[seq]) from None
