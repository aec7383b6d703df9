"""One store as it was when its segments were looked for.  A stream knows each record by its LSN
alone: after a crash frames may be there twice, with the same LSNs.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from beanstalk_twisted.binlog.reading.segment import Hole
from beanstalk_twisted.binlog.segments.format import REHOMED, SEGMENT_HEADER_BYTES
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.files import open_file
from binlog_tools.spark.reading.planning import SEQ_BITS, Segment, Share, header_mark
from binlog_tools.spark.segments.wanted import Place, Span, Stretch

VERSION: Final = 2
"""Of the form of an offset."""

LAG_KEY: Final = "lag"
"""Of the offset that is reported.  Spark lets no Python source report metrics of its own, but shows
what `reportLatestOffset` gives, as ``latestOffset``, and never keeps it."""


class Position(NamedTuple):
    """Between two records: the next LSN, and `header_mark` of the segment with the one before."""

    lsn: int
    mark: int | None = None


Positions = dict[str, Position]
"""By store, 32 hex digits."""


class Lag(NamedTuple):
    """Durable records in no batch yet, bytes of their frames, age of the oldest in seconds."""

    records: int
    bytes: int
    seconds: float


NOT_BEHIND: Final = Lag(0, 0, 0.0)


def encode(
    positions: Mapping[str, Position], rows: str, lags: Mapping[str, Lag] | None = None
) -> dict[str, Any]:
    """Make an offset of Spark's; ``rows`` are the options that decide which rows a log gives."""
    stores = {
        store: {"lsn": at.lsn} | ({} if at.mark is None else {"mark": at.mark})
        for store, at in sorted(positions.items())
    }
    shown = {} if lags is None else {LAG_KEY: {name: lag._asdict() for name, lag in lags.items()}}
    return {"v": VERSION, "rows": rows, "stores": stores, **shown}


def decode(offset: Mapping[str, Any], rows: str) -> Positions:
    """:raise SourceError: another version made it, or a query that gave other rows."""
    if offset.get("v") != VERSION:
        raise SourceError(
            "BINLOG_OPTION",
            f"the checkpoint has version {offset.get('v')} of the offsets, this is {VERSION}: "
            f"another version of beanstalk-twisted made it; use that one, or a new checkpoint with "
            f"startingLsn",
        )
    if offset["rows"] != rows:
        raise SourceError(
            "BINLOG_OPTION",
            f"the checkpoint was made with {offset['rows']}, and this query has {rows}: the rows "
            f"would change in the middle; give the same options, or a new checkpoint",
        )
    return {
        store: Position(int(at["lsn"]), at.get("mark")) for store, at in offset["stores"].items()
    }


if TYPE_CHECKING:
    from binlog_tools.spark.segments.framing import Run

WINDOW_BYTES: Final = 1 << 20
"""What is looked at once where a batch is to end: it may end soon."""

BOOKMARKS: Final = 4
"""Places in a segment that are remembered: where the last batches have begun and ended."""


class Bookmarks:
    """Where frames begin, by LSN, and names of tubes before one of them, by a segment's salt."""

    def __init__(self) -> None:
        self._offsets: dict[int, dict[int, int]] = {}
        self._tubes: dict[int, tuple[Stretch, dict[int, bytes]]] = {}

    def note(self, salt: int, lsn: int, offset: int) -> None:
        known = self._offsets.setdefault(salt, {})
        known[lsn] = offset
        while len(known) > BOOKMARKS:
            del known[next(iter(known))]

    def before(self, segment: Segment, lsn: int) -> tuple[int, int]:
        """The last place that is known at or before an LSN: its LSN, and the byte."""
        known = self._offsets.get(segment.header.salt, {})
        found = max((each for each in known if each <= lsn), default=None)
        if found is None:
            return segment.stretch.first_lsn, segment.stretch.start
        return found, known[found]

    def tubes(self, segment: Segment, before: Stretch) -> dict[int, bytes]:
        """The names that a segment without a seal says before a stretch."""
        from binlog_tools.spark.segments.payloads import tubes_of

        salt = segment.header.salt
        done, names = self._tubes.get(salt, (segment.stretch._replace(end=0), {}))
        start, lsn = (done.end, done.first_lsn) if done.end else (done.start, done.first_lsn)
        if start > before.start:
            start, lsn, names = segment.stretch.start, segment.stretch.first_lsn, {}
        if start < before.start:
            with open_file(segment.path) as file:
                buffer = file.view(before.start, start, before.start)
            found = tubes_of(buffer, segment.header, Stretch(start, before.start, lsn))
            names = {**names, **found}
        self._tubes[salt] = Stretch(0, before.start, before.first_lsn), names
        return names


