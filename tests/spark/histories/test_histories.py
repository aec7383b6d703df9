"""The tables that numpy makes of records are those that a person with a pencil would make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from binlog_tools.spark.histories.attempts import attempts_of
from binlog_tools.spark.histories.entries import LASTS, MINUTE_NS, entries_of, rounded
from binlog_tools.spark.histories.entries import SCHEMA as ENTRIES
from binlog_tools.spark.histories.lifetimes import lifetimes_of
from binlog_tools.spark.histories.minutes import all_minutes
from binlog_tools.spark.histories.starts import Starts, merged, starts_table
from binlog_tools.spark.histories.stays import stays_of
from binlog_tools.spark.histories.workers import workers_of
from tests.spark.tables import oracle, queue_model

Row = dict[str, Any]
JUST_BEFORE_MIDNIGHT_NS = queue_model.EPOCH_NS + 11 * 3600 * queue_model.NS


def servers_of(seeds: Iterable[int]) -> dict[str, list[Row]]:
    """Histories that begin in the last hour of a day."""
    made = {}
    for seed in seeds:
        rows = queue_model.history(seed, JUST_BEFORE_MIDNIGHT_NS)
        if rows:
            made[rows[0]["server"]] = rows
    return made


def in_order(events: pa.Table) -> pa.Table:
    """Job by job."""
    return events.sort_by(
        [("job", "ascending"), ("server", "ascending"), ("lsn", "ascending")]
    ).combine_chunks()


def assert_same(table: pa.Table, expected: Iterable[Row], key: Sequence[str]) -> None:
    """
    Percentiles of whole numbers may differ by the last one: they are interpolated with floats.
    """
    got = {tuple(row[name] for name in key): row for row in table.to_pylist()}
    want = {tuple(row[name] for name in key): row for row in expected}
    assert len(got) == table.num_rows
    assert got.keys() == want.keys()
    for place, row in want.items():
        found = {name: got[place][name] for name in row}
        for name, value in row.items():
            if "_p" in name and value is not None and abs(found[name] - value) <= 1:
                found[name] = value
        assert found == row, place


def of_each(servers: dict[str, list[Row]], table: Callable[..., Iterator[Row]]) -> list[Row]:
    """The rows that a function of the oracle has of each server's history."""
    return [
        {"server": name, **row}
        for name, rows in servers.items() for row in table(oracle.Server(rows))
    ]  # fmt: skip


def _check(seeds: Iterable[int]) -> None:
    servers = servers_of(seeds)
    events = queue_model.table([row for rows in servers.values() for row in rows])
    starts = Starts(starts_table(events))
    stays = stays_of(in_order(events), starts)
    attempts = attempts_of(stays)
    assert_same(lifetimes_of(stays), of_each(servers, oracle.lifetimes), ("server", "job"))
    assert_same(
        attempts, of_each(servers, oracle.attempts), ("server", "job", "revivals", "attempt")
    )
    assert_same(
        workers_of(attempts), of_each(servers, oracle.workers),
        ("server", "incarnation", "connection"),
    )  # fmt: skip
    minutes = all_minutes(entries_of(stays), starts.last_ns)
    seconds = pa.compute.divide(minutes["minute"].cast(pa.int64()), 1_000_000)
    minutes = minutes.set_column(2, "minute", seconds)
    assert_same(minutes, of_each(servers, oracle.tube_minutes), ("server", "tube", "minute"))


def test_the_tables_are_what_the_records_say() -> None:
    _check(range(1, 6, 2))


@pytest.mark.exhaustive
def test_the_tables_are_what_the_records_of_many_servers_say() -> None:
    _check(range(1000, 1160))


def test_of_no_records_the_tables_are_empty() -> None:
    events = queue_model.table([])
    starts = Starts(merged([starts_table(events)]))
    stays = stays_of(events, starts)
    assert lifetimes_of(stays).num_rows == attempts_of(stays).num_rows == 0
    assert workers_of(attempts_of(stays)).num_rows == 0
    assert all_minutes(entries_of(stays), starts.last_ns).num_rows == 0


def test_what_no_job_did_and_columns_of_tags_may_be_missing() -> None:
    rows = queue_model.history(3)
    events = in_order(queue_model.table(rows))
    starts = Starts(starts_table(events))
    more = [{**rows[0], "event": name, "job": None} for name in ("damage", "key", "start")]
    with_others = pa.concat_tables([events, queue_model.table(more)])
    assert lifetimes_of(stays_of(with_others, starts)) == lifetimes_of(stays_of(events, starts))
    plain = events.drop_columns(["dead_from", "origin", "dead_at_ns"])
    assert lifetimes_of(stays_of(plain, starts))["deaths"].unique().to_pylist() == [0]


def test_parts_of_the_starts_are_the_starts() -> None:
    events = queue_model.table(queue_model.history(5))
    whole = merged([starts_table(events)])
    parts = [starts_table(events.slice(at, 7)) for at in range(0, events.num_rows, 7)]
    key = [("server", "ascending"), ("incarnation", "ascending")]
    assert merged(parts).sort_by(key) == whole.sort_by(key)


def test_lengths_keep_three_digits() -> None:
    import numpy as np

    told = [0, 7, 999, 1000, 1001, 12_345, 99_999, 10**18 + 1, -12_345]
    assert rounded(np.array(told)).tolist() == [
        0, 7, 999, 1000, 1000, 12_300, 99_900, 10**18, -12_300
    ]  # fmt: skip


def test_a_wait_that_lasts_counts_up_to_the_last_moment() -> None:
    since_ns = 10 * queue_model.NS
    entries = pa.table({
        "server": ["s", "s"], "tube": ["t", "t"], "minute": [0, 0], "kind": ["ready", "oldest"],
        "slot": [0, LASTS], "value": [1, since_ns],
    }, ENTRIES)  # fmt: skip
    for last_ns, lengths in (
        (MINUTE_NS + 5 * queue_model.NS, [50, 55]),
        (2 * MINUTE_NS - 1, [50, 109.999999999]),
        (2 * MINUTE_NS, [50, 110, 110]),
    ):
        found = all_minutes(entries, {"s": last_ns})["oldest_ns"].to_pylist()
        assert found == [round(length * queue_model.NS) for length in lengths]
