"""The columns of the tables, and how arrays become them."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.definitions.columns import arrow_type
from binlog_tools.spark.histories.records import NONE, Ints

_OTHERS: Final = {"map": pa.map_(pa.int64(), pa.int64()), "double": pa.float64()}


def schema_of(text: str) -> pa.Schema:
    """Return a schema: names and their type, as in SQL; ``map`` is one of numbers."""
    fields: list[tuple[str, Any]] = []
    for part in text.split(";"):
        *names, kind = part.split()
        fields += [(name, _OTHERS.get(kind) or arrow_type(kind)) for name in names]
    return pa.schema(fields)


LIFETIMES: Final = schema_of("""
  server string; job bigint; tube state outcome last_event string; put first last since
    timestamp;
  life_ns priority delay_s ttr_s bytes attempts timeouts releases buries kicks disconnects waits
    wait_ns run_ns delayed_ns buried_ns bigint;
  is_whole boolean; moves updates deaths revivals bigint;
  unique_key concurrency_key job_group after dead_from dead_reason string; dead_at timestamp;
  origin string""")

ATTEMPTS: Final = schema_of("""
  server string; incarnation int; connection job bigint; tube string; revivals attempt bigint;
  first started ended timestamp; started_ns ended_ns bigint; ended_by string;
  touches wait_ns run_ns bigint""")

WORKERS: Final = schema_of("""
  server string; incarnation int; connection bigint; first last timestamp;
  jobs runs run_ns busy_ns deletes releases buries moves timeouts disconnects lost running
    bigint""")

TUBE_MINUTES: Final = schema_of("""
  server tube string; minute timestamp;
  puts reserves deletes timeouts releases buries kicks disconnects moves
    ready reserved delayed buried oldest_ns
    wait_p50_ns wait_p95_ns wait_p99_ns run_p50_ns run_p95_ns run_p99_ns bigint;
  wait_histogram run_histogram map""")


KINDS: Final = schema_of("""
  tube fingerprint string; jobs failures timeouts releases buries disconnects alive dead
    most_failures bigint; example_server string; example_job bigint; last timestamp;
  sample string""")

POISON_JOBS: Final = schema_of("""
  server tube string; job bigint; fingerprint state string;
  failures timeouts releases buries disconnects bigint; last timestamp; is_dead boolean;
  sample string; lsn bigint""")

SNAPSHOT: Final = schema_of("""
  server string; job bigint; tube state string; is_inferred boolean;
  priority delay_s ttr_s bigint; deadline timestamp; deadline_ns connection bigint;
  incarnation int; put timestamp; age_ns bytes reserves timeouts releases buries kicks bigint;
  last_event string; lsn bigint;
  unique_key concurrency_key job_group after dead_from dead_reason string; dead_at timestamp;
  origin string; as_of timestamp""")


def table(schema: pa.Schema, columns: Mapping[str, Any], is_coded: bool = False) -> pa.Table:
    """Return columns as a table; ``is_coded``: text is in dictionaries."""
    arrays = []
    for field in schema:
        made = columns[field.name]
        made = made if isinstance(made, (pa.Array, pa.ChunkedArray)) else pa.array(made)
        kind = CODED if is_coded and field.type == pa.string() else field.type
        arrays.append(made if made.type == kind else made.cast(kind))
    return pa.Table.from_arrays(arrays, schema.names)


def texts(words: Any, codes: Any) -> Any:
    """Of these words, those of the codes, as a dictionary; null where a code is negative."""
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    known = words if isinstance(words, pa.Array) else pa.array(words, pa.string())
    return pa.DictionaryArray.from_arrays(indices, known)


def is_coded(events: pa.Table) -> bool:
    """Whether columns of text are dictionaries."""
    return bool(pa.types.is_dictionary(events.schema.field("event").type))


CODED: Final = pa.dictionary(pa.int32(), pa.string())
"""The type of a column of text that is a dictionary."""


def of_days(rows: pa.Table, day: Ints) -> pa.Table:
    """Append the column ``date``, of days counted from the epoch."""
    return rows.append_column("date", pa.array(day, pa.int32()).cast(pa.date32()))


def nullable(numbers: Ints) -> Any:
    """`NONE` becomes null."""
    return pa.array(numbers, mask=numbers == NONE)


def moments(nanoseconds: Ints) -> Any:
    """Microseconds, rounded down; `NONE` becomes null."""
    micros = pa.array(np.floor_divide(nanoseconds, 1000), mask=nanoseconds == NONE)
    return micros.cast(arrow_type("timestamp"))
