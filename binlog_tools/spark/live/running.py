"""Live tables as they are kept: each step's rows are appended, and its commits note the LSN that
they have reached.

From time to time the records of open jobs are stored too, as the table ``open``: a process that
was killed goes on from there, reads the log behind it again, and appends what a table lacks.
"""

import json
import time
from collections.abc import Iterator, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.following.logs import Lag
from binlog_tools.spark.histories.records import STARTS, starts_table
from binlog_tools.spark.histories.tables import of_days
from binlog_tools.spark.live.steps import SCHEMAS, LiveServer, Rows
from binlog_tools.spark.reading.options import Streamed
from binlog_tools.spark.source import stream_reader
from binlog_tools.spark.storing.tables import open_stored
from binlog_tools.spark.tables.layouts import LAYOUTS, OPEN, TAKEN

if TYPE_CHECKING:
    from binlog_tools.spark.following.streaming import BinlogStreamReader

DATED_BY: Final = {"lifetimes": "last", "attempts": "ended", "tube_minutes": "minute"}
"""Whose day is the partition of a row: rows come in about this order."""

OPEN_RECORDS: Final = 100_000
"""Records after which the open jobs are stored, or as many as those have, if these are more: a
start reads no more of the log again, which takes some seconds.
"""

OPTIMIZE_COMMITS: Final = 500
"""Commits of a table after which its small files are merged: some minutes' worth."""

BATCH_BYTES: Final = "32M"
"""What a step reads at most: some 250,000 records, which are in memory together."""

EVERY_S: Final = 0.5
"""How long to wait for more records before looking again, seconds."""

_DAY_US: Final = 86_400_000_000


