"""
Functions of ours in the tasks of a session, with no SparkContext: a Connect session has none.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

_DDL: Final = "result binary"


def in_tasks(
    spark: "SparkSession", items: Sequence[Item], work: Callable[[Item], Result]
) -> list[Result]:
    """
    Each item in a task of its own.

    :param work: is pickled, as are items and results; a task that fails may run again.
    :return: the results, in the order of the items.
    """
    if not items:
        return []

    def run(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps((number, work(items[number])))
                yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])

    found = spark.range(0, len(items), 1, len(items)).mapInArrow(run, _DDL).toArrow()
    # They come from tasks of our own.
    told = (pickle.loads(each) for each in found["result"].to_pylist())  # noqa: S301
    return [result for _, result in sorted(told, key=lambda pair: pair[0])]
