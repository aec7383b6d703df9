"""The options of a write, and rows into `put` commands: checked as columns, then written out."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beanstalk_twisted.binlog.tags import MAX_METADATA_BYTES, WRITTEN_METADATA
from beanstalk_twisted.client.addresses import Address, listed, token_of
from beanstalk_twisted.client.sync import TIMEOUT_S
from beanstalk_twisted.wire.tags import PutTags, write_tags
from binlog_tools.spark.definitions.columns import Column
from binlog_tools.spark.errors import SinkError
from binlog_tools.tube_names import TUBE_NAMES, is_tube_name

MAX_NUMBER: Final = (1 << 63) - 1
"""Spark numbers batches with a long."""

U32_MAX: Final = (1 << 32) - 1
"""The largest priority, delay and TTR (protocol.txt)."""

WINDOW_JOBS: Final = 1000
"""Jobs that are sent together, with one key: as many as a `put-batch` takes.  Their replies fit
what sockets buffer, so it does not matter who reads first."""

MAX_WRITE_BYTES: Final = 120
"""Of the name of a write, with which its keys begin: they have 192 at most."""

WINDOW_BYTES: Final = 1 << 20
"""Bytes on their way at once, but for one larger job."""

RETRY_S: Final = 60.0
"""How long a server may refuse jobs (draining, disk full) before the task fails."""

UNIQUE_S: Final = 86_400
"""How long keys are remembered: longer than a write and all that repeats it may take."""

OPTIONS: Final[Mapping[str, str]] = {
    "address": "the server: `HOST:PORT`, `tls://HOST:PORT?ca=FILE`, `unix:PATH`, or "
    "`beanstalk://A,B` for one queue on several hosts; several take partitions in turn",
    "token": "for servers whose address has none, else that of `BEANSTALK_TOKEN`",
    "tube": "for rows that do not say, `default`",
    "priority": "likewise, `1024`",
    "delay": "likewise, `0` seconds",
    "ttr": "likewise, `60` seconds",
    "uniqueSeconds": "that keys are remembered, a `unique_key` after its job, `86400`",
    "writeId": "a name of this write, the same when it is repeated; in `foreachBatch` the query's",
    "batchId": "in `foreachBatch`, the number of the batch",
    "window": "jobs sent together, at most `1000`",
    "retryTimeout": "seconds that a server may take nothing, `60`",
    "timeout": "seconds that a reply may take, `60`",
    "resultPath": "a file for the counts, as JSON",
}
"""Every option of a write, and what it takes."""

SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of a stream that are Spark's, and that it passes on all the same."""


