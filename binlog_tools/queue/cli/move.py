"""
``beanstalk move``.
"""

from collections.abc import Iterator

import click

from binlog_tools.console.output import Output, aside
from binlog_tools.console.wording import told
from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, end_if_told, warn
from binlog_tools.queue.cli.signals import DeferredSignal
from binlog_tools.queue.moving import Moved, Mover


@click.command("move")
@click.argument("target", metavar="TO", type=options.TUBE)
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=options.JOB)
@options.server
@click.option("-f", "--from", "source", type=options.TUBE, metavar="NAME", help="From this tube.")
@options.state("Of the tube, the jobs in this state.")
@click.option("-n", "--count", type=click.IntRange(1), help="At most so many.")
@click.option("--kick", is_flag=True, help="Buried jobs are ready in the new tube.")
@options.as_json
def move(
    target: bytes, jobs: tuple[int, ...], address: Address, source: bytes | None, state: str,
    count: int | None, kick: bool, is_json: bool,
) -> None:  # fmt: skip
    """
    Move jobs into the tube TO: those of these numbers, or with --from those of a tube.

    A job is put into its new tube before it is deleted in the old one.  SIGINT and SIGTERM let the
    job in hand be finished.  If it is killed, that one job is ready in its old tube, and may be in
    the new one too; none is lost.  A job gets a new number, and keeps its priority, its
    TTR, what is left of its delay, and whether it is buried.  Workers may go on meanwhile.  Jobs
    that are put into the old tube since it began stay there.  Needs beanstalkd 1.12 or newer but
    for ready jobs.

    \b
    Examples:
      beanstalk move mail --from mail-failed --state buried --kick
      beanstalk move attic 4711 4712
    """
    if bool(jobs) == (source is not None):
        both = ", not both" if jobs else ""
        raise click.UsageError(f"give the numbers of jobs, or --from a tube{both}")
    if source == target:
        raise click.UsageError("a tube cannot be moved into itself")
    output, moved = Output(is_json), 0
    with options.connected(address) as queue:
        mover = Mover(queue, target, keeps_buried=not kick)
        found: Iterator[Moved] = map(mover.move_job, jobs)
        if source is not None:
            found = mover.move_all(source, state, count)
        with DeferredSignal() as stop:
            while stop.number is None and (each := next(found, None)) is not None:
                moved += 1
                _show(output, each)
        if mover.later is not None:
            warn(
                f"{told(moved, 'job')} moved; job {mover.later}, put since, is now the first, so "
                "it stopped there"
            )
    end_if_told(stop, f"{told(moved, 'job')}, the last one whole")
    if not is_json:
        aside(f"{told(moved, 'job')} moved into {target.decode()}")
    if not moved:
        raise SystemExit(NOTHING)


def _show(output: Output, moved: Moved) -> None:
    if output.is_json:
        output.document(moved._asdict())
    else:
        output.row((moved.old, moved.new))
