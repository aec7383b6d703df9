"""
What the commands for tables share: the session, the input, and writing what was made of it.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlog_tools.spark.cli.running import line, started
from binlog_tools.spark.events import holds_events, read_events
from binlog_tools.spark.session import explained
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.tables.pipelines import PIPELINES, refuse_existing, write


def _load(
    spark: SparkSession, inputs: tuple[str, ...], source: str, body: bool, damage: str, servers: str
) -> DataFrame:
    if source == "events" or (source == "auto" and any(map(holds_events, inputs))):
        return read_events(spark, *inputs)
    reader = spark.read.format(FORMAT).options(
        copies="keep", tags=True, body=body, damage=damage, servers=servers
    )
    return reader.load(list(inputs))


def make(
    names: tuple[str, ...], outputs: tuple[str, ...], inputs: tuple[str, ...], source: str,
    form: str, mode: str, damage: str, servers: str, master: str | None,
    beside: AbstractContextManager[None] = nullcontext(),  # noqa: B008 - it has no state.
    **choices: Any,
) -> None:  # fmt: skip
    """
    :param beside: entered when all is read but nothing is written yet.
    """
    with explained():
        if mode == "error":
            refuse_existing(outputs)
        spark = started(names[0] if len(names) == 1 else "tables", master)
        pipelines = [PIPELINES[name] for name in names]
        made = [
            each.make(_load(spark, inputs, source, each.needs_body, damage, servers), **choices)
            for each in pipelines
        ]
        with beside:
            for name, table, output in zip(names, made, outputs, strict=True):
                with line(name) as say:
                    say(f"{write(name, table, output, form, mode)} rows written to {output}")
