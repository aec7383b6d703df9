"""
Records as text, JSON lines, CSV or Parquet.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final, Protocol, TextIO

from beanstalk_twisted.binlog.records import (
    DATA_LEN,
    DEADLINE_NS,
    DELAY_S,
    FLAGS,
    FULL,
    JOB_ID,
    JOB_KINDS,
    PRIORITY,
    STATE,
    TS_NS,
    TTR_S,
    TYPE,
)
from beanstalk_twisted.printable import escape
from binlog_tools.cli.exits import USAGE, fail
from binlog_tools.console.output import as_json
from binlog_tools.console.wording import text_of
from binlog_tools.inspect.dumping import (
    Entry,
    Fields,
    body_fields,
    body_text,
    fields_of,
    flag_names,
    reason_name,
    state_name,
)
from binlog_tools.logs.quantities import format_time, format_time_exactly
from binlog_tools.logs.selection import type_name

COLUMNS: Final = (
    "lsn", "time", "type", "job", "tube", "state", "priority", "delay_s", "ttr_s", "deadline",
    "reserves", "timeouts", "releases", "buries", "kicks", "reason", "connection", "flags",
    "logged", "segment", "offset", "bytes", "body",
)  # fmt: skip
"""Of CSV, of tab-separated text and of Parquet; docs/inspect.md says what they are."""

PREVIEW_CHARACTERS: Final = 60
"""So much of a body is shown on a terminal."""

PARQUET_ROWS: Final = 50_000
"""Records that are collected for one row group: some 10 MB, beside their bodies."""

PARQUET_BYTES: Final = 32 << 20
"""Bodies that are collected for one row group."""


class RecordWriter(Protocol):
    """
    Writes records in some format.
    """

    def write(self, entries: Iterable[Entry]) -> None:
        """
        Write records; they are on the output when this returns.
        """

    def close(self) -> None:
        """
        No more will come.
        """


class _Lines:
    """
    One line for each record.
    """

    def __init__(self, out: IO[str], how: str) -> None:
        self._out = out
        self._how = how

    def line(self, entry: Entry) -> str:
        """
        The line, without its end.
        """
        raise NotImplementedError

    def write(self, entries: Iterable[Entry]) -> None:
        """
        Write records; they are on the output when this returns.
        """
        line = self.line
        for entry in entries:
            self._out.write(line(entry) + "\n")
        self._out.flush()

    def close(self) -> None:
        """
        No more will come.
        """


class JsonLines(_Lines):
    """
    One document for each record.
    """

    def line(self, entry: Entry) -> str:
        """
        The line, without its end.
        """
        fields = fields_of(entry)
        if entry.raw[TYPE] in FULL:
            fields.update(body_fields(entry.data, self._how))
        if "counters" in fields:
            fields["counters"] = _parsed(str(fields["counters"]))
        return as_json(fields)


def _parsed(text: str) -> object:
    """
    A document in a record; as text if it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class TabLines(_Lines):
    """
    For a pipe: `COLUMNS`, separated by tabs.
    """

    def line(self, entry: Entry) -> str:
        """
        The line, without its end.
        """
        return _line_of(row_of(entry, self._how))


class TerminalLines(_Lines):
    """
    For people.
    """

    def line(self, entry: Entry) -> str:
        """
        The line, without its end.
        """
        raw = entry.raw
        head = f"{entry.lsn:>9}  {format_time(raw[TS_NS])}  {type_name(raw[TYPE]):<11} "
        if raw[TYPE] not in JOB_KINDS:
            return head + _details(fields_of(entry))
        text = (
            f"{raw[JOB_ID]:>8}  {escape(text_of(entry.tube)):<12} "
            f"{state_name(raw[STATE]):<8} pri {raw[PRIORITY]} ttr {raw[TTR_S]}"
        )
        if raw[DELAY_S]:
            text += f" delay {raw[DELAY_S]}"
        if raw[DEADLINE_NS]:
            text += f" until {format_time(raw[DEADLINE_NS])}" if raw[STATE] != 3 else ""
        if raw[TYPE] in FULL:
            body = body_text(entry.data[: PREVIEW_CHARACTERS + 1], self._how)
            shown = body if len(body) <= PREVIEW_CHARACTERS else body[:PREVIEW_CHARACTERS] + "…"
            text += f"  {raw[DATA_LEN]} bytes  {shown}"
        return head + text


_PLACES: Final = frozenset({"lsn", "type", "time", "logged", "segment", "offset", "flags"})


def _details(fields: Fields) -> str:
    said = {k: v for k, v in fields.items() if k not in _PLACES and (k, v) != ("reason", "none")}
    return escape(" ".join(f"{name}={value}" for name, value in said.items()))


Row = tuple[Any, ...]


