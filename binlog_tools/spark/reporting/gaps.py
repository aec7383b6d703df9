"""What the report does not know, in sentences: so that nothing missing is taken for nothing."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from binlog_tools.spark.reporting.readings import MINUTES, Readings, server_text
from binlog_tools.spark.reporting.series import COUNTED, Series
from binlog_tools.spark.reporting.steps import MINUTE_S
from binlog_tools.spark.reporting.texts import count_text, seconds_text, time_text

SILENT_SHARE: Final = 0.1
"""Of the time: a shorter silence is a night, or a quiet hour."""

SILENT_STEPS: Final = 3
"""Steps without a record that are called a silence, at least: fewer are chance."""

EARLY_STEPS: Final = 2
"""Steps by which a server's history ends before the newest one: less may be chance."""


def gaps(readings: Readings) -> Iterator[str]:
    """What is missing, the worst first."""
    if readings.absent:
        absent = ", ".join(readings.absent)
        yield f"Tables that are not there, so that what they say is not shown: {absent}."
    if readings.damages:
        yield (
            f"The log had {count_text(readings.damages, 'place')} that could not be read: what "
            "stood there is missing from every number. Look: binlog-inspect check LOG."
        )
    if MINUTES not in readings.absent:
        yield from _of_time(readings)
    if readings.begun_before:
        yield (
            f"The log begins in the middle: {count_text(readings.begun_before, 'job')} had been "
            "put before it. Depths are too low until each of them was seen once, and their first "
            "waits are unknown."
        )
    if readings.unended:
        yield (
            f"{count_text(readings.unended, 'run')} of workers had no end in the log (a restart, "
            "or relaxed records that were lost): they are in no percentile."
        )


def _of_time(readings: Readings) -> Iterator[str]:
    period, flow = readings.period, readings.flow
    if flow is None:
        yield f"{MINUTES} has no row in this period: nothing is known of it."
        return
    found, width = flow.survey, flow.whole.width
    end = found.last + MINUTE_S
    if np.isfinite(period.start) and found.start - period.start >= width + MINUTE_S:
        yield f"The tables begin at {time_text(found.start)}, after the time that was asked for."
    if np.isfinite(period.end) and period.end - end >= width + MINUTE_S:
        yield f"The tables end at {time_text(end)}, before the time that was asked for."
    for server, (_, last) in sorted(found.edges.items()):
        if end - last - MINUTE_S >= EARLY_STEPS * width:
            yield (
                f"Of server {server_text(server)} the last row is of {time_text(last)}: it was "
                "empty, or its log ends there; it counts as empty from then on."
            )
    yield from _silences(flow.whole)


def _silences(series: Series) -> Iterator[str]:
    """The longest time without a record, if it is long."""
    busy = np.flatnonzero(
        sum(series.numbers[name][0] for name in COUNTED if name in series.numbers)
    )
    if len(busy) < 2:
        return
    lengths = np.diff(busy) - 1
    at = int(lengths.argmax())
    longest = int(lengths[at])
    if longest >= max(SILENT_STEPS, SILENT_SHARE * series.count):
        first = series.start + (int(busy[at]) + 1) * series.width
        until = first + longest * series.width
        yield (
            f"From {time_text(first)} to {time_text(until)} ({seconds_text(until - first)}) "
            "nothing was logged: the queue was idle, or not running, or that part of the log is "
            "missing."
        )
