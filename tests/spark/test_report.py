"""
The report is a page of its own, that says what the tables say; without Spark.
"""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

pytest.importorskip("matplotlib")

from binlog_tools.cli.exits import CANNOT_READ
from binlog_tools.spark.definitions.wholeness import SUCCESS
from binlog_tools.spark.report import TITLE, command
from binlog_tools.spark.reporting.figures import ready_by_tube, seconds_text
from binlog_tools.spark.reporting.page import as_page
from binlog_tools.spark.reporting.readings import OTHERS, ROWS, TUBES, percentile, read
from binlog_tools.spark.reporting.sections import content_of

START_S = 1_763_942_400  # A Monday.
TITLES = (
    "Jobs in the queue", "Waiting for a worker", "Arrivals and throughput", "How long it takes",
    "Hours of the week", "Tubes", "Dead letters", "Jobs that fail again and again", "Workers",
)  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """
    Two servers, ten tubes with awkward names, three days, one row in ten minutes.
    """
    tubes = ["mail & <more>", "_hidden$", *(f"tube{number}" for number in range(8))]
    minutes = [
        {
            "server": server, "tube": tube, "minute": (START_S + at * 600) * 1_000_000,
            "puts": 3 if at < 144 else 0, "reserves": 2 + (tube == "tube0"), "deletes": 2,
            "timeouts": 1, "releases": 0, "buries": 0, "kicks": 0, "disconnects": 0,
            "ready": at, "reserved": 1, "delayed": 0, "buried": 2, "oldest_ns": at * 1_000_000_000,
            "wait_histogram": [(1_000_000, 3), (2_000_000_000, 1)], "run_histogram": [],
        }
        for server in ("a" * 32, "b" * 32) for tube in tubes for at in range(432)
    ]  # fmt: skip
    schema = pa.schema(
        [(name, pa.int64()) for name in minutes[0] if name not in ("server", "tube", "minute")]
    )
    schema = pa.schema([
        ("server", pa.string()), ("tube", pa.string()), ("minute", pa.timestamp("us", "UTC")),
        *(
            (field.name, pa.map_(pa.int64(), pa.int64())) if "histogram" in field.name else field
            for field in schema
        ),
    ])  # fmt: skip
    _write(tmp_path / "tube_minutes", pa.Table.from_pylist(minutes, schema))
    ends = {"timeouts": 4, "releases": 1, "buries": 0, "disconnects": 0}
    _write(tmp_path / "lifetimes", lifetimes(
        ("alive", None, None, None), ("done", None, None, None), ("done", "t", "expired", 9),
        *(("dead", "mail & <more>", "max-reserves", 60 * at) for at in (7, 3, 5)),
        ("dead", "mail & <more>", "expired", 60),
        *(("alive", None, None, None) for _ in range(2000)),
        ("dead", "mail & <more>", "max-reserves", 0),
    ))  # fmt: skip
    _write(tmp_path / "poison", pa.Table.from_pylist([
        {"tube": "mail & <more>", "fingerprint": None if at == 3 else f"{at:016x}", "jobs": 2,
         "failures": at, **ends, "alive": 1, "example_server": "a" * 32, "example_job": 1234567}
        for at in range(30)
    ]))  # fmt: skip
    _write(tmp_path / "workers", pa.Table.from_pylist([
        {"server": "a" * 32, "incarnation": 1, "connection": at, "jobs": 2, "runs": 3,
         "busy_ns": at * 10**9, "deletes": 1, **ends, "lost": 0} for at in range(20)
    ]))  # fmt: skip
    return tmp_path


def lifetimes(*jobs: tuple[str, str | None, str | None, int | None]) -> pa.Table:
    """
    A table of jobs: what became of them, the tube that they died in, why, and how long after the
    start, seconds.
    """
    outcomes, tubes, reasons, deaths = zip(*jobs, strict=True)
    micros = [None if at is None else (START_S + at) * 1_000_000 for at in deaths]
    return pa.table({
        "outcome": outcomes, "dead_from": pa.array(tubes, pa.string()),
        "dead_reason": pa.array(reasons, pa.string()),
        "dead_at": pa.array(micros, pa.timestamp("us", "UTC")),
    })  # fmt: skip


