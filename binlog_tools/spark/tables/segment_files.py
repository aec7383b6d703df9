"""
A segment as Parquet files, one a day, written by the task that decodes it: Spark's own writer takes
three times as long.

A task writes below ``_new``, which readers of Parquet pass over.  Its **receipt** comes last and
names all files; what has no receipt does not count.  `committing` makes all of it part of the
table.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DAY_NS: Final = 86_400_000_000_000

GROUP_ROWS: Final = 65_536
"""Rows of a row group, about: as a batch of the source, so that mostly nothing is copied."""

GROUP_BYTES: Final = 16 << 20
"""Bytes of a row group, about: bounds what a task holds, bodies included."""

NEW: Final = "_new"
"""Where files are until they are committed."""


class Split(NamedTuple):
    """
    What one task turns into files: a segment.

    :ivar server: as the column ``server`` has it.
    :ivar name: unlike any other segment's of this server, the same for ever.
    :ivar version: equal if the rows are: a segment in use grows.
    :ivar contents: what `Batches` wants to know of it.
    :ivar store: the UUID of its store, which no two servers share; empty: not known.
    :ivar stamp: what changes if the file is repaired.
    :ivar heals: stems of splits of damage that are not true if this one can be read.
    """

    server: str
    name: str
    version: str
    contents: Any
    store: str = ""
    stamp: str = ""
    heals: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        return quote(f"{self.store or self.server}-{self.name}", safe="")


Batches = Callable[[Any], Iterator[pa.RecordBatch]]
"""The rows of a split, in LSN order, from its `Split.contents`."""


class File(NamedTuple):
    """
    One Parquet file, by its path in the table.
    """

    path: str
    rows: int
    size: int


class Receipt(NamedTuple):
    """
    What a split has become.

    :ivar damages: rows that tell of damage.
    """

    stem: str
    version: str
    files: tuple[File, ...]
    damages: int = 0
    stamp: str = ""

    def is_of(self, split: Split) -> bool:
        """
        Whether the split would become the same now.
        """
        is_repaired = self.damages > 0 and self.stamp != split.stamp
        return self.version == split.version and not is_repaired

    def as_json(self) -> str:
        return json.dumps(self._asdict(), indent=1)


def read_receipt(path: Path) -> Receipt | None:
    try:
        told = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return receipt_of(told)


def receipt_of(told: dict[str, Any]) -> Receipt:
    files = tuple(File(*file) for file in told["files"])
    return Receipt(told["stem"], told["version"], files, told.get("damages", 0),
                   told.get("stamp", ""))  # fmt: skip


def write_split(out: Path, split: Split, batches: Batches) -> Receipt:
    """
    Write a split's files and its receipt below ``_new``, durably, unless an interrupted run has.
    """
    place = out / NEW / split.stem
    found = read_receipt(place / "receipt.json")
    if found is not None and found.is_of(split):
        return found
    place.mkdir(parents=True, exist_ok=True)
    writers = _Writers(place, split)
    try:
        for batch in grouped(batches(split.contents)):
            for date, rows in _by_date(batch):
                writers.write(date, rows)
        receipt = writers.finish()
    finally:
        writers.drop()
    write_durably(place / "receipt.json", receipt.as_json())
    return receipt


def grouped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """
    Neighbouring small batches put together: a row group of a few rows wastes room and time.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _by_date(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """
    By the day of logging.  Rows without a time, as of damage, are of the last day of 1969.
    """
    days = pc.fill_null(pc.divide(table["logged_ns"], DAY_NS), -1)
    for day in sorted(pc.unique(days).to_pylist()):
        yield (
            datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m-%d"),
            table.filter(pc.equal(days, day)),
        )


class _Writers:
    """
    The files of one split that are being written, by date.
    """

    def __init__(self, place: Path, split: Split) -> None:
        self._place = place
        self._split = split
        self._attempt = uuid.uuid4().hex
        self._open: dict[str, tuple[Path, pq.ParquetWriter]] = {}
        self._rows: dict[str, int] = {}
        self._damages = 0

    def write(self, date: str, rows: pa.Table) -> None:
        """
        The folder says the server; a column would say it again.
        """
        if "problem" in rows.column_names:
            self._damages += rows.num_rows - rows["problem"].null_count
        rows = rows.drop_columns(["server"])
        if date not in self._open:
            path = self._place / f"{date}.{self._attempt}.part"
            self._open[date] = path, pq.ParquetWriter(path, rows.schema, compression="zstd")
            self._rows[date] = 0
        self._open[date][1].write_table(rows)
        self._rows[date] += rows.num_rows

    def finish(self) -> Receipt:
        files = []
        for date, (path, writer) in sorted(self._open.items()):
            writer.close()
            sync(path)
            size = path.stat().st_size
            path.rename(self._place / f"{date}.parquet")
            folder = f"server={quote(self._split.server, safe='')}/date={date}"
            files.append(File(f"{folder}/{self._split.stem}.parquet", self._rows[date], size))
        sync(self._place)
        split = self._split
        return Receipt(split.stem, split.version, tuple(files), self._damages, split.stamp)

    def drop(self) -> None:
        for path, writer in self._open.values():
            writer.close()
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """
    A file, or the names in a directory.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durably(path: Path, text: str) -> None:
    """
    The file has its name when all of it is on disk.
    """
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    part.write_text(text)
    sync(part)
    part.rename(path)
    sync(path.parent)