class LiveTables:
    """The tables of some servers in a folder, or at a URL."""

    def __init__(self, place: str) -> None:
        """Go on where another process has ended.

        :raise TableError: the place cannot be written, or has something else.
        """
        names = (*SCHEMAS, OPEN)
        self._tables = {
            name: open_stored(within(place, name), LAYOUTS[name]._replace(name=f"live {name}"))
            for name in names
        }  # fmt: skip
        self.rows = dict.fromkeys(SCHEMAS, 0)
        self.step_s = 0.0
        self._commits = dict.fromkeys(names, 0)
        self._records = 0
        known = self._tables[OPEN].read().replace_schema_metadata(None).cast(_EVENTS)
        servers = pc.unique(known["server"]).to_pylist()
        reached = self._tables[OPEN].progress([*servers, *map(_minute_of, servers)])
        self.servers = {
            name: LiveServer(name, *_divided(_of(known, name)), reached[name],
                             reached.get(_minute_of(name)))
            for name in servers
        }  # fmt: skip

    def take(self, events: pa.Table) -> None:
        """Append what follows from these durable records, those of a server in order.

        :raise TableError: ``TABLE_BUSY``: another process keeps these tables.
        """
        begun = time.monotonic()
        events = events.select(TAKEN).combine_chunks()
        for name in sorted(filter(None, pc.unique(events["server"]).to_pylist())):
            if name not in self.servers:
                empty = STARTS.empty_table()
                self.servers[name] = LiveServer(name, _EVENTS.empty_table(), empty)
            for part in self._parts(name, _of(events, name)):
                self._append(name, self.servers[name].step(part))
        self._records += events.num_rows
        if self._records >= max(OPEN_RECORDS, self.open_records):
            self.store_open()
        self.step_s = time.monotonic() - begun

    @property
    def open_records(self) -> int:
        return sum(server.events.num_rows for server in self.servers.values())

    def _parts(self, server: str, events: pa.Table) -> Iterator[pa.Table]:
        """Of records that were taken before the process was killed, parts up to the last of each
        table: what it has and what it lacks.
        """
        lsn = events["lsn"]
        done = {self._reached(name, server) for name in SCHEMAS}
        low = -1
        for high in (*sorted(done), None):
            is_mine = pc.greater(lsn, low)
            if high is not None:
                is_mine = pc.and_(is_mine, pc.less_equal(lsn, high))
                low = high
            part = events.filter(is_mine)
            if part.num_rows:
                yield part

    def _reached(self, name: str, server: str) -> int:
        return self._tables[name].progress([server]).get(server, -1)

    def _append(self, server: str, made: Rows) -> None:
        live = self.servers[server]
        for name, rows in made.items():
            if not rows.num_rows or live.newest_lsn <= self._reached(name, server):
                continue
            moments_us = rows[DATED_BY[name]].cast(pa.int64()).to_numpy()
            self._write(name, of_days(rows, moments_us // _DAY_US), None, {server: live.newest_lsn})
            self.rows[name] += rows.num_rows

    def _write(
        self, name: str, rows: pa.Table, replaced: str | None, progress: Mapping[str, int]
    ) -> None:
        table = self._tables[name]
        table.write(rows.cast(LAYOUTS[name].schema), replaced, progress)
        self._commits[name] += 1
        if self._commits[name] % OPTIMIZE_COMMITS == 0:
            table.optimize()

    def store_open(self) -> None:
        """Store the records of open jobs, and starts: the next process goes on from here."""
        self._records = 0
        live = self.servers.values()
        parts = [part for each in live for part in (each.events, _of_starts(each.starts))]
        reached = {name: each.newest_lsn for name, each in self.servers.items()}
        closed = {_minute_of(name): each.closed for name, each in self.servers.items()
                  if each.closed is not None}  # fmt: skip
        rows = pa.concat_tables([_EVENTS.empty_table(), *parts])
        self._write(OPEN, rows, "", {**reached, **closed})


_EVENTS: Final = arrow_schema(TAKEN)


def _of_starts(known: pa.Table) -> pa.Table:
    """The first and the newest record of each incarnation: of these `starts_table` makes the same
    again.
    """
    rows = [
        {"server": row["server"], "incarnation": row["incarnation"], "event": event,
         "logged_ns": row[name]}
        for row in known.to_pylist()
        for name, event in (("first_ns", "start"), ("newest_ns", "start"),
                            ("stopped_ns", "clean-stop")) if row[name] is not None
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _EVENTS)


def _divided(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The records of jobs, and the starts."""
    is_job = rows["job"].is_valid()
    return rows.filter(is_job), starts_table(rows.filter(pc.invert(is_job)))


def _minute_of(server: str) -> str:
    """The name under which the last closed minute is noted."""
    return f"{server}/minute"


def _of(rows: pa.Table, server: str) -> pa.Table:
    return rows.filter(pc.equal(rows["server"], server)).combine_chunks()


class Request(NamedTuple):
    """What to follow.

    :ivar options: of the source.
    """

    paths: tuple[str, ...]
    options: Mapping[str, str]

    def refuse_nothing(self) -> None:
        """:raise SourceError: there is no log, or it cannot be read."""
        stream_reader(self.streamed(), TAKEN).initialOffset()

    def streamed(self) -> Streamed:
        paths = {"path": self.paths[0]} if len(self.paths) == 1 else (
            {"paths": json.dumps(self.paths)})  # fmt: skip
        return Streamed.of({"maxBytesPerTrigger": BATCH_BYTES, **self.options, **paths,
                            "copies": "keep", "records": "history",
                            "columns": ",".join(TAKEN)})  # fmt: skip


class Follower:
    """Follows logs, and keeps the tables.

    :ivar names: of the servers, by store.
    """

    def __init__(self, request: Request, tables: LiveTables) -> None:
        """:raise SourceError: there is no log, or it cannot be read.
        :raise SparkTooOld: this Spark has no interface of streams.
        """
        streamed = request.streamed()
        stores = stream_reader(streamed, TAKEN).initialOffset()["stores"]
        self.names = {store: streamed.asked.servers.get(store, store) for store in stores}
        known = {store: max(1, tables.servers[name].newest_lsn + 1)
                 for store, name in self.names.items() if name in tables.servers}  # fmt: skip
        self._tables = tables
        self._reader: BinlogStreamReader = stream_reader(streamed._replace(starts=known), TAKEN)
        self._at: dict[str, Any] = self._reader.initialOffset()

    def behind(self) -> dict[str, tuple[int, Lag]]:
        """By server, the LSN at which it goes on, and what there is to read."""
        lags, stores = self._reader.lag(self._at), self._at["stores"]
        return {self.names.get(store, store): (stores[store]["lsn"], lag)
                for store, lag in lags.items() if store in stores}  # fmt: skip

    def step(self) -> bool:
        """Take what there is, up to `BATCH_BYTES`; return False if there is nothing."""
        end = self._reader.latestOffset(self._at, self._reader.getDefaultReadLimit())
        if end == self._at:
            return False
        parts = self._reader.partitions(self._at, end)
        batches = [batch for part in parts for batch in self._reader.read(part)]
        if batches:
            self._tables.take(pa.Table.from_batches(batches))
        self._at = end
        return True

    def run(self, is_over: Event, is_once: bool = False) -> None:
        """Follow until it is over, or to the end of what there is."""
        while not is_over.is_set():
            if not self.step():
                if is_once:
                    break
                is_over.wait(EVERY_S)
        self._tables.store_open()
