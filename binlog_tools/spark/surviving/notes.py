"""What segments say beside their jobs, and whether they make one log without holes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple, cast

from beanstalk_twisted.binlog.records.others import RememberedKey
from binlog_tools.inspect.hidden import Hidden
from binlog_tools.spark.reading.finding import segments_are


class Note(NamedTuple):
    """
    What a segment says beside its jobs.

    :ivar next_lsn: behind the last record that was read; ``last_lsn``: no higher one is in it.
    :ivar trim_seq: segments below it are dead, by its TRIM records; 0: it has none.
    :ivar time_ns: of its newest frame.
    :ivar pauses: by tube id, how many seconds were asked for, and until when.
    :ivar damages: places that cannot be read.
    :ivar policies: by tube id, JSON as in the records.
    :ivar keys: remembered unique keys, by tube id and key the newest.
    :ivar hidden: the LSNs that cannot be read.
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
    policies: Mapping[int, bytes] = {}
    keys: Sequence[RememberedKey] = ()
    hidden: tuple[Hidden, ...] = ()

    def encode(self) -> str:
        keys = [
            (each.tube_id, _text(each.key), each.job_id, each.until_ns, each.ts_ns)
            for each in self.keys
        ]
        told: Mapping[str, object] = {
            **self._asdict(), "tubes": _texts(self.tubes), "policies": _texts(self.policies),
            "keys": keys,
        }  # fmt: skip
        return json.dumps(list(told.values()))

    @classmethod
    def decode(cls, text: str) -> "Note":
        note = cls(*json.loads(text))
        said, keys = note.pauses.items(), cast(Sequence[Any], note.keys)
        return note._replace(
            tubes=_bytes(note.tubes), policies=_bytes(note.policies),
            pauses={int(number): (seconds, until) for number, (seconds, until) in said},
            damages=tuple(note.damages), keys=tuple(_key(*each) for each in keys),
            hidden=tuple(_hidden(*each) for each in cast(Sequence[Any], note.hidden)),
        )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")


def _key(tube_id: int, key: str, job_id: int, until_ns: int, ts_ns: int) -> RememberedKey:
    return RememberedKey(tube_id, key.encode("latin-1"), job_id, until_ns, ts_ns)


def _hidden(
    first_lsn: int, last_lsn: int, types: Mapping[str, int] | None, job_ids: tuple[int, int] | None
) -> Hidden:
    counts = None if types is None else {int(kind): count for kind, count in types.items()}
    return Hidden(first_lsn, last_lsn, counts, job_ids and (job_ids[0], job_ids[1]))


def _texts(named: Mapping[int, bytes]) -> dict[int, str]:
    return {number: _text(raw) for number, raw in named.items()}


def _bytes(named: Mapping[Any, Any]) -> dict[int, bytes]:
    return {int(number): text.encode("latin-1") for number, text in named.items()}


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


def hidden_among(notes: Sequence[Note]) -> Iterator[Hidden]:
    """
    Find the LSNs that cannot be read: within segments, at their ends, and in missing segments.

    :param notes: in order, at least one.
    """
    for note, following in zip_longest(notes, notes[1:]):
        for each in note.hidden:
            # At the end of a segment only the next one says where the range ends.
            if following is None or each.first_lsn < following.first_lsn:
                yield each
        if following is not None and note.next_lsn < following.first_lsn:
            yield Hidden(note.next_lsn, following.first_lsn - 1)


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
