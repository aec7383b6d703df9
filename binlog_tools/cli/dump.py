"""Records as text, JSON lines, CSV or Parquet."""

import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import IO, Any, Final, TextIO

import click

from beanstalk_twisted.binlog.records.jobs import FULL, NEVER_NS, WITHHELD_NS, State
from beanstalk_twisted.binlog.records.others import JOB_KINDS
from beanstalk_twisted.printable import escape
from binlog_tools.cli import options
from binlog_tools.cli.commands import CANNOT_READ, DAMAGED, USAGE
from binlog_tools.cli.options import code_of_gaps, open_source, open_sources
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.output import Output, as_json
from binlog_tools.console.wording import text_of
from binlog_tools.inspect.archives import lsn_range
from binlog_tools.inspect.dumping import (
    FLAG_NAMES,
    Entry,
    Fields,
    Gap,
    Records,
    body_fields,
    body_text,
    bounds_of,
    deadline_of,
    entries,
    fields_of,
    place_of,
    preview,
    reason_name,
    state_name,
    tags_text,
    view_of,
)
from binlog_tools.inspect.following import Follower
from binlog_tools.logs.outputs import STDOUT, as_text, growing_file, opened
from binlog_tools.logs.quantities import format_time, format_time_exactly
from binlog_tools.logs.reading import Broken, OpenSegment, segments
from binlog_tools.logs.stored import type_name

COLUMNS: Final = (
    "lsn", "time", "type", "job", "tube", "state", "priority", "delay_s", "ttr_s", "deadline",
    "reserves", "timeouts", "releases", "buries", "kicks", "reason", "connection", "flags",
    "logged", "segment", "offset", "bytes", "body", "tags",
)  # fmt: skip
"""Of CSV, of tab-separated text and of Parquet; see docs/inspect.md."""

PREVIEW_CHARACTERS: Final = 60

PARQUET_ROWS: Final = 50_000
"""Records that are collected for one row group: some 10 MB, beside their bodies."""

PARQUET_BYTES: Final = 32 << 20
"""Of bodies for one row group."""


Write = Callable[[Iterable[Entry]], None]


def _in_lines(out: IO[str], how: str, line: Callable[[Entry, str], str]) -> Write:
    def write(entries: Iterable[Entry]) -> None:
        for entry in entries:
            out.write(line(entry, how) + "\n")
        out.flush()

    return write


def _json_line(entry: Entry, how: str) -> str:
    fields = fields_of(entry)
    if entry.raw.type in FULL:
        fields.update(body_fields(entry.data, how))
    for name in ("counters", "rules"):
        if name in fields:
            with suppress(ValueError, RecursionError):
                fields[name] = json.loads(str(fields[name]))
    return as_json(fields)


def _line_for_people(entry: Entry, how: str) -> str:
    raw = entry.raw
    head = f"{entry.lsn:>9}  {format_time(raw.ts_ns)}  {type_name(raw.type):<11} "
    if raw.type not in JOB_KINDS:
        return head + _details(fields_of(entry))
    text = (
        f"{raw.job_id:>8}  {escape(text_of(entry.tube)):<12} "
        f"{state_name(raw.state):<8} pri {raw.priority} ttr {raw.ttr_s}"
    )
    if raw.delay_s:
        text += f" delay {raw.delay_s}"
    if raw.deadline_ns == NEVER_NS:
        text += " until its group ends"
    elif raw.deadline_ns >= WITHHELD_NS:
        text += " until it is a dead letter"
    elif raw.deadline_ns and raw.state != State.BURIED:
        text += f" until {format_time(raw.deadline_ns)}"
    if entry.tags is not None:
        text += f"  {escape(tags_text(entry.tags))}"
    if raw.type in FULL:
        text += f"  {entry.size} bytes  {preview(entry.data, how, PREVIEW_CHARACTERS)}"
    return head + text


_PLACES: Final = frozenset({"lsn", "type", "time", "logged", "segment", "offset", "flags"})


def _details(fields: Fields) -> str:
    said = {k: v for k, v in fields.items() if k not in _PLACES and (k, v) != ("reason", "none")}
    return escape(" ".join(f"{name}={value}" for name, value in said.items()))


Row = tuple[Any, ...]


def row_of(entry: Entry, how: str) -> Row:
    """A record as a row of `COLUMNS`; None where it has nothing of the kind."""
    raw = entry.raw
    if raw.type not in JOB_KINDS:
        fields = fields_of(entry)
        row = {name: fields.get(name) for name in COLUMNS}
        row["flags"] = "+".join(FLAG_NAMES[raw.flags])
        row["body"] = _details(fields)
        return tuple(row.values())
    return (
        entry.lsn, format_time_exactly(raw.ts_ns), type_name(raw.type), raw.job_id,
        text_of(entry.tube), state_name(raw.state), raw.priority, raw.delay_s, raw.ttr_s,
        deadline_of(raw.deadline_ns), raw.reserves,
        raw.timeouts, raw.releases, raw.buries, raw.kicks, reason_name(raw.reason), raw.aux,
        "+".join(FLAG_NAMES[raw.flags]), format_time_exactly(entry.time_ns), entry.segment,
        entry.offset, entry.size, body_text(entry.data, how) if raw.type in FULL else None,
        tags_text(entry.tags) or None,
    )  # fmt: skip


