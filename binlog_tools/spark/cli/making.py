"""
What the commands for tables share: the session, the input, and writing what was made of it.
"""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlog_tools.console.output import Output
from binlog_tools.spark.events import read_events
from binlog_tools.spark.session import explained, session, wants_stacks
from binlog_tools.spark.source import FORMAT
from binlog_tools.spark.tables.pipelines import PIPELINES, refuse_existing, write


def started(name: str, master: str | None) -> SparkSession:
    """
    Spark, quiet: the stacks of what fails would stand before the line that tells it.
    """
    settings = {"spark.master": master} if master else {}
    spark = session(f"beanstalk {name}", settings)
    spark.sparkContext.setLogLevel("ERROR" if wants_stacks() else "FATAL")
    return spark


def _load(
    spark: SparkSession, inputs: tuple[str, ...], source: str, body: bool, damage: str, servers: str
) -> DataFrame:
    if source == "events" or (source == "auto" and any(map(_has_parquet, inputs))):
        return read_events(spark, *inputs)
    reader = spark.read.format(FORMAT).options(
        copies="keep", tags=True, body=body, damage=damage, servers=servers
    )
    return reader.load(list(inputs))


def _has_parquet(path: str) -> bool:
    return next(Path(path).rglob("*.parquet"), None) is not None


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