def row_of(entry: Entry, how: str) -> Row:
    """
    A record as a row of `COLUMNS`; None where it has nothing of the kind.
    """
    raw = entry.raw
    (kind, state, flags, reason, priority, job_id, ts_ns, deadline_ns, delay_s, ttr_s, _, reserves,
     timeouts, releases, buries, kicks, _, size, _, connection) = raw  # fmt: skip
    if kind not in JOB_KINDS:
        return _row_of_other(entry)
    return (
        entry.lsn, format_time_exactly(ts_ns), type_name(kind), job_id, text_of(entry.tube),
        state_name(state), priority, delay_s, ttr_s,
        format_time_exactly(deadline_ns) if deadline_ns else None, reserves, timeouts, releases,
        buries, kicks, reason_name(reason), connection, "+".join(flag_names(flags)),
        format_time_exactly(entry.time_ns), entry.segment, entry.offset, size,
        body_text(entry.data, how) if kind in FULL else None,
    )  # fmt: skip


def _row_of_other(entry: Entry) -> Row:
    fields = fields_of(entry)
    row = {name: fields.get(name) for name in COLUMNS}
    row["flags"] = "+".join(flag_names(entry.raw[FLAGS]))
    row["body"] = _details(fields)
    return tuple(row.values())


def _line_of(row: Row) -> str:
    """
    A row, its fields separated by tabs; nothing in it can break it.
    """
    line = "\t".join(["-" if value is None or value == "" else str(value) for value in row])
    if line.count("\t") == len(COLUMNS) - 1 and line.replace("\t", "").isprintable():
        return line
    return "\t".join("-" if value is None or value == "" else escape(str(value)) for value in row)


FORMULA: Final = ("=", "+", "-", "@")
"""What a cell begins with that a spreadsheet takes for a formula, and carries out."""


def _csv_cell(value: object) -> object:
    """
    A value as a spreadsheet shows it: text that it would take for a formula begins with ``'``.
    """
    if not isinstance(value, str):
        return value
    text = escape(value)
    return f"'{text}" if text.startswith(FORMULA) else text


class CsvLines:
    """
    CSV with a line of titles.
    """

    def __init__(self, out: IO[str], how: str) -> None:
        self._out = out
        self._how = how
        self._csv = csv.writer(out, lineterminator="\n")
        self._csv.writerow(COLUMNS)

    def write(self, entries: Iterable[Entry]) -> None:
        """
        Write records; they are on the output when this returns.
        """
        self._csv.writerows(map(_csv_cell, row_of(entry, self._how)) for entry in entries)
        self._out.flush()

    def close(self) -> None:
        """
        No more will come.
        """


class Parquet:
    """
    Parquet by way of pyarrow: times are timestamps, bodies bytes.
    """

    def __init__(self, out: IO[bytes], how: str) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            fail(
                USAGE,
                "Parquet needs pyarrow: in a checkout of beanstalk-twisted, "
                "pip install '.[parquet]'; "
                "nothing was written. --format csv or json need nothing.",
            )
        self._how = how
        self._arrow = pyarrow
        self._schema = _schema(pyarrow)
        self._writer = parquet.ParquetWriter(out, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, entries: Iterable[Entry]) -> None:
        """
        Write a record; the last of them are written when it is closed.
        """
        for entry in entries:
            self._rows.append(self._row(entry))
            self._bytes += len(entry.data)
            if len(self._rows) >= PARQUET_ROWS or self._bytes >= PARQUET_BYTES:
                self._flush()

    def _row(self, entry: Entry) -> dict[str, Any]:
        row = dict(zip(COLUMNS, row_of(entry, "none"), strict=True))
        raw = entry.raw
        row["time"], row["logged"] = raw[TS_NS], entry.time_ns
        row["deadline"] = raw[DEADLINE_NS] if row["deadline"] else None
        if raw[TYPE] in JOB_KINDS:
            has_body = raw[TYPE] in FULL and self._how != "none"
            row["body"] = entry.data if has_body else None
        else:
            row["body"] = row["body"].encode()
        return row

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema))
        self._rows = []
        self._bytes = 0

    def close(self) -> None:
        """
        No more will come.
        """
        self._flush()
        self._writer.close()


def _schema(pyarrow: Any) -> Any:
    time, whole, text = pyarrow.timestamp("ns", "UTC"), pyarrow.int64(), pyarrow.string()
    kinds: Mapping[str, Any] = {
        "lsn": pyarrow.uint64(), "job": pyarrow.uint64(), "time": time, "deadline": time,
        "logged": time, "type": text, "tube": text, "state": text, "reason": text, "flags": text,
        "segment": text, "body": pyarrow.binary(),
    }  # fmt: skip
    return pyarrow.schema([(name, kinds.get(name, whole)) for name in COLUMNS])


def writer_of(kind: str, out: TextIO, how: str) -> RecordWriter:
    """
    The writer for a format.

    :param out: where it goes; the caller closes it.
    """
    if kind == "parquet":
        return Parquet(out.buffer, how)
    if kind == "json":
        return JsonLines(out, how)
    if kind == "csv":
        return CsvLines(out, how)
    return TerminalLines(out, how) if out.isatty() else TabLines(out, how)
