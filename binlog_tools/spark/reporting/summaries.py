"""A tube's whole period in a row of numbers."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from binlog_tools.spark.reporting.lengths import Lengths
from binlog_tools.spark.reporting.series import ALL, ENDS, FLOW, STATES, Flow, Series

SHARES: Final = (0.5, 0.95, 0.99)


class Summary(NamedTuple):
    """:ivar totals: of `series.FLOW`, how many in the period.
    :ivar depth: of `series.STATES`, how many at its end.
    :ivar wait: lengths in nanoseconds that `SHARES` of the waits were no longer than, NaN if there
        was none; likewise ``run``.
    :ivar wait_count: how many waits ended, of which ``wait`` tells; likewise ``run_count``.
    :ivar oldest_ns: how long the job had waited that did so longest at the end of a minute.
    """

    tube: str
    totals: Mapping[str, int]
    depth: Mapping[str, int]
    wait: tuple[float, ...]
    run: tuple[float, ...]
    wait_count: int
    run_count: int
    oldest_ns: int

    @property
    def runs(self) -> int:
        return self.totals["reserves"]

    @property
    def failed(self) -> int:
        return sum(self.totals[end] for end in ENDS)


def summaries(flow: Flow) -> list[Summary]:
    """Of the tubes that have numbers of their own, the busiest first, and of the others
    together.
    """
    return _of(flow.tubes)


def whole_summary(flow: Flow) -> Summary:
    return _of(flow.whole)[0]._replace(tube=ALL)


def _of(series: Series) -> list[Summary]:
    (waits, wait_counts), (runs, run_counts) = (
        _percentiles(series, lengths) for lengths in (series.waits, series.runs)
    )
    return [
        Summary(
            name,
            {each: int(series.numbers[each][at].sum()) for each in FLOW},
            {each: int(series.numbers[each][at, -1]) for each in STATES},
            tuple(waits[:, at].tolist()), tuple(runs[:, at].tolist()),
            int(wait_counts[at]), int(run_counts[at]),
            int(series.numbers["oldest_ns"][at].max()),
        )
        for at, name in enumerate(series.names)
    ]  # fmt: skip


def _percentiles(series: Series, lengths: Lengths) -> tuple[np.ndarray, np.ndarray]:
    """Of each tube, and of how many lengths they are."""
    by_tube = lengths.regrouped(lambda groups: groups // series.count)
    tubes = len(series.names)
    return by_tube.percentiles(SHARES, tubes), by_tube.counts(tubes)
