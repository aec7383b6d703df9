"""
Kinds of jobs that fail again and again, of a time: those of `failing`, by the failures in it that
`attempts` tells of.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from binlog_tools.spark.reporting.seconds import ENDED_BY
from binlog_tools.spark.reporting.series import ENDS, Period
from binlog_tools.spark.reporting.tables import Rows, seconds_of

FAILING: Final = "failing"
"""The table with a row a job that fails again and again, beside `poison`."""

_KEY: Final = ("server", "job")
_TEXTS: Final = frozenset({"server", "tube", "fingerprint", "sample"})
_JOBS: Final = {
    "example_server": "server", "example_job": "job", "tube": "tube", "fingerprint": "fingerprint",
    "sample": "sample", "jobs": "jobs", "alive": "alive", "dead": "dead",
}  # fmt: skip
"""What is read of `failing`, and what it is of a job."""

_SUMS: Final = ("jobs", "failures", *ENDS, "alive", "dead")


def kinds_within(failing: Rows, attempts: Rows, period: Period) -> pa.Table:
    """
    :return: with columns of `poison`, of the jobs that failed in the period; the example is the one
        that failed most in it.
    """
    jobs = _table(failing.batches(list(_JOBS)), _JOBS)
    jobs = jobs.join(_failures(attempts, jobs["job"], period), list(_KEY), join_type="inner")
    failures = np.sum([jobs[name].to_numpy() for name in ENDS], axis=0, dtype=np.int64)
    jobs = jobs.append_column("failures", pa.array(failures))
    # So that the example is the last one of its group.
    jobs = jobs.sort_by([(name, "ascending") for name in ("failures", *_KEY)])
    by = ["tube", "fingerprint"]
    sums = [(name, "sum") for name in _SUMS]
    examples = [(name, "last") for name in (*_KEY, "sample")]
    found = jobs.group_by(by, use_threads=False).aggregate([*sums, *examples])
    return pa.table({
        **{name: found[name] for name in by}, **{name: found[f"{name}_sum"] for name in _SUMS},
        **{f"example_{name}": found[f"{name}_last"] for name in _KEY},
        "sample": found["sample_last"],
    })  # fmt: skip


def _table(batches: Any, names: dict[str, str]) -> pa.Table:
    """
    :param names: the columns of the batches, and what they become.
    """
    schema = pa.schema([
        (name, pa.string() if name in _TEXTS else pa.int64()) for name in names.values()
    ])  # fmt: skip
    parts = [pa.Table.from_batches([batch]).select(list(names)) for batch in batches]
    return pa.concat_tables([
        schema.empty_table(), *(part.rename_columns(schema.names).cast(schema) for part in parts)
    ])  # fmt: skip


def _failures(attempts: Rows, jobs: pa.ChunkedArray, period: Period) -> pa.Table:
    """
    :param jobs: ids; of other jobs nothing is kept.
    :return: by server and job, how many runs ended in the period by each of `ENDS`.
    """
    where = ds.field("ended_by").isin(list(ENDED_BY)) & ds.field("job").isin(pc.unique(jobs))
    read = attempts.batches([*_KEY, "ended", "ended_by"], where)
    columns = {name: name for name in (*_KEY, *ENDS)}
    found = _table((_ends(batch, period) for batch in read), columns)
    added = found.group_by(list(_KEY)).aggregate([(name, "sum") for name in ENDS])
    return pa.table({
        **{name: added[name] for name in _KEY}, **{name: added[f"{name}_sum"] for name in ENDS}
    })  # fmt: skip


def _ends(batch: pa.RecordBatch, period: Period) -> pa.RecordBatch:
    ended = seconds_of(batch["ended"])
    batch = batch.filter(pa.array((ended >= period.start) & (ended < period.end)))
    arrays = {name: batch[name] for name in _KEY}
    for event, name in ENDED_BY.items():
        arrays[name] = pc.equal(batch["ended_by"], event)
    return pa.RecordBatch.from_pydict(arrays)
