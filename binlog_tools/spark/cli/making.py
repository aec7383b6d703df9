"""What the commands for tables share: the session, the input, and writing what was made of it."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlog_tools.console.wording import told
from binlog_tools.spark.cli.running import line, started
from binlog_tools.spark.events import event_rows, holds_events, log_rows, read_events
from binlog_tools.spark.reading.finding import named, refuse_nothing
from binlog_tools.spark.reading.options import parse_options
from binlog_tools.spark.session import explained
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.tables.pipelines import PIPELINES, opened, write
from binlog_tools.spark.tasks import Rows


def load(
    spark: SparkSession, inputs: tuple[str, ...], source: str, body: bool, damage: str, servers: str
) -> DataFrame:  # fmt: skip
    """The events that the command was given."""
    if _are_events(inputs, source):
        return read_events(spark, *inputs)
    reader = spark.read.format(FORMAT).options(
        copies="keep", records="history", tags=True, body=body, damage=damage, servers=servers
    )
    return reader.load(list(inputs))


def rows(
    inputs: tuple[str, ...], source: str, damage: str, servers: str, above: Mapping[str, int]
) -> Rows:
    """
    The same, with bodies, for tasks to read.

    :param above: see `event_rows` and `log_rows`.
    """
    if _are_events(inputs, source):
        return event_rows(inputs, above)
    given = {"path": inputs[0], "copies": "keep", "records": "history", "tags": "true",
             "body": "true", "damage": damage, "servers": servers}  # fmt: skip
    return log_rows(parse_options(given)._replace(paths=inputs), above)


def _are_events(inputs: tuple[str, ...], source: str) -> bool:
    return source == "events" or (source == "auto" and any(map(holds_events, inputs)))


def look(inputs: tuple[str, ...], source: str) -> None:
    """
    Look whether the paths are there, and are logs or events, before Spark takes its time to start.

    :raise SourceError: one is not there, or there is no log at all.
    """
    found = [each for path in inputs for each in named(path)]
    if not _are_events(inputs, source):
        refuse_nothing(found)


def make(
    name: str, output: str, inputs: tuple[str, ...], source: str, mode: str, damage: str,
    servers: str, master: str | None, **choices: Any,
) -> None:  # fmt: skip
    """Make a table of all events, and tell how many rows it has."""
    with explained():
        stored = opened(name, output, mode)
        look(inputs, source)
        spark = started(name, master)
        pipeline = PIPELINES[name]
        events = load(spark, inputs, source, pipeline.needs_body, damage, servers)
        with line(name) as say:
            rows = write(name, pipeline.make(events, **choices), stored, mode)
            say(f"{told(rows, 'row')} written to {output}")
