"""``events``: logs as one table; ``optimize``: fewer, larger files of a table."""

import os
from collections.abc import Sequence
from typing import Final

import click

from binlog_tools.console.output import Output, aside
from binlog_tools.console.wording import told
from binlog_tools.spark.cli.options import common
from binlog_tools.spark.cli.running import line, started
from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.events import Task, Work, in_process, write_events
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.session import explained
from binlog_tools.spark.storing.files import File
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.opening import holds_table, open_stored
from binlog_tools.spark.storing.stored import RETENTION_HOURS
from binlog_tools.spark.tasks import in_tasks

ALONE_TASKS: Final = 1
"""So many tasks of 256 MB are carried out in this process: sooner done than Spark starts."""


@click.command()
@common
@click.option("--body/--no-body", default=False, help="Whether bodies are in the table.")
@click.option("--live", type=click.Choice(["include", "skip"]), default="include",
              show_default=True, help="The segment that a server is writing.")  # fmt: skip
@click.option(
    "--rewrite",
    is_flag=True,
    help="Read these logs from the beginning, in the place of the rows they have.",
)
def events(
    inputs: tuple[str, ...], output: str, damage: str, servers: str, master: str | None, body: bool,
    live: str, rewrite: bool,
) -> None:  # fmt: skip
    """Logs as one events table, or what is new in them into the table."""

    def run(tasks: Sequence[Task], work: Work) -> list[list[File]]:
        is_sparks = master or "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ
        if len(tasks) <= ALONE_TASKS and not is_sparks:
            return in_process(tasks, work)
        return in_tasks(started("events", master), tasks, work)

    with explained():
        given = {"path": inputs[0], "copies": "keep", "records": "history", "tags": "true",
                 "body": str(body).lower(), "damage": damage, "servers": servers,
                 "live": live}  # fmt: skip
        asked = parse_options(given)._replace(paths=inputs)
        with line("events") as say:
            done = write_events(asked, output, run, rewrite)
            segments, rows = told(done.segments, "segment"), told(done.rows, "row")
            say(f"{segments}, {rows} written to {output}")
    if done.problems:
        rows = "1 row tells" if done.problems == 1 else f"{done.problems} rows tell"
        aside(f"{rows} of damage (problem is not null); when it is repaired, "
              "write these logs anew with --rewrite")  # fmt: skip


@click.command()
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option(
    "--keep-hours",
    type=click.FloatRange(0),
    default=RETENTION_HOURS,
    show_default=True,
    help="Files that no version needs are kept so long, for who still reads them.",
)
def optimize(tables: tuple[str, ...], keep_hours: float) -> None:
    """
    Put small files of Delta tables together, and remove those that no version needs.

    TABLE may also be a folder with tables in it, as `tables` and `live` make it.
    """
    with explained():
        found = [each for table in tables for each in _tables_in(table)]
    for table in found:
        with explained():
            done = open_stored(table).optimize(keep_hours)
        Output().line(
            f"{table}: {told(done.merged, 'file')} became {done.made}, {done.removed} removed"
        )


def _tables_in(place: str) -> list[str]:
    """The place itself; or the tables in it, if it is none and has some."""
    location = Location.of(place)
    if holds_table(location) or (location.is_local and not os.path.isdir(location.path)):
        return [place]
    with location.writing():
        inner = [within(place, name) for name in location.files().names()]
    return [each for each in inner if holds_table(Location.of(each))] or [place]
