"""The report says what the tables say; without Spark."""

from __future__ import annotations

import json
import random
import re
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from binlog_tools.cli.commands import CANNOT_READ
from binlog_tools.spark.report import TITLE, command
from binlog_tools.spark.reporting.page import MAX_PAGE_BYTES, seconds_text
from binlog_tools.spark.reporting.readings import KIND_JOBS, ROWS, Selection, read
from binlog_tools.spark.reporting.sections import Request, make
from binlog_tools.spark.reporting.series import ALWAYS, MAX_TUBES, OTHERS, Period
from binlog_tools.spark.storing import LOG
from binlog_tools.spark.tables.engines import InProcess
from binlog_tools.spark.tables.increments import update
from tests.spark.histories.test_histories import servers_of
from tests.spark.reporting import some_tables as some
from tests.spark.tables import queue_model
from tests.spark.tables.test_increments import newer_of

KEYS = ["tubes", "dead", "kinds", "workers", "marks", "hours"]
BLOCK = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return some.all_tables(tmp_path_factory.mktemp("tables"))


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [*map(str, words)])


def content_of(page: str) -> Any:
    (block,) = BLOCK.findall(page)
    return json.loads(block)


def test_the_page_holds_all_and_is_the_same_each_time(tables: Path) -> None:
    page = make(Request(str(tables), TITLE)).page
    assert page == make(Request(str(tables), TITLE)).page
    content = content_of(page)
    assert [table["key"] for table in content["tables"]] == KEYS
    assert "2025-11-24 00:00 to 2025-11-26 23:51 UTC" in content["text"]
    assert ["6", "dead letters"] in content["tiles"]


def test_nothing_of_a_log_is_markup_and_only_the_pages_own_script_may_run(tables: Path) -> None:
    page = make(Request(str(tables), f"A {some.HOSTILE}")).page
    assert page.count("<script") == 3 and page.count("</script>") == 3
    assert "<img" not in page and "\u202e" not in page and "\u2028" not in page
    assert some.HOSTILE.replace("\u202e", "\\u202e").replace("\u2028", "\\u2028") in [
        row[0] for row in content_of(page)["tables"][0]["rows"]
    ]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert policy.startswith(f"default-src 'none'; script-src {allowed}; ") and len(digests) == 2
    assert "unsafe" not in policy and "http" not in policy
    assert not re.findall(r'(?:src|href)="|@import|url\(', page)


def test_the_numbers_are_those_of_the_tables(tables: Path) -> None:
    readings = read(Selection(str(tables)))
    flow = readings.flow
    assert flow is not None and flow.whole.width == 300
    assert flow.whole.numbers["puts"].sum() == 2 * 10 * 144 * 3
    assert flow.tubes.names[0] == "tube0" and len(flow.tubes.names) == 10
    assert np.all(flow.hours[0] == 2 * 10 * 6 * 3) and flow.hours[1:].sum() == 0
    assert flow.whole.waits.regrouped(np.zeros_like).counts(1).tolist() == [4 * 8640]
    assert flow.survey.oldest_ns == 431 * 10**9
    assert readings.outcomes == {"alive": 2001, "done": 2, "dead": 5}
    assert [row["failures"] for row in readings.kinds] == list(range(29, 29 - ROWS, -1))
    assert (readings.worker_count, len(readings.marks)) == (20, 1)


def test_kinds_of_jobs_that_have_not_failed_since_the_period_began_are_left_out(
    tmp_path: Path,
) -> None:
    last = {1: some.START_S - 1, 2: some.START_S, 3: some.START_S + 600, 4: None}
    some.write(tmp_path / "poison", pa.Table.from_pylist([
        some.kind(at, last=None if when is None else datetime.fromtimestamp(when, UTC))
        for at, when in last.items()
    ]))  # fmt: skip
    found = {
        period: [row["failures"] for row in read(Selection(str(tmp_path), None, period)).kinds]
        for period in (ALWAYS, Period(some.START_S, some.START_S + 60), Period(some.START_S + 601))
    }
    assert list(found.values()) == [[4, 3, 2, 1], [4, 3, 2], [4]]


def test_the_depth_of_a_step_is_that_of_its_last_minute(tmp_path: Path) -> None:
    rows = [some.minute(60 * at, ready=at, reserved=1) for at in range(1505)]
    some.write_minutes(tmp_path, rows)
    flow = read(Selection(str(tmp_path))).flow
    assert flow is not None and flow.whole.width == 120
    # The last minute of all is the end of its step, although the step is longer.
    assert flow.whole.numbers["ready"][0, [0, 1, -1]].tolist() == [1, 3, 1504]
    assert set(flow.whole.numbers["reserved"][0].tolist()) == {1}


def test_tubes_beyond_those_that_are_shown_are_added_up(tmp_path: Path) -> None:
    count = MAX_TUBES + 2
    some.write_minutes(
        tmp_path, [some.minute(0, f"t{at:02}", puts=at + 1, ready=1) for at in range(count)]
    )
    flow = read(Selection(str(tmp_path))).flow
    assert flow is not None
    assert len(flow.tubes.names) == MAX_TUBES + 1 and flow.tubes.names[-1] == OTHERS
    assert flow.tubes.numbers["puts"][-1].sum() == 1 + 2
    assert flow.tubes.numbers["ready"][-1, 0] == 2


