"""
The tables that need a choice: ``poison`` and ``snapshot``.
"""

import time
from typing import Any, Final

import click

from binlog_tools.console.output import aside
from binlog_tools.spark.cli.making import make
from binlog_tools.spark.cli.options import common, parsed_time, written
from binlog_tools.spark.histories.failing import FAILURES
from binlog_tools.spark.session import explained

FUTURE: Final = (
    "--at is in the future, behind the end of the log: what will happen until then is not in it; "
    "delays and TTRs that end before are taken to have ended (is_inferred)"
)
"""What `snapshot` says of such a time."""


@click.command()
@common
@written
@click.option("--failures", type=click.IntRange(1), default=FAILURES, show_default=True,
              help="So many make a job poison.")  # fmt: skip
@click.option("--jobs", is_flag=True, help="One row a job, not one a kind of jobs.")
def poison(inputs: tuple[str, ...], output: str, jobs: bool, **options: Any) -> None:
    """
    Jobs that fail again and again, by the fingerprint of their bodies.
    """
    make("poison_jobs" if jobs else "poison", output, inputs, **options)


@click.command()
@common
@written
@click.option("--at", "moment", help="A time, as 2026-01-31T12:00:00Z or -2h.")
@click.option("--lsn", type=click.IntRange(0), help="The last record that counts.")
def snapshot(
    inputs: tuple[str, ...], output: str, moment: str | None, lsn: int | None, **options: Any
) -> None:
    """
    The jobs that were alive at a time, or after a record.
    """
    with explained():
        at_ns = None if moment is None else parsed_time(moment)
    if at_ns is not None and at_ns > time.time_ns():
        aside(FUTURE)
    make("snapshot", output, inputs, **options, at_ns=at_ns, lsn=lsn)
