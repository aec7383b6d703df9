"""A report of a request: read, judged, and made small enough."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from binlog_tools.logs.quantities import parse_time
from binlog_tools.spark.reporting.page import (
    COARSEST,
    MAX_PAGE_BYTES,
    MINUTE_S,
    as_json,
    as_page,
    time_text,
)
from binlog_tools.spark.reporting.readings import (
    MAX_MARKS,
    MINUTES,
    Mark,
    Readings,
    Selection,
    read,
)
from binlog_tools.spark.reporting.sections import content_of
from binlog_tools.spark.reporting.series import ALWAYS, Period

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


class Request(NamedTuple):
    """:ivar period: of it all minutes are taken that it touches, as `taken` says.
    :ivar versus: the beginning of a time as long as the period, to compare with; None: nothing.
    :ivar events: the events table, for samples and damage; None: there is none.
    """

    tables: str
    title: str
    period: Period = ALWAYS
    versus: float | None = None
    events: str | None = None
    deploys: Sequence[Mark] = ()


class Made(NamedTuple):
    """:ivar absent: the tables that were not there.
    :ivar is_empty: whether nothing is known of the period.
    :ivar taken: which period was taken, if it is not the one that was asked for; else empty.
    """

    page: str
    json: str
    absent: tuple[str, ...]
    is_empty: bool
    taken: str

    def text_for(self, output: Path) -> str:
        return self.json if output.suffix == ".json" else self.page


def make(request: Request) -> Made:
    """A page of at most `MAX_PAGE_BYTES`: with fewer steps, as long as it is larger.

    :raise TableError: there is no table, or one cannot be read, or they were not finished.
    :raise PeriodError: there is no time in the period, or it overlaps with the other one.
    """
    times = taken(request.period, request.versus)
    coarser = 1 if request.versus is None else 2
    while True:
        now, before = _read(request, times, coarser)
        content = content_of(now, request.title, before, times.text)
        page = as_page(content)
        if len(page) <= MAX_PAGE_BYTES or coarser >= COARSEST:
            is_empty = now.flow is None and MINUTES not in now.absent
            return Made(page, as_json(content), now.absent, is_empty, times.text)
        coarser *= 2


def _read(request: Request, times: Taken, coarser: int) -> tuple[Readings, Readings | None]:
    now = read(Selection(request.tables, request.events, times.period), coarser)
    now.marks = sorted([*now.marks, *_within(request.deploys, now)])[-MAX_MARKS:]
    if times.other is None:
        return now, None
    return now, read(Selection(request.tables, None, times.other), coarser)


def _within(marks: Iterable[Mark], now: Readings) -> Iterable[Mark]:
    if now.flow is None:
        return ()
    found = now.flow.survey
    return (mark for mark in marks if found.start <= mark.at <= found.last + now.flow.whole.width)


def deploys_of(lines: Iterable[str], now_ns: int) -> list[Mark]:
    """Of lines ``TIME NAME``; empty ones, and those that begin with ``#``, are skipped.

    :raise ValueError: a line has no time.
    """
    marks = []
    for number, line in enumerate(lines, 1):
        moment, _, name = line.strip().partition(" ")
        if not moment or moment.startswith("#"):
            continue
        try:
            marks.append(Mark(parse_time(moment, now_ns) / 1e9, "deploy", name.strip() or "deploy"))
        except ValueError as problem:
            raise ValueError(f"line {number}: {problem}") from None
    return marks
