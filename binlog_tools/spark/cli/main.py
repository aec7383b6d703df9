"""The group of all commands."""

import click

from binlog_tools.spark.cli.events import events, optimize
from binlog_tools.spark.cli.live import live
from binlog_tools.spark.cli.tables import SINGLE, poison, snapshot, tables


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """
    Make tables of the history of queues, with Spark.

    INPUT is an events table (as `events` writes it), or logs: directories of servers,
    archives, segments, patterns. Convert logs once with `events`; the others then are faster.
    """


for _each in (events, optimize, *SINGLE, tables, poison, snapshot, live):
    cli.add_command(_each)
