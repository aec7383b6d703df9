"""Which time a report is of: whole minutes, since `tube_minutes` tells nothing narrower apart."""

from typing import Final, NamedTuple

import numpy as np

from binlog_tools.spark.reporting.series import ALWAYS, Period
from binlog_tools.spark.reporting.steps import MINUTE_S
from binlog_tools.spark.reporting.texts import time_text

WHY: Final = "figures are by the minute"


class PeriodError(ValueError):
    """There is no such time, or there are no two."""


class Taken(NamedTuple):
    """:ivar other: what the period is compared with, as long as it is; None: nothing.
    :ivar text: which time was taken, and why; empty: the one that was asked for.
    """

    period: Period
    other: Period | None
    text: str


def taken(asked: Period = ALWAYS, versus: float | None = None) -> Taken:
    """The minutes that have something of the time that was asked for.

    :param versus: the beginning of a time as long, to compare with; None: there is none.
    :raise PeriodError: nothing was asked for, or both times have a minute in common.
    """
    if asked.start >= asked.end:
        raise PeriodError("--from is not before --to: there is no time between them")
    period = _minutes(asked)
    if versus is None:
        return Taken(period, None, "" if period == asked else f"{WHY}: {_text(period)} was taken")
    wanted = Period(versus, versus + asked.end - asked.start)
    other = _minutes(wanted)
    # Of two that are as long, one may touch a minute more.
    length = max(period.end - period.start, other.end - other.start)
    period, other = (Period(each.start, each.start + length) for each in (period, other))
    if period.start < other.end and other.start < period.end:
        raise PeriodError(
            f"the two periods overlap, and {WHY}: {_text(period)}, and {_text(other)}; give "
            "whole minutes, with none in common"
        )
    if (period, other) == (asked, wanted):
        return Taken(period, other, "")
    return Taken(period, other, f"{WHY}: {_text(period)} was taken, compared with {_text(other)}")


def _minutes(period: Period) -> Period:
    start, end = np.floor(period.start / MINUTE_S), np.ceil(period.end / MINUTE_S)
    return Period(float(start * MINUTE_S), float(end * MINUTE_S))


def _text(period: Period) -> str:
    start, end = (time_text(each) if np.isfinite(each) else "" for each in period)
    if start and end:
        return f"{start} to {end}"
    return f"from {start}" if start else f"up to {end}"
