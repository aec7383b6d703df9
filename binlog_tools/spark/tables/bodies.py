"""What the bodies of jobs say: fingerprints and samples, of the jobs that fail."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from beanstalk_twisted.binlog.fingerprint import MAX_JSON_BYTES, fingerprint
from binlog_tools.spark.definitions.samples import readable
from binlog_tools.spark.histories.failing import MARKS
from binlog_tools.spark.histories.images import chosen, column, numbers
from binlog_tools.spark.histories.windows import Ints
from binlog_tools.spark.tables.by_job import gathered
from binlog_tools.spark.tasks import Rows, in_tasks

_READ: Final = ("server", "lsn", "body")


def marks_of(spark: SparkSession, rows: Rows, wanted: Mapping[str, Ints]) -> pa.Table:
    """
    :param rows: events.
    :param wanted: of servers, LSNs of records with bodies, ascending.
    :return: with `failing.MARKS`, of the bodies that were found.
    """
    if "body" not in rows.schema.names or not any(map(len, wanted.values())):
        return MARKS.empty_table()

    def marked(part: Any) -> pa.Table:
        found = [MARKS.empty_table()]
        for events in gathered(rows.read(part, _READ)):
            found.append(_marked(_chosen(events, wanted)))
        return pa.concat_tables(found)

    return pa.concat_tables([MARKS.empty_table(), *in_tasks(spark, rows.parts, marked)])


def _chosen(events: pa.Table, wanted: Mapping[str, Ints]) -> pa.Table:
    servers = column(events, "server").dictionary_encode()
    place = servers.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    lsn = numbers(events, "lsn")
    found = np.zeros(len(lsn), bool)
    for number, name in enumerate(servers.dictionary.to_pylist()):
        if name in wanted:
            found |= (place == number) & np.isin(lsn, wanted[name])
    return chosen(events, found & column(events, "body").is_valid().to_numpy(zero_copy_only=False))


def _marked(events: pa.Table) -> pa.Table:
    bodies = events["body"].to_pylist()
    return pa.table({
        "server": column(events, "server").cast(pa.string()), "lsn": events["lsn"],
        "fingerprint": pa.array([fingerprint(body[: MAX_JSON_BYTES + 1]) for body in bodies],
                                pa.string()),
        "sample": pa.array([readable(body) for body in bodies], pa.string()),
    }, MARKS)  # fmt: skip
