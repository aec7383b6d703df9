"""``binlog-inspect export-v7``."""

import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import click

from beanstalk_twisted.binlog.reading.survey import Progress, Survey
from binlog_tools.cli import options
from binlog_tools.cli.exits import DAMAGED, SOUND, TORN, warn
from binlog_tools.cli.making import tell_unusable, warn_if_running
from binlog_tools.cli.opening import open_source
from binlog_tools.console.output import Output, progress
from binlog_tools.console.wording import text_of, told
from binlog_tools.logs.new_directory import NewDirectory
from binlog_tools.logs.stored import (
    StoredJob,
    loaded_jobs,
    loaded_keys,
    loaded_pauses,
    loaded_policies,
)
from binlog_tools.tube_names import is_tube_name
from binlog_tools.v7.exporting import DROPPED, Exported, Tally, export_jobs
from binlog_tools.v7.filemaker import DEFAULT_FILE_BYTES, MAX_FILE_BYTES, MIN_FILE_BYTES
from binlog_tools.v7.records import NS

PROGRESS_JOBS = 4_096
"""How many jobs pass between two looks at the bar."""

Pauses = list[tuple[str, int]]
"""Tubes that are paused, and for how many seconds more."""


@click.command("export-v7", cls=options.Command)
@click.argument("path", metavar="SRC", type=options.LOG)
@options.output_directory(
    "The new directory; must not exist, or be empty. Without it, a dry run.", "DST"
)
@options.size_option(
    "--file-size",
    DEFAULT_FILE_BYTES,
    MIN_FILE_BYTES,
    MAX_FILE_BYTES,
    "Size of a file; beanstalkd's own default is the same.",
)
@options.as_json  # fmt: skip
def command(path: str, output: str | None, file_size: int, is_json: bool) -> None:
    """
    Make a binlog that a C beanstalkd loads (version 7) of the log SRC.

    SRC is only read.  Stop its server first, or jobs that are done from now on are done twice.
    Reserved jobs become ready.  Pauses of tubes cannot be expressed; they are listed, as commands.
    Nor can tags of jobs, remembered keys and policies of tubes; they are counted.

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged or not all jobs can be held,
    4 cannot be read or written.

    \b
    Examples:
      binlog-inspect export-v7 /var/lib/bs
      binlog-inspect export-v7 /var/lib/bs -o /var/lib/beanstalkd
      chown -R beanstalkd /var/lib/beanstalkd
    """
    warn_if_running(path)
    with progress("reading") as report:
        survey = open_source(path).survey(report)
    wall_ns = time.time_ns()
    log_ns = max(wall_ns, survey.small.time_ns)
    tally = Tally()
    exported = None
    with progress("writing") as report:
        jobs = _counted(loaded_jobs(survey, log_ns), report)
        if output:
            with NewDirectory(output) as new:
                exported = export_jobs(
                    jobs, new.directory, tally, next_job_id=survey.small.next_job_id,
                    log_ns=log_ns, wall_ns=wall_ns, file_bytes=file_size,
                )  # fmt: skip
                new.publish()
        else:
            for job in jobs:
                tally.take(job)
    pauses = [
        (text_of(pause.tube), -(-(pause.until_ns - log_ns) // NS))
        for pause in loaded_pauses(survey, log_ns)
        # No command pauses another one.
        if is_tube_name(pause.tube)
    ]
    tally.dropped["keys"] = sum(1 for _ in loaded_keys(survey, log_ns))
    tally.dropped["policies"] = sum(1 for _ in loaded_policies(survey))
    tell_unusable(tally.unusable, "were not exported")
    for name, count in tally.dropped.items():
        if count:
            warn(f"not held: {_DROPPED_NAMES.get(name, name)}: {count}: {DROPPED[name]}")
    out, result = Output(is_json), _Result(survey, tally, pauses, output, exported)
    out.result(result.document, result.rows(), lambda: result.show(out))
    if tally.not_held:
        raise SystemExit(DAMAGED)
    raise SystemExit(TORN if survey.torn else SOUND)


_DROPPED_NAMES: Final = {
    "unique_key": "unique keys of jobs", "concurrency_key": "concurrency keys of jobs",
    "group": "groups of jobs", "after": "groups that jobs are to come after",
    "dead_letters": "marks of dead letters", "keys": "remembered keys",
    "policies": "policies of tubes",
}  # fmt: skip


def _counted(jobs: Iterator[StoredJob], report: Progress) -> Iterator[StoredJob]:
    """How many there are is known at the end only, so the bar counts without one."""
    for done, job in enumerate(jobs, start=1):
        if not done % PROGRESS_JOBS:
            report(done, done)
        yield job


class _Result(NamedTuple):
    """
    What was exported, or would be.

    :ivar output: where to; with ``written`` None if it was a dry run.
    """

    survey: Survey
    tally: Tally
    pauses: Pauses
    output: str | None
    written: Exported | None

    @property
    def start(self) -> str:
        """The command that starts a beanstalkd on it."""
        needs = self.tally.needs_max_job_size
        words = f"beanstalkd -b {shlex.quote(self.output or 'DST')}"
        return words + (f" -z {needs}" if needs else "")

    def rows(self) -> Iterator[tuple[object, ...]]:
        survey, tally = self.survey, self.tally
        counts = (tally.jobs, *tally.states.values(), tally.body_bytes, survey.small.next_job_id)
        yield "source", survey.path, *counts
        if survey.torn:
            yield "torn", str(survey.torn)
        yield from (("not-held", *job) for job in tally.not_held)
        yield from (("pause-tube", *pause) for pause in self.pauses)
        yield from (("dropped", name, count) for name, count in tally.dropped.items() if count)
        if self.written:
            yield "written", self.output, *self.written
        yield "start", self.start

    def show(self, out: Output) -> None:
        survey, tally = self.survey, self.tally
        states = ", ".join(f"{number} {state}" for state, number in tally.states.items())
        out.line(
            f"{survey.path}: {told(tally.jobs, 'job')} ({states}), "
            f"{told(tally.body_bytes, 'byte')} of bodies; the next id is {survey.small.next_job_id}"
        )
        if survey.torn:
            out.line(f"torn tail: {survey.torn}")
        for job_id, why in tally.not_held:
            out.line(f"not held: job {job_id}: {why}")
        for tube, s in self.pauses:
            out.line(f"not held: the pause of a tube; to pause it again: pause-tube {tube} {s}")
        if self.written:
            files = told(self.written.files, "file")
            out.line(f"written: {files}, {self.written.bytes} bytes: {self.output}")
        if tally.needs_max_job_size:
            out.line(
                f"there are bodies that beanstalkd loads only with -z {tally.needs_max_job_size} "
                f"or more; without it, it drops them"
            )
        out.line(f"start: {self.start}")

    def document(self) -> Mapping[str, object]:
        survey, tally = self.survey, self.tally
        return {
            "source": survey.path,
            "torn": str(survey.torn) if survey.torn else None,
            "jobs": tally.jobs,
            "states": tally.states,
            "body_bytes": tally.body_bytes,
            "next_job_id": survey.small.next_job_id,
            "needs_max_job_size": tally.needs_max_job_size,
            "not_held": [job._asdict() for job in tally.not_held],
            "dropped": tally.dropped,
            "pauses": [{"tube": tube, "seconds": seconds} for tube, seconds in self.pauses],
            "written": {"path": self.output, **self.written._asdict()} if self.written else None,
            "start": self.start,
        }