class SinkOptions(NamedTuple):
    """As the user has given them; the tube and the three after it are for rows that do not say.

    :ivar write: names the write when it is repeated, empty: it is not; with its batch, if any.
    """

    servers: tuple[Address, ...]
    tube: bytes = b"default"
    priority: int = 1024
    delay_s: int = 0
    ttr_s: int = 60
    window_jobs: int = WINDOW_JOBS
    retry_s: float = RETRY_S
    timeout_s: float = TIMEOUT_S
    result_path: str = ""
    unique_s: int = UNIQUE_S
    write: str = ""
    batch: int | None = None

    @classmethod
    def of(
        cls, options: Mapping[str, str], environment: Mapping[str, str] = os.environ
    ) -> "SinkOptions":  # fmt: skip
        """:param options: by names in any case.
        :param environment: where the token is if no option has it.
        :raise SinkError: one is unknown, missing or no good.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(given)
        _refuse_empty(given)
        if "address" not in given:
            raise _wrong('say which server: .option("address", "127.0.0.1:11300")')
        return cls(
            _servers(given["address"], given.get("token", token_of(None, environment))),
            _tube(given.get("tube", "default")),
            _number(given, "priority", 1024), _number(given, "delay", 0), _number(given, "ttr", 60),
            _number(given, "window", WINDOW_JOBS, 1, WINDOW_JOBS),
            _seconds(given, "retryTimeout", RETRY_S), _seconds(given, "timeout", TIMEOUT_S),
            given.get("resultpath", ""), _number(given, "uniqueSeconds", UNIQUE_S, 1),
            *_write(given),
        )  # fmt: skip

    def server_of(self, partition: int) -> Address:
        return self.servers[partition % len(self.servers)]


def _wrong(what: str) -> SinkError:
    return SinkError("SINK_OPTION", what)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in OPTIONS}
    for name in given:
        if name == "path":
            raise _wrong('a queue has no path: use save() and .option("address", "HOST:PORT")')
        if name not in known | SPARKS_OWN:
            raise _wrong(f"there is no option {name!r}; there are {', '.join(OPTIONS)}")


def _refuse_empty(given: Mapping[str, str]) -> None:
    """Refuse what an unset variable gives: it would be as if the option were left out."""
    for name in OPTIONS:
        if given.get(name.lower()) == "":
            raise _wrong(f"{name}: it is empty; leave it out")


def _servers(text: str, token: str | None) -> tuple[Address, ...]:
    try:
        return tuple(each.showing(lambda: token) for each in listed(text))
    except ValueError as problem:
        raise _wrong(f"address: {problem}") from None


def _write(given: Mapping[str, str]) -> tuple[str, int | None]:
    name = given.get("writeid", "")
    if name and (len(name) > MAX_WRITE_BYTES or not is_tube_name(name.encode())):
        raise _wrong(f"writeId: {name[:20]!r} has not 1 to {MAX_WRITE_BYTES} of the characters of "
                     "a tube's name")  # fmt: skip
    if "batchid" not in given:
        return name, None
    if not name:
        raise _wrong("batchId: give a writeId too, the name of the query")
    return name, _number(given, "batchId", 0, 0, MAX_NUMBER)


def _tube(text: str) -> bytes:
    name = text.encode()
    if not is_tube_name(name):
        raise _wrong(f"tube: {text!r} is no name of a tube")
    return name


def _number(
    given: Mapping[str, str], name: str, default: int, least: int = 0, most: int = U32_MAX
) -> int:
    text = given.get(name.lower(), str(default))
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise _wrong(f"{name}: {text!r} is no whole number from {least} to {most}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name.lower(), str(default))
    if not re.fullmatch(r"\d{1,9}(\.\d+)?", text, re.ASCII):
        raise _wrong(f"{name}: {text!r} is no number of seconds")
    return float(text)


class Tag(NamedTuple):
    """A tag: its word on the line, and the column of the number after its key, if any."""

    word: str
    number: str = ""


TAGS: Final[Mapping[str, Tag]] = {
    "unique_key": Tag("idp:", "unique_s"),
    "concurrency_key": Tag("con:", "concurrency_limit"),
    "job_group": Tag("grp:"),
    "after": Tag("aft:"),
    "metadata": Tag("meta:"),
}
"""The columns of tags, which are called as in the events table."""

TEXT: Final = ("binary", "string")
NUMBER: Final = ("tinyint", "smallint", "int", "bigint")

COLUMNS: Final = (
    Column("body", "text", "the job itself"),
    Column("tube", "text", "where it goes"),
    Column("priority", "number", "0 is the most urgent"),
    Column("delay", "number", "seconds until it is ready"),
    Column("ttr", "number", "seconds that a worker has"),
    Column("unique_key", "text", "at most one job of its tube has it"),
    Column("unique_s", "number", "seconds that it outlives the job"),
    Column("concurrency_key", "text", "at most `concurrency_limit` jobs with it are reserved"),
    Column("concurrency_limit", "number", "1 or more, `1`"),
    Column("job_group", "text", "the job is one of this group"),
    Column("after", "text", "it waits until all jobs of this group are deleted"),
    Column("metadata", "text", "its [metadata](extensions.md#metadata), percent-encoded"),
)
"""The columns that a row may have; what is null comes from the options, and a null tag is none."""

TYPES: Final = {each.name: TEXT if each.ddl == "text" else NUMBER for each in COLUMNS}
"""Spark's types that each may be of."""


class Job(NamedTuple):
    """A row, as a `put` has it; ``numbers``: priority, delay, TTR, size of the body."""

    numbers: tuple[int, int, int, int]
    body: bytes
    tags: PutTags | None = None

    def in_batch(self) -> bytes:
        """What stands in a `put-batch`, without the CR LF behind the body."""
        tags = b" " + write_tags(self.tags) if self.tags else b""
        return b"%d %d %d %d%b\r\n%b" % (*self.numbers, tags, self.body)


class Puts(NamedTuple):
    """Rows in order, where each goes, and the number of the first one in its partition."""

    tubes: Sequence[bytes]
    jobs: Sequence[Job]
    first: int = 0