class Lost(NamedTuple):
    """Records that are in no segment any more; ``place`` is of the segment that follows."""

    lsns: Span
    place: Place

    @property
    def what(self) -> str:
        return (
            f"store {self.place.header.store_uuid.hex()}: LSN {self.lsns.low} to {self.lsns.high} "
            f"were removed before this query had read them"
        )

    def error(self) -> SourceError:
        return SourceError(
            "BINLOG_TRIMMED",
            f"{self.what}; name the server's archive with .option('archive', DIR) if it has one; "
            f"else go on without these records, and with a damage row in their place, with "
            f".option('failOnDataLoss', 'false')",
        )


class Limits:
    """How much more may be taken.  One frame with records may be, however large it is."""

    def __init__(self, most_bytes: int, most_rows: int) -> None:
        self._bytes = most_bytes
        self._rows = most_rows
        self._has_taken = False

    def take_frames(self, run: "Run", to_lsn: int) -> int:
        """:return: how many frames of a run."""
        import numpy as np

        lengths, rows = np.cumsum(run.length), np.cumsum(run.n_rec)
        within = int(np.searchsorted(run.base_lsn + run.n_rec, to_lsn, "right"))
        fits = (lengths <= self._bytes) & (rows <= self._rows)
        count = min(int(fits.sum()), within)
        if not self._has_taken and (count == 0 or rows[count - 1] == 0):
            # Frames without records do not bring a stream on.
            count = min(int(np.searchsorted(rows, 1)) + 1, within)
        if count:
            self._take(int(lengths[count - 1]), int(rows[count - 1]))
        return count

    def take_rest(self, size: int, rows: int) -> bool:
        """Take all that is left of a segment, unseen, if that is within the limits."""
        fits = size <= self._bytes and rows <= self._rows
        if fits:
            self._take(size, rows)
        return fits

    def _take(self, size: int, rows: int) -> None:
        self._has_taken = self._has_taken or rows > 0
        self._bytes -= size
        self._rows -= rows


