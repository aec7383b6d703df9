"""
The format ``beanstalk_binlog``: logs and archives as a table, read in batch.

::

    from binlog_tools.spark.source import register

    register(spark)
    spark.read.format("beanstalk_binlog").load("/var/lib/beanstalk").show()

Spark makes these objects, pickles them, and calls them in three places: `BinlogSource.schema` and
`BinlogReader.partitions` in a short-lived process beside the driver, `BinlogReader.read` in the
tasks.  So they hold what was asked for and nothing that is open.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from binlog_tools.spark.definitions.columns import BY_NAME, ddl
from binlog_tools.spark.definitions.errors import SourceError, damaged, unreadable
from binlog_tools.spark.following.startings import STREAM_OPTIONS, Streamed
from binlog_tools.spark.following.streaming import BinlogStreamReader
from binlog_tools.spark.reading.candidates import BrokenFile
from binlog_tools.spark.reading.copies import soundest
from binlog_tools.spark.reading.finding import Findings, Gap, find
from binlog_tools.spark.reading.options import Asked, check_schema, parse_options
from binlog_tools.spark.reading.planning import (
    Share,
    Task,
    Trouble,
    gap_trouble,
    in_order,
    named,
    open_share,
    packed,
    shares_of,
)
from binlog_tools.spark.reading.pruning import conditions_of, may_match, stats_of
from binlog_tools.spark.reading.summaries import SEGMENT_BY_NAME, segment_batch, summary
from binlog_tools.spark.segments.conditions import EVERY, Condition, bounds
from binlog_tools.spark.segments.decoding import Wanted, batches
from binlog_tools.spark.segments.producing import damage_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "beanstalk_binlog"


class BinlogSource(DataSource):
    """
    The format.  Its options are those of `options.OPTIONS`.
    """

    @classmethod
    def name(cls) -> str:
        """
        What ``format`` takes.
        """
        return FORMAT

    def schema(self) -> str:
        """
        The columns, as the options ask for them.
        """
        asked = parse_options(self.options, STREAM_OPTIONS)
        if asked.view == "segments":
            return ", ".join(f"`{name}` {each.ddl}" for name, each in SEGMENT_BY_NAME.items())
        return ddl(asked.names)

    def streamReader(self, schema: "StructType") -> BinlogStreamReader:
        """
        Follows logs.  Its options are also those of `startings.STREAM_OPTIONS`.
        """
        streamed = Streamed.of(self.options)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return BinlogStreamReader(streamed, check_schema(fields, BY_NAME))

    def reader(self, schema: "StructType") -> "BinlogReader":
        """
        Reads the columns of a schema: this one's, or what the user gave of it.
        """
        return BinlogReader(parse_options(self.options), columns_of(schema, self.options))


def columns_of(schema: "StructType", options: Any) -> tuple[str, ...]:
    """
    The columns that a schema names, checked.
    """
    view = parse_options(options).view
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_schema(fields, SEGMENT_BY_NAME if view == "segments" else BY_NAME)


class TaskPartition(InputPartition):
    """
    What one task reads.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class BinlogReader(DataSourceReader):
    """
    Plans a read, and reads.
    """

    def __init__(self, asked: Asked, columns: tuple[str, ...]) -> None:
        self._asked = asked
        self._columns = columns
        self._conditions: tuple[Condition, ...] = asked.conditions

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":
        """
        Take note of what rows are wanted, to leave out segments; Spark filters the rows.

        Only if that was asked for: Spark 4.1 keeps this reader as the filters of one query have
        left it, and uses it for the next query on the same DataFrame, whatever that one wants.
        """
        if self._asked.pushdown:
            self._conditions = (*self._asked.conditions, *conditions_of(filters))
        return filters

    def partitions(self) -> list[TaskPartition]:
        """
        Look at what there is, and cut it into tasks.
        """
        found = find(self._asked.paths, self._asked.live)
        items = list(self._items(found))
        return [TaskPartition(task) for task in packed(items, self._asked.partition_bytes)]

    def _items(self, found: Findings) -> Iterator[Share | Trouble]:
        for broken in found.broken:
            yield self._tolerated(_of_broken(broken))
        for each in in_order(found.segments, found.gaps):
            if isinstance(each, Gap):
                yield from self._gap(each)
                continue
            server = self._server(each.header.store_uuid)
            if may_match(stats_of(each, server, self._asked.records), self._conditions):
                task_bytes = self._asked.partition_bytes
                if self._asked.view == "segments":
                    task_bytes = each.stretch.end
                wanted = self._conditions
                yield from shares_of(
                    each, server, task_bytes, bounds(wanted, "lsn"), bounds(wanted, "logged_ns")
                )

    def _server(self, uuid: bytes) -> str:
        return named(self._asked.servers)(uuid)

    def _gap(self, gap: Gap) -> Iterator[Trouble]:
        """
        A gap matters if a row in it might have been wanted.
        """
        after, wanted = gap.after.header, self._conditions
        first = gap.before.next_lsn or gap.before.header.first_lsn
        since_ns = gap.before.logged_ns[1] if gap.before.logged_ns else EVERY.low
        until_ns = gap.after.logged_ns[0] if gap.after.logged_ns else EVERY.high
        if bounds(wanted, "lsn").meets(first, after.first_lsn - 1) and (
            bounds(wanted, "logged_ns").meets(since_ns, until_ns)
        ):
            yield self._tolerated(gap_trouble(gap, self._server(after.store_uuid)))

    def _tolerated(self, trouble: Trouble) -> Trouble:
        """
        The view of segments is there to show damage: it has rows for it, whatever ``damage`` says.
        """
        if self._asked.damage == "fail" and self._asked.view == "events":
            what = f"{trouble.problem}; read what is left with .option('damage', 'skip')"
            raise SourceError("BINLOG_DAMAGED", what)
        return trouble

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """
        The batches of a task.
        """
        if not isinstance(partition, TaskPartition):
            # Spark's stand-in for no partitions at all.
            return
        for item in partition.task.items:
            try:
                yield from self._read_item(item)
            except OSError as problem:
                raise unreadable(problem) from None

    def _read_item(self, item: Share | Trouble) -> Iterator[Any]:
        if isinstance(item, Share):
            with_bodies = "body" in self._columns or self._asked.view == "segments"
            item = soundest(item, self._asked.verify, with_bodies)
        if self._asked.view == "segments":
            yield segment_batch([self._summary(item)], self._columns)
        elif isinstance(item, Trouble):
            yield damage_row(self._columns, item.place, item.lsn, item.problem, size=item.size)
        else:
            opened = open_share(item)
            yield from batches(
                opened.buffer, item.place, item.stretch, self._wanted(), opened.tubes
            )

    def _wanted(self) -> Wanted:
        asked = self._asked
        return Wanted(
            self._columns, asked.records, asked.copies, asked.damage, asked.verify,
            asked.conditions,
        )  # fmt: skip

    def _summary(self, item: Share | Trouble) -> dict[str, object]:
        if isinstance(item, Share):
            opened = open_share(item)
            return summary(opened.buffer, item.place, item.stretch, self._asked.verify)
        server = item.place.server if item.place else None
        return {"server": server, "damages": 1, "damaged_bytes": item.size,
                "problem": item.problem}  # fmt: skip


def _of_broken(broken: BrokenFile) -> Trouble:
    error = damaged(broken.path, 0, broken.why)
    what = str(error).partition("] ")[2].partition("; or read")[0]
    return Trouble(None, what, None, broken.size, path=broken.path)


def register(spark: "SparkSession") -> "SparkSession":
    """
    Make the format known to a session, and let it push filters down, which Spark does not unless
    told to.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BinlogSource)
    return spark
