"""The options of the source, checked: an option that is misspelt must not read everything."""

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
from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.reading.planning import TASK_BYTES
from binlog_tools.spark.segments.conditions import Condition
from binlog_tools.spark.segments.decoding import (
    COPIES_CHOICES,
    DAMAGE_CHOICES,
    RECORDS,
    Copies,
    Damage,
    Records,
    Wanted,
)
from binlog_tools.spark.segments.framing import MAX_NUMBER, VERIFY, Verify

OPTIONS: Final[Mapping[str, str]] = {
    "path": "what `load` is given",
    "body": "`false`, or `true`: the column `body` too; not with `columns`",
    "columns": "the columns wanted, as `lsn,event,job,body`; else all but `body` and those of tags",
    "copies": "`drop`, or `keep`: also the records that compaction and tools restate",
    "damage": "`fail`, or `skip`: a row with the event `damage` for each place",
    "job": "only these jobs, as `17,18`",
    "live": "`include`, or `skip`: without the segment in use",
    "lsnFrom": "only records from this LSN on",
    "lsnTo": "only records up to this LSN, itself included",
    "partitionBytes": "how much a task reads, `64M` by default",
    "pushdown": "`false`, or `true`: filters spare segments; then one query for each `load()`",
    "records": "`jobs`; `all`: also those not of jobs; or `history`: also `start` and `clean-stop`",
    "servers": "names for stores, as `UUID:name,UUID:name`",
    "since": "only what was logged then or later: `2026-01-31T12:00Z`, `-2h`, or seconds",
    "tags": "`false`, or `true`: the columns from `unique_key` to `policy` too; not with `columns`",
    "until": "only what was logged before",
    "verify": "`frames`: all checksums of what is read; `headers`; `none`",
    "view": "`events`, or `segments`: one row a segment, see below",
}
"""Every option of a batch read, and what it takes; the first choice is the default."""

MAX_SERVER_BYTES: Final = 240
"""The longest name of a server, quoted as in a URL: a table has a folder ``server=…`` of it."""

MIN_PARTITION_BYTES: Final = 64 << 10
"""The index of a seal is no finer."""

_UUID: Final = re.compile(r"[0-9a-f]{32}")


class Asked(NamedTuple):
    """What the options say.

    :ivar columns: those asked for by name, None: all, with ``body`` and ``tags`` or without.
    :ivar conditions: what every row has to fulfil, but those of damage.
    :ivar pushdown: whether Spark's filters may decide what is read.
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
    conditions: tuple[Condition, ...] = ()
    pushdown: bool = False
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
    """What the options of a read say; names are taken in any case.

    :param also: further options that are known, and not looked at here.
    :raise SourceError: one is unknown, or its value is.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_unknown(given, {**OPTIONS, **(also or {})})
    if "columns" in given and "body" in given:
        raise wrong("columns", "give either columns or body; body can be one of the columns")
    if "columns" in given and "tags" in given:
        raise wrong("columns", "give either columns or tags; name those of tags that you want")
    if given.get("view", "").strip().lower() == "segments":
        for name in ROWS_ONLY:
            if name.lower() in given:
                raise wrong(name, "it is for the view of events; filter segments with where()")
    return Asked(
        _paths(given), _columns(given), choice(given, "body", ("false", "true")) == "true",
        cast(Records, choice(given, "records", tuple(RECORDS))),
        cast(Copies, choice(given, "copies", COPIES_CHOICES)),
        cast(Damage, choice(given, "damage", DAMAGE_CHOICES)),
        cast(Verify, choice(given, "verify", VERIFY)),
        choice(given, "live", ("include", "skip")) == "include",
        _servers(given.get("servers", "")), choice(given, "view", ("events", "segments")),
        _partition_bytes(given), _conditions(given),
        choice(given, "pushdown", ("false", "true")) == "true",
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


_CONDITIONS: Final[Mapping[str, tuple[str, str, Callable[[str], tuple[int, ...]]]]] = {
    "since": ("logged_ns", ">=", _moment),
    "until": ("logged_ns", "<", _moment),
    "lsnFrom": ("lsn", ">=", _number),
    "lsnTo": ("lsn", "<=", _number),
    "job": ("job", "=", _numbers),
}
"""The options that say which rows are wanted, each as a condition."""

ROWS_ONLY: Final = (*_CONDITIONS, "pushdown")
"""Options that only the view of events takes."""


def check_schema(fields: list[tuple[str, str]], known: Mapping[str, Any]) -> tuple[str, ...]:
    """:return: the columns that a schema of the user's wants.
    :raise SourceError: there is no such column, or it is of another type.
    """
    if not fields:
        raise SourceError("BINLOG_SCHEMA", "the schema has no columns; lsn is the smallest")
    for name, kind in fields:
        if name not in known:
            raise SourceError("BINLOG_SCHEMA", _no_column(name, known))
        if kind != known[name].ddl:
            what = f"column {name} is {known[name].ddl}, and not {kind}"
            raise SourceError("BINLOG_SCHEMA", what)
    return tuple(name for name, _ in fields)
