"""``df.write.format("beanstalk")`` and ``df.writeStream.format("beanstalk")``: rows to jobs.

See docs/spark.md for columns, options and what is promised.
"""

import json
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from beanstalk_twisted.client.errors import ClientError
from binlog_tools.spark.errors import SinkError, SparkTooOld
from binlog_tools.spark.writing.job_rows import JobRows, SinkOptions
from binlog_tools.spark.writing.putting import Batch, Tally, forget_keys, put_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
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

_log = logging.getLogger(__name__)


@dataclass
class Done(WriterCommitMessage):
    """What a task tells the driver; ``windows``: how many keys each tube has had."""

    tally: Tally
    batch: Batch | None = None
    windows: dict[bytes, int] = field(default_factory=dict)


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
        rows, options = self._meaning(schema, overwrite)
        batch = Batch(options.write or uuid.uuid4().hex, options.batch or 0)
        return JobWriter(rows, options, batch)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "JobStreamWriter":
        if DataSourceStreamArrowWriter is DataSourceStreamWriter:
            raise SparkTooOld.of("a stream into a queue", "4.1", "write in foreachBatch")
        return JobStreamWriter(*self._meaning(schema, overwrite))

    def _meaning(self, schema: StructType, overwrite: bool) -> tuple[JobRows, SinkOptions]:
        if overwrite:
            raise SinkError(
                "SINK_MODE",
                'a queue cannot be overwritten: use mode("append"), in a stream '
                'outputMode("append")',
            )
        options = SinkOptions.of(self.options)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return JobRows(fields, options), options


def register(spark: "SparkSession") -> "SparkSession":
    """Make the format known to a session of any kind.  Nothing is set in it."""
    spark.dataSource.register(BeanstalkSink)
    return spark


@dataclass
class JobWriter(DataSourceArrowWriter):
    """Spark calls ``write`` in each task, then ``commit``, or ``abort``: what was put stays."""

    rows: JobRows
    options: SinkOptions
    batch: Batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        return _put(iterator, self.rows, self.options, self.batch)

    def commit(self, messages: Sequence[Any]) -> None:
        tell(self.options, messages, True, self.options.batch)
        if not self.options.write:
            # Nobody can repeat this write.
            forget(self.options, messages, self.batch)
        elif self.options.batch:
            forget(self.options, messages, self.batch._replace(number=self.options.batch - 1))

    def abort(self, messages: Sequence[Any]) -> None:
        tell(self.options, messages, False, self.options.batch)


@dataclass
class JobStreamWriter(DataSourceStreamArrowWriter):
    """The same for each batch of a stream, which Spark repeats after a crash."""

    rows: JobRows
    options: SinkOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        task = _task()
        query, batch = (task.getLocalProperty(each) for each in (QUERY_PROPERTY, BATCH_PROPERTY))
        if not query or not (batch or "").isdigit():
            raise SinkError("SINK_MODE", "this Spark does not tell a task its batch; write in "
                            "foreachBatch, with writeId and batchId")  # fmt: skip
        return _put(iterator, self.rows, self.options, Batch(query, int(batch or 0)))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        tell(self.options, messages, True, batchId)
        found = next((each.batch for each in messages if each is not None and each.batch), None)
        if found is not None:
            forget(self.options, messages, found._replace(number=batchId - 1))

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        tell(self.options, messages, False, batchId)


def _put(
    iterator: Iterator[pa.RecordBatch], rows: JobRows, options: SinkOptions, batch: Batch
) -> Done:
    task = _task()
    tally, windows = put_partition(
        iterator, rows, options, task.partitionId(), batch, attempt=task.attemptNumber()
    )
    return Done(tally, batch, windows)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "a task of Spark's runs this"
    return task


def forget(options: SinkOptions, messages: Sequence[Any], batch: Batch) -> None:
    """Forget a batch's keys in the tubes of these rows; others stay until their time is over."""
    tubes = {tube for each in messages if each is not None for tube in each.windows}
    if not tubes or batch.number < 0:
        return
    try:
        count = forget_keys(options, batch, len(messages), sorted(tubes))
        _log.info("%d keys of batch %d forgotten", count, batch.number)
    except ClientError as problem:
        _log.warning("the keys of batch %d stay for %d s: %s", batch.number, options.unique_s,
                     problem)  # fmt: skip


def total_of(messages: Sequence[Any]) -> Tally:
    """What all tasks have done, as far as they have told."""
    return sum((each.tally for each in messages if each is not None), Tally())


def tell(
    options: SinkOptions, messages: Sequence[Any], is_complete: bool, batch: int | None
) -> None:
    """Log the counts, and write them where the user wants them."""
    total = total_of(messages)
    _log.info("%d jobs put, %d were there before", total.put, total.before)
    if total.buried:
        _log.warning(
            "%d of %d jobs were buried by the server as it took them: it had no memory to queue "
            "them. They are there, and wait for a kick.", total.buried, total.put,
        )  # fmt: skip
    if options.result_path:
        document: dict[str, Any] = {} if batch is None else {"batch": batch}
        untold = sum(each is None for each in messages)
        # What these have put nobody knows.
        more = {"untold": untold, "rows": None, "put": None} if untold else {}
        document |= {**total._asdict(), **more, "complete": is_complete}
        part = f"{options.result_path}.part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.write("\n")
        os.replace(part, options.result_path)
