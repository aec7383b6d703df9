"""The options of batch reads and of streams, checked: a misspelt one must not read everything."""

import difflib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

from beanstalk_twisted.binlog.segments.format import SegmentHeader
from binlog_tools.logs.quantities import parse_size, parse_time
from binlog_tools.spark.definitions.columns import BY_NAME, UNASKED
from binlog_tools.spark.errors import SourceError
from binlog_tools.spark.reading.planning import TASK_BYTES
from binlog_tools.spark.segments.wanted import (
    COPIES_CHOICES,
    DAMAGE_CHOICES,
    MAX_NUMBER,
    RECORDS,
    VERIFY,
    Condition,
    Copies,
    Damage,
    Records,
    Verify,
    Wanted,
)

OPTIONS: Final[Mapping[str, str]] = {
    "path": "what `load` is given",
    "body": "`false`, `true`: that column too",
    "columns": "as `lsn,event,job,body`; else all but `body` and those of tags",
    "copies": "`drop`, `keep`: also what compaction and tools restate",
    "damage": "`fail`, `skip`: see below",
    "job": "only these, as `17,18`",
    "live": "`include`, `skip`: without the segment in use",
    "lsnFrom": "only from this LSN on",
    "lsnTo": "only up to this LSN",
    "partitionBytes": "how much a task reads, `64M`",
    "records": "`jobs`, `history`, `all`: see `event`",
    "servers": "names for stores, as `UUID:name,UUID:name`",
    "since": "logged then or later: `2026-01-31T12:00Z`, `-2h`, or seconds",
    "tags": "`false`, `true`: those from `unique_key` to `policy` too",
    "tube": "only these, as `mail,media`",
    "until": "logged before",
    "verify": "`frames`: all checksums of what is read; `headers`; `none`",
}
"""Every option of a batch read, and what it takes; the first choice is the default."""

MAX_SERVER_BYTES: Final = 240
"""The longest name of a server, quoted as in a URL: a table has a folder ``server=…`` of it."""

MIN_PARTITION_BYTES: Final = 64 << 10
"""The index of a seal is no finer."""

_UUID: Final = re.compile(r"[0-9a-f]{32}")


class Asked(NamedTuple):
    """What the options say; ``conditions``: what every row has to fulfil, but those of damage."""

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None
    body: bool
    records: Records
    copies: Copies
    damage: Damage
    verify: Verify
    live: bool
    servers: Mapping[str, str]
    partition_bytes: int
    conditions: tuple[Condition, ...] = ()
    tags: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        if self.columns is not None:
            return self.columns
        left_out = frozenset().union(
            *(names for option, names in UNASKED.items() if not getattr(self, option))
        )
        return tuple(name for name in BY_NAME if name not in left_out)

    def wanted(self, columns: tuple[str, ...]) -> Wanted:
        return Wanted(columns, self.records, self.copies, self.damage, self.verify, self.conditions)

    def server_of(self, header: SegmentHeader) -> str:
        store = header.store_uuid.hex()
        return self.servers.get(store, store)


def parse_options(options: Mapping[str, str], also: Mapping[str, str] | None = None) -> Asked:
    """Return what the options of a read say; raise SourceError if one, or its value, is unknown."""
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_unknown(given, {**OPTIONS, **(also or {})})
    if "columns" in given and "body" in given:
        raise wrong("columns", "give either columns or body; body can be one of the columns")
    if "columns" in given and "tags" in given:
        raise wrong("columns", "give either columns or tags; name those of tags that you want")
    return Asked(
        _paths(given), _columns(given), choice(given, "body", ("false", "true")) == "true",
        cast(Records, choice(given, "records", tuple(RECORDS))),
        cast(Copies, choice(given, "copies", COPIES_CHOICES)),
        cast(Damage, choice(given, "damage", DAMAGE_CHOICES)),
        cast(Verify, choice(given, "verify", VERIFY)),
        choice(given, "live", ("include", "skip")) == "include",
        _servers(given.get("servers", "")), _partition_bytes(given), _conditions(given),
        choice(given, "tags", ("false", "true")) == "true",
    )  # fmt: skip


def wrong(name: str, why: str) -> SourceError:
    return SourceError("BINLOG_OPTION", f"option {name}: {why}")


