"""How far a stream is behind its logs, by server: in records, bytes and seconds.

Spark lets no Python source report metrics of its own (``sources[…].metrics`` stays empty), but it
shows what `reportLatestOffset` gives, as ``latestOffset``, and never keeps it: so that carries the
lag, and checkpoints do not.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from binlog_tools.spark.following.locating import Lost, locate
from binlog_tools.spark.following.logs import Log
from binlog_tools.spark.following.positions import Position, Positions
from binlog_tools.spark.segments.framing import Run

KEY = "lag"
"""Of the offset that is reported; offsets in checkpoints do not have it."""


class Lag(NamedTuple):
    """What of a log is durable, and in no batch yet.

    :ivar records: of all kinds, copies too.
    :ivar bytes: of their frames.
    :ivar seconds: since the first of these frames was built; 0 if there is none.
    """

    records: int
    bytes: int
    seconds: float


NONE = Lag(0, 0, 0.0)


class LagMeter:
    """Measures, and remembers where finished segments end, so that each is opened once."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}

    def measure(self, logs: Mapping[str, Log], at: Positions, now_ns: int) -> dict[str, Lag]:
        """:param at: where the stream is; a log that it has not begun with counts from its first
        segment on.
        """
        return {
            store: self._behind(log, at.get(store, log.first()), now_ns)
            for store, log in sorted(logs.items())
        }

    def _behind(self, log: Log, at: Position, now_ns: int) -> Lag:
        to = log.frontier()
        if at.lsn >= to.lsn:
            return NONE
        place = locate(log, at)
        place = place.after if isinstance(place, Lost) else place
        oldest_ns = _built(log, place)
        seconds = 0.0 if oldest_ns is None else max(0, now_ns - oldest_ns) / 1e9
        return Lag(to.lsn - at.lsn, self._bytes(log, place, to), round(seconds, 3))

    def _bytes(self, log: Log, at: Position, to: Position) -> int:
        total = -at.offset
        for seq in (number for number in log.numbers if at.seq <= number < to.seq):
            total += self._end(log, seq) - log.beginning(to.seq).offset
        return total + to.offset

    def _end(self, log: Log, seq: int) -> int:
        key = log.store, seq
        if key not in self._ends:
            self._ends[key] = log.end(seq)
        return self._ends[key]


def _built(log: Log, at: Position) -> int | None:
    """When the first frame from here on was built."""
    for seq in (number for number in log.numbers if number >= at.seq):
        for piece in log.frames(at if seq == at.seq else log.beginning(seq)):
            if isinstance(piece, Run):
                return int(piece.time_ns[0])
    return None


def with_lag(offset: dict[str, Any], lags: Mapping[str, Lag]) -> dict[str, Any]:
    """An offset to report."""
    return {**offset, KEY: {store: lag._asdict() for store, lag in lags.items()}}


def lags_of(offset: Mapping[str, Any]) -> dict[str, Lag]:
    """What ``lastProgress["sources"][…]["latestOffset"]`` says, read from JSON; empty if
    nothing.
    """
    return {store: Lag(**fields) for store, fields in offset.get(KEY, {}).items()}
