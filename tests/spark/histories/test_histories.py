"""The tables that numpy makes of records are those that a person with a pencil would make."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from binlog_tools.spark.histories.counters import LASTS, MINUTE_NS, counters_of
from binlog_tools.spark.histories.counters import SCHEMA as ENTRIES
from binlog_tools.spark.histories.failing import (
    FAILURES,
    MARKS,
    failing_of,
    marked,
    poison_of,
    readable,
    unmarked,
)
from binlog_tools.spark.histories.intervals import intervals_of
from binlog_tools.spark.histories.lifetimes import attempts_of, lifetimes_of, workers_of
from binlog_tools.spark.histories.minutes import all_minutes as minutes_by_day
from binlog_tools.spark.histories.records import Starts, merged_starts, starts_table
from binlog_tools.spark.histories.tables import TUBE_MINUTES
from tests.spark.tables import oracle, queue_model


def begun() -> Log:
    return Log().at(0, "start").at(1, "put").reserve(2)


def returned(log: Log, second: float, delay_s: int = 0) -> Log:
    deadline_ns = log.begun_ns + round((second + delay_s) * 1e9) if delay_s else 0
    return log.at(
        second, "release", state="delayed" if delay_s else "ready", connection=7,
        reserves=log.job.reserves - 1, deadline_ns=deadline_ns, dead_reason="returned",
    )  # fmt: skip


def test_a_run_that_was_returned_has_the_number_of_the_next_one() -> None:
    log = returned(begun(), 5).reserve(9).at(12, "delete", dead_reason="client")
    tables = made_of(log)
    assert runs_in(tables) == [("return", 3, 1), ("delete", 3, 4)]
    assert [row["attempt"] for row in tables["attempts"]] == [1, 1]
    (job,) = tables["lifetimes"]
    assert (job["outcome"], job["attempts"], job["releases"]) == ("done", 1, 0)
    assert (job["waits"], job["wait_ns"], job["run_ns"]) == (2, 5 * 10**9, 6 * 10**9)


def test_a_run_that_was_returned_is_no_release_of_its_minute() -> None:
    rows = made_of(returned(begun(), 5))["tube_minutes"]
    assert [(row["reserves"], row["releases"], row["ready"]) for row in rows] == [(1, 0, 1)]


def test_a_returned_job_waits_from_the_end_of_its_delay() -> None:
    assert runs_in(made_of(returned(begun(), 5, 10).reserve(18))) == [
        ("return", 3, 1), (None, None, 3)
    ]  # fmt: skip


def test_a_run_of_which_only_its_return_is_known_is_one() -> None:
    log = Log().at(0, "start").at(1, "put")
    log.job = replace(log.job, reserves=1)
    tables = made_of(returned(log, 5).reserve(9))
    assert runs_in(tables) == [("return", None, None), (None, None, 4)]
    assert [row["attempt"] for row in tables["attempts"]] == [1, 1]


def test_many_returns_and_releases_keep_their_order() -> None:
    log = returned(returned(begun(), 3).reserve(4), 5).reserve(6)
    log.at(7, "release", dead_reason="client")
    tables = made_of(returned(log.reserve(8), 9).reserve(10))
    ends = [(row["attempt"], row["ended_by"]) for row in tables["attempts"]]
    assert ends == [(1, "return"), (1, "return"), (1, "release"), (2, "return"), (2, None)]


@pytest.mark.parametrize("connection", [7, 8])
def test_a_run_that_was_cancelled_ended_then(connection: int) -> None:
    log = begun().at(5, "delete", connection=connection, dead_reason="cancelled")
    tables = made_of(log)
    assert runs_in(tables) == [("cancel", 3, 1)]
    (job,) = tables["lifetimes"]
    assert (job["outcome"], job["state"]) == ("cancelled", "gone")


def test_a_job_that_nobody_had_is_cancelled_too() -> None:
    log = Log().at(0, "start").at(1, "put").at(5, "delete", connection=8, dead_reason="cancelled")
    (job,) = made_of(log)["lifetimes"]
    assert (job["outcome"], job["wait_ns"]) == ("cancelled", 4 * 10**9)


def _marks(rows: list[Row], wanted: dict[str, set[int]]) -> pa.Table:
    found = [
        {"server": row["server"], "lsn": row["lsn"], "fingerprint": oracle.fingerprint(row["body"]),
         "sample": readable(row["body"])}
        for row in rows if row["lsn"] in wanted.get(row["server"], ()) and row["body"] is not None
    ]  # fmt: skip
    return pa.Table.from_pylist(found, MARKS)


@pytest.mark.parametrize("failures", [2, FAILURES])
def test_kinds_are_what_the_records_say_and_may_be_counted_in_parts(failures: int) -> None:
    rows = [row for part in servers_of(range(1, 12)).values() for row in part]
    failing = failing_of(in_order(queue_model.table(rows)), failures)
    wanted = {server: set(lsns.tolist())
              for server, lsns in unmarked(failing, MARKS.empty_table()).items()}  # fmt: skip
    marks = _marks(rows, wanted)
    jobs = marked(failing, marks)
    dice = random.Random(failures)
    mixed = jobs.take(pa.array(dice.sample(range(jobs.num_rows), jobs.num_rows)))
    for each in (jobs, mixed):
        found = poison_of(each)
        assert_same(found, oracle.poison(rows, failures), ("tube", "fingerprint"))
    assert not unmarked(failing, marks.filter(pa.array([True] * marks.num_rows)))


def test_of_jobs_without_bodies_there_is_one_kind_a_tube() -> None:
    rows = [{**row, "body": None} for part in servers_of((3, 5)).values() for row in part]
    failing = failing_of(in_order(queue_model.table(rows)), 1)
    found = poison_of(marked(failing, MARKS.empty_table()))
    assert found.num_rows == len(set(found["tube"].to_pylist())) > 1
    assert found["fingerprint"].null_count == found.num_rows
    assert poison_of(marked(failing[:0], MARKS.empty_table())).num_rows == 0


Row = dict[str, Any]
JUST_BEFORE_MIDNIGHT_NS = queue_model.EPOCH_NS + 11 * 3600 * queue_model.NS


def all_minutes(counters: pa.Table, last_ns: Mapping[str, int]) -> pa.Table:
    return pa.concat_tables([TUBE_MINUTES.empty_table(), *minutes_by_day(counters, last_ns)])


def servers_of(seeds: Iterable[int]) -> dict[str, list[Row]]:
    made = {}
    for seed in seeds:
        rows = queue_model.history(seed, JUST_BEFORE_MIDNIGHT_NS)
        if rows:
            made[rows[0]["server"]] = rows
    return made


def in_order(events: pa.Table) -> pa.Table:
    return events.sort_by(
        [("job", "ascending"), ("server", "ascending"), ("lsn", "ascending")]
    ).combine_chunks()


def assert_same(table: pa.Table, expected: Iterable[Row], key: Sequence[str]) -> None:
    """Percentiles of whole numbers may differ by the last one: they are interpolated with
    floats.
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
    return [
        {"server": name, **row}
        for name, rows in servers.items() for row in table(oracle.Server(rows))
    ]  # fmt: skip


