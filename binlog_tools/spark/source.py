"""The format ``beanstalk_binlog``: logs and archives as a table, read in batch.

Spark pickles these objects and calls them in three places: `BinlogSource.schema` and
`BinlogReader.partitions` in a short-lived process beside the driver, `BinlogReader.read` in the
tasks.  So they hold what was asked for and nothing that is open.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from beanstalk_twisted.binlog.segments.format import parse_segment_name
from binlog_tools.spark.definitions.addresses import name_of
from binlog_tools.spark.definitions.columns import (
    BY_NAME,
    SEGMENT_BY_NAME,
    Column,
    arrow_schema,
    ddl,
)
from binlog_tools.spark.definitions.errors import SourceError, SparkTooOld, damaged, unreadable
from binlog_tools.spark.files import archived_at
from binlog_tools.spark.reading.finding import BrokenFile, Findings, Gap, find
from binlog_tools.spark.reading.opening import (
    Held,
    is_damage,
    open_soundest,
    standing,
    task_batches,
)
from binlog_tools.spark.reading.options import (
    STREAM_OPTIONS,
    Asked,
    Streamed,
    check_schema,
    parse_options,
)
from binlog_tools.spark.reading.planning import (
    Share,
    Task,
    Trouble,
    conditions_of,
    may_match,
    oldest_marked,
    shares_of,
    stats_of,
    tasks_of,
)
from binlog_tools.spark.segments.wanted import EVERY, Condition, Place, bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from binlog_tools.spark.following.streaming import BinlogStreamReader

FORMAT = "beanstalk_binlog"


class BinlogSource(DataSource):
    """The format.  Its options are those of `options.OPTIONS`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        asked = parse_options(self.options, STREAM_OPTIONS)
        if asked.view == "segments":
            return ddl(SEGMENT_BY_NAME, SEGMENT_BY_NAME)
        return ddl(asked.names)

    def streamReader(self, schema: "StructType") -> "BinlogStreamReader":
        """:raise SparkTooOld: see `stream_reader`."""
        return stream_reader(Streamed.of(self.options), _columns_of(schema, BY_NAME))

    def reader(self, schema: "StructType") -> "BinlogReader":
        asked = parse_options(self.options)
        known = SEGMENT_BY_NAME if asked.view == "segments" else BY_NAME
        made = FilteredReader if asked.pushdown else BinlogReader
        return made(asked, _columns_of(schema, known))


def stream_reader(streamed: Streamed, columns: tuple[str, ...]) -> "BinlogStreamReader":
    """What follows logs.

    :raise SparkTooOld: this Spark has no limits of batches, of which streams are made.
    """
    try:
        # Imported here: whatever else there is works with older versions of Spark.
        from binlog_tools.spark.following.streaming import BinlogStreamReader
    except ImportError:
        raise SparkTooOld.of(
            "following logs", "4.2", "read them in batches, with lsnFrom"
        ) from None
    return BinlogStreamReader(streamed, columns)


def _columns_of(schema: "StructType", known: Mapping[str, Column]) -> tuple[str, ...]:
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_schema(fields, known)


