"""
What the commands for tables share: the session, the input, and writing what was made of it.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlog_tools.console.output import Output
from binlog_tools.spark.events import holds_events, read_events
from binlog_tools.spark.session import explained, session, wants_stacks
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.tables.pipelines import PIPELINES, refuse_existing, write


def started(name: str, master: str | None) -> SparkSession:
    """
    Spark, quiet: the stacks of what fails would stand before the line that tells it.

    :param master: as ``local[4]``, or ``sc://HOST`` for a Connect server.
    """
    settings = {"spark.log.level": "ERROR" if wants_stacks() else "FATAL"}
    if master and master.startswith("sc://"):
        settings = {"spark.remote": master}
    elif os.environ.get("SPARK_REMOTE"):
        settings = {}
    elif master:
        settings["spark.master"] = master
    return session(f"beanstalk {name}", settings)


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
                write(name, table, output, form, mode)
                Output().line(f"{name}: written to {output}")
