"""``df.write.format("beanstalk")`` and ``df.writeStream.format("beanstalk")``: rows to jobs.

See docs/spark-writing.md for columns, options and what is promised.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from binlog_tools.spark.definitions.errors import SinkError, SparkTooOld
from binlog_tools.spark.writing.job_rows import JobRows
from binlog_tools.spark.writing.options import SinkOptions
from binlog_tools.spark.writing.progress import note_partitions, noted_rows, partition_of
from binlog_tools.spark.writing.putting import Tally, put_partition

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        # Spark 4.0 gives streams to Python row by row only.
        DataSourceStreamArrowWriter = DataSourceStreamWriter

NAME: Final = "beanstalk"

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""Where Spark tells a task of a stream which one it is."""

SPECULATION: Final = "spark.speculation"
"""The setting that lets slow tasks run twice."""

_log = logging.getLogger(__name__)


@dataclass
class Done(WriterCommitMessage):
    """What a task tells the driver.

    :ivar folder: where the progress is, empty: nowhere.
    :ivar attempt: how often Spark had tried this task before.
    """

    tally: Tally
    folder: str = ""
    attempt: int = 0


class BeanstalkSink(DataSource):
    """The format ``beanstalk``: it is written to, never read."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> NoReturn:
        raise SinkError(
            "SINK_MODE",
            "a queue is not a table that can be read; read its log: format beanstalk_binlog",
        )

    def writer(self, schema: StructType, overwrite: bool) -> "JobWriter":
        _refuse_overwrite(overwrite)
        return JobWriter(*self._meaning(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "JobStreamWriter":
        _refuse_overwrite(overwrite)
        if DataSourceStreamArrowWriter is DataSourceStreamWriter:
            raise SparkTooOld.of("a stream into a queue", "4.1", "write in foreachBatch")
        return JobStreamWriter(*self._meaning(schema))

    def _meaning(self, schema: StructType) -> tuple[JobRows, SinkOptions]:
        options = SinkOptions.of(self.options)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return JobRows(fields, options), options


class SpeculativeSink(BeanstalkSink):
    """What is registered in a session that runs slow tasks twice."""

    def _meaning(self, schema: StructType) -> NoReturn:
        raise SinkError(
            "SINK_SPECULATION",
            "spark.speculation is true: slow tasks would run twice and put their jobs twice; "
            "start the session with spark.speculation=false",
        )


def register(spark: SparkSession) -> SparkSession:
    """Make the format known to a session: classic, Connect, or of a declarative pipeline.  Nothing
    is set in it.
    """
    spark.dataSource.register(SpeculativeSink if _speculates(spark) else BeanstalkSink)
    return spark


def _speculates(spark: SparkSession) -> bool:
    """A service that does not tell its settings runs no task twice by one of them."""
    try:
        return is_true(spark.conf.get(SPECULATION, "false"))
    except PySparkException:
        return False


def is_true(text: str | None) -> bool:
    """Whether a setting is true, as Spark reads it."""
    return text is not None and text.strip().lower() == "true"


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise SinkError(
            "SINK_MODE",
            'a queue cannot be overwritten: use mode("append"), in a stream outputMode("append")',
        )


@dataclass
class _Writer:
    """What the writers of a batch and of a stream share.  Spark calls ``write`` in each task,
    ``commit`` when all are done, ``abort`` when one has failed for good; what was put stays.
    """

    rows: JobRows
    options: SinkOptions

    def _put(self, iterator: Iterator[pa.RecordBatch], folder: str) -> Done:
        task = _task()
        attempt = task.attemptNumber()
        tally = put_partition(
            iterator, self.rows, self.options, task.partitionId(), folder, attempt=attempt
        )
        return Done(tally, folder, attempt)


class JobWriter(_Writer, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        return self._put(iterator, self.options.resume)

    def commit(self, messages: Sequence[Any]) -> None:
        settle(self.options, messages, self.options.resume)

    def abort(self, messages: Sequence[Any]) -> None:
        give_up(self.options, messages, self.options.resume)


class JobStreamWriter(_Writer, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        task = _task()
        folder = self.options.resume
        if folder:
            query = task.getLocalProperty(QUERY_PROPERTY)
            batch = task.getLocalProperty(BATCH_PROPERTY)
            if not query or not (batch or "").isdigit():
                raise SinkError("SINK_RESUME", "this Spark does not tell a task its batch; leave "
                                "the option resume away")  # fmt: skip
            folder = os.path.join(folder, query, f"{int(batch or 0):020}")
        return self._put(iterator, folder)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        folder = folder_of(messages)
        settle(self.options, messages, folder, batchId)
        if folder:
            forget_before(os.path.dirname(folder), batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        give_up(self.options, messages, folder_of(messages), batchId)


def folder_of(messages: Sequence[Any]) -> str:
    """Where the progress of a stream's batch is, as far as a task has told; empty: nowhere."""
    return next((each.folder for each in messages if each is not None and each.folder), "")


