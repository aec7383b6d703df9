"""Options and arguments that several commands share, and what `--dry-run` says."""

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
from binlog_tools.spark.definitions.addresses import normal, within
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.events import holds_events
from binlog_tools.spark.reading.finding import Findings, find, named, refuse_nothing
from binlog_tools.spark.reading.measuring import Segment
from binlog_tools.spark.segments.wanted import DAMAGE_CHOICES
from binlog_tools.spark.session import explained
from binlog_tools.spark.storing.locations import Location
from binlog_tools.spark.storing.tables import holds_table, open_stored

INPUTS: Final = ("auto", "events", "logs")

Command = Callable[..., Any]


def are_events(inputs: tuple[str, ...], source: str) -> bool:
    """Return True if the inputs are events tables."""
    return source == "events" or (source == "auto" and any(map(holds_events, inputs)))


def look(inputs: tuple[str, ...], source: str) -> None:
    """Look whether the paths are there, and are logs or events, before Spark starts.

    :raise SourceError: one is not there, or there is no log at all.
    """
    found = [each for path in inputs for each in named(path)]
    if not are_events(inputs, source):
        refuse_nothing(found)


def tables_in(place: str) -> list[str]:
    """The place itself; or the tables in it, if it is none and has some."""
    location = Location.of(place)
    if holds_table(place) or (location.is_local and not os.path.isdir(location.path)):
        return [place]
    inner = [within(place, name) for name in location.names()]
    return [each for each in inner if holds_table(each)] or [place]


def plan(inputs: tuple[str, ...], output: str, options: Mapping[str, Any]) -> Iterator[str]:
    """The lines of `--dry-run`.

    :param options: of the command, by their names.
    :raise SourceError: see `finding.find`.
    """
    location = Location.of(output)
    is_file = location.is_local and os.path.isfile(location.path)
    is_new = not is_file and not location.names()
    new = "" if is_new else ", as far as it is new"
    if are_events(inputs, options.get("source", "logs")):
        files = [file for path in inputs for file in open_stored(path).files()]
        rows, size = sum(file.rows for file in files), format_size(sum(file.size for file in files))
        yield f"would read: {told(rows, 'row')} in {told(len(files), 'file')}, {size}{new}"
    else:
        yield from _of_logs(find(inputs, options.get("live", "include") == "include"), new)
    yield f"would write: {output}, which is {'new' if is_new else 'brought up to date'}"


def _of_logs(found: Findings, which: str) -> Iterator[str]:
    size = format_size(sum(each.stretch.end for each in found.segments))
    stores = len({each.header.store_uuid for each in found.segments})
    yield (f"would read: {told(len(found.segments), 'segment')} of {told(stores, 'server')}, "
           f"{size}, {_records_in(found.segments)}{which}")  # fmt: skip
    for gap in found.gaps:
        yield f"damage: {gap.after.path}: {gap.what}"
    for broken in found.broken:
        yield f"damage: {broken.path}: {broken.why}"


def _records_in(segments: Iterable[Segment]) -> str:
    """How many there are, as far as LSNs say so."""
    lengths = [
        None if each.next_lsn is None else each.next_lsn - each.header.first_lsn
        for each in segments
    ]
    unknown = lengths.count(None)
    in_use = f" and those of {told(unknown, 'segment')} in use" if unknown else ""
    return told(sum(filter(None, lengths)), "record") + in_use


def _absolute(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """A Connect server, and executors, may be in another working directory."""
    return tuple(each if is_url(each) else os.path.abspath(normal(each)) for each in value)


def _or_plan(command: Command) -> Command:
    """The command, or with ``--dry-run`` what it would read and write."""

    @wraps(command)
    def run(inputs: tuple[str, ...], output: str, dry_run: bool, **options: Any) -> None:
        if not dry_run:
            command(inputs=inputs, output=output, **options)
            return
        with explained():
            for text in plan(inputs, output, options):
                Output().line(text)

    return run


def _all_of(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


common = _all_of((
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, callback=_absolute),
    click.option("-o", "--output", required=True, help="The directory or URL to write."),
    click.option("--damage", type=click.Choice(DAMAGE_CHOICES), default="fail",
                 show_default=True, help="What to do about damage in logs."),
    click.option("--servers", default="", metavar="UUID:NAME,...", help="Names for servers."),
    click.option("--dry-run", is_flag=True, help="Say what would be read and written; do nothing."),
    _or_plan,
))  # fmt: skip

from_ = click.option("--from", "source", type=click.Choice(INPUTS), default="auto",
                     show_default=True, help="What INPUT is; `auto` looks for tables."
                     )  # fmt: skip


def parsed_time(moment: str) -> int:
    """Return nanoseconds since the epoch.

    :raise TableError: it is not a time.
    """
    try:
        return parse_time(moment, time.time_ns())
    except ValueError as problem:
        raise TableError("TABLE_OPTION", str(problem)) from None
