"""
What stands in the report, and in which order.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from binlog_tools.spark.reporting import figures
from binlog_tools.spark.reporting.figures import seconds_text
from binlog_tools.spark.reporting.page import Content, Part, Table
from binlog_tools.spark.reporting.readings import (
    ENDS,
    STATES,
    Readings,
    Series,
    busiest,
    percentile,
)

SHARES: Final = (0.5, 0.95, 0.99)

MINUTES: Final = "tube_minutes"
"""The table that says what happened, and when; servers and tubes are known from it."""


def content_of(readings: Readings, title: str) -> Content:
    """
    All that the report says.  The same readings give the same.
    """
    return Content(title, _span_text(readings), list(_tiles(readings)), list(_parts(readings)))


def _span_text(readings: Readings) -> str:
    absent = f"Not there, and so not shown: {', '.join(readings.absent)}."
    said = [_who_text(readings)] if MINUTES not in readings.absent else []
    return ". ".join([*said, *([absent] if readings.absent else [])])


def _who_text(readings: Readings) -> str:
    count = len(readings.servers)
    who = f"{count} server{'' if count == 1 else 's'}, {len(readings.totals)} tubes"
    series = readings.series
    if series is None:
        return who
    start, last = series.times[0], series.times[-1] + timedelta(minutes=series.width)
    return f"{who}; {start:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, in {_width(series)} steps"


def _width(series: Series) -> str:
    minutes = series.width
    if minutes % 1440 == 0:
        return f"{minutes // 1440}-day"
    return f"{minutes // 60}-hour" if minutes % 60 == 0 else f"{minutes}-minute"


def _tiles(readings: Readings) -> Iterator[tuple[str, str]]:
    totals = readings.totals.values()
    if MINUTES not in readings.absent:
        yield _number(sum(total["puts"] for total in totals)), "jobs put"
        yield _number(sum(total["deletes"] for total in totals)), "jobs deleted"
    failed = sum(total[end] for total in totals for end in ENDS)
    runs = sum(total["reserves"] for total in totals)
    if runs:
        yield f"{100 * failed / runs:.1f} %", f"of {_number(runs)} runs failed"
    for name, histogram in (("wait", readings.waits), ("run", readings.runs)):
        if histogram:
            yield _length(percentile(histogram, 0.95)), f"{name}, 95 in 100 at most"
    if readings.oldest_ns:
        yield _length(readings.oldest_ns), "longest wait at a minute's end"
    if readings.outcomes:
        yield _number(readings.outcomes["alive"]), "jobs still there"
    if readings.outcomes["dead"]:
        yield _number(readings.outcomes["dead"]), "dead letters"
    if readings.worker_count:
        yield _number(readings.worker_count), "worker connections"


def _number(count: int) -> str:
    return f"{count:,}"


def _length(length_ns: int | None) -> str:
    return "-" if length_ns is None else seconds_text(length_ns / 1e9)


def _parts(readings: Readings) -> Iterator[Part]:
    if readings.series is not None:
        yield from _over_time(readings.series)
    if readings.waits or readings.runs:
        yield _durations(readings)
    if readings.hours.any():
        yield _hours(readings)
    if readings.totals:
        yield _tubes_table(readings)
    if readings.dead:
        yield _dead_letters(readings)
    if readings.poison:
        yield _poison(readings)
    if readings.workers:
        yield _workers(readings)


def _over_time(series: Series) -> Iterator[Part]:
    yield Part(
        "Jobs in the queue",
        "How many jobs there were at the end of each step, by what they were doing.",
        figures.depth(series),
        _steps(series, STATES, series.depth),
    )
    yield Part(
        "Waiting for a worker",
        "Ready jobs at the end of each step, in the tubes with most work. A line that only climbs "
        "is a tube without enough workers.",
        figures.ready_by_tube(series),
        _steps(series, series.by_tube, series.by_tube),
    )
    yield Part(
        "Arrivals and throughput",
        "Jobs put and jobs deleted, a minute on average in each step. Failed runs ended in a "
        "time-out, release, bury or lost connection.",
        figures.flow(series),
        _steps(series, ("put", "deleted", *ENDS), series.flow),
    )


def _steps(series: Series, names: Iterable[str], columns: Mapping[str, np.ndarray]) -> Table:
    times = [f"{time:%Y-%m-%d %H:%M}" for time in series.times]
    numbers = [column.tolist() for column in columns.values()]
    return Table(["from", *names], list(zip(times, *numbers, strict=True)))


def _durations(readings: Readings) -> Part:
    rows = []
    for name, histogram in (("wait", readings.waits), ("run", readings.runs)):
        lengths = [_length(percentile(histogram, share)) for share in SHARES]
        longest = _length(max(histogram) if histogram else None)
        rows.append([name, sum(histogram.values()), *lengths, longest])
    return Part(
        "How long it takes",
        "Wait: from ready to reserved. Run: from reserved to its end. Read it as: so many of 100 "
        "took no longer than this.",
        figures.durations(readings.waits, readings.runs),
        Table(["", "how many", "p50", "p95", "p99", "longest"], rows),
    )


def _hours(readings: Readings) -> Part:
    rows = [[day, *row.tolist()] for day, row in zip(figures.DAYS, readings.hours, strict=True)]
    return Part(
        "Hours of the week",
        "Jobs put, by day of the week and hour (UTC), over the whole time.",
        figures.hours(readings.hours),
        Table(["", *(f"{hour}:00" for hour in range(24))], rows),
    )


def _tubes_table(readings: Readings) -> Part:
    names = ("puts", "reserves", "deletes", *ENDS, "kicks")
    rows = [
        [tube, *(total[name] for name in names)] for tube, total in busiest(readings.totals)[:100]
    ]
    return Part(
        "Tubes",
        "What happened in each tube, the busiest first; of many the first hundred.",
        "",
        Table(["tube", *names], rows),
    )


def _dead_letters(readings: Readings) -> Part:
    rows = [
        [tube, reason, dead.jobs, _moment(dead.oldest), _moment(dead.newest)]
        for (tube, reason), dead in sorted(
            readings.dead.items(), key=lambda pair: (-pair[1].jobs, pair[0])
        )
    ]
    return Part(
        "Dead letters",
        "Jobs that were given up and are still there, by the tube that they died in and why, and "
        "when the first and the last of them died (UTC); of many the first hundred. See them: "
        "beanstalk dead TUBE. Try them again: beanstalk dead TUBE --kick.",
        "",
        Table(["tube", "reason", "jobs", "oldest", "newest"], rows[:100]),
    )


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _poison(readings: Readings) -> Part:
    names = ("jobs", "failures", *ENDS, "alive", "example_server")
    return Part(
        "Jobs that fail again and again",
        "Kinds of jobs, by tube and the fingerprint of their bodies. See one of them: "
        "binlog-inspect jobs LOG --explain JOB.",
        figures.poison(readings.poison),
        Table(
            ["tube", "fingerprint", *names, "example_job"],
            [
                [*(row[name] for name in ("tube", "fingerprint", *names)), str(row["example_job"])]
                for row in readings.poison
            ],
        ),
    )


def _workers(readings: Readings) -> Part:
    names = ("jobs", "runs", "deletes", *ENDS, "lost")
    return Part(
        "Workers",
        "How the runs of the connections that were busy longest ended: server, start of the "
        "server/connection.",
        figures.workers(readings.workers),
        Table(
            ["server", "start", "connection", "busy", *names],
            [
                [row["server"], row["incarnation"], str(row["connection"]), _length(row["busy_ns"]),
                 *(row[name] for name in names)]
                for row in readings.workers
            ],
        ),
    )  # fmt: skip
