"""
``--dry-run``: what a command would read and write.  Headers, seals and footers are read; Spark is
not started.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from binlog_tools.console.output import Output
from binlog_tools.logs.quantities import format_size
from binlog_tools.spark.definitions.wholeness import local
from binlog_tools.spark.reading.finding import Findings, find
from binlog_tools.spark.reading.measuring import Segment


def tell_plan(inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> None:
    """
    :raise SourceError: see `finding.find`.
    """
    for text in plan(inputs, output, options):
        Output().line(text)


def plan(inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> Iterator[str]:
    """
    In lines.

    :param options: of the command, by their names.
    """
    source = options.get("source", "logs")
    if source == "events" or (source == "auto" and any(map(parquet_files, inputs))):
        files = [file for path in inputs for file in parquet_files(path)]
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        size = format_size(sum(file.stat().st_size for file in files))
        yield f"would read: {rows} rows in {len(files)} files, {size}"
    else:
        yield from of_logs(find(inputs, options.get("live", "include") == "include"))
    yield f"would write: {output}, {_there(output, options)}"


def of_logs(found: Findings) -> Iterator[str]:
    size = format_size(sum(each.stretch.end for each in found.segments))
    stores = len({each.header.store_uuid for each in found.segments})
    yield (f"would read: {len(found.segments)} segments of {stores} servers, {size}, "
           f"{records_in(found.segments)}")  # fmt: skip
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
    return f"{known} records" + (f" and those of {unknown} segments in use" if unknown else "")


def parquet_files(path: str) -> list[Path]:
    place = local(path)
    if place is None:
        return []
    return [place] if place.suffix == ".parquet" else sorted(place.rglob("*.parquet"))


def _there(output: str, options: Mapping[str, Any]) -> str:
    place = local(output)
    if place is None:
        return "which was not looked for"
    if not place.exists():
        return "which is new"
    mode = options.get("mode")
    return {"overwrite": "in the place of what is there", "append": "beside what is there",
            "error": "which is there already: give --mode overwrite or append"}.get(
        mode or "", "which is brought up to date")  # fmt: skip
