"""From what the segments of a server say (`survivors`) to what a server would load."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from beanstalk_twisted.binlog.records.decoding import NotUnderstood, decode_record
from beanstalk_twisted.binlog.records.jobs import NO_DATA, WITHHELD_NS, JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import TubePolicy
from beanstalk_twisted.binlog.segments.format import RECORD
from binlog_tools.logs.stored import NS, StoredKey, StoredPause, StoredPolicy
from binlog_tools.spark.segments.framing import Ints
from binlog_tools.spark.surviving.notes import Note
from binlog_tools.spark.surviving.survivors import SCHEMA, last_of

SLICE_ROWS: Final = 8192
"""How many jobs become Python objects at once."""

_POLICY: Final = RECORD.unpack(TubePolicy(0, {}, 0).encode(NO_DATA))
"""A record of a policy, as far as it matters."""

_WIDE: Final = pa.schema([
    (field.name, pa.large_binary() if field.type == pa.binary() else field.type)
    for field in SCHEMA
])  # fmt: skip
"""The same columns, with room for more than 2 GiB in one: that is 26 million jobs."""


class Survivor(NamedTuple):
    """
    A job that is alive.

    :ivar image: its newest record, 80 bytes, ``lsn`` its LSN; ``full``, its newest full one,
        ``full_lsn`` its LSN.
    :ivar seq: of the segment that has the data of ``full``; ``at``, where; ``size`` in bytes.
    """

    job_id: int
    image: bytes
    lsn: int
    full: bytes
    full_lsn: int
    seq: int
    at: int
    size: int

    def as_loaded(self, data: bytes, now_ns: int) -> JobImage:
        """
        The job as a server loads it: see `Replay.survivors`.

        :param data: those of ``full``.
        :raise NotUnderstood: a record says what this version does not know.
        """
        image = _job(self.full, data)
        if self.image != self.full:
            newest = _job(self.image, b"")
            image = newest._replace(
                kind=Kind.COPY, ts_ns=image.ts_ns, body=image.body, tags=image.tags
            )
        if image.state is State.RESERVED:
            return image._replace(state=State.READY, deadline_ns=0)
        if image.state is State.DELAYED and image.deadline_ns < WITHHELD_NS:
            latest = now_ns + image.delay_s * NS
            return image._replace(deadline_ns=min(image.deadline_ns, latest))
        return image


def _job(record: bytes, data: bytes) -> JobImage:
    image = decode_record(RECORD.unpack(record), data)
    if not isinstance(image, JobImage):
        raise NotUnderstood(f"record type {record[0]} is not one of a job")
    return image


class LiveJobs:
    """
    What the segments say, put together.

    :ivar notes: in order.
    :ivar lost: jobs with a state but without a body, ascending.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        """:param batches: rows as `survivors` gives them, in any order."""
        table = pa.Table.from_batches(batches, schema=SCHEMA).cast(_WIDE)
        texts = table["note"].drop_null().to_pylist()
        self.notes: list[Note] = sorted(map(Note.decode, texts), key=lambda note: note.seq)
        self._choose(table.filter(table["job"].is_valid()).combine_chunks())

    def _choose(self, rows: Any) -> None:
        ids = _ints(rows["job"])
        order = np.argsort(_ints(rows["lsn"]), kind="stable")
        last = order[last_of(ids[order])]
        last = last[_valid(rows["image"])[last]]
        full = np.flatnonzero(_valid(rows["full"]))
        full = full[np.argsort(_ints(rows["body_lsn"])[full], kind="stable")]
        full = full[last_of(ids[full])]
        has_body = np.isin(ids[last], ids[full])
        self.lost: list[int] = ids[last[~has_body]].tolist()
        last = last[has_body]
        full = full[np.searchsorted(ids[full], ids[last])]
        by_lsn = np.argsort(_ints(rows["body_lsn"])[full], kind="stable")
        newest = rows.select(["job", "image", "lsn"]).take(last[by_lsn])
        columns = ["full", "body_lsn", "body_segment", "body_at", "body_bytes"]
        bodies = rows.select(columns).take(full[by_lsn])
        self._table = pa.Table.from_arrays(
            [*newest.columns, *bodies.columns], [*newest.column_names, *bodies.column_names]
        )

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Survivor]:
        """The jobs, in the order of the records in which their bodies are."""
        for batch in self._table.to_batches(max_chunksize=SLICE_ROWS):
            columns = (column.to_pylist() for column in batch.columns)
            for row in zip(*columns, strict=True):
                yield Survivor(*row)

    def tubes(self) -> dict[int, bytes]:
        return {number: name for note in self.notes for number, name in note.tubes.items()}

    def pauses(self, now_ns: int) -> Iterator[StoredPause]:
        """Those in force, none longer than it was asked for: see `Replay.pauses`."""
        newest = {number: said for note in self.notes for number, said in note.pauses.items()}
        tubes = self.tubes()
        for number, (seconds, until_ns) in newest.items():
            ends_ns = min(until_ns, now_ns + seconds * NS)
            if ends_ns > now_ns and number in tubes:
                yield StoredPause(tubes[number], seconds, ends_ns)

    def policies(self) -> Iterator[StoredPolicy]:
        """
        Those that commands have set.

        :raise NotUnderstood: one is no policy of this version.
        """
        newest = {number: data for note in self.notes for number, data in note.policies.items()}
        tubes = self.tubes()
        for number, data in sorted(newest.items()):
            policy = decode_record(_POLICY, data)
            assert isinstance(policy, TubePolicy)
            if policy.rules and number in tubes:
                yield StoredPolicy(tubes[number], policy.rules)

    def keys(self, now_ns: int) -> Iterator[StoredKey]:
        """Those that are remembered, none longer than it was asked for: see `Replay.keys`."""
        newest = {(key.tube_id, key.key): key for note in self.notes for key in note.keys}
        tubes = self.tubes()
        for key in newest.values():
            until_ns = min(key.until_ns, now_ns + key.until_ns - key.ts_ns)
            if until_ns > now_ns and key.tube_id in tubes:
                yield StoredKey.of(replace(key, until_ns=until_ns), tubes[key.tube_id])


def _ints(column: Any) -> Ints:
    """A column's numbers; 0 where there is none."""
    numbers: Ints = column.fill_null(0).to_numpy()
    return numbers


def _valid(column: Any) -> Any:
    return column.is_valid().to_numpy()