class Log:
    """One store, as it was when looked at: LSNs from ``first_lsn`` up to before ``next_lsn``."""

    def __init__(self, segments: Sequence[Segment], bookmarks: Bookmarks) -> None:
        self.store = segments[0].header.store_uuid.hex()
        self._bookmarks = bookmarks
        self._segments = [(each, self._next_of(each)) for each in segments]
        self.first_lsn = segments[0].header.first_lsn
        self.next_lsn = self._segments[-1][1]

    def _next_of(self, segment: Segment) -> int:
        """The LSN after a segment, looked for where nothing says it."""
        if segment.next_lsn is not None:
            return segment.next_lsn
        pieces = self._frames(segment, segment.stretch.first_lsn)
        return max((piece.next_lsn or 0 for piece in pieces), default=segment.stretch.first_lsn)

    def _frames(self, segment: Segment, lsn: int) -> "Iterator[Run | Hole]":
        """From the frame with this LSN on."""
        from binlog_tools.spark.segments.framing import Run, runs

        first_lsn, start = self._bookmarks.before(segment, lsn)
        end = segment.stretch.end
        with open_file(segment.path) as file:
            buffer = file.view(min(end, file.size), start, end)
        stretch = Stretch(start, end, first_lsn)
        for piece in runs(buffer, segment.header, stretch, "headers", WINDOW_BYTES):
            if isinstance(piece, Run) and int(piece.base_lsn[0]) < lsn:
                skipped = int((piece.base_lsn + piece.n_rec <= lsn).sum())
                if skipped < len(piece.offset):
                    yield piece.part(skipped, len(piece.offset))
            elif isinstance(piece, Run) or piece.next_lsn is None or piece.next_lsn > lsn:
                yield piece

    def refuse_other_history(self, at: Position) -> None:
        """:raise SourceError: this is not the log in which the position was."""
        if at.mark is None:
            return
        newest = self._segments[-1][0].header.seq & SEQ_BITS
        seq = at.mark >> 32
        for segment, _ in self._segments:
            if segment.header.seq & SEQ_BITS == seq and header_mark(segment.header) != at.mark:
                raise self._differs(f"segment {segment.header.seq} is another one", at)
        if newest < seq:
            raise self._differs(f"its newest segment is {newest}", at)
        if newest == seq and self.next_lsn < at.lsn:
            raise self._differs(f"that has {self.next_lsn - 1} for its last one", at)
        # Else it was written once more after a crash, and is not known durable yet.

    def _differs(self, what: str, at: Position) -> SourceError:
        return SourceError(
            "BINLOG_HISTORIES_DIFFER",
            f"store {self.store}: this query has read up to LSN {at.lsn - 1}, but {what}: the log "
            f"was restored from an older copy, or its directory exchanged; begin anew with another "
            f"checkpoint",
        )

    def position(self, lsn: int) -> Position:
        for segment, next_lsn in self._segments:
            if segment.header.first_lsn < lsn <= next_lsn:
                return Position(lsn, header_mark(segment.header))
        return Position(lsn)

    def at_lsn(self, lsn: int) -> int:
        return min(max(lsn, self.first_lsn), self.next_lsn)

    def at_time(self, since_ns: int) -> int:
        """The first record of a frame that was built at this time or later."""
        before = bisect_right(self._segments, since_ns, key=lambda each: each[0].header.created_ns)
        for segment, _ in self._segments[max(0, before - 1) :]:
            for piece in self._frames(segment, segment.stretch.first_lsn):
                if not isinstance(piece, Hole) and piece.time_ns[-1] >= since_ns:
                    return int(piece.base_lsn[(piece.time_ns >= since_ns).argmax()])
        return self.next_lsn

    def broken_matters(self, seq: int, at: Position | None) -> bool:
        """Return True if a stream still has to read of this segment, whose header is no good."""
        return at is None or at.mark is None or seq & SEQ_BITS >= at.mark >> 32

    def advanced(self, lsn: int, to_lsn: int, limits: Limits) -> int:
        """Go on as far as the limits allow, but by one frame at least if there is one."""
        for segment, next_lsn in self._segments:
            end_lsn = min(next_lsn, to_lsn)
            if end_lsn <= lsn:
                continue
            lsn = max(lsn, segment.header.first_lsn)
            _, offset = self._bookmarks.before(segment, lsn)
            end = segment.stretch.end
            if limits.take_rest(end - offset, end_lsn - lsn):
                lsn = end_lsn
                if lsn == next_lsn:
                    self._bookmarks.note(segment.header.salt, lsn, end)
                continue
            for piece in self._frames(segment, lsn):
                if isinstance(piece, Hole):
                    # What is wrong is told by whoever reads it.
                    lsn = piece.next_lsn or end_lsn
                    continue
                count = limits.take_frames(piece, to_lsn)
                if count:
                    taken = piece.part(0, count)
                    lsn = taken.next_lsn
                    self._bookmarks.note(segment.header.salt, lsn, taken.end)
                if count < len(piece.offset):
                    return lsn
            lsn = max(lsn, end_lsn)
        return lsn

    def parts(self, start: int, end: int, server: str, with_tubes: bool) -> Iterator[Share | Lost]:
        """What lies between two LSNs."""
        for segment, next_lsn in self._segments:
            stop = min(next_lsn, end)
            if stop <= start:
                continue
            place = Place(segment.path, segment.header, server)
            if segment.header.first_lsn > start:
                yield Lost(Span(start, segment.header.first_lsn - 1), place)
                start = segment.header.first_lsn
            if start < stop:
                yield self._share(segment, place, Span(start, stop - 1), with_tubes)
                start = stop

    def _share(self, segment: Segment, place: Place, lsns: Span, with_tubes: bool) -> Share:
        first_lsn, start = self._bookmarks.before(segment, lsns.low)
        last_lsn, stop = self._bookmarks.before(segment, lsns.high + 1)
        if last_lsn != lsns.high + 1 or stop <= start:
            stop = segment.stretch.end
        stretch = Stretch(start, stop, first_lsn)
        is_rehomed = bool(segment.header.flags & REHOMED)
        # A re-homed one may say the names of its tubes further on, but in its first batch.
        size = segment.size if is_rehomed else min(segment.size, stop)
        tubes = None
        if with_tubes and segment.seal is None and start > SEGMENT_HEADER_BYTES and not is_rehomed:
            tubes = self._bookmarks.tubes(segment, stretch)
        return Share(place, stretch, size, elsewhere=segment.copies, tubes=tubes, lsns=lsns)

    def lag(self, lsn: int, now_ns: int) -> Lag:
        """How far a position is behind what is durable."""
        records, size, oldest_ns = self.next_lsn - max(lsn, self.first_lsn), 0, None
        for segment, next_lsn in self._segments:
            if next_lsn <= lsn:
                continue
            _, offset = self._bookmarks.before(segment, lsn)
            for piece in self._frames(segment, lsn) if oldest_ns is None else ():
                if not isinstance(piece, Hole):
                    oldest_ns, offset = int(piece.time_ns[0]), int(piece.offset[0])
                    break
            size += segment.stretch.end - offset
        if oldest_ns is None:
            return NOT_BEHIND
        return Lag(records, size, round(max(0, now_ns - oldest_ns) / 1e9, 3))