def _check(seeds: Iterable[int]) -> None:
    servers = servers_of(seeds)
    events = queue_model.table([row for rows in servers.values() for row in rows])
    starts = Starts(starts_table(events))
    intervals = intervals_of(in_order(events), starts)
    attempts = attempts_of(intervals)
    assert_same(lifetimes_of(intervals), of_each(servers, oracle.lifetimes), ("server", "job"))
    assert_same(
        attempts, of_each(servers, oracle.attempts), ("server", "job", "revivals", "attempt")
    )
    assert_same(
        workers_of(attempts), of_each(servers, oracle.workers),
        ("server", "incarnation", "connection"),
    )  # fmt: skip
    minutes = all_minutes(counters_of(intervals), starts.last_ns)
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
    starts = Starts(merged_starts([starts_table(events)]))
    intervals = intervals_of(events, starts)
    assert lifetimes_of(intervals).num_rows == attempts_of(intervals).num_rows == 0
    assert workers_of(attempts_of(intervals)).num_rows == 0
    assert all_minutes(counters_of(intervals), starts.last_ns).num_rows == 0


def test_what_no_job_did_and_columns_of_tags_may_be_missing() -> None:
    rows = queue_model.history(3)
    events = in_order(queue_model.table(rows))
    starts = Starts(starts_table(events))
    more = [{**rows[0], "event": name, "job": None} for name in ("damage", "key", "start")]
    with_others = pa.concat_tables([events, queue_model.table(more)])
    whole = lifetimes_of(intervals_of(events, starts))
    assert lifetimes_of(intervals_of(with_others, starts)) == whole
    plain = lifetimes_of(
        intervals_of(events.drop_columns(["dead_from", "origin", "dead_at_ns", "reason"]), starts)
    )
    assert plain["deaths"].unique().to_pylist() == [0]
    assert "expired" not in plain["outcome"].to_pylist()


