"""Salvaging in memory, and what must hold of each result."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.tags import NO_TAGS
from binlog_tools.logs.new_log import SegmentMaker
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.stored import StoredJob, loaded_jobs
from binlog_tools.salvage.claims import Consent
from binlog_tools.salvage.judging import Doubtful, Judgement
from binlog_tools.salvage.salvaging import Report, Salvage
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import T0, Files, files_of, quiet
from tests.storage.test_opening import Started

EVERYTHING = Consent(Numbers([Span(0, 1 << 64)]), may_rebuild=True)
"""Consent to all that needs no choice."""


class Salvaged(NamedTuple):
    """What came of it.

    :ivar jobs: what is brought back, by id.
    :ivar judgements: those that are not certain, by id.
    """

    jobs: dict[int, StoredJob]
    judgements: dict[int, Judgement]
    report: Report

    @property
    def verdict(self) -> str:
        return self.report.verdict


def salvaged(
    files: Mapping[str, bytes], consent: Consent = EVERYTHING, doubtful: Doubtful = Doubtful.KEEP
) -> Salvaged:
    """Salvage a log, and see that it was not changed."""
    directory = MemoryDirectory(dict(files))
    report = Report(Salvage(directory, consent, doubtful))
    jobs = list(report.jobs())
    assert len({job.job_id for job in jobs}) == len(jobs), "no id twice"
    assert directory.operations == 0
    judged = {each.job_id: each for each in [*report.doubtful, *report.lost]}
    return Salvaged({job.job_id: job for job in jobs}, judged, report)


def written(found: Salvaged) -> Files:
    return _made(found)[0]


def _made(found: Salvaged) -> tuple[Files, set[int]]:
    """The clean log, and the jobs that are in it without their unique keys."""
    salvage = found.report.salvage
    directory = MemoryDirectory()
    maker = SegmentMaker(
        directory, salvage.origin, floors=salvage.floors,
        of_tubes=salvage.judge.tube_records(), now_ns=T0,
    )  # fmt: skip
    for job in found.jobs.values():
        maker.add(job)
    maker.add_keys(salvage.judge.remembered_keys())
    maker.finish()
    return files_of(directory), {shared.job_id for shared in maker.shared_keys}


def _without_key(job: StoredJob) -> StoredJob:
    assert job.tags is not None
    tags = job.tags._replace(unique_key=b"", unique_s=0)
    return job._replace(tags=None if tags == NO_TAGS else tags)


def see_that_it_loads(found: Salvaged) -> None:
    """The clean log is sound, says just these jobs, and a server starts on it."""
    files, shared = _made(found)
    directory = MemoryDirectory(files)
    assert servers_verdict(files_of(directory)) == "sound"
    survey = Survey(directory, quiet)
    assert survey.small.next_job_id > max(found.jobs, default=0)
    loaded = {job.job_id: job for job in loaded_jobs(survey, survey.small.time_ns)}
    assert loaded == {n: _without_key(j) if n in shared else j for n, j in found.jobs.items()}
    started = Started(directory, now_ns=survey.small.time_ns)
    assert set(started.jobs()) == set(found.jobs)


def servers_verdict(files: Mapping[str, bytes]) -> str:
    """What a server that starts makes of a log."""
    directory = MemoryDirectory(dict(files))
    survey = Survey(directory, quiet)
    try:
        deque(loaded_jobs(survey, survey.small.time_ns), maxlen=0)
    except BinlogError:
        return "damaged"
    return "torn" if survey.torn else "sound"
