"""The rows of `survivors` of many segments: had in this process, or in Spark's tasks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from binlog_tools.logs.live_set import Point
from binlog_tools.spark.definitions.errors import unreadable
from binlog_tools.spark.reading.planning import Share, tasks_of
from binlog_tools.spark.segments.decoding import Damage
from binlog_tools.spark.surviving.survivors import DDL, survivors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reading(NamedTuple):
    """What each task does with a segment."""

    point: Point
    damage: Damage

    def of(self, share: Share) -> Any:
        try:
            return survivors(share, self.point, self.damage)
        except OSError as problem:
            raise unreadable(problem) from None


Gather = Callable[[Sequence[Share], Reading], Iterable[Any]]
"""How the rows of many segments are had."""


def one_by_one(shares: Sequence[Share], reading: Reading) -> Iterator[Any]:
    return map(reading.of, shares)


def with_spark(spark: "SparkSession") -> Gather:
    """In the tasks of a session, which give of each job only the newest records."""

    from pyspark.sql.functions import expr

    def gather(shares: Sequence[Share], reading: Reading) -> Iterable[Any]:
        tasks = tasks_of(shares)
        if not tasks:
            return []

        def in_task(batches: Iterable[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from (
                        reading.of(part) for part in tasks[number] if isinstance(part, Share)
                    )

        numbers = spark.range(0, len(tasks), 1, len(tasks))
        rows = numbers.mapInArrow(in_task, DDL)
        body = "named_struct('lsn', body_lsn, 'full', full, 'segment', body_segment, " \
               "'at', body_at, 'bytes', body_bytes)"  # fmt: skip
        best = rows.groupBy("segment", "job").agg(
            *(expr(text) for text in (
                "first(note) AS note", "max(named_struct('lsn', lsn, 'image', image)) AS newest",
                f"max_by({body}, body_lsn) AS body",
            ))
        )  # fmt: skip
        chosen = best.where("note IS NOT NULL OR newest.image IS NOT NULL").selectExpr(
            "segment", "note", "job", "newest.lsn", "newest.image", "body.lsn AS body_lsn",
            "body.full", "body.segment AS body_segment", "body.at AS body_at",
            "body.bytes AS body_bytes",
        )  # fmt: skip
        return list(chosen.toArrow().to_batches())

    return gather