class JobRows:
    """What the columns of a table mean."""

    def __init__(self, fields: Sequence[tuple[str, str]], options: SinkOptions) -> None:
        """Take columns in the table's order; raise SinkError if these are no jobs."""
        names = [name.lower() for name, _ in fields]
        for name, kind in fields:
            _check_column(name, kind, names)
        if "body" not in names:
            raise _columns("there is no column `body`; it has the job itself, binary or string")
        self._at = {name: at for at, name in enumerate(names)}
        self._options = options
        for name, tag in TAGS.items():
            if tag.number in names and name not in names:
                raise _columns(f"`{tag.number}` says nothing without a column `{name}`")

    @property
    def tags(self) -> Mapping[str, str]:
        """The columns of tags that there are, and the words that the server has to understand."""
        return {name: tag.word for name, tag in TAGS.items() if name in self._at}

    def puts(self, batch: pa.RecordBatch, first: int, most_bytes: int) -> Puts:
        """Return rows, from this number of their partition on; raise SinkError if one is no job."""
        options = self._options
        bodies = self._bodies(batch, first, most_bytes)
        defaults = {"priority": options.priority, "delay": options.delay_s, "ttr": options.ttr_s}
        numbers = [self._numbers(batch, name, default, first) for name, default in defaults.items()]
        tags = self._tags(batch, first) if self.tags else [None] * len(bodies)
        sizes = map(len, bodies)
        jobs = list(map(Job, zip(*numbers, sizes, strict=True), bodies, tags))
        return Puts(self._tubes(batch, first), jobs, first)

    def _tags(self, batch: pa.RecordBatch, first: int) -> list[PutTags | None]:
        """The tags of each row; None for one without."""
        unique, concurrency, groups, after, metadata = (
            self._keys(batch, name, first) for name in TAGS
        )
        _refuse_waiting_for_itself(groups, after, first)
        unique_s = self._numbers(batch, "unique_s", self._options.unique_s, first)
        limits = self._numbers(batch, "concurrency_limit", 1, first, 1)
        columns = zip(unique, unique_s, concurrency, limits, groups, after, metadata, strict=True)
        return [
            PutTags(key, seconds if key else 0, other, limit if other else 0, *rest)
            if key or other or any(rest) else None
            for key, seconds, other, limit, *rest in columns
        ]  # fmt: skip

    def _keys(self, batch: pa.RecordBatch, name: str, first: int) -> list[bytes]:
        """Return keys or groups, which are made as names of tubes are, or metadata; else empty."""
        column = self._column(batch, name)
        if column is None:
            return [b""] * batch.num_rows
        found: list[bytes | None] = _as_bytes(column).to_pylist()
        for row, key in enumerate(found):
            if key is not None and name == "metadata":
                if not WRITTEN_METADATA.fullmatch(key) or len(key) > MAX_METADATA_BYTES:
                    raise _value(
                        first + row,
                        f"its metadata are {key[:40]!r}; they are percent-encoded, in "
                        f"{MAX_METADATA_BYTES} bytes at most",
                    )
            elif key is not None and not is_tube_name(key):
                raise _value(first + row, f"its {name} is {key!r}, and no key: {TUBE_NAMES}")
        return [key or b"" for key in found]

    def _column(self, batch: pa.RecordBatch, name: str) -> Any:
        at = self._at.get(name)
        return None if at is None else batch.column(at)

    def _bodies(self, batch: pa.RecordBatch, first: int, most_bytes: int) -> list[bytes]:
        column = _as_bytes(self._column(batch, "body"))
        row = _first_true(pc.is_null(column))
        if row is not None:
            raise _value(first + row, "its body is null")
        sizes = pc.binary_length(column)
        row = _first_true(pc.greater(sizes, most_bytes))
        if row is not None:
            raise SinkError(
                "SINK_JOB_TOO_BIG",
                f"row {first + row} of its partition: the body has {sizes[row]} bytes, the server "
                f"takes {most_bytes} at most; raise its -z (--max-job-size), or leave such rows "
                f"out: where(octet_length(body) <= {most_bytes})",
            )
        found: list[bytes] = column.to_pylist()
        return found

    def _numbers(
        self, batch: pa.RecordBatch, name: str, default: int, first: int, least: int = 0
    ) -> Sequence[int]:
        column = self._column(batch, name)
        if column is None:
            return [default] * batch.num_rows
        column = pc.fill_null(column.cast(pa.int64()), default)
        row = _first_true(pc.or_(pc.less(column, least), pc.greater(column, U32_MAX)))
        if row is not None:
            raise _value(first + row, f"its {name} is {column[row]}, not from {least} to {U32_MAX}")
        found: list[int] = column.to_pylist()
        return found

    def _tubes(self, batch: pa.RecordBatch, first: int) -> list[bytes]:
        column = self._column(batch, "tube")
        if column is None:
            return [self._options.tube] * batch.num_rows
        column = pc.fill_null(_as_bytes(column), self._options.tube)
        for name in pc.unique(column).to_pylist():
            if not is_tube_name(name):
                row = _first_true(pc.equal(column, name))
                raise _value(first + (row or 0), f"{name!r} is no name of a tube")
        found: list[bytes] = column.to_pylist()
        return found


def _refuse_waiting_for_itself(groups: Sequence[bytes], after: Sequence[bytes], first: int) -> None:
    for row, (group, other) in enumerate(zip(groups, after, strict=True)):
        if group and group == other:
            raise _value(first + row, f"it waits for {group!r}, its own group, for ever")


def _check_column(name: str, kind: str, names: Sequence[str]) -> None:
    allowed = TYPES.get(name.lower())
    if allowed is None:
        raise _columns(f"`{name}` is none of {', '.join(TYPES)}; select() what makes a job")
    if kind not in allowed:
        raise _columns(f"`{name}` is of type {kind}; cast it to {' or '.join(allowed)}")
    if names.count(name.lower()) > 1:
        raise _columns(f"there are two columns `{name}`")


def _as_bytes(column: Any) -> Any:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _first_true(flags: Any) -> int | None:
    row = pc.index(flags, pa.scalar(True)).as_py()
    return None if row < 0 else int(row)


def _columns(what: str) -> SinkError:
    return SinkError("SINK_COLUMNS", what)


def _value(row: int, what: str) -> SinkError:
    return SinkError("SINK_VALUE", f"row {row} of its partition: {what}")
