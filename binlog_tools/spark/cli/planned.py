"""
``--dry-run``: what a command would read and write.  Headers, seals and footers are read; Spark is
not started.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.logs.quantities import format_size
from binlog_tools.spark.events import holds_events
from binlog_tools.spark.reading.finding import Findings, find
from binlog_tools.spark.reading.measuring import Segment
from binlog_tools.spark.storing.locations import UNFINISHED, Location
from binlog_tools.spark.storing.opening import open_stored

GROWS: Final = "which is brought up to date"
"""What becomes of a table into which new rows are put."""


def tell_plan(inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> None:
    """:raise SourceError: see `finding.find`."""
    for text in plan(inputs, output, options):
        Output().line(text)


def plan(inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> Iterator[str]:
    """
    In lines.

    :param options: of the command, by their names.
    """
    there = _there(output, options)
    new = ", as far as it is new" if there.startswith(GROWS) else ""
    source = options.get("source", "logs")
    if source == "events" or (source == "auto" and any(map(holds_events, inputs))):
        files = [file for path in inputs for file in open_stored(path).files()]
        rows, size = sum(file.rows for file in files), format_size(sum(file.size for file in files))
        yield f"would read: {told(rows, 'row')} in {told(len(files), 'file')}, {size}{new}"
    else:
        yield from of_logs(find(inputs, options.get("live", "include") == "include"), new)
    yield f"would write: {output}, {there}"


def of_logs(found: Findings, which: str = "") -> Iterator[str]:
    """:param which: of the records are read, in words; empty for all of them."""
    size = format_size(sum(each.stretch.end for each in found.segments))
    stores = len({each.header.store_uuid for each in found.segments})
    yield (f"would read: {told(len(found.segments), 'segment')} of {told(stores, 'server')}, "
           f"{size}, {records_in(found.segments)}{which}")  # fmt: skip
    for gap in found.gaps:
        yield f"damage: {gap.after.path}: {gap.what}"
    for broken in found.broken:
        yield f"damage: {broken.path}: {broken.why}"


def records_in(segments: Iterable[Segment]) -> str:
    """
    How many there are, as far as LSNs say so: that of the next segment is not known of the last.
    """
    lengths = [
        None if each.next_lsn is None else each.next_lsn - each.header.first_lsn
        for each in segments
    ]
    unknown = lengths.count(None)
    known = sum(length for length in lengths if length is not None)
    in_use = f" and those of {told(unknown, 'segment')} in use" if unknown else ""
    return told(known, "record") + in_use


def _there(output: str, options: Mapping[str, Any]) -> str:
    names = _names(Location.of(output))
    if not names:
        return "which is new"
    mode = options.get("mode")
    return {"overwrite": "in the place of what is there", "append": "beside what is there",
            "error": "which is there already: give --mode overwrite or append"}.get(
        mode or "", GROWS + _left(names))  # fmt: skip


def _names(location: Location) -> list[str]:
    """What is there; of a file, its name."""
    if location.is_local and os.path.isfile(location.path):
        return [location.path]
    with location.writing():
        return location.files().names()


def _left(names: Sequence[str]) -> str:
    is_left = UNFINISHED in names
    return "; the run before has not come to its end, and is done again" if is_left else ""