def test_a_step_without_a_measurement_has_none_and_a_nought_is_left_out(tmp_path: Path) -> None:
    some.write_minutes(
        tmp_path, [some.minute(0, puts=1, wait_histogram=[(2_500_000, 1)]), some.minute(60)]
    )
    content = content_of(make(Request(str(tmp_path), TITLE)).page)
    (numbers,) = content["period"]["whole"]["numbers"]
    assert numbers["wait_p95"] == [2.5, None] and numbers["puts"] == [1, 0]
    assert "deletes" not in numbers and "run_p95" not in numbers


def test_restarts_are_marked_at_their_starts_if_the_tables_have_them(tmp_path: Path) -> None:
    some.write_workers(tmp_path, [some.worker(1), some.worker(2, 4, first=90)])
    newest = [(some.START_S + at) * 10**9 for at in (90, 15, 45, 70)]
    some.write(tmp_path / "starts", pa.table({
        "server": [some.SERVER] * 4, "incarnation": [4, 1, 2, 3],
        "first_ns": [(some.START_S + at) * 10**9 for at in (80, 0, 20, 50)], "newest_ns": newest,
        "stopped_ns": pa.array([None, newest[1], None, newest[3] - 1], pa.int64()),
    }))  # fmt: skip
    found = [
        (20, "stop", "aaaaaaaa: start 2 after an ordered stop"),
        (50, "kill", "aaaaaaaa: start 3 after a kill or crash"),
        (80, "kill", "aaaaaaaa: start 4 after a kill or crash"),
    ]
    marks = read(Selection(str(tmp_path))).marks
    assert [(mark.at - some.START_S, mark.kind, mark.text) for mark in marks] == found
    period = Period(some.START_S + 20, some.START_S + 80)
    marks = read(Selection(str(tmp_path), period=period)).marks
    assert [mark.text for mark in marks] == [text for _, _, text in found[:2]]


