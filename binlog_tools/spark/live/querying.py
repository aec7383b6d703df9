"""A query of Spark's that keeps live tables: each batch of the stream is given to `LiveTables`, and
between batches a clock tells of waits that have become too long.

`transformWithState` would do the same with the records in RocksDB; a batch of it takes five times
as long, too long to be two seconds behind.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import StreamingQueryException

from binlog_tools.spark.following.positions import NOT_BEHIND, Lag
from binlog_tools.spark.live.open_jobs import NAMES
from binlog_tools.spark.live.running import FOLDER, LiveTables
from binlog_tools.spark.reading.options import Streamed
from binlog_tools.spark.source import stream_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME: Final = "live"
"""What the query is called."""

EVERY_S: Final = 0.5
"""How long Spark and the clock wait before they look again, seconds."""

BATCH_BYTES: Final = "32M"
"""What a batch reads at most: some 250,000 records, which come to the driver at once."""


STARTS: Final = 6
"""How often in all a query is started whose Python process is late.  Spark gives the one that plans
batches 10 s to begin, and has no setting for that; on a busy machine it takes longer."""

LATE: Final = "Python worker failed to connect back"
"""What Spark says then, and of one that ends before."""


class Wish(NamedTuple):
    """What is to be followed.

    :ivar options: of the source.
    :ivar checkpoint: where Spark notes how far it is; empty: in the tables' folder.
    :ivar is_once: end with what there is.
    """

    paths: tuple[str, ...]
    output: str
    options: Mapping[str, str]
    checkpoint: str = ""
    is_once: bool = False

    def source(self) -> dict[str, str]:
        """All options of the stream."""
        paths = {"path": self.paths[0]} if len(self.paths) == 1 else (
            {"paths": json.dumps(self.paths)})  # fmt: skip
        return {"maxBytesPerTrigger": BATCH_BYTES, **self.options, **paths, "copies": "keep",
                "records": "history", "columns": ",".join(NAMES)}  # fmt: skip


class Behind(NamedTuple):
    """What of a server's log the tables do not have yet.

    :ivar lsn: where they go on.
    """

    server: str
    lsn: int
    lag: Lag


def names_of(wish: Wish) -> dict[str, str]:
    """What the servers are called whose logs are there, by store; without Spark.

    :raise SourceError: there is no log, or it cannot be read.
    :raise SparkTooOld: this Spark cannot follow logs.
    """
    streamed = Streamed.of(wish.source())
    stores = stream_reader(streamed, NAMES).initialOffset()["stores"]
    return {store: streamed.asked.servers.get(store, store) for store in stores}


def behind(wish: Wish, names: Mapping[str, str], tables: LiveTables) -> dict[str, Behind]:
    """What there is to take when a query begins; without Spark.

    :param names: as `names_of` gives them.
    :return: by store.
    """
    servers = tables.state.servers
    known = {store: max(1, servers[name].newest_lsn + 1)
             for store, name in names.items() if name in servers}  # fmt: skip
    reader = stream_reader(Streamed.of(wish.source())._replace(starts=known), NAMES)
    offset = reader.initialOffset()
    lags, stores = reader.lag(offset), offset["stores"]
    return {
        store: Behind(names.get(store, store), stores[store]["lsn"], lag)
        for store, lag in lags.items() if store in stores
    }  # fmt: skip


def follow(spark: "SparkSession", wish: Wish, tables: LiveTables) -> "StreamingQuery":
    """Start the query."""
    events = spark.readStream.format("beanstalk_binlog").options(**wish.source()).load()

    def take(rows: "DataFrame", batch: int) -> None:
        tables.take(rows.toArrow(), batch)

    writing = (
        events.writeStream.foreachBatch(take).queryName(NAME)
        .option("checkpointLocation", wish.checkpoint or f"{wish.output}/{FOLDER}/checkpoint")
    )  # fmt: skip
    if wish.is_once:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{int(EVERY_S * 1000)} milliseconds").start()


def run(spark: "SparkSession", wish: Wish, tables: LiveTables) -> None:
    """Keep the tables until the query ends, or is interrupted.

    :raise StreamingQueryException: it has failed.
    """
    for left in range(STARTS)[::-1]:
        query = follow(spark, wish, tables)
        clock = Clock(wish, tables, query)
        try:
            _await(query)
        except KeyboardInterrupt:
            _end(spark, query)
        except StreamingQueryException as problem:
            if not left or LATE not in str(problem):
                raise
            continue
        finally:
            clock.stop()
        return


def _await(query: "StreamingQuery") -> None:
    """Wait in another thread: a signal that comes while py4j waits for an answer would break its
    connection.
    """
    over, problems = Event(), list[Exception]()

    def wait() -> None:
        try:
            query.awaitTermination()
        except Exception as problem:
            problems.append(problem)
        over.set()

    Thread(target=wait, name="live query", daemon=True).start()
    over.wait()
    if problems:
        raise problems[0]


def _end(spark: "SparkSession", query: "StreamingQuery") -> None:
    """Let the batch in hand go, and Java say nothing of it."""
    # Java may have been told to end too, and not be there any more.
    with suppress(Exception):
        spark.sparkContext.setLogLevel("OFF")
        query.stop()


class Clock:
    """Ticks, in a thread of its own, when the query has taken all that is durable."""

    def __init__(self, wish: Wish, tables: LiveTables, query: "StreamingQuery") -> None:
        self._reader = stream_reader(Streamed.of(wish.source()), NAMES)
        self._tables, self._query = tables, query
        self._over = Event()
        self._thread = Thread(target=self._run, name="live clock", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                if not self._query.isActive:
                    return
                self.look(time.time_ns)
            except Exception as problem:
                # Of no moment: the query meets the same, and says so.
                self.problem = problem

    problem: Exception | None = None

    def look(self, clock: Callable[[], int]) -> bool:
        """Tick, if the query is not behind."""
        now_ns = clock()
        if self._tables.is_quiet(now_ns):
            return False
        progress = self._query.lastProgress
        at = None if progress is None else progress.sources[0].endOffset
        if at is None:
            return False
        behind = self._reader.lag(json.loads(at))
        return all(lag == NOT_BEHIND for lag in behind.values()) and self._tables.tick(now_ns)
