"""
What one segment has to say of the jobs that may be alive behind it: `survivors`.

Of each job the newest record counts and the newest full one, in which its body is; what was put and
deleted within the segment is left out.  A deletion of a job of an earlier segment is a row without
an image.  No body is read here, so whoever reads them looks at their checksums.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beanstalk_twisted.binlog.records.jobs import KEY, Kind
from beanstalk_twisted.binlog.records.others import Pause, RememberedKey, Start, Trim, TubePolicy
from beanstalk_twisted.binlog.segments.format import RECORD_BYTES
from binlog_tools.inspect.hidden import Hidden, hidden_in
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.reading import Hole
from binlog_tools.spark.definitions import errors
from binlog_tools.spark.definitions.columns import ARROW_TYPES
from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.files.opening import open_file
from binlog_tools.spark.reading.opening import is_damage, open_share
from binlog_tools.spark.reading.planning import Share
from binlog_tools.spark.segments import rows as at
from binlog_tools.spark.segments.bodies import IS_FULL
from binlog_tools.spark.segments.decoding import Damage, refuse_large_ids, refuse_unknown
from binlog_tools.spark.segments.framing import Ints, Run, runs
from binlog_tools.spark.segments.producing import IS_OF_JOB
from binlog_tools.spark.segments.rows import Rows
from binlog_tools.spark.segments.tubes import tubes_named
from binlog_tools.spark.surviving.notes import Note

FIELDS: Final = (
    ("segment", "bigint"), ("note", "string"), ("job", "bigint"), ("lsn", "bigint"),
    ("image", "binary"), ("body_lsn", "bigint"), ("full", "binary"), ("body_segment", "bigint"),
    ("body_at", "bigint"), ("body_bytes", "bigint"),
)  # fmt: skip
"""
Of the row of no job ``segment`` and `Note`; of jobs the newest record (no image: gone), the newest
full record, and where its data are.
"""

SCHEMA: Final = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in FIELDS])
DDL: Final = ", ".join(f"{name} {kind}" for name, kind in FIELDS)

SCATTER_IDS: Final = 1 << 20
"""Ids that lie this close together are told apart by a table of 8 MB; others by sorting."""

_NONE: Final[Ints] = np.zeros(0, np.int64)

Octets = npt.NDArray[np.uint8]


def survivors(share: Share, point: Point = END, damage: Damage = "fail") -> Any:
    """
    The rows of a segment: one note, and jobs ascending by id.

    :param share: all of it.
    :param point: where to stop.
    :param damage: ``skip``: places that cannot be read are left out, and named in the note.
    :raise SourceError: it is damaged, gone, or of a newer version.
    """
    try:
        opened = open_share(share)
    except SourceError as problem:
        if damage == "fail" or not is_damage(problem):
            raise
        return _of_none(share, point, problem)
    # What has no seal may be cut by a server that starts, and a mapping with it.
    is_cut_later = opened.is_mapped and opened.tubes is None
    buffer = _copied(share) if is_cut_later else opened.buffer
    reading = _Reading(share, buffer, point, damage)
    reading.tubes.update(opened.tubes or {})
    header, stretch = share.place.header, share.stretch
    is_damaged = False
    for piece in runs(buffer, header, stretch):
        if isinstance(piece, Hole):
            reading.leave_out(piece)
            if not is_damaged:
                is_damaged = True
                reading.hide(hidden_in(buffer, header, stretch.end))
        elif not reading.add(piece):
            break
    return reading.batch()


def _of_none(share: Share, point: Point, problem: SourceError) -> Any:
    """What is known of a segment that cannot be read."""
    reading = _Reading(share, memoryview(b"\0"), point, "skip")
    stretch = share.stretch
    why = problem.what.removeprefix(f"{share.place.path}: ")
    reading.leave_out(Hole(stretch.start, stretch.end, stretch.first_lsn, share.next_lsn, why))
    if share.next_lsn is not None:
        reading.hide([Hidden(stretch.first_lsn, share.next_lsn - 1)])
    return reading.batch()


def damaged(path: str, offset: int, what: str) -> SourceError:
    """Bytes that are needed cannot be read."""
    advice = "go on without it with --damage skip"
    return errors.damaged(path, offset, f"{what}; nothing was written", advice)


def _copied(share: Share) -> memoryview:
    with open_file(share.place.path) as file:
        raw = file.read(0, share.size)
    if len(raw) < share.size:
        raise SourceError(
            "BINLOG_CHANGED",
            f"{share.place.path}: it became shorter while it was read, as when a server starts; "
            f"nothing was written; run this again",
        )
    return memoryview(raw)


def last_of(ids: Ints) -> Ints:
    """Where each id stands for the last time; ascending by id."""
    if not len(ids):
        return _NONE
    low, high = int(ids.min()), int(ids.max())
    if high - low >= SCATTER_IDS:
        _, first = np.unique(ids[::-1], return_index=True)
        backwards: Ints = len(ids) - 1 - first
        return backwards
    # Of many values for one place numpy keeps the last.
    table = np.full(high - low + 1, -1, np.int64)
    table[ids - low] = np.arange(len(ids))
    return table[table >= 0]


class _Chosen(NamedTuple):
    """
    Records of jobs.

    :ivar at: where each begins in the segment; ``heap_at``: where its frame's heap does.
    """

    job: Ints
    lsn: Ints
    at: Ints
    heap_at: Ints

    def part(self, places: npt.NDArray[Any]) -> "_Chosen":
        return _Chosen._make(column[places] for column in self)

    @classmethod
    def newest(cls, several: "list[_Chosen]") -> "_Chosen":
        if not several:
            return cls(*(_NONE for _ in cls._fields))
        joined = cls._make(np.concatenate(columns) for columns in zip(*several, strict=True))
        return joined.part(last_of(joined.job))


class _Reading:
    def __init__(self, share: Share, buffer: memoryview, point: Point, damage: Damage) -> None:
        self._place = share.place
        self._buffer = buffer
        self._point = point
        self._damage = damage
        header = share.place.header
        self._next_lsn = header.first_lsn
        self._last_lsn = header.first_lsn - 1
        self._next_job_id = header.next_job_id
        self._trim_seq = self._time_ns = self._records = 0
        self.tubes: dict[int, bytes] = {}
        self._pauses: dict[int, tuple[int, int]] = {}
        self._policies: dict[int, bytes] = {}
        self._keys: dict[tuple[int, bytes], RememberedKey] = {}
        self._damages: list[str] = []
        self._hidden: list[Hidden] = []
        self._last: list[_Chosen] = []
        self._full: list[_Chosen] = []
        self._put: list[Ints] = []

    def leave_out(self, hole: Hole) -> None:
        behind = f"to {hole.next_lsn - 1}" if hole.next_lsn is not None else "and those behind it"
        error = damaged(
            self._place.path, hole.offset, f"{hole.why} (LSN {hole.first_lsn} {behind})"
        )
        if self._damage == "fail":
            raise error
        self._damages.append(str(error).partition("; run: ")[0])
        self._next_lsn = hole.next_lsn or self._next_lsn
        if hole.next_lsn is None:
            self.hide([Hidden(hole.first_lsn, max(hole.first_lsn, self._last_lsn))])

    def hide(self, ranges: Iterable[Hidden]) -> None:
        """Note ranges that cannot be read, up to the point where to stop."""
        self._hidden += (each for each in ranges if each.first_lsn <= self._point.lsn)

    def add(self, run: Run) -> bool:
        """
        Take in frames.

        :return: whether those behind it count too.
        """
        self._last_lsn = max(self._last_lsn, run.next_lsn - 1, int(run.durable_lsn.max()))
        frames = int(np.searchsorted(run.time_ns, self._point.time_ns, "right"))
        is_all = frames == len(run.offset)
        if frames:
            run = run.part(0, frames)
            self._add(run, Rows(self._buffer, run))
        if is_all and run.next_lsn - 1 <= self._point.lsn:
            return True
        self._hidden = [each for each in self._hidden if each.first_lsn < self._next_lsn]
        return False

    def _add(self, run: Run, rows: Rows) -> None:
        self._time_ns = max(self._time_ns, int(run.time_ns[-1]))
        self.tubes.update(tubes_named(self._buffer, run, rows))
        first_lsn = int(run.base_lsn[0])
        count = max(0, min(len(rows), self._point.lsn - first_lsn + 1))
        self._next_lsn = first_lsn + count
        if not count:
            return
        refuse_unknown(self._place, run, rows)
        refuse_large_ids(self._place, rows)
        self._records += count
        kinds = rows.byte(at.TYPE)[:count]
        self._add_jobs(run, kinds, rows.whole(at.JOB_ID)[:count])
        self._add_others(run, rows, kinds)

    def _add_jobs(self, run: Run, kinds: Octets, ids: Ints) -> None:
        of_jobs, full = np.flatnonzero(IS_OF_JOB[kinds]), np.flatnonzero(IS_FULL[kinds])
        if not len(of_jobs):
            return
        self._next_job_id = max(self._next_job_id, int(ids[of_jobs].max()) + 1)
        for places, found in ((of_jobs, self._last), (full, self._full)):
            newest = places[last_of(ids[places])]
            found.append(_chosen(run, ids[newest], newest))
        self._put.append(ids[kinds == Kind.PUT])

    def _add_others(self, run: Run, rows: Rows, kinds: Octets) -> None:
        for row in np.flatnonzero(~IS_OF_JOB[kinds]).tolist():
            kind = kinds[row]
            if kind == Pause.kind:
                said = (int(rows.half(at.DELAY_S)[row]), int(rows.whole(at.DEADLINE_NS)[row]))
                self._pauses[int(rows.half(at.TUBE_ID)[row])] = said
            elif kind == Trim.kind:
                self._trim_seq = max(self._trim_seq, int(rows.whole(at.JOB_ID)[row]))
            elif kind == Start.kind:
                self._next_job_id = max(self._next_job_id, int(rows.whole(at.JOB_ID)[row]))
            elif kind in (KEY, TubePolicy.kind):
                self._add_extension(run, rows, row)

    def _add_extension(self, run: Run, rows: Rows, row: int) -> None:
        """A remembered key, or a policy."""
        start = int(rows.of_frame(run.heap_at)[row] + rows.half(at.DATA_OFF)[row])
        data = bytes(self._buffer[start : start + int(rows.half(at.DATA_LEN)[row])])
        if zlib.crc32(data) != int(rows.half(at.DATA_CRC)[row]):
            offset = int(rows.of_frame(run.offset)[row])
            what = f"LSN {rows.lsn()[row]}: the checksum of its data is wrong"
            error = damaged(self._place.path, offset, what)
            if self._damage == "fail":
                raise error
            self._damages.append(str(error).partition("; run: ")[0])
            return
        tube_id = int(rows.half(at.TUBE_ID)[row])
        if rows.byte(at.TYPE)[row] == TubePolicy.kind:
            self._policies[tube_id] = data
        else:
            numbers = (rows.whole(word)[row] for word in (at.JOB_ID, at.DEADLINE_NS, at.TS_NS))
            self._keys[tube_id, data] = RememberedKey(tube_id, data, *map(int, numbers))

    def batch(self) -> Any:
        last, full = _Chosen.newest(self._last), _Chosen.newest(self._full)
        is_gone = np.frombuffer(self._buffer, np.uint8)[last.at] == Kind.DELETE
        put = np.concatenate(self._put) if self._put else _NONE
        stays = ~(is_gone & np.isin(last.job, put))
        last, is_gone = last.part(stays), is_gone[stays]
        body = np.searchsorted(full.job, last.job)
        # A job that is gone needs no body.
        has_body = ~is_gone & np.isin(last.job, full.job)
        columns = self._columns(last, is_gone, full.part(body[has_body]), has_body)
        return pa.record_batch(list(columns), schema=SCHEMA)

    def _columns(
        self, last: _Chosen, is_gone: npt.NDArray[np.bool_], full: _Chosen,
        has_body: npt.NDArray[np.bool_],
    ) -> Iterator[Any]:  # fmt: skip
        images = self._records_at(last.part(~is_gone))
        records = self._records_at(full)
        numbers = records.view("<u4").astype(np.int64)
        place, size = at.DATA_OFF[0] * 2, at.DATA_LEN[0] * 2 + 1
        yield _behind(pa.array([self._place.header.seq], pa.int64()), len(last.job))
        yield _behind(pa.array([self._note().encode()], pa.string()), len(last.job))
        for column in (last.job, last.lsn):
            yield _before(pa.array(column, pa.int64()))
        yield _before(_spread(_binary(images), ~is_gone))
        yield _before(_spread(pa.array(full.lsn, pa.int64()), has_body))
        yield _before(_spread(_binary(records), has_body))
        seqs = np.full(len(full.job), self._place.header.seq, np.int64)
        for column in (seqs, full.heap_at + numbers[:, place], numbers[:, size]):
            yield _before(_spread(pa.array(column, pa.int64()), has_body))

    def _records_at(self, chosen: _Chosen) -> Octets:
        octets = np.frombuffer(self._buffer, np.uint8)
        found: Octets = octets[chosen.at[:, None] + np.arange(RECORD_BYTES)]
        return found

    def _note(self) -> Note:
        header = self._place.header
        return Note(
            header.seq, header.first_lsn, self._next_lsn, self._last_lsn, self._next_job_id,
            self._trim_seq, self._time_ns, self._records, self.tubes, self._pauses,
            tuple(self._damages), self._policies, tuple(self._keys.values()), tuple(self._hidden),
        )  # fmt: skip


def _chosen(run: Run, ids: Ints, rows: Ints) -> _Chosen:
    before: Ints = np.cumsum(run.n_rec) - run.n_rec
    frame: Ints = np.searchsorted(before, rows, "right") - 1
    starts: Ints = run.records_at[frame] + (rows - before[frame]) * run.rec_size[frame]
    return _Chosen(ids, rows + int(run.base_lsn[0]), starts, run.heap_at[frame])


def _binary(records: Octets) -> Any:
    offsets = np.arange(0, records.size + 1, RECORD_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(records))]
    return pa.Array.from_buffers(pa.binary(), len(records), buffers)


def _spread(values: Any, where: npt.NDArray[np.bool_]) -> Any:
    """The values at these places, and nothing at the others."""
    return values.take(pa.array(np.cumsum(where) - 1, pa.int64(), mask=~where))


def _before(column: Any) -> Any:
    """A column of jobs: the note comes first."""
    return pa.concat_arrays([pa.nulls(1, column.type), column])


def _behind(column: Any, jobs: int) -> Any:
    """A column of the note."""
    return pa.concat_arrays([column, pa.nulls(jobs, column.type)])