def test_a_kind_that_fails_leads_to_its_jobs(tmp_path: Path) -> None:
    some.write(tmp_path / "poison", pa.Table.from_pylist([some.kind(30), some.kind(20)]))
    jobs = [
        {"tube": some.HOSTILE, "fingerprint": f"{mark:016x}", "server": some.SERVER, "job": at,
         "state": "buried", "failures": at, "sample": "{}",
         "last": datetime.fromtimestamp(some.START_S + at, UTC)}
        for at in range(KIND_JOBS + 3) for mark in (30, 7)
    ]  # fmt: skip
    some.write(tmp_path / "poison_jobs", pa.Table.from_pylist(jobs))
    content = content_of(make(Request(str(tmp_path), TITLE)).page)
    tables = {table["key"]: table for table in content["tables"]}
    found = [int(row[2]) for row in tables["jobs"]["rows"]]
    assert found == list(range(KIND_JOBS + 2, 2, -1))
    assert content["findings"][0]["figure"] == "jobs"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (0.002, "2 ms"), (30, "30 s"), (60, "1 min"), (1770, "29.5 min"), (7200, "2 h"),
     (86_400, "1 d")],
)  # fmt: skip
def test_lengths_are_in_the_units_people_count_in(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_its_tables_are_written_as_json_beside_the_page(tables: Path, tmp_path: Path) -> None:
    page, numbers = tmp_path / "r.html", tmp_path / "r.json"
    assert (
        run(tables, "-o", page, "-o", numbers).stdout == f"report: written to {page}, {numbers}\n"
    )
    written = json.loads(numbers.read_text())
    assert page.read_text().startswith("<!DOCTYPE html>") and written["title"] == TITLE
    assert len(written["tables"]) == len(KEYS) + 1
    assert all(
        len(row) == len(table["head"]) for table in written["tables"] for row in table["rows"]
    )
    kinds = written["tables"][2]
    assert kinds["rows"][0][kinds["head"].index("failures")] == 29
    assert "\\u202e" in kinds["rows"][0][kinds["head"].index("sample")]


def test_without_bodies_no_kinds_are_told_apart(tmp_path: Path) -> None:
    some.write(tmp_path / "poison", pa.Table.from_pylist([some.kind(5, fingerprint=None)]))
    (table,) = json.loads(make(Request(str(tmp_path), TITLE)).json)["tables"]
    assert table["title"] == "Jobs that fail again and again"
    assert "events LOG -o EVENTS --body" in table["text"]


def test_workers_that_are_not_shown_are_counted(tmp_path: Path) -> None:
    some.write_workers(tmp_path, [some.worker(at) for at in range(ROWS + 1)])
    (table,) = json.loads(make(Request(str(tmp_path), TITLE)).json)["tables"]
    assert f"{ROWS} of {ROWS + 1} connections" in table["text"]


def test_the_heading_says_which_steps_are_which(tmp_path: Path) -> None:
    some.write_minutes(tmp_path, [some.minute(0), some.minute(600)])
    assert make(Request(str(tmp_path), TITLE)).page.count("in 1-minute steps.") == 1
    some.write(tmp_path / "lifetimes", some.lifetimes(("alive", None, None, None)))
    some.write_attempts(tmp_path, [some.attempt(1, 2)])
    told = content_of(make(Request(str(tmp_path), TITLE)).page)["text"]
    assert "in 1-second steps, what stands in the queue in 1-minute steps." in told


def test_of_a_table_that_is_missing_nothing_is_said_but_that_it_is(
    tables: Path, tmp_path: Path
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (only / "workers").symlink_to(tables / "workers")
    done = run(only, "-o", tmp_path / "r.html")
    assert done.exit_code == 0
    assert done.stderr.startswith(
        f"report: {only} lacks tube_minutes, lifetimes, poison, attempts: "
    )
    content = content_of((tmp_path / "r.html").read_text())
    assert content["tiles"] == [["20", "worker connections"]]
    assert (content["text"], content["period"]) == ("", None)
    assert "tube_minutes, lifetimes, poison" in content["notes"][0]


def test_of_tables_that_are_not_whole_nothing_is_reported(tmp_path: Path) -> None:
    some.write_minutes(tmp_path, [some.minute(0)])
    some.write(tmp_path / "workers", pa.table({"jobs": [1]}))
    rmtree(tmp_path / "tube_minutes" / LOG)
    done = run(tmp_path, "-o", tmp_path / "r.html")
    assert done.exit_code == CANNOT_READ
    assert done.stderr.count("\n") == 1 and " again" in done.stderr
    assert not (tmp_path / "r.html").exists()


def test_of_tables_that_have_reached_different_records_nothing_is_reported(tmp_path: Path) -> None:
    events = queue_model.table([row for part in servers_of((9,)).values() for row in part])
    for made in update(str(tmp_path), newer_of(events.slice(0, events.num_rows // 2)), InProcess()):
        assert made
    first = run(tmp_path, "-o", tmp_path / "r.html")
    assert first.exit_code == 0, first.output
    killed = update(str(tmp_path), newer_of(events), InProcess())
    assert next(killed).name == "lifetimes"
    done = run(tmp_path, "-o", tmp_path / "again.html")
    assert done.exit_code == CANNOT_READ and "has not come to its end" in done.stderr
    assert not (tmp_path / "again.html").exists()


def test_a_table_that_is_whole_and_empty_says_that_it_has_no_row(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "tube_minutes", some.MINUTES)
    content = content_of(make(Request(str(tmp_path), TITLE)).page)
    assert content["tiles"] == []
    assert any("tube_minutes has no row" in note for note in content["notes"])


def test_what_is_wrong_is_said_in_one_line(tables: Path, tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    empty.mkdir()
    some.write(broken / "workers", pa.table({"jobs": [1]}))
    plain = tmp_path / "plain"
    (plain / "workers").mkdir(parents=True)
    (plain / "workers" / "_SUCCESS").touch()
    for wrong, said in ((empty, "none of the tables"), (broken, "there is no column"),
                        (plain, "make this one again in a new directory")):  # fmt: skip
        done = run(wrong, "-o", tmp_path / "r.html")
        assert done.exit_code == CANNOT_READ
        assert said in done.stderr and done.stderr.count("\n") == 1
    done = run(tables, "-o", tmp_path / "no" / "r.html")
    assert done.exit_code == CANNOT_READ
    assert "No such file" in done.stderr


def year_of(place: Path, tubes: int, rows: int) -> Path:
    """Tables of a year, in which no number is short and none is nought."""
    dice = random.Random(7)
    names = [f"{at:02}-{some.HOSTILE}" for at in range(tubes)]
    step = 365 * 86_400 // rows // 60 * 60
    wait = [(int(f"{each}0000000000"), 1) for each in range(101, 999, 90)]
    given: dict[str, Any] = {"wait_histogram": wait, "run_histogram": wait}
    some.write_minutes(place, (
        {**some.minute(at * step, name), **given,
         **{each: dice.randrange(10**6) for each in some.COUNTS}}
        for name in names for at in range(rows)
    ))  # fmt: skip
    return place


@pytest.mark.exhaustive
def test_the_page_of_a_year_of_fifty_tubes_is_small_enough(tmp_path: Path) -> None:
    tables = year_of(tmp_path, 50, 730)
    made = make(Request(str(tables), TITLE))
    assert 300_000 < len(made.page) <= MAX_PAGE_BYTES


def test_a_page_that_is_too_large_has_wider_steps(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make(Request(str(tables), TITLE)).page
    monkeypatch.setattr("binlog_tools.spark.reporting.sections.MAX_PAGE_BYTES", len(whole) - 1)
    smaller = content_of(make(Request(str(tables), TITLE)).page)
    assert smaller["period"]["whole"]["width"] == 600


def test_a_time_in_which_nothing_was_is_told(tables: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = run(tables, "-o", page, "--from", "2024-01-01T00:00Z", "--to", "2024-01-02T00:00Z")
    assert done.exit_code == 0 and page.exists()
    assert "has nothing in this time" in done.stderr and done.stderr.count("\n") == 1
    assert run(tables, "-o", page).stderr == ""
