"""What the source is measured against: the same columns, decoded record by record."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from beanstalk_twisted.binlog.records.others import JOB_KINDS
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    U32,
    SegmentHeader,
    decode_segment_header,
)
from beanstalk_twisted.binlog.segments.frames import Frame, raw_records
from binlog_tools.console.wording import text_of
from binlog_tools.inspect.dumping import REASON_NAMES
from binlog_tools.logs.reading import tubes_named
from binlog_tools.logs.stored import STATE_NAMES, TYPE_NAMES
from binlog_tools.spark.definitions.columns import ddl

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Moment = Callable[[int], Any]


def as_datetime(ns: int) -> datetime:
    """What Spark wants of a source that gives tuples."""
    return EPOCH + timedelta(microseconds=ns // 1000)


def as_microseconds(ns: int) -> int:
    """The least that one can do with a time."""
    return ns // 1000


FEW: Final = ("lsn", "event", "job", "time")


def rows(raw: bytes, columns: tuple[str, ...], moment: Moment) -> Iterator[tuple[Any, ...]]:
    """The records of jobs of a sealed segment, all checksums checked that have to be.

    :param columns: all, all but ``body``, or `FEW`.
    """
    header = decode_segment_header(raw[:SEGMENT_HEADER_BYTES])
    assert isinstance(header, SegmentHeader)
    make = _few if columns == FEW else _all
    has_body = "body" in columns
    tubes: dict[int, str] = {}
    at, view = SEGMENT_HEADER_BYTES, memoryview(raw)
    while True:
        frame = frames.decode_header(raw, at, len(raw), header.salt)
        if not isinstance(frame, Frame):
            return
        (rec_crc,), (heap_crc,) = U32.unpack_from(raw, at + 12), U32.unpack_from(raw, at + 56)
        assert zlib.crc32(view[frame.records_at : frame.heap_at]) == rec_crc
        if has_body:
            assert zlib.crc32(view[frame.heap_at : frame.heap_at + frame.heap_len]) == heap_crc
        tubes.update({number: text_of(name) for number, name in tubes_named(raw, frame)})
        yield from make(raw, header, frame, tubes, moment, has_body)
        at = frame.end


def _few(
    raw: bytes, header: SegmentHeader, frame: Frame, tubes: Mapping[int, str], moment: Moment,
    has_body: bool,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    for lsn, record in enumerate(raw_records(raw, frame), start=frame.base_lsn):
        if record[0] in JOB_KINDS and not record[2] & 2:
            yield lsn, TYPE_NAMES[record[0]], record[5], moment(record[6])


def _all(
    raw: bytes, header: SegmentHeader, frame: Frame, tubes: Mapping[int, str], moment: Moment,
    has_body: bool,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    server, incarnation, seq = header.store_uuid.hex(), header.incarnation, header.seq
    logged = moment(frame.time_ns)
    for lsn, record in enumerate(raw_records(raw, frame), start=frame.base_lsn):
        (kind, state, flags, reason, priority, job, ts, deadline, delay, ttr, tube, reserves,
         timeouts, releases, buries, kicks, offset, size, _, aux) = record  # fmt: skip
        if kind not in JOB_KINDS or flags & 2:
            continue
        is_full = kind in (1, 16)
        row = (
            server, incarnation, seq, frame.offset, lsn, TYPE_NAMES[kind], moment(ts), ts, logged,
            frame.time_ns, job, tubes[tube], STATE_NAMES[state], priority, delay, ttr,
            moment(deadline) if deadline else None, deadline or None, reserves, timeouts, releases,
            buries, kicks, REASON_NAMES[reason], aux or None, False, bool(flags & 4),
            size if is_full else None,
        )  # fmt: skip
        if has_body:
            start = frame.heap_at + offset
            yield (*row, raw[start : start + size] if is_full else None, None)
        else:
            yield (*row, None)


class TupleSource(DataSource):
    """The same table from a source that gives tuples, as the manuals of Spark show it."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "beanstalk_tuples"

    def schema(self) -> str:
        """The columns asked for."""
        return ddl(tuple(json.loads(self.options["columns"])))

    def reader(self, schema: Any) -> TupleReader:
        """Reads them."""
        return TupleReader(self.options["path"], tuple(json.loads(self.options["columns"])))


class TupleReader(DataSourceReader):
    """One task for each segment of a folder."""

    def __init__(self, path: str, columns: tuple[str, ...]) -> None:
        self._path = path
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """The files."""
        return [InputPartition(str(path)) for path in sorted(Path(self._path).glob("*.tql"))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of one."""
        return rows(Path(partition.value).read_bytes(), self._columns, as_datetime)
