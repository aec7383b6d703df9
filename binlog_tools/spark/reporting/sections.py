"""What stands in the report: numbers above, figures along the time, tables; and how it is made."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from binlog_tools.spark.reporting.findings import NO_SAMPLE, findings, worker_text
from binlog_tools.spark.reporting.page import (
    COARSEST,
    MAX_PAGE_BYTES,
    MINUTE_S,
    Content,
    Table,
    as_json,
    as_page,
    count_text,
    length_text,
    moment_text,
    seconds_text,
    share_text,
    time_text,
    width_text,
)
from binlog_tools.spark.reporting.readings import (
    KIND_JOBS,
    MINUTES,
    ROWS,
    Readings,
    Selection,
    read,
    server_text,
)
from binlog_tools.spark.reporting.series import (
    ALWAYS,
    COUNTED,
    ENDS,
    FLOW,
    SHARES,
    STATES,
    Flow,
    Period,
    Series,
    Summary,
    summaries,
    whole_summary,
)

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


DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

HOURS_FROM_S: Final = 2 * 86_400
"""A history as long or longer has a table of hours: before, it would be empty but for a line."""

DEAD_ROWS: Final = 100
"""Pairs of tube and reason, those with most dead letters."""


def content_of(now: Readings, title: str, taken: str = "") -> Content:
    """Return all that the report says.  The same readings give the same."""
    return Content(
        title, _span_text(now, taken), list(_tiles(now)), list(_tables(now)),
        notes=list(gaps(now)), findings=[found._asdict() for found in findings(now)],
        period=None if now.flow is None else _period(now.flow),
        marks=[mark._asdict() for mark in now.marks],
    )  # fmt: skip


def _span_text(now: Readings, taken: str) -> str:
    told = f"{taken[0].upper()}{taken[1:]}." if taken else ""
    if now.flow is None:
        return told
    found, whole, tubes = now.flow.survey, now.flow.whole, now.flow.tubes
    if now.flow.fine is not None:
        whole, tubes = now.flow.fine
    steps = f"in {width_text(whole.width)} steps"
    if tubes.width != whole.width:
        steps += f" (tubes: {width_text(tubes.width)})"
    if now.flow.fine is not None:
        steps += f", what stands in the queue in {width_text(now.flow.whole.width)} steps"
    return (
        f"{count_text(len(found.edges), 'server')}, {count_text(len(found.totals), 'tube')}; "
        f"{time_text(found.start)} to {time_text(found.last + MINUTE_S)} UTC, {steps}. "
        f"{told}".rstrip()
    )


def _tiles(now: Readings) -> Iterator[tuple[str, str]]:
    """Yield numbers, and what they are."""
    if now.flow is not None:
        yield from _numbers(whole_summary(now.flow))
    elif now.outcomes and now.period == ALWAYS:
        yield f"{now.outcomes['alive']:,}", "jobs still there"
    for count, what in ((now.died, "dead letters"), (now.worker_count, "worker connections")):
        if count:
            yield f"{count:,}", what


def _numbers(row: Summary) -> Iterator[tuple[str, str]]:
    yield f"{row.totals['puts']:,}", "jobs put"
    yield f"{row.totals['deletes']:,}", "jobs deleted"
    yield share_text(row.failed, row.runs) or "-", f"of {count_text(row.runs, 'run')} failed"
    yield length_text(row.wait[1]) or "-", "p95 of waits"
    yield length_text(row.run[1]) or "-", "p95 of runs"
    yield length_text(row.oldest_ns) or "-", "oldest job still waiting at a minute's end"
    yield f"{sum(row.depth.values()):,}", "jobs still there at the end"


def _tables(now: Readings) -> Iterator[Table]:
    if now.flow is not None:
        yield _tubes(now.flow)
    if now.dead:
        yield _dead_letters(now)
    if now.kinds:
        yield _kinds(now)
    if now.jobs:
        yield _jobs(now)
    if now.workers:
        yield _workers(now)
    if now.marks:
        yield _marks(now)
    if now.flow is not None:
        if now.flow.survey.last - now.flow.survey.start >= HOURS_FROM_S and now.flow.hours.any():
            yield _hours(now.flow)
        yield _steps(now.flow.whole)


def _tubes(flow: Flow) -> Table:
    head = ["tube", "put", "deleted", "runs", "failed",
            *(f"{name} {_named(share)}" for name in ("wait", "run") for share in SHARES),
            "oldest waiting", *STATES, *ENDS]  # fmt: skip
    return Table(
        "tubes", "Tubes",
        "The busiest first. Wait: from ready to reserved. Run: from reserved to its end. Failed: "
        "runs that ended in a time-out, release, bury or lost connection. Oldest waiting: how "
        "long the oldest ready job had waited at a minute's end, at most; waits that ended before "
        "are in the percentiles only. Ready to buried: jobs at the end of the time.",
        head, [_tube_row(row) for row in (whole_summary(flow), *summaries(flow))],
    )  # fmt: skip


def _tube_row(row: Summary) -> list[Any]:
    lengths = [length_text(each) for each in (*row.wait, *row.run, row.oldest_ns or None)]
    return [
        row.tube, row.totals["puts"], row.totals["deletes"], row.runs,
        share_text(row.failed, row.runs), *lengths,
        *(row.depth[state] for state in STATES), *(row.totals[end] for end in ENDS),
    ]  # fmt: skip


def _named(share: float) -> str:
    return f"p{share * 100:.0f}"


def _dead_letters(now: Readings) -> Table:
    ranked = sorted(now.dead.items(), key=lambda pair: (-pair[1].jobs, str(pair[0])))
    rows = [
        [tube, reason, dead.jobs, moment_text(dead.oldest), moment_text(dead.newest)]
        for (tube, reason), dead in ranked[:DEAD_ROWS]
    ]
    return Table(
        "dead", "Dead letters",
        "Jobs that were given up and are still there, by the tube that they died in and why, and "
        f"when the first and the last of them died (UTC); of many the first {DEAD_ROWS}. See them: "
        "beanstalk dead TUBE. Try them again: beanstalk dead TUBE --kick.",
        ["tube", "reason", "jobs", "oldest", "newest"], rows,
    )  # fmt: skip


def _kinds(now: Readings) -> Table:
    names = ("jobs", "failures", *ENDS, "alive", "dead")
    has_samples = any(kind.get("sample") for kind in now.kinds)
    has_kinds = any(kind["fingerprint"] is not None for kind in now.kinds)
    title, by = "Jobs that fail again and again", "By tube"
    if has_kinds:
        title, by = f"Kinds of j{title[1:]}", f"{by} and what their bodies have in common"
    told = "Sample: the beginning of a body." if has_samples else NO_SAMPLE
    return Table(
        "kinds", title,
        f"{by}, without those that failed last before this time. All their failures in the tables "
        f"count; the {ROWS} with most at most; dead are still there as dead letters. {told} "
        "See one: binlog-inspect jobs LOG --explain JOB.",
        ["tube", *names, "sample", "example job", "its server", "fingerprint"],
        [
            [row["tube"], *(row.get(name) for name in names), row.get("sample"),
             str(row["example_job"]), server_text(row["example_server"]), row["fingerprint"]]
            for row in now.kinds
        ],
    )  # fmt: skip


def _jobs(now: Readings) -> Table:
    return Table(
        "jobs", "Jobs of these kinds",
        f"The {KIND_JOBS} of each kind that failed most often. See one: binlog-inspect jobs LOG "
        "--explain JOB; all: the table poison_jobs.",
        ["tube", "fingerprint", "job", "its server", "failures", "state", "last (UTC)", "sample"],
        [
            [row["tube"], row["fingerprint"], str(row["job"]), server_text(row["server"]),
             row["failures"], row["state"],
             None if row["last"] is None else moment_text(row["last"].timestamp()), row["sample"]]
            for row in now.jobs
        ],
    )  # fmt: skip


def _workers(now: Readings) -> Table:
    names = ("jobs", "runs", "deletes", *ENDS, "lost")
    shown = f"{len(now.workers)} of {count_text(now.worker_count, 'connection')}"
    return Table(
        "workers", "Workers",
        f"How the runs ended of {shown} that were there in this time, those that were busy "
        "longest, as long as they were there. A log knows no names of clients, only the number of "
        "a connection, which begins anew when the server starts. Lost: runs without an end in the "
        "log.",
        ["worker", "busy", *names, "failed"],
        [
            [worker_text(row), length_text(row["busy_ns"]), *(row[name] for name in names),
             share_text(sum(row[end] for end in ENDS), row["runs"])]
            for row in now.workers
        ],
    )  # fmt: skip


def _marks(now: Readings) -> Table:
    return Table(
        "marks", "Restarts",
        "As the figures mark them. A start is named by how the server had ended before: in order "
        "(stop) or not (kill).",
        ["time (UTC)", "what", "text"],
        [[time_text(mark.at), mark.kind, mark.text] for mark in now.marks],
    )  # fmt: skip


def _hours(flow: Flow) -> Table:
    return Table(
        "hours", "Hours of the week",
        "Jobs put, by day of the week and hour (UTC), over the whole time.",
        ["day", *(f"{hour:02}" for hour in range(24))],
        [[day, *row.tolist()] for day, row in zip(DAYS, flow.hours, strict=True)],
    )  # fmt: skip


def _steps(whole: Series) -> Table:
    """In the page the figures have these numbers; it is for JSON."""
    names = (*STATES, *FLOW)
    lengths = _milliseconds(whole)
    times = [time_text(whole.start + at * whole.width) for at in range(whole.count)]
    numbers = [whole.numbers[name][0].tolist() for name in names]
    columns = [times, *numbers, *(lengths[name][0] for name in lengths)]
    return Table(
        "steps", "Along the time",
        f"All tubes, in {width_text(whole.width)} steps: jobs at the end of each, what happened in "
        "it, and percentiles in milliseconds.",
        ["from", *names, *(f"{name.replace('_', ' ')}, ms" for name in lengths)],
        [list(row) for row in zip(*columns, strict=True)],
    )  # fmt: skip


def _period(flow: Flow) -> dict[str, Any]:
    """Return what is drawn: where there are ``fine`` steps, the others have only depths."""
    if flow.fine is None:
        return {"whole": _drawn(flow.whole), "tubes": _drawn(flow.tubes)}
    fine = {"whole": _drawn(flow.fine[0]), "tubes": _drawn(flow.fine[1])}
    standing = (*STATES, "oldest")
    return {"whole": _drawn(flow.whole, standing), "tubes": _drawn(flow.tubes, standing),
            "fine": fine}  # fmt: skip


_NOTHING: Final = ((0, None), (None,))
"""What is left out of numbers, and of percentiles: a wait of 0 was measured."""


def _drawn(series: Series, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the numbers of each tube, or only these, without those that are never there."""
    numbers: dict[str, Sequence[Sequence[Any]]] = {
        name: values.tolist() for name, values in series.numbers.items() if name != "oldest_ns"
    }
    failed = sum(series.numbers[end] for end in ENDS)
    numbers = {name: values for name, values in numbers.items() if name not in ENDS}
    numbers["failed"] = np.asarray(failed).tolist()
    numbers["oldest"] = [_cut(row / 1e6) for row in series.numbers["oldest_ns"]]
    lengths = _milliseconds(series)
    numbers |= lengths
    drawn = [
        {
            name: rows[at]
            for name, rows in numbers.items()
            if (only is None or name in only)
            and any(each not in _NOTHING[name in lengths] for each in rows[at])
        }
        for at in range(len(series.names))
    ]
    return {"start": series.start, "width": series.width, "count": series.count,
            "names": list(series.names), "numbers": drawn}  # fmt: skip


def _milliseconds(series: Series) -> Mapping[str, list[list[float | int | None]]]:
    """Percentiles by tube and step, to three digits; None where there was nothing to measure."""
    made = {}
    for name, lengths in (("wait", series.waits), ("run", series.runs)):
        found = lengths.percentiles(SHARES, len(series.names) * series.count) / 1e6
        for share, row in zip(SHARES, found, strict=True):
            by_tube = row.reshape(len(series.names), series.count)
            made[f"{name}_{_named(share)}"] = [_cut(each) for each in by_tube]
    return made


def _cut(milliseconds: np.ndarray) -> list[float | int | None]:
    return [
        None if each != each else int(each) if each >= 100 else float(f"{each:.3g}")
        for each in milliseconds.tolist()
    ]


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
