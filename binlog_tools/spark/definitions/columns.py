"""The columns of the events table: name, type, meaning.  All may be null."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """A column: its type as Spark's SQL names it, and its meaning and unit for docs/spark.md."""

    name: str
    ddl: str
    meaning: str


ARROW_NAMES: Final = {
    "bigint": "int64", "binary": "binary", "boolean": "bool_", "date": "date32", "int": "int32",
    "string": "string",
}  # fmt: skip
"""Spark's simple types, and what pyarrow calls the only types that Spark takes for them."""


@cache
def arrow_type(ddl: str) -> Any:
    """Return the Arrow type of one of Spark's types.  Plans import no pyarrow."""
    import pyarrow as pa

    if ddl == "timestamp":
        return pa.timestamp("us", "UTC")
    return getattr(pa, ARROW_NAMES[ddl])()


COLUMNS: Final = (
    Column("server", "string", "the store's UUID, or its name of `servers`"),
    Column("incarnation", "int", "start of that server, from 1; 0: a tool"),
    Column("segment", "bigint", "its sequence number"),
    Column("offset", "bigint", "of the frame in it, in bytes"),
    Column("lsn", "bigint", "number of the record"),
    Column("event", "string", "`put`, `reserve`, `release`, `bury`, `kick`, `touch`, `delete`, "
           "`ttr-expired`, `disconnect-release`, `move`, `update`, `group-ended`, `copy`; with "
           "`records=history` also `start`, `clean-stop`; with `all` also `tube-def`, "
           "`pause`, `key`, `policy`, `state`, `trim`, `seal`, `clock-step`; `damage`: see below"),
    Column("time", "timestamp", "when it happened; of `copy`, `move`, `update`, of the put"),
    Column("time_ns", "bigint", "the same, ns since the epoch"),
    Column("logged", "timestamp", "when its frame was built; never goes back"),
    Column("logged_ns", "bigint", "the same, ns since the epoch"),
    Column("job", "bigint", "its id; of `key`, of the one that had it"),
    Column("tube", "string", "after the event; bytes that are no UTF-8 as `\\xff`"),
    Column("state", "string", "after the event: `ready`, `reserved`, `delayed`, `buried`, `gone`"),
    Column("priority", "bigint", "0: the most urgent"),
    Column("delay_s", "bigint", "as last given, seconds"),
    Column("ttr_s", "bigint", "as last given, seconds"),
    Column("deadline", "timestamp", "when it becomes ready, its TTR ends, or it was buried; of "
           "`key`, when it is forgotten; null while it waits for something else"),
    Column("deadline_ns", "bigint", "the same, ns since the epoch"),
    Column("reserves", "bigint", "so far, this event included"),
    Column("timeouts", "bigint", "so far"),
    Column("releases", "bigint", "so far"),
    Column("buries", "bigint", "so far"),
    Column("kicks", "bigint", "so far"),
    Column("reason", "string", "`none`, `client`, `disconnect`, `ttr`, `delay`, `admin`, `import`, "
           "`restart`, `damaged`, `expired`, `max-reserves`, `returned` (a `release` that takes "
           "the reservation back), `cancelled` (a `delete` by `cancel-job`)"),
    Column("connection", "bigint", "of the client, in that incarnation"),
    Column("copy", "boolean", "restated by compaction, not an event"),
    Column("relaxed", "boolean", "no reply waited for it"),
    Column("bytes", "bigint", "of the body in `put`, `move`, `update`, `copy`; of `damage`"),
    Column("body", "binary", "in the same events, with `body=true`"),
    Column("unique_key", "string", "of `idp:`; of `key`, the one remembered"),
    Column("unique_s", "bigint", "seconds that it outlives the job"),
    Column("concurrency_key", "string", "of `con:`"),
    Column("concurrency_limit", "bigint", "jobs with it that may be reserved at once"),
    Column("job_group", "string", "of `grp:`"),
    Column("after", "string", "group of `aft:` that it waits for"),
    Column("dead_from", "string", "tube that it is a dead letter of"),
    Column("dead_reason", "string", "`release`, `ttr`, `disconnect`, `max-age` or `max-reserves`"),
    Column("dead_at", "timestamp", "since when"),
    Column("dead_at_ns", "bigint", "the same, ns since the epoch"),
    Column("origin", "string", "tube of the put, if moved since"),
    Column("metadata", "string", "of `meta:`, percent-encoded"),
    Column("policy", "string", "of `policy`: the tube's, as JSON"),
    Column("problem", "string", "what is damaged, and where"),
)  # fmt: skip

BY_NAME: Final = {column.name: column for column in COLUMNS}

TAGS: Final = (
    "unique_key", "unique_s", "concurrency_key", "concurrency_limit", "job_group", "after",
    "dead_from", "dead_reason", "dead_at", "dead_at_ns", "origin", "metadata",
)  # fmt: skip
"""What jobs carry beside their bodies, in full records."""

UNASKED: Final[Mapping[str, frozenset[str]]] = {
    "body": frozenset({"body"}), "tags": frozenset({*TAGS, "policy"}),
}  # fmt: skip
"""Columns that are there only if asked for: by the option, or by name."""


def ddl(names: Iterable[str], known: Mapping[str, Column] = BY_NAME) -> str:
    """The schema of these columns, as Spark's SQL writes it."""
    return ", ".join(f"`{name}` {known[name].ddl}" for name in names)


def arrow_schema(names: Iterable[str], known: Mapping[str, Column] = BY_NAME) -> "pa.Schema":
    """The schema of these columns as Spark wants it: it compares names, order and types."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(known[name].ddl)) for name in names])


def commented(names: Iterable[str], known: Mapping[str, Column] = BY_NAME) -> "pa.Schema":
    """The schema of these columns with their meanings as comments, for stored tables."""
    import pyarrow as pa

    return pa.schema(
        field.with_metadata({"comment": known[field.name].meaning})
        for field in arrow_schema(names, known)
    )
