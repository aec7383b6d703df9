"""Times, sizes, ids and LSNs as people write them."""

from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlog_tools.logs.quantities import (
    MAX_NUMBER,
    NS,
    Numbers,
    Span,
    format_duration,
    format_size,
    format_time,
    id_range,
    parse_duration,
    parse_lsns,
    parse_numbers,
    parse_size,
    parse_time,
    spans_of,
)

NOW = 1_763_640_000 * NS


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-11-20T12:00:00Z", NOW), ("2025-11-20T12:00Z", NOW),
        ("2025-11-20T13:00:00+01:00", NOW), ("2025-11-20 12:00:00.000001Z", NOW + 1000),
        ("now", NOW), ("-2h", NOW - 7200 * NS), ("2h", NOW - 7200 * NS),
        ("-1d12h", NOW - 129_600 * NS), ("-1.5s", NOW - 1_500_000_000),
        ("1763640000", NOW), ("1763640000.5", NOW + NS // 2), (str(NOW + 7), NOW + 7), ("0", 0),
    ],
)  # fmt: skip
def test_a_time_may_be_written_in_many_ways(text: str, moment: int) -> None:
    assert parse_time(text, NOW) == moment


def test_a_time_without_a_zone_is_local() -> None:
    moment = datetime(2025, 11, 20, 12).astimezone()
    assert parse_time("2025-11-20T12:00", NOW) == int(moment.timestamp()) * NS
    assert parse_time("2025-11-20", NOW) == int(datetime(2025, 11, 20).timestamp()) * NS


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2025-13-01", "-2", "2 h", "9999-01-01T00:00Z", "-99999w", "1e9"]
)
def test_what_is_no_time_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text, 0)


@pytest.mark.parametrize("moment", [0, NOW, NOW + 123_456_000, -NS])
def test_a_formatted_time_reads_as_itself(moment: int) -> None:
    assert parse_time(format_time(moment), NOW) == moment


def test_a_time_is_shown_in_utc() -> None:
    assert format_time(NOW + 999_999_999) == "2025-11-20T12:00:00.999999Z"


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0ms"), (250_000_000, "250ms"), (NS, "1s"), (904 * NS, "15m4s"), (3600 * NS, "1h"),
     (93_784 * NS, "1d2h"), (604_800 * NS, "1w"), (-5 * NS, "-5s"), (3601 * NS, "1h")],
)  # fmt: skip
def test_a_length_of_time_is_shown_by_its_two_largest_units(length: int, text: str) -> None:
    assert format_duration(length) == text


@pytest.mark.parametrize("text", ["", "5", "5x", "h", "1h30", "1h 30m"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("65536", 65_536), ("64k", 65_536), ("64KiB", 65_536), ("64 KB", 65_536),
     ("1M", 1 << 20), ("1g", 1 << 30), ("12b", 12)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5M", "1T", "1 k k"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (3 << 39, "1.5 TiB"),
     (5 << 50, "5120.0 TiB")],
)  # fmt: skip
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


def test_ids_are_lists_and_ranges() -> None:
    numbers = Numbers(parse_numbers("7, 9,20-29"))
    chosen = [number for number in range(40) if number in numbers]
    assert chosen == [7, 9, *range(20, 30)]
    assert MAX_NUMBER in Numbers(parse_numbers(str(MAX_NUMBER)))
    above = Numbers(parse_numbers("3,201-"))
    assert [n in above for n in (3, 200, 201, MAX_NUMBER)] == [True, False, True, True]


@pytest.mark.parametrize(
    "text", ["", "x", "1,", "9-1", "-5", "0-", "-", str(MAX_NUMBER + 1), "1-2-3", "٣"]
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ValueError):
        parse_numbers(text)


@pytest.mark.parametrize(
    ("text", "span"),
    [("5", Span(5, 5)), ("5..9", Span(5, 9)), ("5..", Span(5, MAX_NUMBER)), ("..9", Span(0, 9)),
     ("..", Span(0, MAX_NUMBER))],
)  # fmt: skip
def test_lsns(text: str, span: Span) -> None:
    assert parse_lsns(text) == span


@pytest.mark.parametrize("text", ["", "9..5", "a..b", "5-9"])
def test_what_is_no_range_of_lsns(text: str) -> None:
    with pytest.raises(ValueError):
        parse_lsns(text)


def test_a_span_reads_well() -> None:
    assert (str(Span(5, 5)), str(Span(5, 9))) == ("5", "5 to 9")


@given(st.sets(st.integers(1, 200)))
def test_ids_as_ranges_are_the_same_ids(ids: set[int]) -> None:
    spans = spans_of(ids)
    assert sum(span.last - span.first + 1 for span in spans) == len(ids)
    text = ",".join(map(id_range, spans))
    numbers = Numbers(parse_numbers(text)) if text else Numbers([])
    assert {n for n in range(1, 202) if n in numbers} == ids
    assert all(one.last + 1 < two.first for one, two in pairwise(spans))