class Log(queue_model.Model):
    """A log in which what happens is said, and when: seconds after its beginning."""

    def __init__(self, server: str = "s") -> None:
        super().__init__(server, 0)
        self.begun_ns = self.now_ns
        self.job = queue_model.Job(1, "mail", self.now_ns, b"")

    def at(self, second: float, event: str, **changes: Any) -> Log:
        """:param changes: of the job; `connection` is also that of the record."""
        self.now_ns = self.begun_ns + round(second * queue_model.NS)
        if event == "start":
            self.incarnation += self.rows != []
        if event in ("start", "clean-stop"):
            self.log_of_server(event)
        else:
            if event == "put":
                changes["put_ns"] = self.now_ns
            self.job = replace(self.job, **{**CHANGES.get(event, {}), **changes})
            reason = changes.get("dead_reason", "none")
            self.log(event, self.job, self.job.connection, reason)
        return self

    def moment(self, second: int) -> datetime:
        at_ns = self.begun_ns + second * queue_model.NS
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1000)

    def reserve(self, second: float, ttr_s: int = 600) -> Log:  # type: ignore[override]
        reserves, deadline_ns = self.job.reserves + 1, round((second + ttr_s) * queue_model.NS)
        return self.at(second, "reserve", state="reserved", reserves=reserves, connection=7,
                       deadline_ns=self.begun_ns + deadline_ns)  # fmt: skip


CHANGES: dict[str, Row] = {
    "delete": {"state": "gone", "deadline_ns": 0},
    "ttr-expired": {"state": "ready", "deadline_ns": 0, "connection": 0, "timeouts": 1},
    "release": {"state": "ready", "deadline_ns": 0},
    "touch": {},
}


def made_of(*logs: Log) -> dict[str, list[Row]]:
    events = in_order(queue_model.table([row for log in logs for row in log.rows]))
    starts = Starts(starts_table(events))
    intervals = intervals_of(events, starts)
    minutes = all_minutes(counters_of(intervals), starts.last_ns)
    made = {"attempts": attempts_of(intervals), "lifetimes": lifetimes_of(intervals)}
    return {name: rows.to_pylist() for name, rows in {**made, "tube_minutes": minutes}.items()}


def runs_in(tables: dict[str, list[Row]]) -> list[tuple[Any, ...]]:
    return [
        (row["ended_by"], _seconds(row["run_ns"]), _seconds(row["wait_ns"]))
        for row in tables["attempts"]
    ]


def _seconds(length_ns: int | None) -> float | None:
    return None if length_ns is None else round(length_ns / queue_model.NS, 3)


def test_a_crash_on_a_quiet_queue_ends_a_run_with_the_last_record() -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2).at(5, "touch").at(16, "start").reserve(24)
    assert runs_in(made_of(log)) == [("restart", 3, 1), (None, None, 8)]


def test_a_run_that_a_crash_interrupts_is_over_though_nothing_follows_the_restart() -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2).at(16, "start")
    tables = made_of(log)
    assert runs_in(tables) == [("restart", 0, 1)]
    (job,) = tables["lifetimes"]
    assert (job["state"], _seconds(job["run_ns"]), job["since"]) == (
        "ready", 0, log.moment(16)
    )  # fmt: skip


