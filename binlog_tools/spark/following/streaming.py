"""``spark.readStream.format("beanstalk_binlog")``: logs and archives as they grow, each record
once.

What lies between two offsets is the same for ever: only durable frames are given, and segments
never change.  So after a crash of the driver Spark gets the same rows again.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from beanstalk_twisted.binlog.reading.segment import Hole
from beanstalk_twisted.binlog.segments.format import REHOMED, SEGMENT_HEADER_BYTES, SegmentHeader
from beanstalk_twisted.object_storage.store import BadUrl
from binlog_tools.spark.definitions.errors import SourceError, bad_url, unreadable
from binlog_tools.spark.files.listing import archived_at, expanded
from binlog_tools.spark.files.opening import open_file
from binlog_tools.spark.following.lag import Lag, LagMeter, with_lag
from binlog_tools.spark.following.locating import (
    Lost,
    find,
    locate,
    refuse_other_history,
    refuse_other_segment,
)
from binlog_tools.spark.following.logs import Durable, Log
from binlog_tools.spark.following.positions import (
    Marks,
    Position,
    Positions,
    decode,
    encode,
    marks_in,
)
from binlog_tools.spark.following.startings import UNLIMITED, Streamed
from binlog_tools.spark.following.stores import look
from binlog_tools.spark.reading.increments import header_mark
from binlog_tools.spark.reading.opening import task_batches
from binlog_tools.spark.reading.planning import Share, Trouble, tasks_of
from binlog_tools.spark.segments.framing import Run, Stretch
from binlog_tools.spark.segments.producing import Place
from binlog_tools.spark.segments.tubes import tubes_of

_NOTHING: Final[dict[int, bytes]] = {}


class _Known(NamedTuple):
    """:ivar salt: of the segment.
    :ivar offset: up to here its names are known; ``lsn``, of the frame there.
    """

    salt: int
    offset: int
    lsn: int
    names: dict[int, bytes]


class TubeMemory:
    """The names of tubes before the place where a stream goes on, of the newest segment of each
    store.

    A segment that is being written has no seal that lists them: what has come since is searched.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def before(self, part: Share) -> dict[int, bytes] | None:
        """The names that a segment says before a part of it; None if the part is read without."""
        header, stretch = part.place.header, part.stretch
        if stretch.start == SEGMENT_HEADER_BYTES or header.flags & REHOMED:
            return None
        known = self._known.get(header.store_uuid)
        if known is None or known.salt != header.salt or known.offset > stretch.start:
            known = _Known(header.salt, SEGMENT_HEADER_BYTES, header.first_lsn, _NOTHING)
        names = {**known.names, **_said(part, Stretch(known.offset, stretch.start, known.lsn))}
        self._known[header.store_uuid] = _Known(
            header.salt, stretch.start, stretch.first_lsn, names
        )
        return names


def _said(part: Share, stretch: Stretch) -> dict[int, bytes]:
    if stretch.end <= stretch.start:
        return {}
    with open_file(part.place.path) as file:
        buffer = file.view(stretch.end, stretch.start, stretch.end)
    return tubes_of(buffer, part.place.header, stretch)


class _Limits:
    """How much more may be taken.  One frame with records may be, however large it is."""

    def __init__(self, most_bytes: int, most_rows: int) -> None:
        self._bytes = most_bytes
        self._rows = most_rows
        self._has_taken = False

    def take(self, run: Run, to_lsn: int) -> int:
        """:return: how many frames of a run."""
        lengths, rows = np.cumsum(run.length), np.cumsum(run.n_rec)
        within = int(np.searchsorted(run.base_lsn + run.n_rec, to_lsn, "right"))
        fits = (lengths <= self._bytes) & (rows <= self._rows)
        count = min(int(fits.sum()), within)
        if count == 0 and within and not self._has_taken:
            count = 1
        if count:
            self._has_taken = self._has_taken or bool(rows[count - 1])
            self._bytes -= int(lengths[count - 1])
            self._rows -= int(rows[count - 1])
        return count

    def take_rest(self, at: Position, following: SegmentHeader) -> bool:
        """All that is left of a segment, unseen, if that is within the limits."""
        size, rows = following.prev_end - at.offset, following.first_lsn - at.lsn
        if size > self._bytes or rows > self._rows:
            return False
        self._has_taken = self._has_taken or rows > 0
        self._bytes -= max(0, size)
        self._rows -= rows
        return True


