"""``rebuild``: a fresh log of what is left of an old one."""

import os
from collections.abc import Sequence
from typing import Final

import click

from beanstalk_twisted.binlog.segments.format import MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES
from binlog_tools.console.output import Output, aside
from binlog_tools.inspect.hidden import Why
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.quantities import format_size, parse_size
from binlog_tools.spark.cli.options import parsed_time
from binlog_tools.spark.cli.planned import of_logs
from binlog_tools.spark.cli.running import started
from binlog_tools.spark.rebuilding import Rebuilt, Wish, planned, rebuild
from binlog_tools.spark.segments.decoding import Damage
from binlog_tools.spark.session import explained
from binlog_tools.spark.surviving.gathering import with_spark


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    try:
        size = parse_size(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None
    if not MIN_SEGMENT_BYTES <= size <= MAX_SEGMENT_BYTES:
        raise click.BadParameter(f"{value} is not within 8k to 1G")
    return size


@click.command("rebuild")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="The directory to write; new, or empty.")
@click.option("--at", "moment", help="Rebuild it as it was then: 2026-01-31T12:00:00Z or -2h.")
@click.option("--lsn", type=click.IntRange(0), help="Likewise, behind this record.")
@click.option("--damage", type=click.Choice(["fail", "skip"]), default="fail", show_default=True,
              help="What to do about damage.")  # fmt: skip
@click.option("--accept-gap", is_flag=True, help="Go on although segments are missing.")
@click.option("--segment-size", "segment_bytes", default="64M", callback=_size, show_default=True,
              help="Size of a segment, 8k to 1G.")  # fmt: skip
@click.option("--single", is_flag=True,
              help="In this process: as without --master or spark-submit.")  # fmt: skip
@click.option("--master", help="Let Spark read the segments, as local[4].")
@click.option("--dry-run", is_flag=True, help="Say what would be read and written; do nothing.")
def rebuild_log(
    logs: tuple[str, ...], output: str, moment: str | None, lsn: int | None, damage: Damage,
    accept_gap: bool, segment_bytes: int, single: bool, master: str | None, dry_run: bool,
) -> None:  # fmt: skip
    """
    Write what is left of a server's log into a new one, on which a server starts.

    LOG is the directory of the server, its archive, or both; segments, patterns.  They are left as
    they are.
    """
    with explained():
        point = Point(
            END.lsn if lsn is None else lsn, END.time_ns if moment is None else parsed_time(moment)
        )
        wish = Wish(logs, output, point, damage, accept_gap, segment_bytes)
        if dry_run:
            _tell_plan(wish)
        elif single or not (master or "PYSPARK_GATEWAY_PORT" in os.environ):
            _tell(rebuild(wish), "in one process")
        else:
            _tell(rebuild(wish, with_spark(started("rebuild", master))), "by Spark")


def _tell_plan(wish: Wish) -> None:
    for text in of_logs(planned(wish)):
        Output().line(text)
    is_full = os.path.isdir(wish.output) and os.listdir(wish.output)
    there = "which is not empty: name a new directory" if is_full else "which is new"
    Output().line(f"would write: {wish.output}, {there}")


_DOUBTS: Final = {
    Why.DELETED: "may have been deleted there",
    Why.CHANGED: "may have been changed there",
    Why.OUTDATED: "may have had another body or other tags there",
}
"""What is said of the jobs of each reason."""


def _numbered(jobs: Sequence[int]) -> str:
    ids = ", ".join(map(str, jobs[:10]))
    return f"{len(jobs)} ({ids}{' and more' if len(jobs) > 10 else ''})"


def _tell(made: Rebuilt, how: str) -> None:
    for url in made.away:
        aside(f"left out, and the others read: {url}")
    for gap in made.not_missed:
        aside(f"not needed: {gap}")
    for flaw in made.flaws:
        aside(f"left out: {flaw}")
    if made.lost:
        aside(f"jobs without a body, left out: {_numbered(made.lost)}")
    for why, jobs in made.doubtful.items():
        aside(f"doubtful, restored as last known: jobs that {_DOUBTS[why]}: {_numbered(jobs)}")
    new = made.written
    Output().line(
        f"{new.path}: {new.jobs} jobs, {format_size(new.bytes)}, LSN {new.first_lsn} to "
        f"{new.last_lsn}; of {made.records} records in {made.segments} segments, read {how}; "
        f"{len(made.flaws)} places and {len(made.lost)} jobs were left out"
    )
    if made.away:
        raise SystemExit(os.EX_TEMPFAIL)