class BinlogReader(DataSourceReader):
    """Plans a read, and reads."""

    def __init__(self, asked: Asked, columns: tuple[str, ...]) -> None:
        self._asked = asked
        self._columns = columns
        self._conditions: tuple[Condition, ...] = asked.conditions

    def partitions(self) -> list[InputPartition]:
        # Seals say what filters need, and where a large segment can be cut.
        seals_from = 0 if self._conditions else self._asked.partition_bytes
        found = find(self._asked.paths, self._asked.live, seals_from=seals_from)
        items = list(self._items(found))
        tasks = oldest_marked(tasks_of(items, self._asked.partition_bytes))
        return [InputPartition(task) for task in tasks]

    def _items(self, found: Findings) -> Iterator[Share | Trouble]:
        for broken in found.broken:
            yield self._tolerated(_of_broken(broken))
        gaps = {gap.after.key: gap for gap in found.gaps}
        for each in found.segments:
            if each.key in gaps:
                yield from self._gap(gaps[each.key])
            server = self._asked.server_of(each.header)
            # What a seal says is worked out only for those who ask.
            if not self._conditions or may_match(
                stats_of(each, server, self._asked.records), self._conditions
            ):
                task_bytes = self._asked.partition_bytes
                if self._asked.view == "segments":
                    task_bytes = each.stretch.end
                wanted = self._conditions
                # Where the server's archive will have it when the server has deleted it.
                is_of_server = parse_segment_name(name_of(each.path)) is not None
                elsewhere = (
                    tuple(archived_at(self._asked.paths, each.header)) if is_of_server else ()
                )
                for share in shares_of(
                    each, server, task_bytes, bounds(wanted, "lsn"), bounds(wanted, "logged_ns")
                ):
                    yield share._replace(elsewhere=elsewhere)

    def _gap(self, gap: Gap) -> Iterator[Trouble]:
        """A gap matters if a row in it might have been wanted."""
        after, wanted = gap.after.header, self._conditions
        first = gap.before.next_lsn or gap.before.header.first_lsn
        since_ns = gap.before.logged_ns[1] if gap.before.logged_ns else EVERY.low
        until_ns = gap.after.logged_ns[0] if gap.after.logged_ns else EVERY.high
        if bounds(wanted, "lsn").meets(first, after.first_lsn - 1) and (
            bounds(wanted, "logged_ns").meets(since_ns, until_ns)
        ):
            place = Place(gap.after.path, after, self._asked.server_of(after))
            seq = gap.before.header.seq + 1
            yield self._tolerated(Trouble(place, gap.what, gap.before.next_lsn, None, seq))

    def _tolerated(self, trouble: Trouble) -> Trouble:
        """The view of segments is there to show damage: it has rows for it, whatever ``damage``
        says.
        """
        if self._asked.damage == "fail" and self._asked.view == "events":
            what = f"{trouble.problem}; read what is left with .option('damage', 'skip')"
            raise SourceError("BINLOG_DAMAGED", what)
        return trouble

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # None is Spark's stand-in for no partitions at all.
        task: Task = partition.value or ()
        if self._asked.view == "events":
            return task_batches(task, self._asked.wanted(self._columns))
        return self._summaries(task)

    def _summaries(self, task: Task) -> Iterator[Any]:
        import pyarrow as pa

        schema = arrow_schema(self._columns, SEGMENT_BY_NAME)
        with Held(task) as held:
            for item in standing(task, held):
                yield pa.RecordBatch.from_pylist([self._summary(item, held)], schema=schema)

    def _summary(self, item: Share | Trouble, held: Held) -> dict[str, object]:
        from binlog_tools.spark.segments.summaries import summary

        server = item.place.server if item.place else None
        if isinstance(item, Trouble):
            size, problem = item.size, item.problem
        else:
            try:
                verify = self._asked.verify
                opened = open_soundest(item, verify, with_bodies=True, open_one=held.open)
                return summary(opened.buffer, opened.place, item.stretch, verify)
            except OSError as error:
                raise unreadable(error) from None
            except SourceError as error:
                if not is_damage(error):
                    raise
                size, problem = item.stretch.end, error.what
        return {"server": server, "damages": 1, "damaged_bytes": size, "problem": problem}


class FilteredReader(BinlogReader):
    """With the option ``pushdown``.  Spark refuses a reader that has `pushFilters` unless the
    session has ``spark.sql.python.filterPushdown.enabled``, so others have none.
    """

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":
        """Take note of what rows are wanted, to leave out segments.  Spark uses this reader for the
        next query on the same DataFrame too.
        """
        self._conditions = (*self._asked.conditions, *conditions_of(filters))
        return filters


def _of_broken(broken: BrokenFile) -> Trouble:
    error = damaged(broken.path, 0, broken.why)
    what = str(error).partition("] ")[2].partition("; or read")[0]
    return Trouble(None, what, None, broken.size, path=broken.path)


def register(spark: "SparkSession") -> "SparkSession":
    """Make the format known to a session: classic, Connect, or of a declarative pipeline.  Nothing
    is set in it.
    """
    spark.dataSource.register(BinlogSource)
    return spark
