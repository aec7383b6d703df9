"""What commands that make a log have in common."""

import os
from collections.abc import Mapping, Sequence

from beanstalk_twisted.binlog.directory import holder_of
from binlog_tools.cli.exits import warn
from binlog_tools.console.output import Output
from binlog_tools.console.wording import text_of, told
from binlog_tools.logs.new_log import SharedKey, Written
from binlog_tools.logs.quantities import Span, format_size
from binlog_tools.tube_names import quoted


def warn_if_running(path: str) -> None:
    """
    Say that a server runs on a log of which another one is made.  All servers hold the same lock.
    """
    pid = holder_of(path) if os.path.isdir(path) else 0
    if pid:
        who = f"process {pid}" if pid > 0 else "a process that cannot be named"
        warn(
            f"{path}: a server runs on it ({who}); what it does from now on is not in the new log, "
            f"so jobs may be done twice or be missing. Better stop it first."
        )


def tell(output: Output, written: Written, **more: object) -> None:
    """
    Say what was written; in a pipe the first field of each line says what it is.

    :param more: beside what every log has.
    """
    row = (
        "written", written.jobs, written.segments, written.path, written.bytes, written.first_lsn,
        written.last_lsn,
    )  # fmt: skip
    line = (
        f"{written.path}: {told(written.jobs, 'job')}, {format_size(written.bytes)} in "
        f"{told(written.segments, 'segment')}, LSN {Span(written.first_lsn, written.last_lsn)}"
    )
    output.result(lambda: {**written._asdict(), **more}, [row], lambda: output.line(line))


def tell_shared_keys(jobs: Sequence[SharedKey]) -> None:
    """:param jobs: that are in the new log without their unique keys."""
    for each in jobs:
        warn(
            f"job {each.job_id}: its unique key {text_of(each.key)} was taken off it: job "
            f"{each.holder} of tube {text_of(each.tube)} has that"
        )


def tell_unusable(tubes: Mapping[bytes, int], what: str) -> None:
    """:param tubes: those that no client may name, and how many jobs of each are left out."""
    for tube, jobs in tubes.items():
        warn(f"tube {quoted(tube)}: jobs that {what}: {jobs}; no client may use that name")
