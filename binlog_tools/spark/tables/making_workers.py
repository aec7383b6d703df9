"""The task that makes the workers of an incarnation of a server."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories.tables import ATTEMPTS
from binlog_tools.spark.histories.windows import NONE
from binlog_tools.spark.histories.workers import COLUMNS, Replaced, grown, workers_of
from binlog_tools.spark.storing.files import CODED, File, is_text, stored_files
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.stored import dataset_of
from binlog_tools.spark.tables.layouts import LAYOUTS

_NO_ATTEMPTS: Final = pa.schema([
    field.with_type(CODED) if is_text(field.type) else field
    for field in map(ATTEMPTS.field, COLUMNS)
]).empty_table()  # fmt: skip


def may_have(file: File, server: str, incarnation: int) -> bool:
    span = file.spans("incarnation")
    return file.is_in({"server": server}) and (
        not file.statistics or (span is not None and span[0] <= incarnation <= span[1])
    )


class Incarnation(NamedTuple):
    """
    What the workers of an incarnation of a server are made of.

    :ivar workers: files of those so far; none: they are made of all attempts.
    :ivar old: files of attempts that have been replaced.
    :ivar new: files of those in their place, and of new ones.
    :ivar others: files of all others.
    """

    server: str
    number: int
    workers: list[File]
    old: list[File]
    new: list[File]
    others: list[File]


@dataclass(frozen=True)
class Workers:
    """A task that makes the workers of an incarnation of a server."""

    attempts: Location
    workers: Location

    def __call__(self, item: Incarnation) -> list[File]:
        made = self._grown(item) if item.workers else None
        if made is None:
            made = workers_of(self._read(item, [*item.new, *item.others]))
        batches = made.combine_chunks().to_batches()
        return stored_files(self.workers, batches, LAYOUTS["workers"])

    def _grown(self, item: Incarnation) -> pa.Table | None:
        replaced = Replaced.of(self._read(item, item.old), self._read(item, item.new))
        least = min(replaced.since_ns.values(), default=NONE)
        spans = [(file, file.spans("ended_ns")) for file in item.others]
        near = [file for file, span in spans if span is None or span[1] > least]
        schema = LAYOUTS["workers"].schema
        before = dataset_of(self.workers, schema, item.workers).to_table(use_threads=False)
        return grown(before, replaced, self._read(item, near, least))

    def _read(self, item: Incarnation, files: list[File], above_ns: int = -1) -> pa.Table:
        """:param above_ns: only of runs that ended later; -1: all."""
        schema = LAYOUTS["attempts"].schema
        if not files:
            return _NO_ATTEMPTS
        is_wanted = pc.field("incarnation") == item.number
        if above_ns >= 0:
            is_wanted &= pc.field("ended_ns") > above_ns
        found = dataset_of(self.attempts, schema, files, is_coded=True)
        return found.to_table(columns=list(COLUMNS), use_threads=False, filter=is_wanted)
