"""The task that makes the minutes of a server, and the SLA by their hours, day after day."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.histories import entries as added_up
from binlog_tools.spark.histories.entries import DAY_NS, MINUTES_A_DAY
from binlog_tools.spark.histories.minutes import MINUTE_US, gone_on
from binlog_tools.spark.histories.sla import Targets, sla_of
from binlog_tools.spark.histories.tables import TUBE_MINUTES
from binlog_tools.spark.storing.files import File, Layout, stored_files
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.stored import dataset_of
from binlog_tools.spark.tables.layouts import LAYOUTS
from binlog_tools.spark.tables.server_days import UNSETTLED, day_of, server_of

EPOCH: Final = date(1970, 1, 1)


def date_of(day: int) -> date:
    return EPOCH + timedelta(day)


def by_date(
    files: Iterable[File], server: str, first: int
) -> tuple[dict[int, list[File]], list[File]]:
    """The files of a server with entries of the minute ``first`` or later: of jobs that are gone by
    day, and those of the others, which are of any day.
    """
    found: dict[int, list[File]] = defaultdict(list)
    undated = []
    for file in files:
        if server_of(file) != server:
            continue
        if file.is_in(UNSETTLED):
            if _tells_of(file, first):
                undated.append(file)
        elif (day := (date.fromisoformat(day_of(file).date) - EPOCH).days) * MINUTES_A_DAY >= first:
            found[day].append(file)
    return dict(found), undated


def _tells_of(file: File, first: int) -> bool:
    """Whether there may be entries of this minute or later ones, or of waits that last."""
    minute, slot = file.spans("minute"), file.spans("slot")
    return minute is None or slot is None or minute[1] >= first or slot[1] == added_up.LASTS


class ServerMinutes(NamedTuple):
    """The minutes of a server that are made anew.

    :ivar first: the first of them.
    :ivar kept: files of rows, of the day of the minute before.
    :ivar files: of entries, by day.
    :ivar undated: of entries of any day.
    """

    server: str
    first: int
    last_ns: int
    kept: list[File]
    files: Mapping[int, list[File]]
    undated: list[File]

    def days(self) -> range:
        return range(self.first // MINUTES_A_DAY, self.last_ns // DAY_NS + 1)


@dataclass(frozen=True)
class Days:
    """A task that makes minutes, and the SLA by their hours, day after day."""

    entries: Location
    minutes: Location
    sla: Location
    targets: Targets

    def __call__(self, item: ServerMinutes) -> tuple[list[File], list[File]]:
        undated = added_up.by_day(self._read(item.undated), {item.server: item.last_ns})
        rows = self._kept(item)
        first = item.first
        minutes: list[File] = []
        shares: list[File] = []
        for day in item.days():
            parts = [self._read(item.files.get(day, [])), _of_day(undated, day)]
            entries = added_up.merged([added_up.since_minute(part, first) for part in parts])
            rows = gone_on(rows, entries, first, {item.server: item.last_ns})
            first = (day + 1) * MINUTES_A_DAY
            minutes += _dated(self.minutes, LAYOUTS["tube_minutes"], rows, day)
            shares += _dated(self.sla, LAYOUTS["sla"], sla_of(rows, self.targets), day)
        return minutes, shares

    def _read(self, files: list[File]) -> pa.Table:
        if not files:
            return added_up.CODED_SCHEMA.empty_table()
        found = dataset_of(self.entries, LAYOUTS["entries"].schema, files, is_coded=True)
        rows = found.to_table(columns=added_up.SCHEMA.names, use_threads=False)
        return rows.combine_chunks()

    def _kept(self, item: ServerMinutes) -> pa.Table:
        """The rows up to the first minute."""
        if not item.kept:
            return TUBE_MINUTES.empty_table()
        until = pa.scalar(item.first * MINUTE_US).cast(TUBE_MINUTES.field("minute").type)
        found = dataset_of(self.minutes, LAYOUTS["tube_minutes"].schema, item.kept)
        return found.to_table(
            columns=TUBE_MINUTES.names, filter=pc.field("minute") < until, use_threads=False
        )


def _of_day(entries: pa.Table, day: int) -> pa.Table:
    return entries.filter(pa.array(entries["minute"].to_numpy() // MINUTES_A_DAY == day))


def _dated(place: Location, layout: Layout, rows: pa.Table, day: int) -> list[File]:
    dates = pa.array([date_of(day)] * rows.num_rows, pa.date32())
    batches = rows.append_column("date", dates).combine_chunks().to_batches()
    return stored_files(place, batches, layout)
