"""
The options of the source, checked: an option that is misspelt must not read everything.
"""

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from binlog_tools.moments import parse_size
from binlog_tools.spark.columns import BY_NAME
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.reading.planning import TASK_BYTES
from binlog_tools.spark.segments.decoding import (
    COPIES_CHOICES,
    DAMAGE_CHOICES,
    RECORDS_CHOICES,
    Copies,
    Damage,
    Records,
)
from binlog_tools.spark.segments.framing import VERIFY, Verify

OPTIONS: Final[Mapping[str, str]] = {
    "path": "directories, archives, files or patterns; `load(path)` and `load([path, …])` set it",
    "body": "`false`, or `true`: the column `body` too; not together with `columns`",
    "columns": "the columns wanted, as `lsn,event,job,body`; else all but `body`",
    "copies": "`drop`, or `keep`: also the records that compaction and tools restate",
    "damage": "`fail`, or `skip`: a row with the event `damage` for each place",
    "live": "`include`, or `skip`: leave out the segment that a server is writing",
    "partitionBytes": "how much a task reads, `64M` by default",
    "records": "`jobs`, or `all`: also the records that are not of jobs",
    "servers": "names for stores, as `UUID:name,UUID:name`",
    "verify": "`frames`: all checksums of what is read; `headers`: those of frame headers; `none`",
    "view": "`events`, or `segments`: one row a segment, see below",
}
"""Every option of a batch read, and what it takes; the first choice is the default."""

MIN_PARTITION_BYTES: Final = 64 << 10
"""The index of a seal is no finer."""

_UUID: Final = re.compile(r"[0-9a-f]{32}")


class Asked(NamedTuple):
    """
    What the options say.

    :ivar columns: those asked for by name, None: all, with ``body`` or without.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None
    body: bool
    records: Records
    copies: Copies
    damage: Damage
    verify: Verify
    live: bool
    servers: Mapping[str, str]
    view: str
    partition_bytes: int

    @property
    def names(self) -> tuple[str, ...]:
        """
        The columns of the table, if no schema says others.
        """
        if self.columns is not None:
            return self.columns
        return tuple(name for name in BY_NAME if self.body or name != "body")


def parse_options(options: Mapping[str, str], also: Mapping[str, str] | None = None) -> Asked:
    """
    What the options of a read say; names are taken in any case.

    :param also: further options that are known, and not looked at here.
    :raise SourceError: one is unknown, or its value is.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_unknown(given, {**OPTIONS, **(also or {})})
    if "columns" in given and "body" in given:
        raise _wrong("columns", "give either columns or body; body can be one of the columns")
    return Asked(
        _paths(given), _columns(given), _choice(given, "body", ("false", "true")) == "true",
        cast(Records, _choice(given, "records", RECORDS_CHOICES)),
        cast(Copies, _choice(given, "copies", COPIES_CHOICES)),
        cast(Damage, _choice(given, "damage", DAMAGE_CHOICES)),
        cast(Verify, _choice(given, "verify", VERIFY)),
        _choice(given, "live", ("include", "skip")) == "include",
        _servers(given.get("servers", "")), _choice(given, "view", ("events", "segments")),
        _partition_bytes(given),
    )  # fmt: skip


def _wrong(name: str, why: str) -> SourceError:
    return SourceError("BINLOG_OPTION", f"option {name}: {why}")


def _refuse_unknown(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    names = {name.lower(): name for name in (*known, "paths")}
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {names[close[0]]}?" if close else "."
            raise _wrong(name, f"unknown{hint} There are: {', '.join(sorted(known))}")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """
    ``load(list)`` gives a JSON array as ``paths``, and no ``path``.
    """
    paths = [given["path"]] if given.get("path") else []
    if "paths" in given:
        try:
            more = json.loads(given["paths"])
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(each, str) for each in more):
            raise _wrong("paths", "a JSON array of strings is wanted; or give load([path, …])")
        paths += more
    if not paths:
        raise _wrong("path", "there is none: .load('/var/lib/beanstalk') names a log to read")
    return tuple(paths)


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in given:
        return None
    names = tuple(name.strip() for name in given["columns"].split(","))
    for name in names:
        if name not in BY_NAME:
            raise _wrong("columns", f"there is no column {name!r}{_near(name)}")
    if len(set(names)) < len(names):
        raise _wrong("columns", f"one is there twice: {given['columns']}")
    return names


def _near(name: str) -> str:
    close = difflib.get_close_matches(name, BY_NAME, 1)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(BY_NAME)}"


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = given.get(name, choices[0]).strip().lower()
    if value not in choices:
        raise _wrong(name, f"{given[name]!r} is none of {', '.join(choices)}")
    return value


def _servers(text: str) -> dict[str, str]:
    servers = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        uuid, _, name = pair.partition(":")
        uuid = uuid.strip().lower().replace("-", "")
        if not _UUID.fullmatch(uuid) or not name.strip():
            raise _wrong("servers", f"{pair!r} is not UUID:name, the UUID with 32 hex digits")
        servers[uuid] = name.strip()
    return servers


def _partition_bytes(given: Mapping[str, str]) -> int:
    text = given.get("partitionbytes")
    if text is None:
        return TASK_BYTES
    try:
        size = parse_size(text)
    except ValueError as problem:
        raise _wrong("partitionBytes", str(problem)) from None
    if size < MIN_PARTITION_BYTES:
        raise _wrong("partitionBytes", f"{text}: {MIN_PARTITION_BYTES} bytes are the least")
    return size


def check_schema(fields: list[tuple[str, str]], known: Mapping[str, Any]) -> tuple[str, ...]:
    """
    The columns that a schema of the user's wants.

    :param fields: their names and types, as Spark writes them.
    :param known: the columns that there are, by name.
    :raise SourceError: there is no such column, or it is of another type.
    """
    if not fields:
        raise SourceError("BINLOG_SCHEMA", "the schema has no columns; lsn is the smallest")
    for name, kind in fields:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else "."
            what = f"there is no column {name!r}{hint} There are: {', '.join(known)}"
            raise SourceError("BINLOG_SCHEMA", what)
        if kind != known[name].ddl:
            what = f"column {name} is {known[name].ddl}, and not {kind}"
            raise SourceError("BINLOG_SCHEMA", what)
    return tuple(name for name, _ in fields)
