"""The axis of time has steps that people count in, and no more of them than there is room for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_tools.spark.histories.counters import lengths_of, slots_of
from binlog_tools.spark.reporting import series as module
from binlog_tools.spark.reporting.page import WIDTHS, width_for, width_text
from binlog_tools.spark.reporting.readings import Selection, read
from binlog_tools.spark.reporting.sections import content_of
from binlog_tools.spark.reporting.series import SLOTS, Flow, Lengths, Period
from tests.spark.reporting import some_tables as some

RUNS = [
    some.attempt(0.5, 1.5, wait_ns=250_000_000), some.attempt(1, 4, ended_by="ttr-expired"),
    some.attempt(1.2, 3, tube="other", ended_by="release"), some.attempt(2, None),
    some.attempt(2, 3, ended_by="restart"), some.attempt(None, 3, ended_by="bury"),
]  # fmt: skip


def flow_of(place: Path, minutes: int, period: Period | None = None) -> Flow:
    tubes = ("mail", "other")
    some.write_minutes(
        place, (some.minute(60 * at, tube, puts=1) for at in range(minutes) for tube in tubes)
    )
    some.write(place / "lifetimes", some.lifetimes(
        ("done", None, None, None), ("alive", None, None, None), ("alive", None, None, 9),
    ))  # fmt: skip
    some.write_attempts(place, RUNS)
    flow = read(Selection(str(place), None, period or Period())).flow
    assert flow is not None
    return flow


def test_they_count_what_happened_in_each(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, 2)
    assert flow.fine is not None
    whole, tubes = flow.fine
    assert (whole.width, whole.start, whole.count) == (1, some.START_S, 120)
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
    flow = flow_of(tmp_path, 2, Period(some.START_S, some.START_S + 2))
    assert flow.fine is not None
    assert flow.fine[0].numbers["reserves"].sum() == 3


@pytest.mark.parametrize(("minutes", "width"), [(749, 30), (750, None)])
def test_a_history_with_room_for_minutes_only_has_none(
    tmp_path: Path, minutes: int, width: int | None
) -> None:
    flow = flow_of(tmp_path, minutes)
    assert (flow.fine and flow.fine[0].width) == width


def test_the_page_has_each_number_in_one_of_both(tmp_path: Path) -> None:
    some.write_minutes(tmp_path, [some.minute(0, puts=1, ready=1)])
    some.write(tmp_path / "lifetimes", some.lifetimes(("alive", None, None, None)))
    some.write_attempts(tmp_path, RUNS[:1])
    period = content_of(read(Selection(str(tmp_path))), "x").period
    assert period is not None
    assert set(period["whole"]["numbers"][0]) == {"ready"}
    fine = period["fine"]["whole"]
    assert {"puts", "run_p95"} <= set(fine["numbers"][0]) and fine["width"] == 1


MAPS = pa.map_(pa.int64(), pa.int64())
DIGITS = st.integers(0, 999).flatmap(
    lambda three: st.sampled_from([three * 10**power for power in (0, 1, 6, 15)])
)


def filled(rows: list[tuple[int, dict[int, int]]]) -> Lengths:
    made = Lengths()
    maps = pa.array([list(histogram.items()) for _, histogram in rows], MAPS)
    made.add(np.array([group for group, _ in rows], np.int64), maps)
    return made


@settings(max_examples=30)
@given(DIGITS, DIGITS)
def test_a_length_of_three_digits_has_a_place_of_its_own_in_order(one: int, two: int) -> None:
    places = slots_of(np.array([one, two]))
    assert lengths_of(places).tolist() == [one, two]
    assert (places[0] < places[1]) == (one < two) and max(places) < SLOTS


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.dictionaries(st.sampled_from([0, 1, 999, 1000, 55_500, 10**18]), st.integers(1, 9)),
        ),
        max_size=20,
    ),
    st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]),
)
def test_percentiles_are_those_of_the_single_lengths(
    rows: list[tuple[int, dict[int, int]]], share: float
) -> None:
    found = filled(rows)
    for group in range(4):
        single = sorted(
            length for at, histogram in rows if at == group
            for length, count in histogram.items() for _ in range(count)
        )  # fmt: skip
        (percentile,) = found.percentiles([share], 4)[:, group]
        if single:
            assert percentile == single[max(1, math.ceil(share * len(single) - 1e-9)) - 1]
        else:
            assert math.isnan(percentile)
        assert found.counts(4)[group] == len(single)


def test_groups_can_be_joined_and_left_out() -> None:
    found = filled([(0, {5: 1}), (1, {5: 2, 7: 1}), (2, {9: 4})])
    joined = found.regrouped(lambda groups: np.where(groups == 2, -1, 0))
    assert joined.counts(1).tolist() == [4]
    assert joined.percentiles([0.5, 1], 1).tolist() == [[5], [7]]


def test_a_slice_of_rows_and_a_row_without_a_histogram_are_read_as_they_are() -> None:
    maps = pa.array([[(1, 1)], None, [(2, 5)], [(3, 1)]], MAPS).slice(1, 2)
    made = Lengths()
    made.add(np.array([0, 1]), maps)
    assert made.counts(2).tolist() == [0, 5]


def test_what_is_added_up_in_between_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOOSE", 2)
    found = Lengths()
    for _ in range(5):
        found.add(np.array([0, 1]), pa.array([[(1, 1)], [(2, 2)]], MAPS))
    assert found.counts(2).tolist() == [5, 10]


DAY = 86_400


@pytest.mark.parametrize(
    ("seconds", "steps", "least", "width"),
    [(60, 1500, 1, 1), (1499, 1500, 1, 1), (1500, 1500, 1, 2), (60, 1500, 60, 60),
     (1499 * 60, 1500, 60, 60), (1499 * 60 + 1, 1500, 60, 120), (7 * DAY, 1500, 60, 600),
     (365 * DAY, 1500, 60, 21_600), (365 * DAY, 196, 60, 2 * DAY), (3650 * DAY, 1500, 60, 7 * DAY)],
)  # fmt: skip
def test_steps_fit_the_history(seconds: int, steps: int, least: int, width: int) -> None:
    assert width_for(seconds, steps, least) == width


@given(st.integers(1, 10**11), st.integers(2, 2000))
def test_wherever_it_begins_there_are_no_more_steps_than_asked_for(
    seconds: int, steps: int
) -> None:
    width = width_for(seconds, steps)
    assert -(-seconds // width) + 1 <= steps


def test_widths_are_said_in_the_largest_unit() -> None:
    assert [width_text(width) for width in (1, 30, 60, 600, 3600, 7200, DAY, 7 * DAY)] == [
        "1-second", "30-second", "1-minute", "10-minute", "1-hour", "2-hour", "1-day", "7-day",
    ]  # fmt: skip
    assert list(WIDTHS) == sorted(WIDTHS)
