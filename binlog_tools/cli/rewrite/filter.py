"""
``binlog-inspect filter``.
"""

from collections.abc import Iterator
from typing import Any

import click

from beanstalk_twisted.binlog.errors import LockHeld
from binlog_tools.cli import options
from binlog_tools.cli.exits import CANNOT_READ, USAGE, fail, warn
from binlog_tools.cli.making import segment_size, tell, warn_if_running
from binlog_tools.cli.opening import open_source
from binlog_tools.console.output import Output, columns, progress
from binlog_tools.console.wording import text_of, told
from binlog_tools.inspect.dumping import state_name
from binlog_tools.logs.loading import Loaded, load
from binlog_tools.rewrite.dropping import drop_in_place
from binlog_tools.rewrite.rewriting import ANY_AGE, Ages, Choice, rewrite


@click.command("filter", cls=options.Command)
@options.log
@click.option("--drop", "drops", is_flag=True, help="The jobs chosen go.")
@click.option("--keep", "keeps", is_flag=True, help="The jobs chosen stay, and all others go.")
@options.job_option
@options.tube_option
@options.state_option
@click.option("--older-than", type=options.DURATION, help="Put longer ago than this: 90s, 2h, 7d.")
@click.option("--younger-than", type=options.DURATION, help="Put less long ago than this.")
@click.option(
    "-o",
    "--output",
    "output",
    metavar="DIR",
    type=options.NEW_DIRECTORY,
    help="The new log; must not exist, or be empty.",
)
@click.option("--in-place", is_flag=True, help="Delete the jobs where they are; no server may run.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list the jobs that would go.")
@segment_size
@options.as_json  # fmt: skip
def command(
    path: str, drops: bool, keeps: bool, older_than: int | None, younger_than: int | None,
    output: str | None, in_place: bool, dry_run: bool, segment_bytes: int, is_json: bool,
    **chosen: Any,
) -> None:  # fmt: skip
    """
    Drop or keep jobs by tube, id, state and age: into a new log, or where they are.

    For a job that ends every server that touches it, and the like.  A job is chosen if all options
    say so.  --in-place appends one segment in which the jobs are deleted; they are kept in a small
    log in quarantine/ first, from which merge or replay brings them back.

    \b
    Examples:
      binlog-inspect filter /var/lib/bs --drop --job 4711 --in-place
      binlog-inspect filter /var/lib/bs --drop --tube mail --older-than 7d --dry-run
      binlog-inspect filter /var/lib/bs --keep --tube mail -o /backup/only-mail
    """
    if drops and keeps:
        fail(USAGE, "--drop and --keep exclude each other; nothing was written.")
    ages = Ages(older_than, younger_than)
    if not (drops or keeps) or not (any(chosen.values()) or ages != ANY_AGE):
        fail(USAGE, "say which jobs (--job, --tube, --state, --older-than, --younger-than), "
                    "and --drop or --keep")  # fmt: skip
    if sum((output is not None, in_place, dry_run)) != 1:
        fail(USAGE, "say where to: -o DIR, --in-place or --dry-run")
    choice = Choice(options.selection(**chosen), ages, keeps)
    shown = Output(is_json)
    if in_place:
        _in_place(shown, path, choice)
        return
    if output is not None:
        warn_if_running(path)
    with progress(f"reading {path}") as report:
        loaded = load(open_source(path), report)
    if dry_run:
        _list(shown, loaded, choice)
        return
    assert output is not None
    outcome = rewrite(loaded, output, "filter", choice, segment_bytes)
    tell(shown, outcome.written, dropped=outcome.dropped)
    if shown.is_terminal and not is_json:
        shown.line(f"{told(outcome.dropped, 'job')} left out")
    elif not is_json:
        shown.table([], [("dropped", outcome.dropped)])


def _list(output: Output, loaded: Loaded, choice: Choice) -> None:
    sorting = _Sorting(loaded, choice)
    if output.is_json:
        for job_id, tube, state, size in sorting.going():
            output.document({"job": job_id, "tube": text_of(tube), "state": state, "bytes": size})
    else:
        output.table(columns("#job", "tube", "state", "#bytes"), sorting.going())
    gone, stay = told(sorting.gone, "job"), sorting.stay
    warn(f"{loaded.source.path}: {gone} would go, {stay} would stay")


class _Sorting:
    """
    Counts the jobs that would go and those that would stay.
    """

    def __init__(self, loaded: Loaded, choice: Choice) -> None:
        self._loaded = loaded
        self._choice = choice
        self.gone = self.stay = 0

    def going(self) -> Iterator[tuple[int, bytes, str, int]]:
        """
        Id, tube, state and size of each that would go.
        """
        for job in self._loaded.jobs():
            if self._choice.stays(job, self._loaded.now_ns):
                self.stay += 1
            else:
                self.gone += 1
                yield job.job_id, job.tube, state_name(job.state), len(job.body)


def _in_place(output: Output, path: str, choice: Choice) -> None:
    # Only to tell what a server would leave out.
    open_source(path)
    try:
        with progress(f"reading {path}") as report:
            dropped = drop_in_place(path, choice, report)
    except LockHeld as problem:
        fail(CANNOT_READ, str(problem))
    if output.is_json:
        output.document({"log": path, **dropped._asdict()})
        return
    if not output.is_terminal:
        kept_at = dropped.kept_at or None
        output.table([], [("deleted", dropped.jobs, dropped.left, path, kept_at)])
        return
    output.line(f"{path}: {told(dropped.jobs, 'job')} deleted, {dropped.left} left")
    if dropped.kept_at:
        output.line(f"what was deleted is kept in {dropped.kept_at}")
