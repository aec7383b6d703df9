"""The figures of the last hours, in memory: each second of some minutes, each half minute of hours.

A row is kept as the JSON that it is sent as, so history costs no more to send than to copy.
"""

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

RECENT_ROWS: Final = 300
"""Rows, one a tick: five minutes of seconds, on a plot of 300 to 600 pixels."""

LONG_TICKS: Final = 30
"""Ticks that one row of the long history stands for: half a minute."""

LONG_ROWS: Final = 720
"""Rows of the long history: six hours, a working day's half; both rings take 110 to 310 KB."""

MAX_ROW_BYTES: Final = 301
"""Bytes of a row: 15 numbers of up to 19 digits, and what stands between them."""


class Figures(NamedTuple):
    """The server at one moment.  What is counted since the start stands behind what is as it is.

    :ivar at_ms: the log's time, milliseconds.
    :ivar oldest_ms: how long ago the oldest ready job was put; 0 if there is none.
    :ivar unsynced_ms: how long the oldest change that is not on disk has waited.
    :ivar ended: jobs that are there no more.
    """

    at_ms: int
    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0
    oldest_ms: int = 0
    connections: int = 0
    waiting: int = 0
    log_bytes: int = 0
    live_bytes: int = 0
    unsynced_ms: int = 0
    puts: int = 0
    ended: int = 0
    timeouts: int = 0
    commands: int = 0


COUNTED: Final = Figures._fields[-4:]
"""The fields that only grow: differences of two rows are what happened between them."""

FIRST_COUNTED: Final = len(Figures._fields) - len(COUNTED)


class History:
    """Two rings of rows.

    :ivar ticks: how many rows were noted.
    """

    def __init__(self) -> None:
        self.ticks = 0
        self._recent: deque[bytes] = deque(maxlen=RECENT_ROWS)
        self._long: deque[bytes] = deque(maxlen=LONG_ROWS)
        self._peaks: Figures | None = None

    def note(self, figures: Figures) -> bytes:
        """Keep one more row.

        :return: it, as a JSON array in the order of the fields.
        """
        row = _encoded(figures)
        self._recent.append(row)
        self.ticks += 1
        self._peaks = figures if self._peaks is None else _peaks(self._peaks, figures)
        if self.ticks % LONG_TICKS == 0:
            self._long.append(_encoded(self._peaks))
            self._peaks = None
        return row

    def recent(self, after: int = 0) -> bytes:
        """:param after: a number of ticks; 0 for all that is kept.
        :return: a JSON array of the rows behind that one.
        """
        skipped = max(0, len(self._recent) - max(0, self.ticks - after))
        return _joined(islice(self._recent, skipped, None))

    def has_all_behind(self, tick: int) -> bool:
        """Whether no row behind this one is lost."""
        return self.ticks - len(self._recent) <= tick <= self.ticks

    def long(self) -> bytes:
        """:return: a JSON array of the long history's rows: of what is counted the last value, of
        all else the highest in its half minute.
        """
        return _joined(self._long)

    @property
    def kept_bytes(self) -> int:
        """What the rows take."""
        return sum(map(len, self._recent)) + sum(map(len, self._long))


def _peaks(before: Figures, now: Figures) -> Figures:
    highest = map(max, before[1:FIRST_COUNTED], now[1:FIRST_COUNTED])
    return Figures(now.at_ms, *highest, *now[FIRST_COUNTED:])


def _encoded(figures: Figures) -> bytes:
    return b"[%s]" % ",".join(map(str, figures)).encode("ascii")


def _joined(rows: "islice[bytes] | deque[bytes]") -> bytes:
    return b"[%s]" % b",".join(rows)
