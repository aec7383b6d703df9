"""
The columns of the tables, and how arrays become them.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from binlog_tools.spark.definitions.columns import ARROW_TYPES
from binlog_tools.spark.histories.windows import NONE, Ints

_MAP: Final = pa.map_(pa.int64(), pa.int64())


def _schema(text: str) -> pa.Schema:
    """
    :param text: names and types as in SQL, the same type for all names before it.
    """
    fields: list[tuple[str, Any]] = []
    for part in text.split(";"):
        *names, kind = part.split()
        fields += [(name, ARROW_TYPES.get(kind, _MAP)) for name in names]
    return pa.schema(fields)


LIFETIMES: Final = _schema("""
  server string; job bigint; tube state outcome last_event string; put first last timestamp;
  life_ns priority delay_s ttr_s bytes attempts timeouts releases buries kicks disconnects waits
    wait_ns run_ns delayed_ns buried_ns bigint;
  is_whole boolean; moves updates deaths revivals bigint;
  unique_key concurrency_key job_group after dead_from dead_reason string; dead_at timestamp;
  origin string""")

ATTEMPTS: Final = _schema("""
  server string; incarnation int; connection job bigint; tube string; revivals attempt bigint;
  first started ended timestamp; started_ns ended_ns bigint; ended_by string;
  touches wait_ns run_ns bigint""")

WORKERS: Final = _schema("""
  server string; incarnation int; connection bigint; first last timestamp;
  jobs runs run_ns busy_ns deletes releases buries moves timeouts disconnects lost running
    bigint""")

TUBE_MINUTES: Final = _schema("""
  server tube string; minute timestamp;
  puts reserves deletes timeouts releases buries kicks disconnects moves
    ready reserved delayed buried oldest_ns
    wait_p50_ns wait_p95_ns wait_p99_ns run_p50_ns run_p95_ns run_p99_ns bigint;
  wait_histogram run_histogram map""")


def table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """
    :param columns: arrays, of numpy or Arrow, by name.
    """
    arrays = []
    for field in schema:
        made = columns[field.name]
        made = made if isinstance(made, (pa.Array, pa.ChunkedArray)) else pa.array(made)
        arrays.append(made if made.type == field.type else made.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def nullable(numbers: Ints) -> Any:
    """
    `NONE` becomes null.
    """
    return pa.array(numbers, mask=numbers == NONE)


def moments(nanoseconds: Ints) -> Any:
    """
    Microseconds, rounded down; `NONE` becomes null.
    """
    micros = pa.array(np.floor_divide(nanoseconds, 1000), mask=nanoseconds == NONE)
    return micros.cast(ARROW_TYPES["timestamp"])