def _refuse_unknown(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    names = {name.lower(): name for name in (*known, "paths")}
    for name in given:
        if name not in names:
            raise wrong(name, f"unknown{_near(name, names)} There are: {', '.join(sorted(known))}")


def _near(name: str, known: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {known[close[0]]}?" if close else "."


def _no_column(name: str, known: Iterable[str]) -> str:
    hint = _near(name, {each: each for each in known})
    return f"there is no column {name!r}{hint} There are: {', '.join(known)}"


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """``load(list)`` gives a JSON array as ``paths``, and no ``path``."""
    paths = [given["path"]] if given.get("path") else []
    if "paths" in given:
        try:
            more = json.loads(given["paths"])
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(each, str) for each in more):
            raise wrong("paths", "a JSON array of strings is wanted; or give load([path, …])")
        paths += more
    if not paths:
        raise wrong("path", "there is none: .load('/var/lib/beanstalk') names a log to read")
    return tuple(paths)


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in given:
        return None
    names = tuple(name.strip() for name in given["columns"].split(","))
    for name in names:
        if name not in BY_NAME:
            raise wrong("columns", _no_column(name, BY_NAME))
    if len(set(names)) < len(names):
        raise wrong("columns", f"one is there twice: {given['columns']}")
    return names


def choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first one if the option is not given."""
    text = given.get(name.lower(), choices[0])
    if text.strip().lower() not in choices:
        raise wrong(name, f"{text!r} is none of {', '.join(choices)}")
    return text.strip().lower()


def size_of(given: Mapping[str, str], name: str) -> int | None:
    """An option of so many bytes, as ``64M``; None if it is not given."""
    text = given.get(name.lower())
    try:
        return None if text is None else parse_size(text)
    except ValueError as problem:
        raise wrong(name, str(problem)) from None


def _servers(text: str) -> dict[str, str]:
    servers: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        uuid, _, name = pair.partition(":")
        uuid = uuid.strip().lower().replace("-", "")
        if not _UUID.fullmatch(uuid) or not name.strip():
            raise wrong("servers", f"{pair!r} is not UUID:name, the UUID with 32 hex digits")
        if uuid in servers or name.strip() in servers.values():
            raise wrong("servers", f"{pair!r}: this store, or this name, was there before")
        if len(quote(name.strip(), safe="")) > MAX_SERVER_BYTES:
            what = f"at most {MAX_SERVER_BYTES} bytes, as in a URL: folders have such names"
            raise wrong("servers", f"the name {name.strip()[:20]!r}… is too long; {what}")
        servers[uuid] = name.strip()
    return servers


def _partition_bytes(given: Mapping[str, str]) -> int:
    size = size_of(given, "partitionBytes")
    if size is not None and size < MIN_PARTITION_BYTES:
        least = f"{MIN_PARTITION_BYTES} bytes are the least"
        raise wrong("partitionBytes", f"{given['partitionbytes']}: {least}")
    return TASK_BYTES if size is None else size


def _conditions(given: Mapping[str, str]) -> tuple[Condition, ...]:
    found = []
    for name, (column, how, parse) in _CONDITIONS.items():
        text = given.get(name.lower())
        if text is None:
            continue
        try:
            found.append(Condition(column, how, parse(text)))
        except ValueError as problem:
            raise wrong(name, str(problem)) from None
    return tuple(found)


def _numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and int(word) < MAX_NUMBER):
            raise ValueError(f"{word!r} is no whole number below 2**63")
    return tuple(map(int, words))


def _number(text: str) -> tuple[int]:
    if "," in text:
        raise ValueError(f"{text!r} is not one number")
    return (_numbers(text)[0],)


def _moment(text: str) -> tuple[int]:
    """A moment that is the same on all machines."""
    moment_ns = parse_time(text, time.time_ns())
    try:
        is_local = datetime.fromisoformat(text.strip()).tzinfo is None
    except ValueError:
        is_local = False
    if is_local:
        raise ValueError(f"{text!r} says no zone; write 2026-01-31T12:00Z, or …+01:00")
    return (moment_ns,)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    if not all(names):
        raise ValueError(f"{text!r} names no tube")
    return names


_CONDITIONS: Final[Mapping[str, tuple[str, str, Callable[[str], tuple[Any, ...]]]]] = {
    "since": ("logged_ns", ">=", _moment),
    "until": ("logged_ns", "<", _moment),
    "lsnFrom": ("lsn", ">=", _number),
    "lsnTo": ("lsn", "<=", _number),
    "job": ("job", "=", _numbers),
    "tube": ("tube", "=", _names),
}
"""The options that say which rows are wanted, each as a condition."""


def check_schema(fields: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the columns of a user's schema; raise SourceError if one is unknown."""
    if not fields:
        raise SourceError("BINLOG_SCHEMA", "the schema has no columns; lsn is the smallest")
    for name, kind in fields:
        if name not in BY_NAME:
            raise SourceError("BINLOG_SCHEMA", _no_column(name, BY_NAME))
        if kind != BY_NAME[name].ddl:
            what = f"column {name} is {BY_NAME[name].ddl}, and not {kind}"
            raise SourceError("BINLOG_SCHEMA", what)
    return tuple(name for name, _ in fields)


# Streams.

UNLIMITED: Final = MAX_NUMBER - 1
"""No limit, in bytes or records."""

BATCH_BYTES: Final = 256 << 20
"""What a batch reads at most: a few tasks of the usual size, some seconds of work."""

STREAM_OPTIONS: Final[Mapping[str, str]] = {
    "archive": "the server's archive, or a pattern",
    "startingOffsets": '`earliest`; `latest`; or LSNs by store, `{"UUID": 4711}`',
    "startingLsn": "in every store",
    "startingTimestamp": "what was logged then or later",
    "maxBytesPerTrigger": "how much of the logs a batch reads, `256M`",
    "maxRowsPerTrigger": "how many records",
    "failOnDataLoss": "`true`, `false`: a row of damage instead",
}
"""Options of a stream, and what each takes; the first choice is the default."""

SPARKS_OWN: Final = ("checkpointLocation", "queryName")

BATCH_ONLY: Final = ("live", "partitionBytes", *_CONDITIONS)


class Streamed(NamedTuple):
    """What the options of a stream say; ``asked``: of rows, ``starts``: LSNs by store."""

    asked: Asked
    paths: tuple[str, ...]
    is_latest: bool
    starts: Mapping[str, int]
    lsn: int | None
    since_ns: int | None
    most_bytes: int
    most_rows: int
    tolerates_loss: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Streamed":
        """:raise SourceError: one is unknown, or its value is."""
        given = {name.lower(): str(value) for name, value in options.items()}
        for name in BATCH_ONLY:
            if name.lower() in given:
                raise wrong(name, "it is for batch reads; a stream has no use for it")
        asked = parse_options(options, dict.fromkeys([*STREAM_OPTIONS, *SPARKS_OWN], ""))
        archive = given.get("archive", "")
        _refuse_several(given)
        offsets = given.get("startingoffsets", "earliest").strip()
        return cls(
            asked, (*asked.paths, *((archive,) if archive else ())), offsets == "latest",
            _starts(offsets), _from_one(given, "startingLsn", "LSN"), _since(given),
            _batch_bytes(given),
            _from_one(given, "maxRowsPerTrigger", "whole number from 1 on") or UNLIMITED,
            choice(given, "failOnDataLoss", ("true", "false")) == "false",
        )  # fmt: skip

    @property
    def rows(self) -> str:
        """What decides which rows a log gives; it must not change in the middle of a stream."""
        asked = self.asked
        servers = ",".join(f"{uuid}:{name}" for uuid, name in sorted(asked.servers.items()))
        return f"records={asked.records} copies={asked.copies} servers={servers or '-'}"


def _refuse_several(given: Mapping[str, str]) -> None:
    names = [name for name in ("startingOffsets", "startingLsn", "startingTimestamp")
             if name.lower() in given]  # fmt: skip
    if len(names) > 1:
        raise wrong(names[1], f"give either this or {names[0]}")


def _starts(text: str) -> dict[str, int]:
    if text in ("earliest", "latest"):
        return {}
    try:
        found = {str(store).replace("-", ""): int(lsn) for store, lsn in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        found = {}
    if not found or not all(_UUID.fullmatch(store) for store in found):
        raise wrong(
            "startingOffsets", f'{text!r} is none of earliest, latest, {{"UUID of a store": LSN}}'
        )
    return found


def _from_one(given: Mapping[str, str], name: str, kind: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) < MAX_NUMBER):
        raise wrong(name, f"{text!r} is no {kind}")
    return int(text)


def _since(given: Mapping[str, str]) -> int | None:
    text = given.get("startingtimestamp")
    if text is None:
        return None
    try:
        return parse_time(text, time.time_ns())
    except ValueError as problem:
        raise wrong("startingTimestamp", str(problem)) from None


def _batch_bytes(given: Mapping[str, str]) -> int:
    size = size_of(given, "maxBytesPerTrigger")
    if size is None:
        return UNLIMITED if "maxrowspertrigger" in given else BATCH_BYTES
    if size < 1:
        raise wrong("maxBytesPerTrigger", "1 is the least; a batch takes a frame at least")
    return size
