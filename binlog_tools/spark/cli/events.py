"""
``events``: logs as one table.
"""

from pathlib import Path

import click

from binlog_tools.console.output import Output
from binlog_tools.spark.cli.making import started
from binlog_tools.spark.cli.options import common
from binlog_tools.spark.events import write_events
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.session import explained


@click.command()
@common
@click.option("--body/--no-body", default=False, help="Whether bodies are in the table.")
@click.option("--live", type=click.Choice(["include", "skip"]), default="include",
              show_default=True, help="The segment that a server is writing.")  # fmt: skip
def events(
    inputs: tuple[str, ...], output: str, damage: str, servers: str, master: str | None, body: bool,
    live: str,
) -> None:  # fmt: skip
    """
    Logs as one events table, or what is new in them into the table.
    """
    with explained():
        given = {"path": inputs[0], "copies": "keep", "tags": "true", "body": str(body).lower(),
                 "damage": damage, "servers": servers, "live": live}  # fmt: skip
        asked = parse_options(given)._replace(paths=inputs)
        segments, rows = write_events(started("events", master), asked, Path(output).absolute())
    Output().line(f"{segments} segments, {rows} rows written to {output}")