def test_the_first_of_two_starts_without_a_job_event_ends_a_run() -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2).at(9, "start").at(11, "start").reserve(24)
    assert runs_in(made_of(log)) == [("restart", 0, 1), (None, None, 15)]


def test_a_run_ends_with_an_ordered_stop() -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2).at(9, "clean-stop")
    assert runs_in(made_of(log)) == [(None, None, 1)]
    log.at(11, "start").at(12, "clean-stop").at(15, "start").reserve(24)
    assert runs_in(made_of(log)) == [("restart", 7, 1), (None, None, 13)]


def test_a_ttr_that_ends_while_the_server_is_down_does_not_end_a_run() -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2, ttr_s=5).at(16, "start").reserve(24)
    assert runs_in(made_of(log)) == [("restart", 0, 1), (None, None, 8)]
    log = Log().at(0, "start").at(1, "put").reserve(2, ttr_s=5).at(9, "clean-stop").at(16, "start")
    assert runs_in(made_of(log)) == [("unlogged", 5, 1)]


def test_each_of_several_servers_has_restarts_of_its_own() -> None:
    quiet = Log("quiet").at(0, "start").at(1, "put").reserve(2)
    crashed = Log("crashed").at(0, "start").at(1, "put").reserve(2).at(8, "start").at(9, "start")
    for logs in ((quiet, crashed), (crashed, quiet)):
        found = {row["server"]: row["ended_by"] for row in made_of(*logs)["attempts"]}
        assert found == {"quiet": None, "crashed": "restart"}


def test_an_interrupted_job_stands_as_reserved_until_the_start() -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2).at(200, "start").at(270, "clean-stop")
    minutes = made_of(log)["tube_minutes"]
    begun = log.begun_ns // MINUTE_NS * MINUTE_NS
    restart, stop = ((log.begun_ns + second * queue_model.NS - begun) // MINUTE_NS
                     for second in (200, 270))  # fmt: skip
    assert [(row["reserved"], row["ready"]) for row in minutes] == [
        (1, 0) if minute < restart else (0, 1) for minute in range(stop + 1)
    ]


@pytest.mark.parametrize(
    ("outcome", "events"),
    [
        ("done", [("delete", {})]),
        ("done", [("ttr-expired", {}), ("delete", {"connection": 7})]),
        ("deleted", [("ttr-expired", {}), ("delete", {"connection": 8})]),
        ("deleted", [("release", {}), ("delete", {"connection": 7})]),
        ("expired", [("release", {}), ("delete", {"connection": 0, "dead_reason": "expired"})]),
    ],
)
def test_who_deleted_a_job_is_known_by_its_connection(
    outcome: str, events: list[tuple[str, Row]]
) -> None:
    log = Log().at(0, "start").at(1, "put").reserve(2)
    for second, (event, changes) in enumerate(events, 3):
        log.at(second, event, **changes)
    (job,) = made_of(log)["lifetimes"]
    assert job["outcome"] == outcome


def test_parts_of_the_starts_are_the_starts() -> None:
    events = queue_model.table(queue_model.history(5))
    whole = merged_starts([starts_table(events)])
    parts = [starts_table(events.slice(at, 7)) for at in range(0, events.num_rows, 7)]
    key = [("server", "ascending"), ("incarnation", "ascending")]
    assert merged_starts(parts).sort_by(key) == whole.sort_by(key)


def test_a_wait_that_lasts_counts_up_to_the_last_moment() -> None:
    since_ns = 10 * queue_model.NS
    counters = pa.table({
        "server": ["s", "s"], "tube": ["t", "t"], "minute": [0, 0], "kind": ["ready", "oldest"],
        "slot": [0, LASTS], "value": [1, since_ns],
    }, ENTRIES)  # fmt: skip
    for last_ns, lengths in (
        (MINUTE_NS + 5 * queue_model.NS, [50, 55]),
        (2 * MINUTE_NS - 1, [50, 109.999999999]),
        (2 * MINUTE_NS, [50, 110, 110]),
    ):
        found = all_minutes(counters, {"s": last_ns})["oldest_ns"].to_pylist()
        assert found == [round(length * queue_model.NS) for length in lengths]
