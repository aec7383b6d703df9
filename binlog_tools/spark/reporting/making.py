"""A report of a request: read, judged, and made small enough."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from binlog_tools.spark.reporting.page import (
    COARSEST,
    MAX_PAGE_BYTES,
    MINUTE_S,
    as_json,
    as_page,
    time_text,
)
from binlog_tools.spark.reporting.readings import MINUTES, Selection, read
from binlog_tools.spark.reporting.sections import content_of
from binlog_tools.spark.reporting.series import ALWAYS, Period


class PeriodError(ValueError):
    """There is no such time."""


def taken(asked: Period = ALWAYS) -> tuple[Period, str]:
    """Return the minutes that have something of a time, and say which if they are more."""
    if asked.start >= asked.end:
        raise PeriodError("--from is not before --to: there is no time between them")
    start, end = np.floor(asked.start / MINUTE_S), np.ceil(asked.end / MINUTE_S)
    period = Period(float(start * MINUTE_S), float(end * MINUTE_S))
    if period == asked:
        return period, ""
    return period, f"figures are by the minute: {_text(period)} was taken"


def _text(period: Period) -> str:
    start, end = (time_text(each) if np.isfinite(each) else "" for each in period)
    if start and end:
        return f"{start} to {end}"
    return f"from {start}" if start else f"up to {end}"


class Request(NamedTuple):
    """What to report; ``events``: the table for samples and damage."""

    tables: str
    title: str
    period: Period = ALWAYS
    events: str | None = None


class Made(NamedTuple):
    """A report, the tables that were not there, and which period was taken if not the asked one."""

    page: str
    json: str
    absent: tuple[str, ...]
    is_empty: bool
    taken: str

    def text_for(self, output: Path) -> str:
        return self.json if output.suffix == ".json" else self.page


def make(request: Request) -> Made:
    """Return a page of at most `MAX_PAGE_BYTES`: with fewer steps, as long as it is larger."""
    period, text = taken(request.period)
    coarser = 1
    while True:
        now = read(Selection(request.tables, request.events, period), coarser)
        content = content_of(now, request.title, text)
        page = as_page(content)
        if len(page) <= MAX_PAGE_BYTES or coarser >= COARSEST:
            is_empty = now.flow is None and MINUTES not in now.absent
            return Made(page, as_json(content), now.absent, is_empty, text)
        coarser *= 2
