"""Days of which all jobs rest, by the files of open events."""

from __future__ import annotations

import numpy as np

from binlog_tools.spark.storing.files import File
from binlog_tools.spark.tables.server_days import ServerDay, day_of, largest_jobs, sleeping


def _file(server: str, date: str, jobs: tuple[int, int], due_ns: int | None = None) -> File:
    lows, highs = {"job": jobs[0]}, {"job": jobs[1]}
    if due_ns is not None:
        lows["due_ns"] = highs["due_ns"] = due_ns
    nulls = {"job": 0, "due_ns": int(due_ns is None)}
    told = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
    return File(f"{server}/{date}/{jobs[0]}", 1, 1, (("server", server), ("date", date)), told)


FILES = [
    _file("a", "2026-01-30", (1, 9)), _file("a", "2026-01-31", (10, 19)),
    _file("a", "2026-01-31", (20, 29)), _file("b", "2026-01-31", (1, 99), due_ns=500),
]  # fmt: skip


def test_a_day_rests_if_none_of_its_files_has_a_job_that_may_have_changed() -> None:
    early, late, other = (day_of(FILES[place]) for place in (0, 1, 3))
    assert late == ServerDay("a", "2026-01-31")
    before, at = ({"a": 10**6, "b": last_ns} for last_ns in (499, 500))
    assert sleeping(FILES, {}, before) == {early, late, other}
    assert sleeping(FILES, {}, at) == {early, late}
    assert sleeping(FILES, {"a": np.array([25])}, before) == {early, other}
    assert sleeping(FILES, {"a": np.array([9, 30])}, before) == {late, other}
    assert sleeping([], {}, {}) == set()
    for name in ("job", "due_ns"):
        nulls = {column: 0 for column in ("job", "due_ns") if column != name}
        unknown = FILES[0]._replace(statistics={**FILES[0].statistics, "nullCount": nulls})
        assert sleeping([unknown, *FILES[1:]], {}, before) == {late, other}


def test_the_largest_job_of_each_server() -> None:
    unknown = FILES[0]._replace(statistics={})
    assert largest_jobs(FILES) == {"a": 29, "b": 99}
    assert largest_jobs([unknown]) == {}