def advance(log: Log, at: Position, to: Position, most_bytes: int, most_rows: int) -> Position:
    """Go on by so much at most, but by one frame at least if there is one.

    :param at: where a frame is, as `locate` has found it.
    :param to: not beyond this LSN.
    """
    limits = _Limits(most_bytes, most_rows)
    while at.lsn < to.lsn:
        rest = log.following(at.seq)
        if rest is not None and rest.first_lsn <= to.lsn and limits.take_rest(at, rest):
            at = log.beginning(at.seq + 1)
            continue
        for piece in log.frames(at):
            if isinstance(piece, Hole):
                # What is wrong is told by whoever reads it.
                at = Position(at.seq, piece.end, piece.next_lsn or at.lsn)
                continue
            count = limits.take(piece, to.lsn)
            if count:
                taken = piece.part(0, count)
                at = Position(at.seq, taken.end, taken.next_lsn)
            if count < len(piece.offset):
                return at
        following = log.following(at.seq)
        if following is None:
            return at
        at = log.beginning(at.seq + 1)
    return at


def parts(log: Log, start: Position, end: Position) -> Iterator[Share | Lost]:
    at = start
    while at.lsn < end.lsn:
        place = locate(log, at)
        if isinstance(place, Lost):
            yield place
            at = place.after
            continue
        following = log.following(place.seq)
        if following is not None and following.first_lsn < end.lsn:
            stop, at = following.prev_end, log.beginning(place.seq + 1)
        elif following is None and place.seq < log.numbers[-1] and end.seq > place.seq:
            at = log.measured(place.seq)
            stop = at.offset
        else:
            stop, at = _stop(log, place, end, following), end
        if stop > place.offset:
            yield _part(log, place, stop)


def _stop(log: Log, place: Position, end: Position, following: SegmentHeader | None) -> int:
    if end.seq != place.seq:
        return find(log, place.seq, end.lsn).offset
    return end.offset if following is None else min(end.offset, following.prev_end)


def _part(log: Log, place: Position, stop: int) -> Share:
    header = log.header(place.seq)
    # A re-homed one may say the names of its tubes further on, but in its first batch.  Not to the
    # end of the file: that is cut off when the segment is sealed.
    size = max(stop, log.end(place.seq)) if header.flags & REHOMED else stop
    path, *elsewhere = log.paths(place.seq)
    return Share(
        Place(path, header, log.store), Stretch(place.offset, stop, place.lsn), size,
        elsewhere=tuple(elsewhere),
    )  # fmt: skip


LOOKS: Final = 5
"""How often directories are listed anew since a server has deleted a segment in between."""

