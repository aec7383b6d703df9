"""Histograms by group give what the lengths themselves would."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_tools.spark.reporting import series as module
from binlog_tools.spark.reporting.series import SLOTS, Lengths, lengths_of, slots_of

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
