"""``binlog-inspect dump``."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, TextIO

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import CANNOT_READ, DAMAGED, USAGE, fail, warn
from binlog_tools.cli.inspect.records import writer_of
from binlog_tools.cli.opening import code_of_gaps, open_source, open_sources
from binlog_tools.console.output import Output
from binlog_tools.inspect.archives import lsn_range
from binlog_tools.inspect.dumping import Entry, Gap, Records, bounds_of, entries
from binlog_tools.inspect.following import Follower
from binlog_tools.inspect.frame_view import place_of, view_of
from binlog_tools.logs.outputs import as_text, growing_file, opened
from binlog_tools.logs.reading import Broken, OpenSegment, segments
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.sources import Source

POLL_S: Final = 0.05
"""How often ``--follow`` looks: soon enough for eyes, and before small segments are deleted."""

FORMATS: Final = ("text", "json", "csv", "parquet")


@click.command("dump", cls=options.Command)
@options.logs
@options.of_records
@click.option("-n", "--limit", type=click.IntRange(min=0), help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what a server writes, until Ctrl-C.")
@click.option("--format", "kind", type=click.Choice(FORMATS), default="text", show_default=True)
@options.as_json
@options.bodies("text", "How bodies are shown.")
@options.output_file("Write to this file.")
@click.option("--frame", "place", metavar="[SEQ:]OFFSET",
              help="Show the bytes of one frame, and what each means.")  # fmt: skip
def command(
    paths: tuple[str, ...], limit: int | None, follow: bool, kind: str, is_json: bool, how: str,
    target: str | None, place: str | None, **chosen: Any,
) -> None:  # fmt: skip
    """
    Show the records of a log.

    On a terminal each record is a line; in a pipe its fields are separated by tabs, without titles.
    Damage is told on stderr and passed over; the exit code is then 3.  Times of --since and --until
    are those at which records were written.

    \b
    Examples:
      binlog-inspect dump /var/lib/bs --job 4711
      binlog-inspect dump /var/lib/bs --tube mail --type delete --since -2h
      binlog-inspect dump /var/lib/bs --follow --since now --type job
      binlog-inspect dump /var/lib/bs --json --bodies none | jq -r .type | sort | uniq -c
      binlog-inspect dump /backup/bs-archive --format parquet -o log.parquet
      binlog-inspect dump /var/lib/bs/00000000000000000042.tql --frame 4096
    """
    if place is not None:
        options.refuse_beside("place")
        _show_frame(paths, place)
        return
    selection = options.selection(**chosen)
    kind = "json" if is_json else kind
    sources = open_sources(paths)
    if follow and (len(sources) > 1 or kind == "parquet"):
        fail(USAGE, "--follow goes with one LOG, and not with Parquet.")
    if kind == "parquet" and target in (None, options.STDOUT):
        fail(USAGE, "Parquet cannot go to a pipe; name a file with -o FILE.parquet.")
    with_data = how != "none"
    gaps: list[Gap] = []
    if follow:
        found = _records(_followed(sources[0], selection, with_data), gaps)
        with _growing(target) as out:
            write = writer_of(kind, out, how)
            for entry in islice(found, limit):
                write([entry])
    else:
        every = (e for source in sources for e in entries(source, selection, with_data))
        found = _records(every, gaps)
        with opened(target) as out:
            writer_of(kind, out, how)(islice(found, limit))
    if gaps:
        # What was deleted before it was followed is no torn tail.
        raise SystemExit(DAMAGED if follow else code_of_gaps(sources))


@contextmanager
def _growing(path: str | None) -> Iterator[TextIO]:
    """What is followed ends with Ctrl-C, and is there as soon as it is written."""
    if path is None or path == options.STDOUT:
        yield sys.stdout
        return
    try:
        with growing_file(path) as out, as_text(out) as text:
            yield text
    except FileExistsError:
        fail(USAGE, f"{path}: it is there already; --follow wants a new file.")


def _records(found: Iterable[Entry | Gap], gaps: list[Gap]) -> Iterator[Entry]:
    """The records; what cannot be read is told on stderr, and added to ``gaps``."""
    for each in found:
        if isinstance(each, Entry):
            yield each
            continue
        gaps.append(each)
        last_lsn = each.next_lsn - 1 if each.next_lsn else None
        lsns = lsn_range(each.first_lsn, last_lsn) if each.first_lsn or last_lsn else "all of it"
        warn(f"{each.place}: {lsns}: {each.why}")


def _followed(source: Source, selection: Selection, with_data: bool) -> Iterator[Entry | Gap]:
    bounds = bounds_of(selection)
    first = next((opened.seq for opened in segments(source, bounds)), 0)
    follower = Follower(source, Records(selection, with_data), lambda: time.sleep(POLL_S))
    return follower.entries(first)


def _show_frame(paths: tuple[str, ...], place: str) -> None:
    seq_text, colon, offset_text = place.rpartition(":")
    try:
        seq = int(seq_text) if colon else None
        offset = int(offset_text, 0)
    except ValueError:
        fail(USAGE, f"--frame wants OFFSET or SEQ:OFFSET, not {place!r}.")
    if len(paths) > 1:
        fail(USAGE, "--frame goes with one LOG.")
    names = open_source(paths[0]).segment_names()
    if seq is None and len(names) > 1:
        fail(USAGE, f"there are {len(names)} segments; say which: --frame SEQ:{offset_text}")
    for segment in segments(open_source(paths[0])):
        if seq in (None, segment.seq):
            if isinstance(segment, Broken):
                fail(DAMAGED, f"{segment.name}: {segment.problem.why}")
            _print_frame(segment, offset)
            return
    fail(USAGE, f"there is no segment {seq}.")


def _print_frame(segment: OpenSegment, offset: int) -> None:
    place = place_of(segment, offset)
    if not place.has_frame:
        fail(CANNOT_READ, f"{segment.name}: offset {offset}: {place.what}")
    output = Output()
    for line in view_of(segment, offset):
        output.line(line)
    if not place.is_good:
        fail(DAMAGED, f"{segment.name}: offset {offset}: {place.what}")
