"""The tables of jobs as DataFrames, each made anew of all events: see `histories`."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from binlog_tools.spark.histories import entries as entries_of_jobs
from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.entries import SCHEMA as ENTRIES
from binlog_tools.spark.histories.entries import entries_of
from binlog_tools.spark.histories.lifetimes import lifetimes_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.starts import Starts
from binlog_tools.spark.histories.stays import Stays, stays_of
from binlog_tools.spark.histories.tables import ATTEMPTS, LIFETIMES, TUBE_MINUTES, WORKERS
from binlog_tools.spark.histories.workers import workers_of
from binlog_tools.spark.tables.by_job import blocks_of, for_jobs, told_by


def lifetimes(events: DataFrame) -> DataFrame:
    """One row a job.

    :param events: with the columns `histories.images.COLUMNS`; they are read twice, at first for
        the starts of servers.
    :raise TableError: a column is missing.
    """
    return _by_job(events, LIFETIMES, lifetimes_of)


def attempts(events: DataFrame) -> DataFrame:
    """One row a run of a job; see `lifetimes`."""
    return _by_job(events, ATTEMPTS, attempts_of)


def workers(events: DataFrame) -> DataFrame:
    """One row a connection that reserved jobs; see `lifetimes`."""
    held = attempts(events).where("connection IS NOT NULL AND incarnation IS NOT NULL")
    by_server = held.groupBy("server", "incarnation", "connection")
    return by_server.applyInArrow(workers_of, from_arrow_schema(WORKERS))


def tube_minutes(events: DataFrame) -> DataFrame:
    """One row a server, tube and minute; see `lifetimes`."""
    last_ns = Starts(told_by(events)).last_ns
    entries = _by_job(events, ENTRIES, entries_of)

    def minutes(mine: pa.Table) -> pa.Table:
        return all_minutes(entries_of_jobs.merged([mine]), last_ns)

    return entries.groupBy("server").applyInArrow(minutes, from_arrow_schema(TUBE_MINUTES))


def _by_job(events: DataFrame, schema: pa.Schema, make: Callable[[Stays], pa.Table]) -> DataFrame:
    starts = Starts(told_by(events))

    def made(chunks: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            yield from make(stays_of(chunk, starts)).cast(schema).to_batches()

    blocks = blocks_of(events).repartition("server", "block")
    return blocks.mapInArrow(for_jobs(made), from_arrow_schema(schema))
