"""Reservations that were taken back, and jobs that were cancelled, in the tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.spark.histories.test_histories import Log, made_of, runs_in


def begun() -> Log:
    return Log().at(0, "start").at(1, "put").reserve(2)


def returned(log: Log, second: float, delay_s: int = 0) -> Log:
    """Connection 7 returns the job."""
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
