"""
What came and went in steps of seconds, from `attempts` and `lifetimes`: for histories that are too
short for minutes.  What stood in the queue is known by the minute only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_tools.spark.reporting.series import OTHERS, Flow, Period, Series, in_steps
from binlog_tools.spark.reporting.steps import MINUTE_S
from binlog_tools.spark.reporting.tables import Rows, seconds_of

ENDED_BY: Final = {
    "ttr-expired": "timeouts", "release": "releases", "bury": "buries",
    "disconnect-release": "disconnects",
}  # fmt: skip
"""How runs end that failed, in `attempts` and in the figures."""

UNLOGGED: Final = ("restart", "unlogged")
"""Ends that are not in the log: when they were is inferred, so they are in no percentile."""


@dataclass
class _Times:
    """
    Moments of rows, and where they belong.

    :ivar tubes: of each row, the place in `Series.names` of ``flow.tubes``.
    """

    flow: Flow
    period: Period
    tubes: np.ndarray

    def places(self, series: Series, times: np.ndarray) -> tuple[np.ndarray, ...]:
        """Of the rows with a moment in the period: which they are, their tubes and steps."""
        end = min(self.period.end, series.start + series.width * series.count)
        kept = np.flatnonzero((times >= max(self.period.start, series.start)) & (times < end))
        steps = ((times[kept] - series.start) // series.width).astype(np.int64)
        tubes = self.tubes[kept] if len(series.names) > 1 else np.zeros(len(kept), np.int64)
        return kept, tubes, steps


def refine(flow: Flow, attempts: Rows, lifetimes: Rows, period: Period, coarser: int = 1) -> None:
    """Give a flow figures in steps of seconds, if there is room for such."""
    whole, tubes = in_steps(flow.survey, flow.tubes.names, coarser, least=1)
    if tubes.width >= MINUTE_S:
        return
    flow.fine = (whole, tubes)
    names = ["tube", "started", "ended", "ended_by", "wait_ns", "run_ns"]
    for batch in attempts.batches(names):
        times = _Times(flow, period, _tubes(batch["tube"], tubes.names))
        for series in flow.fine:
            _add_runs(series, times, batch)
    for batch in lifetimes.batches(["tube", "state", "put", "last", "is_whole"]):
        times = _Times(flow, period, _tubes(batch["tube"], tubes.names))
        put = np.where(_true(batch["is_whole"]), seconds_of(batch["put"]), np.nan)
        gone = np.where(_true(pc.equal(batch["state"], "gone")), seconds_of(batch["last"]), np.nan)
        for series in flow.fine:
            for name, moments in (("puts", put), ("deletes", gone)):
                _, *where = times.places(series, moments)
                np.add.at(series.numbers[name], tuple(where), 1)


def _add_runs(series: Series, times: _Times, batch: pa.RecordBatch) -> None:
    started, ended = seconds_of(batch["started"]), seconds_of(batch["ended"])
    rows, tubes, steps = times.places(series, started)
    np.add.at(series.numbers["reserves"], (tubes, steps), 1)
    series.waits.add_each(tubes * series.count + steps, _numbers(batch["wait_ns"])[rows])
    by = np.array(pc.fill_null(batch["ended_by"], "").to_pylist(), object)
    is_logged = ~np.isin(by, [*UNLOGGED, ""])
    rows, tubes, steps = times.places(series, np.where(is_logged, ended, np.nan))
    series.runs.add_each(tubes * series.count + steps, _numbers(batch["run_ns"])[rows])
    for end, name in ENDED_BY.items():
        mine = by[rows] == end
        np.add.at(series.numbers[name], (tubes[mine], steps[mine]), 1)


def _true(column: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), bool)


def _numbers(column: pa.Array) -> np.ndarray:
    """-1 for null."""
    return np.asarray(pc.fill_null(column, -1).to_numpy(zero_copy_only=False), np.int64)


def _tubes(column: pa.Array, names: Sequence[str]) -> np.ndarray:
    places: Mapping[str, int] = {name: at for at, name in enumerate(names)}
    last = len(names) - 1 if names[-1] == OTHERS else 0
    found: Iterator[int] = (places.get(name or "?", last) for name in column.to_pylist())
    return np.fromiter(found, np.int64, len(column))