def _write(folder: Path, table: pa.Table) -> None:
    folder.mkdir()
    pq.write_table(table, folder / "part.parquet", row_group_size=1000)
    (folder / SUCCESS).touch()


@pytest.mark.exhaustive
def test_the_page_is_whole_and_the_same_each_time(tables: Path, tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        result = CliRunner().invoke(command, [str(tables), "-o", str(tmp_path / name)])
        assert result.exit_code == 0, result.output
        assert result.output == f"report: written to {tmp_path / name}\n"
    page = (tmp_path / "one.html").read_text()
    assert page == (tmp_path / "two.html").read_text()

    root = ET.fromstring(page.partition("\n")[2])
    assert tuple(title.text for title in root.iter("h2")) == TITLES
    assert "<script" not in page
    assert set(re.findall(r'([\w:]+)="https?:', page)) <= {"xmlns", "xmlns:xlink"}
    assert not re.findall(r"@import|url\((?!#)", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    assert sum(1 for _ in root.iter("details")) == len(TITLES)
    assert "mail &amp; &lt;more&gt;" in page


def test_the_page_can_be_read_and_its_ids_can_be_copied(tables: Path) -> None:
    page = as_page(content_of(read(tables), TITLE))
    assert "2025-11-24 00:00 to 2025-11-27 00:00 UTC" in page
    assert "<td>1234567</td>" in page
    # Below what has no figure the numbers are what there is to see.
    shown = [part for part in page.split("<section>")[1:] if '<details open="open">' in part]
    assert ["<h2>Tubes</h2>" in shown[0], "<h2>Dead letters</h2>" in shown[1]] == [True, True]
    assert len(shown) == 2


@pytest.mark.exhaustive
def test_dead_letters_are_listed_by_tube_and_reason(tables: Path) -> None:
    page = as_page(content_of(read(tables), TITLE))
    part = page.partition("<h2>Dead letters</h2>")[2].partition("</section>")[0]
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", part)]
    assert [row for row in rows if row] == [
        ["mail &amp; &lt;more&gt;", "max-reserves", "4", "2025-11-24 00:00:00",
         "2025-11-24 00:07:00"],
        ["mail &amp; &lt;more&gt;", "expired", "1", "2025-11-24 00:01:00", "2025-11-24 00:01:00"],
    ]  # fmt: skip


def test_tables_of_earlier_versions_have_no_dead_letters(tmp_path: Path) -> None:
    _write(tmp_path / "lifetimes", pa.table({"outcome": ["alive", "done"]}))
    readings = read(tmp_path)
    assert (readings.outcomes, readings.dead) == ({"alive": 1, "done": 1}, {})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (0.002, "2 ms"), (30, "30 s"), (60, "1 min"), (1770, "29.5 min"), (7200, "2 h"),
     (86_400, "1 d")],
)  # fmt: skip
def test_lengths_are_in_the_units_people_count_in(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_an_axis_of_counts_of_nothing_has_no_fractions(tables: Path) -> None:
    series = read(tables).series
    assert series is not None
    nothing = {tube: np.zeros_like(depth) for tube, depth in series.by_tube.items()}
    figure = ready_by_tube(dataclasses.replace(series, by_tube=nothing))
    noughts = re.findall(r">0</text>", figure)
    assert len(noughts) == 1


def test_the_numbers_are_those_of_the_tables(tables: Path) -> None:
    readings = read(tables)
    series = readings.series
    assert series is not None and series.width == 15
    assert sum(series.flow["puts"]) == 2 * 10 * 144 * 3
    assert len(series.by_tube) == TUBES + 1 and list(series.by_tube)[-1] == OTHERS
    assert next(iter(series.by_tube)) == "tube0"
    assert readings.hours.sum() == readings.hours[0].sum() == 2 * 10 * 144 * 3
    assert np.all(readings.hours[0] == 2 * 10 * 6 * 3)
    assert readings.waits == {1_000_000: 3 * 8640, 2_000_000_000: 8640}
    assert readings.oldest_ns == 431 * 10**9
    assert readings.outcomes == {"alive": 2001, "done": 2, "dead": 5}
    assert [row["failures"] for row in readings.poison] == list(range(29, 29 - ROWS, -1))
    assert readings.worker_count == 20


def test_the_depth_of_a_step_is_that_of_its_last_minute(tables: Path) -> None:
    series = read(tables).series
    assert series is not None
    # The last minute of all is a row; of the steps before, only every third ends in a row.
    assert series.depth["ready"][-1] == 2 * 10 * 431


def test_percentiles_are_taken_of_histograms() -> None:
    histogram = {5: 1, 10: 97, 70: 1, 900: 1}
    assert [percentile(histogram, share) for share in (0.01, 0.5, 0.98, 0.99, 1)] == [
        5, 10, 10, 70, 900,
    ]  # fmt: skip
    assert percentile({}, 0.5) is None


def test_its_tables_are_written_as_json_beside_the_page(tables: Path, tmp_path: Path) -> None:
    page, numbers = tmp_path / "r.html", tmp_path / "r.json"
    result = CliRunner().invoke(command, [str(tables), "-o", str(page), "-o", str(numbers)])
    assert result.stdout == f"report: written to {page}, {numbers}\n"
    written = json.loads(numbers.read_text())
    assert page.read_text().startswith("<!DOCTYPE html>") and written["title"] == TITLE
    assert [table["title"] for table in written["tables"]] == list(TITLES)
    assert all(len(row) == len(table["head"]) for table in written["tables"]
               for row in table["rows"])  # fmt: skip
    poison = written["tables"][7]
    assert poison["rows"][0][poison["head"].index("failures")] == 29
    assert ["5", "dead letters"] in written["tiles"]


def test_missing_tables_are_left_out(tables: Path, tmp_path: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (tables / "workers").rename(only / "workers")
    page = as_page(content_of(read(only), TITLE))
    assert page.count("<section>") == 1
    assert "<h2>Workers</h2>" in page


def test_of_a_table_that_is_missing_nothing_is_said_but_that_it_is(
    tables: Path, tmp_path: Path
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (tables / "workers").rename(only / "workers")
    result = CliRunner().invoke(command, [str(only), "-o", str(tmp_path / "r.html")])
    assert result.exit_code == 0
    assert result.stderr.startswith(f"report: {only} lacks tube_minutes, lifetimes, poison: ")
    page = (tmp_path / "r.html").read_text()
    assert "Not there, and so not shown: tube_minutes, lifetimes, poison." in page
    assert "jobs put" not in page and "0 servers" not in page
    assert "worker connections" in page


@pytest.mark.parametrize("sign", ["_unfinished", "tube_minutes/_SUCCESS", "workers/_temporary"])
def test_of_tables_that_are_not_whole_nothing_is_reported(
    tables: Path, tmp_path: Path, sign: str
) -> None:
    if sign.endswith(SUCCESS):
        (tables / sign).unlink()
    else:
        (tables / sign).mkdir()
    result = CliRunner().invoke(command, [str(tables), "-o", str(tmp_path / "r.html")])
    assert result.exit_code == CANNOT_READ
    assert result.stderr.count("\n") == 1 and "--mode overwrite" in result.stderr
    assert not (tmp_path / "r.html").exists()


def test_a_table_that_is_whole_and_empty_says_0(tmp_path: Path) -> None:
    (tmp_path / "tube_minutes").mkdir()
    (tmp_path / "tube_minutes" / SUCCESS).touch()
    page = as_page(content_of(read(tmp_path), TITLE))
    assert "<b>0</b><span>jobs put</span>" in page
    assert "0 servers, 0 tubes" in page


@pytest.mark.exhaustive
def test_what_is_wrong_is_said_in_one_line(tables: Path, tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    (broken / "workers").mkdir(parents=True)
    empty.mkdir()
    pq.write_table(pa.table({"jobs": [1]}), broken / "workers" / "x.parquet")
    (broken / "workers" / SUCCESS).touch()
    for wrong, said in ((empty, "none of the tables"), (broken, "no column incarnation")):
        result = CliRunner().invoke(command, [str(wrong), "-o", str(tmp_path / "r.html")])
        assert result.exit_code == CANNOT_READ
        assert said in result.stderr and result.stderr.count("\n") == 1
    result = CliRunner().invoke(command, [str(tables), "-o", str(tmp_path / "no" / "r.html")])
    assert result.exit_code == CANNOT_READ
    assert "No such file" in result.stderr