def _tab_line(entry: Entry, how: str) -> str:
    """Nothing in the fields can break the line."""
    row = ["-" if value is None or value == "" else str(value) for value in row_of(entry, how)]
    line = "\t".join(row)
    if line.count("\t") == len(COLUMNS) - 1 and line.replace("\t", "").isprintable():
        return line
    return "\t".join(map(escape, row))


FORMULA: Final = ("=", "+", "-", "@")
"""What a cell begins with that a spreadsheet takes for a formula, and carries out."""


def _csv_cell(value: object) -> object:
    """A value as a spreadsheet shows it: what it would take for a formula begins with ``'``."""
    if not isinstance(value, str):
        return value
    text = escape(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _as_csv(out: IO[str], how: str) -> Write:
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)

    def write(entries: Iterable[Entry]) -> None:
        table.writerows(map(_csv_cell, row_of(entry, how)) for entry in entries)
        out.flush()

    return write


def _as_parquet(out: IO[bytes], how: str) -> Write:
    """By way of pyarrow: times are timestamps, bodies bytes.  Writes once."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        fail(
            USAGE,
            "Parquet needs pyarrow: in a checkout of beanstalk-twisted, pip install "
            "'.[parquet]'; nothing was written. --format csv or json need nothing.",
        )
    schema = _schema(pyarrow)

    def write(entries: Iterable[Entry]) -> None:
        with parquet.ParquetWriter(out, schema, compression="zstd") as table:
            for rows in _row_groups(entries, how):
                table.write_table(pyarrow.Table.from_pylist(rows, schema))

    return write


def _row_groups(entries: Iterable[Entry], how: str) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for entry in entries:
        rows.append(_parquet_row(entry, how))
        size += len(entry.data)
        if len(rows) >= PARQUET_ROWS or size >= PARQUET_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _parquet_row(entry: Entry, how: str) -> dict[str, Any]:
    row = dict(zip(COLUMNS, row_of(entry, "none"), strict=True))
    raw = entry.raw
    row["time"], row["logged"] = raw.ts_ns, entry.time_ns
    row["deadline"] = raw.deadline_ns if row["deadline"] else None
    if raw.type in JOB_KINDS:
        row["body"] = entry.data if raw.type in FULL and how != "none" else None
    else:
        row["body"] = row["body"].encode()
    return row


def _schema(pyarrow: Any) -> Any:
    time, whole, text = pyarrow.timestamp("ns", "UTC"), pyarrow.int64(), pyarrow.string()
    kinds: Mapping[str, Any] = {
        "lsn": pyarrow.uint64(), "job": pyarrow.uint64(), "time": time, "deadline": time,
        "logged": time, "type": text, "tube": text, "state": text, "reason": text, "flags": text,
        "segment": text, "body": pyarrow.binary(), "tags": text,
    }  # fmt: skip
    return pyarrow.schema([(name, kinds.get(name, whole)) for name in COLUMNS])


def writer_of(kind: str, out: TextIO, how: str) -> Write:
    if kind == "parquet":
        return _as_parquet(out.buffer, how)
    if kind == "csv":
        return _as_csv(out, how)
    if kind == "json":
        return _in_lines(out, how, _json_line)
    return _in_lines(out, how, _line_for_people if out.isatty() else _tab_line)


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
def dump_command(
    paths: tuple[str, ...], limit: int | None, follow: bool, kind: str, is_json: bool, how: str,
    target: str | None, place: str | None, **chosen: Any,
) -> None:  # fmt: skip
    """Show the records of a log.

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
    if kind == "parquet" and target in (None, STDOUT):
        fail(USAGE, "Parquet cannot go to a pipe; name a file with -o FILE.parquet.")
    with_data = how != "none"
    gaps: list[Gap] = []
    if follow:
        first = next((each.seq for each in segments(sources[0], bounds_of(selection))), 0)
        records = Records(selection, with_data)
        follower = Follower(sources[0], records, lambda: time.sleep(POLL_S))
        found = _records(follower.entries(first), gaps)
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
    """What is followed is there as soon as it is written."""
    if path is None or path == STDOUT:
        yield sys.stdout
        return
    try:
        with growing_file(path) as out, as_text(out) as text:
            yield text
    except FileExistsError:
        fail(USAGE, f"{path}: it is there already; --follow wants a new file.")


def _records(found: Iterable[Entry | Gap], gaps: list[Gap]) -> Iterator[Entry]:
    """The records; what cannot be read is reported, and added to ``gaps``."""
    for each in found:
        if isinstance(each, Entry):
            yield each
            continue
        gaps.append(each)
        last_lsn = each.next_lsn - 1 if each.next_lsn else None
        lsns = lsn_range(each.first_lsn, last_lsn) if each.first_lsn or last_lsn else "all of it"
        warn(f"{each.place}: {lsns}: {each.why}")


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
