"""The source without Spark: what the planner and the tasks would do, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from binlog_tools.spark.source import BinlogReader, BinlogSource
from tests.spark.expected import Row

TYPES: dict[str, DataType] = {
    "bigint": LongType(), "binary": BinaryType(), "boolean": BooleanType(), "int": IntegerType(),
    "string": StringType(), "timestamp": TimestampType(),
}  # fmt: skip


def struct(ddl: str) -> StructType:
    fields = (field.strip().split(" ") for field in ddl.split(", "))
    return StructType([StructField(name.strip("`"), TYPES[kind]) for name, kind in fields])


def reader_of(*paths: Path | str, schema: str | None = None, **options: Any) -> BinlogReader:
    texts = {name: str(value) for name, value in options.items()}
    texts["paths"] = "[" + ", ".join(f'"{path}"' for path in paths) + "]"
    source = BinlogSource(texts)
    return source.reader(schema=struct(schema or source.schema()))


def tasks_of(*paths: Path | str, **options: Any) -> list[Any]:
    return [list(partition.value) for partition in reader_of(*paths, **options).partitions()]


def read(*paths: Path | str, **options: Any) -> list[Row]:
    reader = reader_of(*paths, **options)
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []
