"""
What the commands for tables share: the session, the input, and writing what was made of it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlog_tools.spark.cli.running import line, started
from binlog_tools.spark.events import events_above, holds_events, read_events
from binlog_tools.spark.reading.finding import named
from binlog_tools.spark.session import explained
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.tables.pipelines import PIPELINES, opened, write


def load(
    spark: SparkSession, inputs: tuple[str, ...], source: str, body: bool, damage: str,
    servers: str, above: Mapping[str, int] | None = None,
) -> DataFrame:  # fmt: skip
    """
    The events that the command was given.

    :param above: see `read_events`.
    """
    if source == "events" or (source == "auto" and any(map(holds_events, inputs))):
        return read_events(spark, *inputs, above=above)
    reader = spark.read.format(FORMAT).options(
        copies="keep", tags=True, body=body, damage=damage, servers=servers
    )
    return events_above(reader.load(list(inputs)), above or {})


def look(inputs: Iterable[str]) -> None:
    """
    Look whether the paths are there, before Spark takes its time to start.

    :raise SourceError: one is not.
    """
    for path in inputs:
        named(path)


def make(
    name: str, output: str, inputs: tuple[str, ...], source: str, form: str, mode: str, damage: str,
    servers: str, master: str | None, **choices: Any,
) -> None:  # fmt: skip
    """
    Make a table of all events, and tell how many rows it has.
    """
    with explained():
        stored = opened(name, output, form, mode)
        look(inputs)
        spark = started(name, master)
        pipeline = PIPELINES[name]
        events = load(spark, inputs, source, pipeline.needs_body, damage, servers)
        with line(name) as say:
            rows = write(name, pipeline.make(events, **choices), stored, mode)
            say(f"{rows} rows written to {output}")
