"""
What segments say beside their jobs, and whether they make one log without holes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from binlog_tools.spark.reading.finding import segments_are


class Note(NamedTuple):
    """
    What a segment says beside its jobs.

    :ivar next_lsn: behind the last record that was read; ``last_lsn``: no higher one is in it.
    :ivar trim_seq: segments below it are dead, by its TRIM records; 0: it has none.
    :ivar time_ns: of its newest frame.
    :ivar pauses: by tube id, how many seconds were asked for, and until when.
    :ivar damages: places that cannot be read.
    """

    seq: int
    first_lsn: int
    next_lsn: int
    last_lsn: int
    next_job_id: int
    trim_seq: int
    time_ns: int
    records: int
    tubes: Mapping[int, bytes]
    pauses: Mapping[int, tuple[int, int]]
    damages: tuple[str, ...]

    def encode(self) -> str:
        tubes = {number: name.decode("latin-1") for number, name in self.tubes.items()}
        return json.dumps(self._replace(tubes=tubes))  # type: ignore[arg-type]

    @classmethod
    def decode(cls, text: str) -> "Note":
        note = cls(*json.loads(text))
        return note._replace(
            tubes={int(number): str(name).encode("latin-1") for number, name in note.tubes.items()},
            pauses={int(n): (seconds, until) for n, (seconds, until) in note.pauses.items()},
            damages=tuple(note.damages),
        )


def breaks(notes: Sequence[Note], first_seq: int) -> Iterator[str]:
    """
    Where a log that should be dense is not, in words.

    :param notes: in order, at least one.
    :param first_seq: the oldest segment that is needed.
    """
    if notes[0].seq > first_seq:
        upto = f"up to LSN {notes[0].first_lsn - 1}"
        which = segments_are(first_seq, notes[0].seq - 1)
        yield f"{which} missing before segment {notes[0].seq} ({upto})"
    for before, after in pairwise(notes):
        lsns = f"LSN {before.next_lsn} to {after.first_lsn - 1}"
        if after.seq != before.seq + 1:
            which = segments_are(before.seq + 1, after.seq - 1)
            yield f"{which} missing between segments {before.seq} and {after.seq} ({lsns})"
        elif after.first_lsn != before.next_lsn and not before.damages:
            yield (
                f"segment {before.seq} ends with LSN {before.next_lsn - 1}, and segment "
                f"{after.seq} begins with LSN {after.first_lsn}"
            )


def dead_gaps(seqs: Iterable[int], first_seq: int) -> Iterator[str]:
    """
    Which segments are missing and not missed, in words.

    :param seqs: those that there are, in order.
    :param first_seq: the oldest segment that is needed.
    """
    for before, after in pairwise(seqs):
        if before + 1 < after <= first_seq:
            yield (
                f"{segments_are(before + 1, after - 1)} missing between segments {before} and "
                f"{after}; nothing is lost: no segment before {first_seq} is needed, since "
                f"compaction has stated again behind them what was alive"
            )