def settle(
    options: SinkOptions, messages: Sequence[Any], folder: str, batch: int | None = None
) -> None:
    """All tasks are done.

    :param folder: where the progress is, empty: nowhere.
    :raise SinkError: they were other partitions than those of an earlier attempt.
    """
    try:
        if folder:
            refuse_left_over(folder, len(messages))
            note_partitions(folder, len(messages))
    except SinkError:
        give_up(options, messages, folder, batch)
        raise
    tell(options, messages, {"complete": True}, batch)


def give_up(
    options: SinkOptions, messages: Sequence[Any], folder: str, batch: int | None = None
) -> None:
    """Tell what there is of a write that has failed."""
    untold = sum(each is None for each in messages)
    extra: dict[str, object] = {"complete": False}
    if untold:
        # What these have put nobody knows.
        extra |= {"untold": untold, "rows": None, "put": None}
    if folder and os.path.isdir(folder):
        note_partitions(folder, max(len(messages), *(at + 1 for at in left_in(folder)), 0))
        extra["in_queue"] = noted_rows(folder)
    tell(options, messages, extra, batch)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "a task of Spark's runs this"
    return task


def total_of(messages: Sequence[Any]) -> Tally:
    """What all tasks have done, as far as they have told."""
    return sum((each.tally for each in messages if each is not None), Tally())


def tell(
    options: SinkOptions, messages: Sequence[Any], extra: Mapping[str, object],
    batch: int | None = None,
) -> None:  # fmt: skip
    """Log the counts, and write them where the user wants them.

    :param extra: goes before what the tasks have told.
    """
    total = total_of(messages)
    retried = sum(each is not None and each.attempt > 0 for each in messages)
    _log.info("%d jobs put, %d were there before", total.put, total.before)
    if total.buried:
        _log.warning(
            "%d of %d jobs were buried by the server as it took them: it had no memory to queue "
            "them. They are there, and wait for a kick.", total.buried, total.put,
        )  # fmt: skip
    if options.result_path:
        counts = {} if batch is None else {"batch": batch}
        counts |= {"retried": retried} if retried else {}
        document = {**counts, **total._asdict(), **extra}
        part = f"{options.result_path}.part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.write("\n")
        os.replace(part, options.result_path)


def refuse_left_over(folder: str, partitions: int) -> None:
    """An attempt with more partitions than there are now has put some of these rows before.

    :raise SinkError: so it is.
    """
    found = left_in(folder)
    if found and found[-1] >= partitions:
        raise SinkError(
            "SINK_RESUME",
            f"{folder}: an earlier attempt had {found[-1] + 1} partitions or more, this one "
            f"{partitions}; what it put of those from {partitions} on is in the queue twice. Let "
            f"them be as many, with repartition(); to go on, name a new directory",
        )


def left_in(folder: str) -> list[int]:
    """The partitions that have files of progress, ascending."""
    names = map(partition_of, os.listdir(folder))
    return sorted(partition for partition in names if partition is not None)


def forget_before(folder: str, batch: int) -> None:
    """Remove the progress of a query's batches that Spark never tries again: all but the last
    two.
    """
    for each in os.scandir(folder):
        if each.name.isdigit() and int(each.name) < batch - 1:
            shutil.rmtree(each.path, ignore_errors=True)
