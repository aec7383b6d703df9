"""The format ``beanstalk_binlog``, read in batch.  Spark pickles these objects, and calls them
beside the driver and in tasks: they hold what was asked for and nothing that is open.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from beanstalk_twisted.binlog.segments.format import parse_segment_name
from binlog_tools.spark.definitions.addresses import name_of
from binlog_tools.spark.definitions.columns import ddl
from binlog_tools.spark.errors import SourceError, SparkTooOld, damaged
from binlog_tools.spark.files import archived_at
from binlog_tools.spark.reading.finding import BrokenFile, Findings, Gap, find
from binlog_tools.spark.reading.opening import task_batches
from binlog_tools.spark.reading.options import (
    STREAM_OPTIONS,
    Asked,
    Streamed,
    check_schema,
    parse_options,
)
from binlog_tools.spark.reading.planning import Share, Trouble, may_match, shares_of, tasks_of
from binlog_tools.spark.segments.wanted import EVERY, Place, bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from binlog_tools.spark.following.streaming import BinlogStreamReader

FORMAT = "beanstalk_binlog"

ATTEMPTS = 5
"""How often a stream is started on a machine that is too busy."""

LOOK_S = 0.2
"""Between two looks whether a stream has had its first batch, seconds."""

LATE = "Python worker failed to connect back"

_log = logging.getLogger(__name__)


class BinlogSource(DataSource):
    """The format.  Its options are those of `options.OPTIONS`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(parse_options(self.options, STREAM_OPTIONS).names)

    def streamReader(self, schema: "StructType") -> "BinlogStreamReader":
        """:raise SparkTooOld: see `stream_reader`."""
        return stream_reader(Streamed.of(self.options), _columns_of(schema))

    def reader(self, schema: "StructType") -> "BinlogReader":
        return BinlogReader(parse_options(self.options), _columns_of(schema))


def stream_reader(streamed: Streamed, columns: tuple[str, ...]) -> "BinlogStreamReader":
    """Return what follows logs; raise SparkTooOld if this Spark has no limits of batches."""
    try:
        # Imported here: whatever else there is works with older versions of Spark.
        from binlog_tools.spark.following.streaming import BinlogStreamReader
    except ImportError:
        raise SparkTooOld.of(
            "following logs", "4.2", "read them in batches, with lsnFrom"
        ) from None
    return BinlogStreamReader(streamed, columns)


def _columns_of(schema: "StructType") -> tuple[str, ...]:
    return check_schema([(field.name, field.dataType.simpleString()) for field in schema.fields])


class BinlogReader(DataSourceReader):
    """Plans a read, and reads."""

    def __init__(self, asked: Asked, columns: tuple[str, ...]) -> None:
        self._asked = asked
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        asked = self._asked
        # Seals say what conditions need, and where a large segment can be cut.
        found = find(asked.paths, asked.live, 0 if asked.conditions else asked.partition_bytes)
        return [
            InputPartition(task) for task in tasks_of(self._items(found), asked.partition_bytes)
        ]

    def _items(self, found: Findings) -> Iterator[Share | Trouble]:
        asked, wanted = self._asked, self._asked.conditions
        lsns, logged_ns = bounds(wanted, "lsn"), bounds(wanted, "logged_ns")
        for broken in found.broken:
            yield self._tolerated(_of_broken(broken))
        gaps = {gap.after.key: gap for gap in found.gaps}
        for each in found.segments:
            if each.key in gaps:
                yield from self._gap(gaps[each.key])
            # What a seal says is worked out only for those who ask.
            if wanted and not may_match(each, wanted, asked.records):
                continue
            # Where the server's archive will have it when the server has deleted it.
            is_of_server = parse_segment_name(name_of(each.path)) is not None
            elsewhere = tuple(archived_at(asked.paths, each.header)) if is_of_server else ()
            server = asked.server_of(each.header)
            for share in shares_of(each, server, asked.partition_bytes, lsns, logged_ns):
                yield share._replace(elsewhere=elsewhere)

    def _gap(self, gap: Gap) -> Iterator[Trouble]:
        """A gap matters if a row in it might have been wanted."""
        after, wanted = gap.after.header, self._asked.conditions
        first = gap.before.next_lsn or gap.before.header.first_lsn
        since_ns = gap.before.logged_ns[1] if gap.before.logged_ns else EVERY.low
        until_ns = gap.after.logged_ns[0] if gap.after.logged_ns else EVERY.high
        if bounds(wanted, "lsn").meets(first, after.first_lsn - 1) and (
            bounds(wanted, "logged_ns").meets(since_ns, until_ns)
        ):
            place = Place(gap.after.path, after, self._asked.server_of(after))
            yield self._tolerated(Trouble(place, gap.what, gap.before.next_lsn, None))

    def _tolerated(self, trouble: Trouble) -> Trouble:
        if self._asked.damage == "fail":
            what = f"{trouble.problem}; read what is left with .option('damage', 'skip')"
            raise SourceError("BINLOG_DAMAGED", what)
        return trouble

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # None is Spark's stand-in for no partitions at all.
        return task_batches(partition.value or (), self._asked.wanted(self._columns))


def _of_broken(broken: BrokenFile) -> Trouble:
    error = damaged(broken.path, 0, broken.why)
    what = str(error).partition("] ")[2].partition("; or read")[0]
    return Trouble(None, what, None, broken.size, path=broken.path)


def register(spark: "SparkSession") -> "SparkSession":
    """Make the format known to a session of any kind.  Nothing is set in it."""
    spark.dataSource.register(BinlogSource)
    return spark


def started(start: "Callable[[], StreamingQuery]", attempts: int = ATTEMPTS) -> "StreamingQuery":
    """Start a stream, again if this machine was too busy, and return it after its first batch."""
    for attempt in range(1, attempts + 1):
        query = start()
        while query.isActive and query.lastProgress is None:
            time.sleep(LOOK_S)
        if query.isActive or LATE not in str(query.exception()):
            break
        _log.warning("%s: attempt %d of %d", LATE, attempt, attempts)
    return query