T = TypeVar("T")


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, streamed: Streamed, columns: tuple[str, ...]) -> None:
        self._streamed = streamed
        self._columns = columns
        self._known: dict[str, Durable] = {}
        self._tubes = TubeMemory()
        self._pinned: Positions | None = None
        self._meter = LagMeter()
        self._given: Positions | None = None

    def initialOffset(self) -> dict[str, Any]:
        return encode(self._looking(self._starts), self._streamed.rows)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._streamed.most_rows < UNLIMITED and self._streamed.most_bytes == UNLIMITED:
            return ReadMaxRows(self._streamed.most_rows)
        return ReadMaxBytes(self._streamed.most_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: within the limit, never beyond what is durable."""
        rows = self._streamed.rows
        before, marks = decode(start, rows), marks_in(start)

        def go_on(logs: dict[str, Log]) -> tuple[Positions, Marks]:
            _refuse_others(logs, before, marks)
            for store in before.keys() & logs.keys():
                refuse_other_history(logs[store], before[store])
            ends = self._forward(logs, before, limit)
            return ends, _marks_of(logs, before, marks, ends)

        self._given, given = self._looking(go_on)
        return encode(self._given, rows, given)

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far the logs are durable, and how far the newest batch is behind that."""
        return self._looking(self._reported)

    def lag(self, offset: dict[str, Any]) -> dict[str, Lag]:
        """How far an offset is behind what is durable now."""
        at = decode(offset, self._streamed.rows)
        return self._looking(lambda logs: self._meter.measure(logs, at, time.time_ns()))

    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned = self._looking(_frontiers)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        rows = self._streamed.rows
        begins, ends = decode(start, rows), decode(end, rows)

        def planned(logs: dict[str, Log]) -> list[Share | Trouble]:
            _refuse_others(logs, begins, marks_in(start))
            _refuse_others(logs, ends, marks_in(end))
            return self._items(logs, begins, ends)

        items = self._looking(planned)
        return [InputPartition(task) for task in tasks_of(items)]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the offsets; there is nothing to do."""

    def stop(self) -> None:
        """Nothing is held open."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a task; this runs where the task does, on a pickled copy."""
        return task_batches(partition.value or (), self._streamed.asked.wanted(self._columns))

    def _looking(self, what: Callable[[dict[str, Log]], T]) -> T:
        """Do something with the logs as they are now; anew if one of their files goes meanwhile."""
        for _ in range(LOOKS):
            try:
                stores = look(self._streamed.paths)
                logs = {store: Log(each, self._known.get(store)) for store, each in stores.items()}
            except OSError as problem:
                raise unreadable(problem) from None
            except BadUrl as problem:
                raise bad_url(", ".join(self._streamed.paths), problem) from None
            try:
                found = what(logs)
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise unreadable(problem) from None
            self._known.update(
                {store: log.known for store, log in logs.items() if log.known is not None}
            )
            return found
        raise SourceError(
            "BINLOG_CHANGED", f"{', '.join(self._streamed.paths)}: segments go faster than they "
            f"can be looked at; name the archive with .option('archive', DIR)",
        )  # fmt: skip

    def _reported(self, logs: dict[str, Log]) -> dict[str, Any]:
        offset = encode(_frontiers(logs), self._streamed.rows)
        if self._given is None:
            return offset
        return with_lag(offset, self._meter.measure(logs, self._given, time.time_ns()))

    def _starts(self, logs: dict[str, Log]) -> Positions:
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
        return {store: self._streamed.start_of(log) for store, log in logs.items()}

    def _forward(self, logs: dict[str, Log], before: Positions, limit: ReadLimit) -> Positions:
        """:param before: where the last batch has ended."""
        self._refuse_missing(logs, before)
        targets = self._pinned or _frontiers(logs)
        behind = _behind(before, targets)
        most_bytes, most_rows = self._limits(limit)
        ends = dict(before)
        for number, store in enumerate(behind):
            # What one log leaves of its share is for those behind it.
            share = len(behind) - number
            taken = self._advance(
                logs[store], before[store], targets[store], most_bytes // share, most_rows // share
            )
            ends[store] = taken
        # A log that has come since begins with the next batch: so that its beginning is noted.
        for store in logs.keys() - before.keys():
            if self._pinned is None or store in self._pinned:
                ends[store] = logs[store].first()
        return ends

    def _advance(
        self, log: Log, before: Position, to: Position, most_bytes: int, most_rows: int
    ) -> Position:
        place = locate(log, before)
        if isinstance(place, Lost):
            if not self._streamed.tolerates_loss:
                raise place.error()
            place = place.after
        return advance(log, place, to, most_bytes, most_rows)

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        if isinstance(limit, ReadAllAvailable):
            return UNLIMITED, UNLIMITED
        streamed = self._streamed
        return (
            limit.max_bytes if isinstance(limit, ReadMaxBytes) else streamed.most_bytes,
            limit.max_rows if isinstance(limit, ReadMaxRows) else streamed.most_rows,
        )

    def _refuse_missing(self, logs: dict[str, Log], stores: Iterable[str]) -> None:
        missing = set(stores) - logs.keys()
        if missing and not self._streamed.tolerates_loss:
            raise SourceError(
                "BINLOG_NOT_FOUND",
                f"store {min(missing)}: none of {', '.join(self._streamed.paths)} has segments of "
                f"it any more; bring them back, or go on without with "
                f".option('failOnDataLoss', 'false')",
            )

    def _items(
        self, logs: dict[str, Log], begins: Positions, ends: Positions
    ) -> list[Share | Trouble]:
        self._refuse_missing(logs, _behind(begins, ends))
        stores = sorted(begins.keys() & ends.keys() & logs.keys())
        return [
            self._item(part)
            for store in stores
            for part in parts(logs[store], begins[store], ends[store])
        ]

    def _item(self, part: Share | Lost) -> Share | Trouble:
        header = part.header if isinstance(part, Lost) else part.place.header
        server = self._streamed.asked.server_of(header)
        if isinstance(part, Lost):
            if not self._streamed.tolerates_loss:
                raise part.error()
            return Trouble(Place(part.path, header, server), part.what, part.before.lsn, None)
        return part._replace(
            place=part.place._replace(server=server),
            elsewhere=(*part.elsewhere, *archived_at(self._streamed.paths, header)),
            tubes=self._tubes.before(part) if "tube" in self._columns else None,
        )


def _frontiers(logs: dict[str, Log]) -> Positions:
    return {store: log.frontier() for store, log in logs.items()}


def _refuse_others(logs: dict[str, Log], positions: Positions, marks: Marks) -> None:
    for store in positions.keys() & logs.keys():
        refuse_other_segment(logs[store], positions[store], marks.get(store))


def _marks_of(logs: dict[str, Log], before: Positions, marks: Marks, ends: Positions) -> Marks:
    """Of a log that has not gone on the same as before: an offset with another text is a batch."""
    found: Marks = {}
    for store, at in ends.items():
        if at == before.get(store):
            found |= {store: marks[store]} if store in marks else {}
        elif at.offset > SEGMENT_HEADER_BYTES and at.seq in logs[store].numbers:
            found[store] = header_mark(logs[store].header(at.seq))
    return found


def _behind(before: Positions, targets: Positions) -> list[str]:
    return [
        store for store, at in before.items() if store in targets and at.lsn < targets[store].lsn
    ]
