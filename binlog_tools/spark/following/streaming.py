"""``readStream``: each record once.  What lies between two offsets never changes: only durable
frames are given, so after a crash of the driver Spark gets the same rows again.
"""

import time
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from beanstalk_twisted.object_storage.store import BadUrl
from binlog_tools.spark.errors import SourceError, bad_url, damaged, unreadable
from binlog_tools.spark.files import archived_at, expanded
from binlog_tools.spark.following.logs import (
    Bookmarks,
    Lag,
    Limits,
    Log,
    Lost,
    Position,
    Positions,
    decode,
    encode,
)
from binlog_tools.spark.reading.finding import Seen, find
from binlog_tools.spark.reading.opening import task_batches
from binlog_tools.spark.reading.options import UNLIMITED, Streamed
from binlog_tools.spark.reading.planning import Share, Trouble, tasks_of

LOOKS: Final = 5
"""How often segments are looked for again since a server has deleted one in between."""

_NEVER: Final = 1 << 62
"""No segment is so large: those whose successor says where they end are not opened."""

T = TypeVar("T")
Logs = dict[str, Log]


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, streamed: Streamed, columns: tuple[str, ...]) -> None:
        self._streamed = streamed
        self._columns = columns
        self._seen = Seen()
        self._bookmarks = Bookmarks()
        self._is_last_look = False
        self._pinned: dict[str, int] | None = None
        self._given: Positions | None = None

    def initialOffset(self) -> dict[str, Any]:
        return encode(self._looking(self._starts), self._streamed.rows)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._streamed.most_rows < UNLIMITED and self._streamed.most_bytes == UNLIMITED:
            return ReadMaxRows(self._streamed.most_rows)
        return ReadMaxBytes(self._streamed.most_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: within the limit, never beyond what is durable."""
        before = decode(start, self._streamed.rows)
        self._given = self._looking(lambda logs: self._forward(logs, before, limit), before)
        return encode(self._given, self._streamed.rows)

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far the logs are durable, and how far the newest batch is behind that."""

        def report(logs: Logs) -> dict[str, Any]:
            ends = {store: Position(log.next_lsn) for store, log in logs.items()}
            lags = None if self._given is None else _lags(logs, self._given)
            return encode(ends, self._streamed.rows, lags)

        return self._looking(report)

    def lag(self, offset: dict[str, Any]) -> dict[str, Lag]:
        """How far an offset is behind what is durable now."""
        at = decode(offset, self._streamed.rows)
        return self._looking(lambda logs: _lags(logs, at))

    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned = self._looking(_ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begins, ends = (decode(each, self._streamed.rows) for each in (start, end))

        def planned(logs: Logs) -> list[Share | Trouble]:
            for store, at in ends.items():
                if store in logs:
                    logs[store].refuse_other_history(at)
            return list(self._items(logs, begins, ends))

        return [InputPartition(task) for task in tasks_of(self._looking(planned, begins))]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the offsets; there is nothing to do."""

    def stop(self) -> None:
        """Nothing is held open."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a task; this runs where the task does, on a pickled copy."""
        return task_batches(partition.value or (), self._streamed.asked.wanted(self._columns))

    # Looking.

    def _looking(self, what: Callable[[Logs], T], at: Positions | None = None) -> T:
        """Do something with the logs as they are now; again if a file of theirs goes meanwhile."""
        for look in range(1, LOOKS + 1):
            self._is_last_look = look == LOOKS
            try:
                logs = self._logs(at or {})
                for store in (at or {}).keys() & logs.keys():
                    logs[store].refuse_other_history((at or {})[store])
                return what(logs)
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise unreadable(problem) from None
        raise SourceError(
            "BINLOG_CHANGED", f"{', '.join(self._streamed.paths)}: segments go faster than they "
            f"can be looked at; name the archive with .option('archive', DIR)",
        )  # fmt: skip

    def _logs(self, at: Positions) -> Logs:
        try:
            folders = [each for path in self._streamed.paths for each in expanded(path)]
        except BadUrl as problem:
            raise bad_url(", ".join(self._streamed.paths), problem) from None
        if not folders:
            return {}
        try:
            found = find(folders, seals_from=_NEVER, seen=self._seen)
        except SourceError as problem:
            if problem.code != "BINLOG_NO_LOG":
                raise
            return {}
        logs = {}
        for _, segments in groupby(found.segments, key=lambda each: each.header.store_uuid):
            log = Log(list(segments), self._bookmarks)
            logs[log.store] = log
        for each in found.broken:
            log_of = logs.get(each.may_be[0].hex())
            if log_of is None or log_of.broken_matters(each.may_be[1], at.get(log_of.store)):
                raise damaged(each.path, 0, each.why)
        return logs

    # Where it goes on.

    def _starts(self, logs: Logs) -> Positions:
        if not logs:
            where = ", ".join(self._streamed.paths)
            if not any(map(expanded, self._streamed.paths)):
                raise SourceError("BINLOG_NOT_FOUND", f"{where}: there is no such directory")
            raise SourceError("BINLOG_NO_LOG", f"{where}: there are no segments here")
        unknown = self._streamed.starts.keys() - logs.keys()
        if unknown:
            raise SourceError(
                "BINLOG_OPTION", f"option startingOffsets: there is no store {min(unknown)} here"
            )
        return {store: log.position(self._start_of(log)) for store, log in logs.items()}

    def _start_of(self, log: Log) -> int:
        if self._streamed.is_latest:
            return log.next_lsn
        lsn = self._streamed.starts.get(log.store, self._streamed.lsn)
        if lsn is not None:
            return log.at_lsn(lsn)
        since_ns = self._streamed.since_ns
        return log.first_lsn if since_ns is None else log.at_time(since_ns)

    def _forward(self, logs: Logs, before: Positions, limit: ReadLimit) -> Positions:
        """:param before: where the last batch has ended."""
        self._refuse_missing(logs, before)
        targets = self._pinned or _ends(logs)
        behind = [store for store, at in before.items() if at.lsn < targets.get(store, 0)]
        most_bytes, most_rows = self._limits(limit)
        ends = dict(before)
        for number, store in enumerate(behind):
            # What one log leaves of its share is for those after it.
            share = len(behind) - number
            log, lsn = logs[store], before[store].lsn
            for part in log.parts(lsn, targets[store], store, False):
                if isinstance(part, Lost):
                    self._lose(part)
            limits = Limits(most_bytes // share, most_rows // share)
            reached = log.advanced(lsn, targets[store], limits)
            if reached > lsn:
                ends[store] = log.position(reached)
        # A log that has come since begins with the next batch: so that its beginning is noted.
        for store in logs.keys() - before.keys():
            if self._pinned is None or store in self._pinned:
                ends[store] = Position(logs[store].first_lsn)
        return ends

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        if isinstance(limit, ReadAllAvailable):
            return UNLIMITED, UNLIMITED
        streamed = self._streamed
        return (
            limit.max_bytes if isinstance(limit, ReadMaxBytes) else streamed.most_bytes,
            limit.max_rows if isinstance(limit, ReadMaxRows) else streamed.most_rows,
        )

    def _refuse_missing(self, logs: Logs, stores: Iterator[str] | Positions) -> None:
        missing = set(stores) - logs.keys()
        if missing and not self._streamed.tolerates_loss:
            raise SourceError(
                "BINLOG_NOT_FOUND",
                f"store {min(missing)}: none of {', '.join(self._streamed.paths)} has segments of "
                f"it any more; bring them back, or go on without with "
                f".option('failOnDataLoss', 'false')",
            )

    def _lose(self, part: Lost) -> None:
        """:raise FileNotFoundError: what is gone may be in the archive by now."""
        if not self._is_last_look:
            raise FileNotFoundError(part.what)
        if not self._streamed.tolerates_loss:
            raise part.error()

    def _items(self, logs: Logs, begins: Positions, ends: Positions) -> Iterator[Share | Trouble]:
        both = begins.keys() & ends.keys()
        self._refuse_missing(logs, (each for each in both if begins[each].lsn < ends[each].lsn))
        asked, with_tubes = self._streamed.asked, "tube" in self._columns
        for store in sorted(begins.keys() & ends.keys() & logs.keys()):
            server = asked.servers.get(store, store)
            log = logs[store]
            for part in log.parts(begins[store].lsn, ends[store].lsn, server, with_tubes):
                if isinstance(part, Lost):
                    self._lose(part)
                    yield Trouble(part.place, part.what, part.lsns.low, None)
                    continue
                elsewhere = archived_at(self._streamed.paths, part.place.header)
                yield part._replace(elsewhere=(*part.elsewhere, *elsewhere))


def _ends(logs: Logs) -> dict[str, int]:
    return {store: log.next_lsn for store, log in logs.items()}


def _lags(logs: Logs, at: Positions) -> dict[str, Lag]:
    """A log that the stream has not begun with counts from its first segment on."""
    now_ns = time.time_ns()
    return {
        store: log.lag(at[store].lsn if store in at else log.first_lsn, now_ns)
        for store, log in sorted(logs.items())
    }
