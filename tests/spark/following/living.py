"""Logs that grow, step by step, in directories that a stream can follow; and what Spark does with a
stream, without Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from binlog_tools.spark.following.streaming import BinlogStreamReader
from binlog_tools.spark.reading.options import Streamed
from tests.binlog.scribe import Files
from tests.spark.expected import Row

COLUMNS = ("server", "lsn", "event", "time_ns", "job", "tube", "state", "bytes", "body", "problem")


class Folders:
    """The directory of a server, and its archive."""

    def __init__(self, folder: Path) -> None:
        self.live, self.archive = folder / "live", folder / "archive"
        self.live.mkdir(parents=True)
        self.archive.mkdir()

    def show(self, files: Files) -> None:
        segments = {name for name in files if parse_segment_name(name) is not None}
        for name in segments:
            # Never in place: somebody may have mapped the file.
            part = self.live / f"{name}.part"
            part.write_bytes(files[name])
            part.rename(self.live / name)
        for path in self.live.iterdir():
            if path.name not in segments:
                path.unlink()

    def deliver(self, files: Files) -> None:
        """Put every segment that has a successor into the archive."""
        headers = {name: _header(raw) for name, raw in files.items() if parse_segment_name(name)}
        for name, header in headers.items():
            following = headers.get(segment_name(header.seq + 1))
            if following is None:
                continue
            raw = files[name]
            is_sealed = raw.endswith(b"TQLEND\r\n") and following.prev_end + 40 == len(raw)
            store = self.archive / header.store_uuid.hex()
            store.mkdir(exist_ok=True)
            path = store / f"{header.seq:020}-{header.first_lsn:020}.tql"
            if not path.exists():
                path.write_bytes(raw if is_sealed else raw[: following.prev_end])

    def archived(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self.archive.glob("*/*.tql"))]


def _header(raw: bytes) -> SegmentHeader:
    header = decode_segment_header(raw[:SEGMENT_HEADER_BYTES])
    assert isinstance(header, SegmentHeader)
    return header


class Query:
    """What Spark does with a stream: it keeps the offsets, as JSON, and forgets everything else."""

    def __init__(self, path: Path | str, options: Mapping[str, str] | None = None) -> None:
        self._options = {"path": str(path), "columns": ",".join(COLUMNS), **(options or {})}
        self.batches: list[tuple[str, str, list[Row]]] = []
        self.restart()
        self.offset = json.dumps(self.reader.initialOffset())

    def restart(self, **options: str) -> None:
        self._options.update(options)
        self.reader = BinlogStreamReader(Streamed.of(self._options), COLUMNS)

    def batch(self, limit: ReadLimit | None = None) -> list[Row]:
        start = self.offset
        limit = limit or self.reader.getDefaultReadLimit()
        self.offset = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if self.offset == start:
            return []
        rows = self.between(start, self.offset)
        self.batches.append((start, self.offset, rows))
        return rows

    def between(self, start: str, end: str) -> list[Row]:
        found: list[Row] = []
        for partition in self.reader.partitions(json.loads(start), json.loads(end)):
            for batch in self.reader.read(partition):
                found += batch.to_pylist()
        return found

    def run(self, limit: ReadLimit | None = None) -> list[Row]:
        rows: list[Row] = []
        start = ""
        while start != self.offset:
            start = self.offset
            rows += self.batch(limit)
        return rows

    @property
    def rows(self) -> list[Row]:
        return [row for _, _, rows in self.batches for row in rows]

    @property
    def at(self) -> dict[str, Any]:
        (found,) = json.loads(self.offset)["stores"].values()
        return dict(found)


def lsns(rows: list[Row]) -> list[int]:
    return [row["lsn"] for row in rows]


def remove(path: Path, keep: int) -> list[str]:
    names = sorted(os.listdir(path))[:-keep]
    for name in names:
        (path / name).unlink()
    return names
