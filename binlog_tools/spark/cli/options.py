"""Options that several commands share."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce, wraps
from typing import Any, Final

import click

from beanstalk_twisted.object_storage.store import is_url
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.logs.quantities import format_size, parse_time
from binlog_tools.spark.cli.running import UI
from binlog_tools.spark.definitions.addresses import normal
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.events import holds_events
from binlog_tools.spark.reading.finding import Findings, find
from binlog_tools.spark.reading.measuring import Segment
from binlog_tools.spark.segments.wanted import DAMAGE_CHOICES
from binlog_tools.spark.session import explained
from binlog_tools.spark.storing.locations import UNFINISHED, Location
from binlog_tools.spark.storing.opening import open_stored
from binlog_tools.spark.tables.pipelines import MODES

GROWS: Final = "which is brought up to date"
"""What becomes of a table into which new rows are put."""


def tell_plan(inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> None:
    """:raise SourceError: see `finding.find`."""
    for text in plan(inputs, output, options):
        Output().line(text)


def plan(inputs: Sequence[str], output: str, options: Mapping[str, Any]) -> Iterator[str]:
    """In lines.

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
    """How many there are, as far as LSNs say so: that of the next segment is not known of the
    last.
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


INPUTS: Final = ("auto", "events", "logs")

Command = Callable[..., Any]


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator."""
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


def _noted(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[UI] = value


def _refused(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        with explained():
            raise TableError("TABLE_FORMAT", "--format was taken away: all tables are Delta. Leave "
                             "it out, and make plain Parquet tables again in a new directory"
                             )  # fmt: skip


def _absolute(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """A Connect server, and executors, may be in another working directory."""
    return tuple(each if is_url(each) else os.path.abspath(normal(each)) for each in value)


def or_plan(command: Command) -> Command:
    """The command, or with ``--dry-run`` what it would read and write."""

    @wraps(command)
    def run(inputs: tuple[str, ...], output: str, dry_run: bool, **options: Any) -> None:
        if not dry_run:
            command(inputs=inputs, output=output, **options)
            return
        with explained():
            tell_plan(inputs, output, options)

    return run


common = all_of(
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, callback=_absolute),
    click.option("-o", "--output", required=True, help="The directory or URL to write."),
    click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail",
                 show_default=True, help="What to do about damage in logs."),
    click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
    click.option("--master", help="Of Spark: local[4], or sc://HOST; else what spark-submit or "
                 "SPARK_REMOTE says, or this machine."),
    click.option("--ui", is_flag=True, expose_value=False, callback=_noted,
                 help="With Spark's web pages, on this machine."),
    click.option("--dry-run", is_flag=True, help="Say what would be read and written; do nothing."),
    click.option("--format", hidden=True, expose_value=False, callback=_refused),
    or_plan,
)  # fmt: skip

from_ = click.option("--from", "source", type=click.Choice(INPUTS), default="auto",
                     show_default=True, help="What INPUT is; `auto` looks for tables."
                     )  # fmt: skip

written = all_of(
    from_,
    click.option("--mode", type=click.Choice(MODES), default="error", show_default=True,
                 help="If there is an output already."),
)  # fmt: skip


def parsed_time(moment: str) -> int:
    """:return: nanoseconds since the epoch.
    :raise TableError: it is not a time.
    """
    try:
        return parse_time(moment, time.time_ns())
    except ValueError as problem:
        raise TableError("TABLE_OPTION", str(problem)) from None
