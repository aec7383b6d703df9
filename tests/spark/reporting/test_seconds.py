"""Short histories have steps of seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlog_tools.spark.reporting.readings import Selection, read
from binlog_tools.spark.reporting.sections import content_of
from binlog_tools.spark.reporting.series import Flow, Period
from tests.spark.reporting.some_tables import (
    START_S,
    attempt,
    lifetimes,
    minute,
    write,
    write_attempts,
    write_minutes,
)

RUNS = [
    attempt(0.5, 1.5, wait_ns=250_000_000), attempt(1, 4, ended_by="ttr-expired"),
    attempt(1.2, 3, tube="other", ended_by="release"), attempt(2, None),
    attempt(2, 3, ended_by="restart"), attempt(None, 3, ended_by="bury"),
]  # fmt: skip


def flow_of(place: Path, minutes: int, period: Period | None = None) -> Flow:
    tubes = ("mail", "other")
    write_minutes(place, (minute(60 * at, tube, puts=1) for at in range(minutes) for tube in tubes))
    write(place / "lifetimes", lifetimes(
        ("done", None, None, None), ("alive", None, None, None), ("alive", None, None, 9),
    ))  # fmt: skip
    write_attempts(place, RUNS)
    flow = read(Selection(str(place), None, period or Period())).flow
    assert flow is not None
    return flow


def test_they_count_what_happened_in_each(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, 2)
    assert flow.fine is not None
    whole, tubes = flow.fine
    assert (whole.width, whole.start, whole.count) == (1, START_S, 120)
    counted = {name: whole.numbers[name][0, :5].tolist() for name in whole.numbers}
    assert counted["puts"] == [2, 0, 0, 0, 0], "of the third job the put is not in the log"
    assert counted["deletes"] == [0, 0, 1, 0, 0]
    assert counted["reserves"] == [1, 2, 2, 0, 0]
    assert counted["timeouts"] == [0, 0, 0, 0, 1]
    assert counted["releases"] == counted["buries"] == [0, 0, 0, 1, 0]
    # What a restart has ended, and what began before the log does, has no length.
    assert whole.runs.counts(5).tolist() == [0, 1, 0, 1, 1]
    assert whole.waits.percentiles([0.5], 1).tolist() == [[250_000_000]]
    assert tubes.names == ["mail", "other"]
    assert tubes.numbers["releases"].sum(axis=1).tolist() == [0, 1]


def test_a_period_cuts_them(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, 2, Period(START_S, START_S + 2))
    assert flow.fine is not None
    assert flow.fine[0].numbers["reserves"].sum() == 3


@pytest.mark.parametrize(("minutes", "width"), [(749, 30), (750, None)])
def test_a_history_with_room_for_minutes_only_has_none(
    tmp_path: Path, minutes: int, width: int | None
) -> None:
    flow = flow_of(tmp_path, minutes)
    assert (flow.fine and flow.fine[0].width) == width


def test_the_page_has_each_number_in_one_of_both(tmp_path: Path) -> None:
    write_minutes(tmp_path, [minute(0, puts=1, ready=1)])
    write(tmp_path / "lifetimes", lifetimes(("alive", None, None, None)))
    write_attempts(tmp_path, RUNS[:1])
    (period,) = content_of(read(Selection(str(tmp_path))), "x").periods
    assert set(period["whole"]["numbers"][0]) == {"ready"}
    fine = period["fine"]["whole"]
    assert {"puts", "run_p95"} <= set(fine["numbers"][0]) and fine["width"] == 1
